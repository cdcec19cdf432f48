//! Files of the project that a failed command could not use because of their owner.
//!
//! All files in a sandbox have one owner, that of the project. The kernel fails with EACCES or
//! EOVERFLOW if it would have to check or keep another owner.

use super::output_words::words;
use glovebox_proto::{Denial, FileOwner, visible};
use glovebox_spec::{Isolation, WORKSPACE};
use rustix::process::{getegid, geteuid};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// Texts of EOVERFLOW in programs' messages, in lower case: the sandbox cannot keep an owner.
const NOT_KEPT: [&str; 2] = ["value too large for defined data type", "eoverflow"];
/// Texts of EACCES in programs' messages, in lower case.
const REFUSED: [&str; 2] = ["permission denied", "eacces"];
/// Maximum number of paths to report for one command.
const MAX_NAMED: usize = 2;

/// Owner whose files the commands of a sandbox can use.
#[derive(Debug, Clone, Copy)]
struct Worker {
    uid: u32,
    gid: u32,
    /// True if the user is root and could use every file outside.
    is_root: bool,
}

/// Finds such files at the end of an output.
pub(super) fn find(output: &[u8], jail: &Isolation) -> Vec<Denial> {
    let Some(project) = jail.workspace.as_deref() else {
        return Vec::new();
    };
    let worker = if geteuid().is_root() {
        fs::metadata(project).ok().map(|top| Worker {
            uid: top.uid(),
            gid: top.gid(),
            is_root: true,
        })
    } else {
        Some(Worker {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            is_root: false,
        })
    };
    worker.map_or_else(Vec::new, |worker| {
        find_foreign(output, project, &jail.start_dir, worker)
    })
}

fn find_foreign(output: &[u8], project: &Path, start_dir: &Path, worker: Worker) -> Vec<Denial> {
    let mut found: Vec<Denial> = Vec::new();
    for line in output.split(|byte| *byte == b'\n') {
        let small = String::from_utf8_lossy(line).to_ascii_lowercase();
        let says = |list: [&str; 2]| list.iter().any(|words| small.contains(words));
        let (is_not_kept, is_refused) = (says(NOT_KEPT), says(REFUSED));
        // Outside, an ordinary user would be refused as well, so the sandbox is not the cause.
        let is_told = is_not_kept || is_refused && worker.is_root;
        if !is_told {
            continue;
        }
        for word in words(line) {
            // TRUST: a command can print anything; only the owner of a path of the project is
            // examined.
            // A word without a slash counts as a path only if such a file exists, because sentences
            // consist of such words.
            let may_be_new = word.contains(&b'/');
            let place = places(word, project, start_dir).find_map(|path| {
                let meta = examine(project, &path, may_be_new)?;
                foreign_owner(&meta, worker).map(|owner| (path, owner))
            });
            if let Some((path, owner)) = place {
                let path = visible::line(path.as_os_str().as_bytes());
                let denial = Denial::Owner { path, owner }.made_safe();
                if !found.contains(&denial) && found.len() < MAX_NAMED {
                    found.push(denial);
                }
            }
        }
    }
    found
}

/// Returns the paths that a word may mean, relative to the project.
fn places<'a>(
    word: &'a [u8],
    project: &'a Path,
    start_dir: &'a Path,
) -> impl Iterator<Item = PathBuf> + 'a {
    let word = Path::new(OsStr::from_bytes(word));
    let named = [
        word.strip_prefix(WORKSPACE).ok().map(Path::to_owned),
        word.strip_prefix(project).ok().map(Path::to_owned),
        word.is_relative().then(|| start_dir.join(word)),
        word.is_relative().then(|| word.to_owned()),
    ];
    named.into_iter().flatten().filter_map(|path| {
        let mut plain = PathBuf::new();
        for part in path.components() {
            match part {
                Component::Normal(name) => plain.push(name),
                Component::CurDir => {}
                _ => return None,
            }
        }
        (!plain.as_os_str().is_empty()).then_some(plain)
    })
}

/// Examines the file at a path. If it is missing and `may_be_new`, examines the directory in which
/// it would be created. Does not follow links.
fn examine(project: &Path, path: &Path, may_be_new: bool) -> Option<Metadata> {
    let mut ancestors = path.ancestors().skip(1);
    let is_plain = |dir: &Path| {
        let is_dir = |meta: Metadata| meta.is_dir();
        fs::symlink_metadata(project.join(dir)).is_ok_and(is_dir)
    };
    if !ancestors.all(is_plain) {
        return None;
    }
    let parent = || {
        let parent = path
            .parent()
            .filter(|dir| may_be_new && !dir.as_os_str().is_empty())?;
        fs::symlink_metadata(project.join(parent)).ok()
    };
    fs::symlink_metadata(project.join(path))
        .ok()
        .or_else(parent)
}

fn foreign_owner(meta: &Metadata, worker: Worker) -> Option<FileOwner> {
    if meta.uid() != worker.uid {
        return Some(FileOwner::User {
            uid: meta.uid(),
            works_as: worker.uid,
        });
    }
    (meta.gid() != worker.gid).then(|| FileOwner::Group { gid: meta.gid() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_named_for_files_and_for_directories_in_which_they_would_be_made() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("src")).unwrap();
        fs::write(dir.path().join("src/a.txt"), "").unwrap();
        let own = fs::metadata(dir.path()).unwrap();
        let worker = |uid, is_root| Worker {
            uid,
            gid: own.gid(),
            is_root,
        };
        let named = |output: &str, worker| {
            let found = find_foreign(output.as_bytes(), dir.path(), Path::new("src"), worker);
            let path = |denial| match denial {
                Denial::Owner { path, .. } => path,
                other => format!("{other:?}"),
            };
            found.into_iter().map(path).collect::<Vec<_>>()
        };
        let other = worker(own.uid() + 1, true);
        for said in [
            "sh: 1: cannot create src/a.txt: Permission denied",
            "Error: EACCES: permission denied, open '/workspace/src/a.txt'",
            "touch: a.txt: Permission denied",
        ] {
            assert_eq!(named(said, other), ["src/a.txt"], "{said}");
            assert_eq!(named(said, worker(own.uid(), true)), [""; 0], "{said}");
            assert_eq!(named(said, worker(own.uid() + 1, false)), [""; 0], "{said}");
        }
        let said = "touch: cannot touch 'src/new': Permission denied";
        assert_eq!(named(said, other), ["src/new"]);
        for said in [
            "src/a.txt is fine",
            "cat: /etc/shadow: Permission denied",
            "cat: src/../../x: Permission denied",
        ] {
            assert_eq!(named(said, other), [""; 0], "{said}");
        }
    }

    #[test]
    fn group_that_cannot_be_kept_is_named_to_ordinary_users() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("shared"), "").unwrap();
        let own = fs::metadata(dir.path()).unwrap();
        let worker = Worker {
            uid: own.uid(),
            gid: own.gid() + 1,
            is_root: false,
        };
        let said = b"tee: shared: Value too large for defined data type";
        let found = find_foreign(said, dir.path(), Path::new(""), worker);
        let gid = own.gid();
        assert!(
            matches!(&found[..], [Denial::Owner { owner: FileOwner::Group { gid: found }, .. }] if *found == gid),
            "{found:?}"
        );
    }
}
