//! Paths in the output of a failed command that exist on this machine and not in the sandbox.

use super::output_words::words;
use glovebox_jail::etc::{self, SecretKind};
use glovebox_proto::{Denial, HeldBackReason, visible};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// Directories with data of programs and packages that no sandbox shows completely.
const PLACES: [&str; 5] = ["/var", "/opt", "/srv", "/sys", ETC];
/// Directory of settings, which are shown by a rule.
const ETC: &str = "/etc";
/// Texts in messages about files that cannot be found or opened, in lower case.
const COMPLAINTS: [&str; 8] = [
    "no such file",
    "not found",
    "does not exist",
    "cannot",
    "can't",
    "could not",
    "unable",
    "error",
];
/// Maximum number of paths to report for one command.
const MAX_NAMED: usize = 2;
/// Maximum number of paths in an output to look up.
const MAX_LOOKED_UP: usize = 16;

/// Finds such paths at the end of an output. `is_inside` returns true if the sandbox has a path.
pub(super) fn find(output: &[u8], mut is_inside: impl FnMut(&Path) -> bool) -> Vec<Denial> {
    let mut candidates: Vec<PathBuf> = Vec::new();
    for line in output.split(|byte| *byte == b'\n') {
        let small = String::from_utf8_lossy(line).to_ascii_lowercase();
        if !COMPLAINTS.iter().any(|words| small.contains(words)) {
            continue;
        }
        for word in words(line) {
            let path = Path::new(OsStr::from_bytes(word));
            let is_plain = PLACES.iter().any(|place| path.starts_with(place))
                && path.components().count() > 2
                && path.components().all(|part| part != Component::ParentDir);
            if is_plain && !candidates.iter().any(|known| known == path) {
                candidates.push(path.to_owned());
            }
        }
    }
    candidates
        .into_iter()
        .rev()
        .take(MAX_LOOKED_UP)
        // TRUST: a command can print anything. It learns no more here than every user of the
        // machine can see.
        .filter(|path| is_public(path) && !is_inside(path))
        .filter_map(|path| {
            let name = visible::line(path.as_os_str().as_bytes());
            let denial = if path.starts_with(ETC) {
                let reason = held_back_reason(&path)?;
                Denial::HeldBack { path: name, reason }
            } else {
                Denial::NotShown { path: name }
            };
            Some(denial.made_safe())
        })
        .take(MAX_NAMED)
        .collect()
}

/// Returns the reason for which the rule for `/etc` holds a path back. `None` for a path that it
/// shows, or that an ordinary user cannot access.
fn held_back_reason(path: &Path) -> Option<HeldBackReason> {
    match etc::why_held_back(path)? {
        etc::HeldBackReason::Name => Some(HeldBackReason::Name),
        etc::HeldBackReason::Permissions => None,
        etc::HeldBackReason::Size => Some(HeldBackReason::Size),
        etc::HeldBackReason::Secret(kind) => Some(match kind {
            SecretKind::PrivateKey => HeldBackReason::PrivateKey,
            SecretKind::Token => HeldBackReason::Token,
            SecretKind::Address => HeldBackReason::Address,
            SecretKind::Value => HeldBackReason::Value,
        }),
    }
}

/// Returns true if every user of this machine can see that the path exists.
fn is_public(path: &Path) -> bool {
    let look = |path: &Path| {
        let wanted = StatxFlags::TYPE | StatxFlags::MODE;
        statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted).map(|found| found.stx_mode)
    };
    look(path).is_ok()
        && path.ancestors().skip(1).all(|dir| {
            look(dir).is_ok_and(|mode| {
                let mode = u32::from(mode);
                FileType::from_raw_mode(mode) == FileType::Directory && mode & 0o001 != 0
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(output: &str, inside: &[&str]) -> Vec<String> {
        let is_inside = |path: &Path| inside.iter().any(|known| path == Path::new(known));
        let path = |denial| match denial {
            Denial::NotShown { path } => path,
            other => format!("{other:?}"),
        };
        let found = find(output.as_bytes(), is_inside);
        found.into_iter().map(path).collect()
    }

    #[test]
    fn paths_of_this_machine_in_complaints_are_named() {
        let said = "cat: /var/log: No such file or directory\n";
        assert_eq!(named(said, &[]), ["/var/log"]);
        let said = "Error: ENOENT: no such file or directory, open '/var/lib'";
        assert_eq!(named(said, &[]), ["/var/lib"]);
    }

    #[test]
    fn paths_that_are_inside_or_nowhere_or_only_mentioned_are_not() {
        let said = "cat: /var/log: No such file or directory\n";
        assert_eq!(named(said, &["/var/log"]), [""; 0]);
        for said in [
            "reading /var/log\n",
            "cat: /var/nonexistent: No such file or directory\n",
            "cat: /var/log/../lib: No such file or directory\n",
            "cat: /etc/nsswitch.conf: No such file or directory\n",
            "cat: /var: No such file or directory\n",
        ] {
            assert_eq!(named(said, &[]), [""; 0], "{said}");
        }
    }

    #[test]
    fn settings_that_are_held_back_are_named_with_the_reason() {
        let found = find(b"cat: /etc/passwd: No such file or directory\n", |_| false);
        let [denial] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(denial.kind(), "held-back");
        assert!(denial.what().contains("for the machine alone"));
    }

    #[test]
    fn path_below_a_closed_directory_is_not_named() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let closed = dir.path().join("closed");
        std::fs::create_dir(&closed).unwrap();
        std::fs::write(closed.join("x"), "").unwrap();
        let said = format!("cat: {}: No such file", closed.join("x").display());
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(named(&said, &[]).len(), 1);
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(named(&said, &[]), [""; 0]);
    }
}
