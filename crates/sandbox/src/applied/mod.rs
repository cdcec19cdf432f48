//! Applies to projects, reported to the other sandboxes that are based on them.
//!
//! A process that has applied changes appends a record to `STATE/applied/log.jsonl`. Each owner of
//! a sandbox whose workspace is an overlay over that project notices it ([`follow`]), makes the new
//! files visible in the sandbox, and records the change in the sandbox's directory for tools and
//! for `info`.

pub(crate) mod follow;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Directory of the records, below the state directory.
const DIR: &str = "applied";
/// File of the records, one in each line.
const LOG: &str = "log.jsonl";
/// Maximum size of all records, in bytes. The oldest are dropped.
const MAX_LOG_BYTES: usize = 256 << 10;
/// Maximum number of paths in a record.
const MAX_PATHS: usize = 1000;
/// Maximum size of the paths in a record, in bytes.
const MAX_PATHS_BYTES: usize = 48 << 10;
/// File in a sandbox's directory with the changes to its project that it was informed of.
const NOTES: &str = "project.json";
/// Maximum number of changes in that file. The oldest are dropped.
const MAX_NOTES: usize = 20;
/// Maximum number of paths of each change.
const MAX_NOTED_PATHS: usize = 20;

/// Apply to a directory of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct AppliedRecord {
    /// Number, greater than that of the record before.
    number: u64,
    /// Sandbox whose changes were applied. `None` if it has no name.
    by: Option<String>,
    /// Directory that the changes were applied to.
    to: PathBuf,
    /// Number of paths. 0 if it is unknown, after an apply that was interrupted.
    count: u64,
    /// First paths, relative to the directory, without those that are not UTF-8.
    paths: Vec<String>,
}

/// Change to the project of a sandbox, made by an apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectChange {
    /// Number, greater than that of the change before.
    pub number: u64,
    /// Sandbox whose changes were applied. `None` if it is unknown.
    pub by: Option<String>,
    /// Number of paths. 0 if it is unknown.
    pub count: u64,
    /// First paths, relative to the project.
    pub paths: Vec<String>,
    /// Paths that the sandbox still sees with their old content, because a process in it holds them
    /// open.
    pub still_old: Vec<String>,
}

/// Records that changes were applied to the directory `to`, at `paths`. No paths mean that an apply
/// was interrupted and the paths are unknown. `by` is the name of the sandbox that made the
/// changes.
///
/// # Errors
/// The errors of the file system. The changes stay applied, but other sandboxes are not informed.
pub fn note_applied<'a>(
    state_dir: &Path,
    to: &Path,
    by: Option<&str>,
    paths: impl ExactSizeIterator<Item = &'a Path>,
) -> io::Result<()> {
    let dir = state_dir.join(DIR);
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let count = paths.len() as u64;
    let mut room = MAX_PATHS_BYTES;
    let paths = paths.filter_map(Path::to_str).take(MAX_PATHS);
    let paths = paths.take_while(|path| {
        room = room.saturating_sub(path.len());
        room > 0
    });
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = rustix::fs::open(&dir, flags, Mode::empty())?;
    flock(&lock, FlockOperation::LockExclusive)?;
    let mut records = read_records(state_dir);
    let last = records.last().map_or(0, |record| record.number);
    let now_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64);
    records.push(AppliedRecord {
        // The time keeps the numbers growing even if the file was removed.
        number: now_ms.max(last + 1),
        by: by.map(str::to_owned),
        to: to.to_owned(),
        count,
        paths: paths.map(str::to_owned).collect(),
    });
    let mut lines = Vec::new();
    let mut bytes = 0;
    for record in records.iter().rev() {
        let line = serde_json::to_string(record)?;
        bytes += line.len() + 1;
        if bytes > MAX_LOG_BYTES {
            break;
        }
        lines.push(line);
    }
    lines.reverse();
    let fresh = dir.join("log.new");
    fs::write(&fresh, lines.join("\n") + "\n")?;
    fs::rename(&fresh, dir.join(LOG))
}

/// Reads the records, oldest first. Records that cannot be parsed are left out.
fn read_records(state_dir: &Path) -> Vec<AppliedRecord> {
    let text = fs::read(state_dir.join(DIR).join(LOG)).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

impl AppliedRecord {
    /// Returns the record's paths relative to `project`. `None` if it is about other files.
    fn paths_below(&self, project: &Path) -> Option<Vec<String>> {
        if let Ok(dir) = self.to.strip_prefix(project) {
            let paths = self.paths.iter();
            let paths = paths.map(|path| dir.join(path).to_string_lossy().into_owned());
            return Some(paths.collect());
        }
        let dir = project.strip_prefix(&self.to).ok()?;
        let paths = self.paths.iter();
        let paths = paths.filter_map(|path| Path::new(path).strip_prefix(dir).ok());
        let paths: Vec<String> = paths
            .map(|path| path.to_string_lossy().into_owned())
            .collect();
        let is_all_told = self.paths.len() as u64 == self.count && self.count > 0;
        (!paths.is_empty() || !is_all_told).then_some(paths)
    }
}

/// Reads the changes to its project that the sandbox in `dir` was informed of, oldest first.
pub(crate) fn read_changes(dir: &Path) -> Vec<ProjectChange> {
    let text = fs::read(dir.join(NOTES)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(state: &Path, to: &str, paths: &[&str]) {
        let paths = paths.iter().map(|path| Path::new(*path));
        note_applied(state, Path::new(to), Some("a"), paths).unwrap();
    }

    #[test]
    fn records_are_kept_in_order_and_within_their_bound() {
        let temp = tempfile::tempdir().unwrap();
        note(temp.path(), "/p", &["a", "b"]);
        note(temp.path(), "/p", &["c"]);
        let records = read_records(temp.path());
        assert_eq!(records.len(), 2);
        assert!(records[0].number < records[1].number);
        assert_eq!(
            (records[1].count, &records[1].paths[..]),
            (1, &["c".to_owned()][..])
        );
        let long: Vec<String> = (0..2000).map(|number| format!("{number:0>100}")).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        for _ in 0..20 {
            note(temp.path(), "/p", &long);
        }
        let records = read_records(temp.path());
        assert!((2..20).contains(&records.len()), "{}", records.len());
        assert!(
            records
                .iter()
                .all(|record| record.count == 2000 && record.paths.len() < 1000)
        );
        let size = fs::metadata(temp.path().join(DIR).join(LOG)).unwrap().len();
        assert!(size <= MAX_LOG_BYTES as u64, "{size}");
    }

    #[test]
    fn paths_are_those_of_the_project() {
        let record = |to: &str, paths: &[&str]| AppliedRecord {
            number: 1,
            by: None,
            to: to.into(),
            count: paths.len() as u64,
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        };
        let below = |to: &str, paths: &[&str]| record(to, paths).paths_below(Path::new("/h/p"));
        let all = |paths: &[&str]| Some(paths.iter().map(|path| (*path).to_owned()).collect());
        assert_eq!(below("/h/p", &["a"]), all(&["a"]));
        assert_eq!(below("/h/p/sub", &["a"]), all(&["sub/a"]));
        assert_eq!(below("/h", &["p/a", "q/b"]), all(&["a"]));
        assert_eq!(below("/h", &["q/b"]), None);
        assert_eq!(below("/h/px", &["a"]), None);
        // An interrupted apply does not record its paths, so all may have changed.
        assert_eq!(below("/h", &[]), all(&[]));
    }
}
