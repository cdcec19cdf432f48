//! Record of the texts that were last printed at the start of a project's sandboxes, so that the
//! same text is printed once.
//!
//! In: the project, a topic, and the text about it. Out: true if that text is new. A file of
//! digests in the state directory has one line per project and topic, the last used one at the end;
//! if it cannot be read or written, the text is printed again.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Name of the file in the state directory.
const FILE: &str = "told-once";
/// Maximum number of recorded texts; the least recently used is dropped first.
const MAX_TEXTS: usize = 1024;
/// Number of stored hex digits of a digest.
const DIGITS: usize = 32;

/// Returns true if `told` differs from the text that was last printed about a topic for `project`,
/// and records it.
pub(super) fn is_new(state_dir: &Path, project: &Path, topic: &str, told: &str) -> bool {
    // The separator is unambiguous: no path contains a NUL byte.
    let key = digest(&[project.as_os_str().as_bytes(), b"\0", topic.as_bytes()].concat());
    let value = digest(told.as_bytes());
    let path = state_dir.join(FILE);
    let mut text = String::new();
    if let Ok(file) = File::open(&path) {
        let max_bytes = (MAX_TEXTS * (2 * DIGITS + 2)) as u64;
        // Text that is not UTF-8 was not written by Glovebox, so it is ignored.
        let _ = file.take(max_bytes).read_to_string(&mut text);
    }
    let mut known: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    let at = known.iter().position(|(project, _)| *project == key);
    if at.is_some_and(|at| known[at].1 == value) {
        return false;
    }
    if let Some(at) = at {
        known.remove(at);
    }
    let first = (known.len() + 1).saturating_sub(MAX_TEXTS);
    known.push((key.as_str(), value.as_str()));
    let mut fresh = String::new();
    for (project, line) in &known[first..] {
        // Writing into a string does not fail.
        let _ = writeln!(fresh, "{project} {line}");
    }
    // On a first run the state directory does not exist yet.
    let _ = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state_dir);
    // Write a new file and rename it: a concurrent reader must not see half of it.
    let place = state_dir.join(format!("{FILE}.{}", std::process::id()));
    let written = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&place)
        .and_then(|mut file| file.write_all(fresh.as_bytes()))
        .and_then(|()| fs::rename(&place, &path));
    if written.is_err() {
        // Remove a leftover: `create_new` would fail at the next attempt.
        let _ = fs::remove_file(&place);
    }
    true
}

fn digest(bytes: &[u8]) -> String {
    let mut text = blake3::hash(bytes).to_hex().to_string();
    text.truncate(DIGITS);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_new_once_per_project_topic_and_change() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path().join("made/when/needed");
        let (one, two) = (Path::new("/one"), Path::new("/two"));
        assert!(is_new(&state, one, "seen", "go"));
        assert!(!is_new(&state, one, "seen", "go"));
        assert!(is_new(&state, two, "seen", "go"));
        assert!(is_new(&state, one, "notes", "go"));
        assert!(is_new(&state, one, "seen", "go, cargo"));
        assert!(is_new(&state, one, "seen", "go"));
        assert!(!is_new(&state, two, "seen", "go"));
        fs::write(state.join(FILE), [0xff, b'\n']).unwrap();
        assert!(is_new(&state, one, "seen", "go"));
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let state = tempfile::tempdir().unwrap();
        for number in 0..MAX_TEXTS + 2 {
            assert!(is_new(
                state.path(),
                Path::new(&number.to_string()),
                "seen",
                "go"
            ));
        }
        let text = fs::read_to_string(state.path().join(FILE)).unwrap();
        assert_eq!(text.lines().count(), MAX_TEXTS);
        assert!(is_new(state.path(), Path::new("0"), "seen", "go"));
        assert!(!is_new(state.path(), Path::new("1000"), "seen", "go"));
    }
}
