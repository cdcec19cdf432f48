//! Check that no other user can replace the state directory, by examining every directory on its
//! path.
//!
//! A private directory can be renamed away by any user who may write its parent, and another one
//! put in its place. So each directory from `/` down must belong to this user or to root. Others
//! may write it only if the sticky bit keeps them from renaming entries of other owners (`/tmp`).
//! Symbolic links on the path are followed and must meet the same rules.

use crate::fault;
use glovebox_proto::{Code, Fault};
use rustix::fs::{AtFlags, CWD, FileType, Stat, readlinkat, statat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

/// Maximum number of symbolic links to follow, as in the kernel.
const MAX_LINKS: usize = 40;
const STICKY: u32 = 0o1000;

/// Refuses a path if another user could replace one of its directories. Missing directories are not
/// checked: they will be created in the last one that exists.
///
/// # Errors
/// A refusal that names the directory, with a hint.
pub fn check_ancestors(path: &Path) -> Result<(), Fault> {
    let mut pending: VecDeque<OsString> = names(path).collect();
    let mut found = PathBuf::from("/");
    let mut links = 0;
    check(path, &found, &stat(&found)?)?;
    while let Some(name) = pending.pop_front() {
        if name == ".." {
            found.pop();
            continue;
        }
        let next = found.join(&name);
        let status = match statat(CWD, &next, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => status,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(fault::io("inspect", &next, errno)),
        };
        check(path, &next, &status)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::Symlink {
            found = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(fault::io("inspect", &next, Errno::LOOP));
        }
        let target = readlinkat(CWD, &next, Vec::new())
            .map_err(|errno| fault::io("inspect", &next, errno))?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            found = PathBuf::from("/");
        }
        for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
            pending.push_front(name);
        }
    }
    Ok(())
}

fn names(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

fn stat(path: &Path) -> Result<Stat, Fault> {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| fault::io("inspect", path, errno))
}

/// Refuses a directory whose entries another user could replace, and a link that another user owns.
fn check(path: &Path, at: &Path, status: &Stat) -> Result<(), Fault> {
    let own = rustix::process::geteuid().as_raw();
    let refuse = |what: String, remedy: String| {
        let fault = Fault::refused(
            Code::PermissionDenied,
            format!(
                "will not use {} for state: {} {what}, so others could put another directory in its place",
                path.display(),
                at.display()
            ),
        );
        Err(fault.remedy(format!("{remedy}choose another state directory")))
    };
    let is_trusted_owner =
        [own, 0].contains(&status.st_uid) || status.st_uid == OVERFLOW_ID && is_in_user_namespace();
    if !is_trusted_owner {
        return refuse(format!("belongs to user {}", status.st_uid), String::new());
    }
    let is_link = FileType::from_raw_mode(status.st_mode) == FileType::Symlink;
    if is_link || status.st_mode & STICKY != 0 {
        return Ok(());
    }
    if status.st_mode & 0o002 != 0 {
        return refuse(
            "can be written by everybody and has no sticky bit".to_owned(),
            format!("`chmod o-w {}`, or ", at.display()),
        );
    }
    // Most systems create a group of its own for each user, which has no other members.
    let is_own_group = status.st_gid == 0
        || status.st_uid == own
            && status.st_gid == own
            && rustix::process::getegid().as_raw() == own;
    if status.st_mode & 0o020 != 0 && !is_own_group {
        return refuse(
            format!("can be written by group {}", status.st_gid),
            format!("`chmod g-w {}`, or ", at.display()),
        );
    }
    Ok(())
}

/// Owner that the kernel reports for files whose owner has no id in this user namespace.
const OVERFLOW_ID: u32 = 65534;

/// Returns true if this user namespace maps ids, so that the machine's root appears as
/// [`OVERFLOW_ID`].
fn is_in_user_namespace() -> bool {
    let Ok(map) = std::fs::read_to_string("/proc/self/uid_map") else {
        return false;
    };
    let numbers: Vec<&str> = map.split_whitespace().collect();
    numbers != ["0", "0", "4294967295"]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    fn with_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused_unless_it_is_sticky() {
        let temp = tempfile::tempdir().unwrap();
        let open = temp.path().join("open");
        fs::create_dir_all(open.join("below")).unwrap();
        let states = [
            open.join("below/state"),
            open.join("below/not/there/yet"),
            open.join("new"),
        ];
        for (mode, words) in [
            (0o777, Some("by everybody")),
            (0o703, Some("by everybody")),
            (0o1777, None),
            (0o755, None),
            (0o700, None),
        ] {
            with_mode(&open, mode);
            for state in &states {
                let checked = check_ancestors(state);
                match words {
                    None => checked.unwrap(),
                    Some(words) => {
                        let fault = checked.unwrap_err();
                        assert_eq!(fault.code, Code::PermissionDenied);
                        assert!(fault.message.contains(words), "{mode:o}: {fault}");
                        assert!(
                            fault.message.contains(&open.display().to_string()),
                            "{fault}"
                        );
                        let remedy = fault.remedy.unwrap().to_string();
                        assert!(remedy.starts_with("`chmod o-w "), "{remedy}");
                    }
                }
            }
        }
        with_mode(&open, 0o700);
    }

    #[test]
    fn links_are_followed_and_what_they_lead_through_counts() {
        let temp = tempfile::tempdir().unwrap();
        let (open, shut) = (temp.path().join("open"), temp.path().join("shut"));
        fs::create_dir_all(open.join("state")).unwrap();
        fs::create_dir(&shut).unwrap();
        symlink("../open/state", shut.join("relative")).unwrap();
        symlink(&open, shut.join("absolute")).unwrap();
        symlink("loop", shut.join("loop")).unwrap();
        let linked = [shut.join("relative"), shut.join("absolute/state")];
        for path in &linked {
            check_ancestors(path).unwrap();
        }
        with_mode(&open, 0o777);
        for path in &linked {
            check_ancestors(path).unwrap_err();
        }
        check_ancestors(&shut.join("loop")).unwrap_err();
        check_ancestors(&shut.join("state")).unwrap();
    }

    #[test]
    fn directories_of_other_users_and_groups_are_refused() {
        if !rustix::process::geteuid().is_root() {
            // Only root can change the owner of a directory.
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("dir");
        fs::create_dir(&dir).unwrap();
        let state = dir.join("state");
        chown(&dir, Some(12345), None).unwrap();
        let fault = check_ancestors(&state).unwrap_err();
        assert!(fault.message.contains("belongs to user 12345"), "{fault}");
        chown(&dir, Some(0), Some(12345)).unwrap();
        check_ancestors(&state).unwrap();
        with_mode(&dir, 0o775);
        let fault = check_ancestors(&state).unwrap_err();
        assert!(fault.message.contains("group 12345"), "{fault}");
        chown(&dir, Some(0), Some(0)).unwrap();
        check_ancestors(&state).unwrap();
    }
}
