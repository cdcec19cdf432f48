//! The mask, a layer that hides names of the project: whiteouts, files with replaced content, and
//! the directories that contain them.
//!
//! It lies between the project and the writable layers. A directory that exists in several layers
//! shows the attributes of the topmost, so the directories made here copy those of the project.
//! Whiteouts are character devices 0:0, which any user may make (Linux 5.8).

use crate::skeleton::make_dir;
use glovebox_spec::ReplacedFile;
use rustix::fs::{CWD, FileType, Mode, Timespec, Timestamps};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};

/// Builds the layer at `mask`, replacing an existing one.
///
/// A name that the project lacks is hidden too if its directory exists, because the host may create
/// it later.
///
/// # Errors
/// Any failure to write.
pub fn build(
    mask: &Path,
    project: &Path,
    hidden: &[PathBuf],
    replaced: &[&ReplacedFile],
    is_privileged: bool,
) -> io::Result<()> {
    match fs::remove_dir_all(mask) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir(mask)?;
    let mut made: Vec<(PathBuf, Metadata)> =
        vec![(mask.to_owned(), fs::symlink_metadata(project)?)];
    let mut seen = BTreeSet::new();
    // The set is sorted, so a directory that is hidden itself comes before its entries.
    let hidden: BTreeSet<&PathBuf> = hidden.iter().collect();
    for path in hidden {
        if lead(mask, project, path, &mut seen, &mut made)? {
            whiteout(&mask.join(path))?;
        }
    }
    for file in replaced {
        // Nothing is shown in place of a file that has become something else.
        let meta = fs::symlink_metadata(project.join(&file.path));
        if let Ok(meta) = meta
            && meta.is_file()
            && lead(mask, project, &file.path, &mut seen, &mut made)?
        {
            let path = mask.join(&file.path);
            match File::create_new(&path) {
                Ok(mut copy) => copy.write_all(&file.content)?,
                // It is hidden as well.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            made.push((path, meta));
        }
    }
    // Deepest first: making an entry changes the times of its directory.
    for (path, meta) in made.iter().rev() {
        if is_privileged {
            lchown(path, Some(meta.uid()), Some(meta.gid()))?;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
        let time = |seconds, nanoseconds| Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds,
        };
        let times = Timestamps {
            last_access: time(meta.atime(), meta.atime_nsec()),
            last_modification: time(meta.mtime(), meta.mtime_nsec()),
        };
        rustix::fs::utimensat(CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// Writes the files that replace files of grants, named by number. They get the owner and group of
/// `owner` if `is_privileged`.
///
/// # Errors
/// Any failure to write.
pub fn write_replaced(
    dir: &Path,
    owner: &Metadata,
    replaced: &[&ReplacedFile],
    is_privileged: bool,
) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    make_dir(dir, 0o755)?;
    for (number, file) in replaced.iter().enumerate() {
        let path = dir.join(number.to_string());
        File::create_new(&path)?.write_all(&file.content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444))?;
        if is_privileged {
            lchown(&path, Some(owner.uid()), Some(owner.gid()))?;
        }
    }
    Ok(())
}

/// Makes the directories above `path`. Returns false if the project lacks one of them, or if one is
/// already hidden.
fn lead(
    mask: &Path,
    project: &Path,
    path: &Path,
    seen: &mut BTreeSet<PathBuf>,
    made: &mut Vec<(PathBuf, Metadata)>,
) -> io::Result<bool> {
    let mut above: Vec<&Path> = path
        .ancestors()
        .skip(1)
        .filter(|part| !part.as_os_str().is_empty())
        .collect();
    above.reverse();
    for part in above {
        if seen.contains(part) {
            continue;
        }
        let Ok(meta) = fs::symlink_metadata(project.join(part)) else {
            return Ok(false);
        };
        if !meta.is_dir() {
            return Ok(false);
        }
        let place = mask.join(part);
        match fs::create_dir(&place) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(error),
        }
        seen.insert(part.to_owned());
        made.push((place, meta));
    }
    Ok(true)
}

fn whiteout(path: &Path) -> io::Result<()> {
    match rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileTypeExt as _;

    #[test]
    fn hidden_names_become_whiteouts_under_directories_like_the_projects() {
        let temp = tempfile::tempdir().unwrap();
        let (project, mask) = (temp.path().join("project"), temp.path().join("mask"));
        fs::create_dir_all(project.join("a/b")).unwrap();
        fs::set_permissions(project.join("a"), fs::Permissions::from_mode(0o750)).unwrap();
        fs::write(project.join("file"), "").unwrap();
        let hidden = [
            "a/b/.env",
            "a/b/key",
            "a/none/x",
            "file/y",
            "top",
            "tree",
            "tree/below",
        ];
        let hidden: Vec<PathBuf> = hidden.iter().map(PathBuf::from).collect();
        let is_root = rustix::process::geteuid().is_root();
        for _ in 0..2 {
            build(&mask, &project, &hidden, &[], is_root).unwrap();
        }
        for name in ["a/b/.env", "a/b/key", "top", "tree"] {
            let meta = fs::symlink_metadata(mask.join(name)).unwrap();
            assert!(
                meta.file_type().is_char_device() && meta.rdev() == 0,
                "{name}"
            );
        }
        assert!(!mask.join("a/none").exists() && !mask.join("file").exists());
        let like = |name: &str| {
            let (ours, theirs) = (mask.join(name), project.join(name));
            let (ours, theirs) = (fs::metadata(ours).unwrap(), fs::metadata(theirs).unwrap());
            assert_eq!(ours.mode(), theirs.mode());
            assert_eq!(
                (ours.mtime(), ours.mtime_nsec(), ours.uid()),
                (theirs.mtime(), theirs.mtime_nsec(), theirs.uid())
            );
        };
        like("a");
        like("a/b");
    }
}
