//! Files of the audit log. Lines are appended to the newest file; a full file is renamed, and the
//! oldest is removed.

use super::audit::AuditEntry;
use glovebox_proto::{Code, Fault};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const NAME: &str = "audit.jsonl";
/// Maximum size of a file in bytes, and the number of full files kept besides the newest.
const MAX_FILE_BYTES: u64 = 64 << 20;
const MAX_FULL_FILES: usize = 16;
/// Maximum length of a line when reading; the server writes no longer ones.
const MAX_LINE_BYTES: usize = 1 << 20;

#[derive(Serialize)]
struct Line<'a> {
    at_unix_ms: u64,
    #[serde(flatten)]
    entry: &'a AuditEntry<'a>,
}

/// Writer of a server's audit log.
#[derive(Debug)]
pub(crate) struct AuditLog {
    dir: PathBuf,
    max_file_bytes: u64,
    newest: Mutex<OpenFile>,
}

/// File to which lines are appended, with its inode.
#[derive(Debug)]
struct OpenFile {
    file: File,
    inode: u64,
}

impl AuditLog {
    /// Opens the log in a server's directory.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub(crate) fn open(dir: &Path) -> Result<Self, Fault> {
        Self::open_with(dir, MAX_FILE_BYTES)
    }

    fn open_with(dir: &Path, max_file_bytes: u64) -> Result<Self, Fault> {
        let newest = open_newest(dir).map_err(|error| {
            let path = dir.join(NAME);
            Fault::failed(Code::Io, format!("cannot open {}: {error}", path.display()))
        })?;
        Ok(Self {
            dir: dir.to_owned(),
            max_file_bytes,
            newest: Mutex::new(newest),
        })
    }

    /// Appends one line.
    ///
    /// # Errors
    /// Fails if the line cannot be written.
    pub(crate) fn write(&self, entry: &AuditEntry<'_>, now_unix_ms: u64) -> Result<(), Fault> {
        let line = Line {
            at_unix_ms: now_unix_ms,
            entry,
        };
        let written = serde_json::to_vec(&line)
            .map_err(io::Error::from)
            .and_then(|mut bytes| {
                bytes.push(b'\n');
                self.append(&bytes)
            });
        written.map_err(|error| {
            Fault::failed(
                Code::Io,
                format!("the audit log cannot be written: {error}"),
            )
        })
    }

    fn append(&self, line: &[u8]) -> io::Result<()> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        // Log rotation by another program may have renamed the file: then append to a new one.
        let named = fs::symlink_metadata(self.dir.join(NAME)).map(|found| found.ino());
        if named.ok() != Some(newest.inode) {
            *newest = open_newest(&self.dir)?;
        }
        let length = newest.file.metadata()?.len();
        if length > 0 && length + line.len() as u64 > self.max_file_bytes {
            rotate(&self.dir)?;
            *newest = open_newest(&self.dir)?;
        }
        newest.file.write_all(line)
    }
}

fn open_newest(dir: &Path) -> io::Result<OpenFile> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    let file = options.open(dir.join(NAME))?;
    let inode = file.metadata()?.ino();
    Ok(OpenFile { file, inode })
}

/// Returns the path of a full file. Number 1 is the newest of them.
fn full_file(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("{NAME}.{number}"))
}

/// Renames all files by one number. The oldest is removed first, so that a crash in between loses
/// no other file.
fn rotate(dir: &Path) -> io::Result<()> {
    let is_there = |result: io::Result<()>| match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    is_there(fs::remove_file(full_file(dir, MAX_FULL_FILES)))?;
    for number in (1..MAX_FULL_FILES).rev() {
        is_there(fs::rename(
            full_file(dir, number),
            full_file(dir, number + 1),
        ))?;
    }
    is_there(fs::rename(dir.join(NAME), full_file(dir, 1)))
}

/// Filter of audit log entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Earliest time, inclusive, in milliseconds since 1970. None for no limit.
    pub since_unix_ms: Option<u64>,
    /// Latest time, exclusive, in milliseconds since 1970. None for no limit.
    pub until_unix_ms: Option<u64>,
    /// User of the entries. None for all users.
    pub user: Option<String>,
}

/// Fields of an entry that the filter compares.
#[derive(Debug, Deserialize)]
struct EntryHead {
    at_unix_ms: u64,
    #[serde(default)]
    user: String,
}

impl AuditFilter {
    fn takes(&self, line: &[u8]) -> bool {
        // A line that was truncated on a full disk is not an entry.
        let Ok(head) = serde_json::from_slice::<EntryHead>(line) else {
            return false;
        };
        self.since_unix_ms
            .is_none_or(|since| head.at_unix_ms >= since)
            && self
                .until_unix_ms
                .is_none_or(|until| head.at_unix_ms < until)
            && self.user.as_ref().is_none_or(|user| *user == head.user)
    }
}

/// Writes the entries of the audit log in a state directory to `out`, one JSON object per line,
/// oldest first. A server may append to the log meanwhile.
///
/// # Errors
/// Fails if the log cannot be read or `out` cannot be written.
pub fn export_audit_log(
    state_dir: &Path,
    filter: &AuditFilter,
    out: &mut impl Write,
) -> io::Result<()> {
    for file in open_all(&state_dir.join("server"))? {
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let limit = MAX_LINE_BYTES as u64;
            let read = io::Read::take(&mut lines, limit).read_until(b'\n', &mut line)?;
            if read == 0 {
                break;
            }
            if line.ends_with(b"\n") && filter.takes(&line) {
                out.write_all(&line)?;
            }
        }
    }
    out.flush()
}

/// Opens all files and returns them oldest first. They are opened from the newest on, so that a
/// file that a concurrent rotation renames is found twice rather than missed.
fn open_all(dir: &Path) -> io::Result<Vec<File>> {
    let names = std::iter::once(dir.join(NAME));
    let names = names.chain((1..=MAX_FULL_FILES).map(|number| full_file(dir, number)));
    let mut found: Vec<(u64, File)> = Vec::new();
    for name in names {
        let file = match File::open(name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let inode = file.metadata()?.ino();
        if !found.iter().any(|(known, _)| *known == inode) {
            found.push((inode, file));
        }
    }
    Ok(found.into_iter().rev().map(|(_, file)| file).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Decision, Via};

    fn entry(user: &str) -> AuditEntry<'_> {
        AuditEntry::Request {
            user,
            address: None,
            via: Some(Via::Token),
            action: "POST /api/tasks",
            object: None,
            decision: Decision::Allowed,
            status: 202,
            digest: None,
        }
    }

    fn times(state: &Path, filter: &AuditFilter) -> Vec<u64> {
        let mut out = Vec::new();
        export_audit_log(state, filter, &mut out).unwrap();
        let lines = std::str::from_utf8(&out).unwrap().lines();
        lines
            .map(|line| serde_json::from_str::<EntryHead>(line).unwrap().at_unix_ms)
            .collect()
    }

    #[test]
    fn full_files_are_kept_in_order_until_the_oldest_goes() {
        let state = tempfile::tempdir().unwrap();
        let dir = state.path().join("server");
        fs::create_dir(&dir).unwrap();
        assert_eq!(times(state.path(), &AuditFilter::default()), [0; 0]);
        // Each file holds two lines.
        let log = AuditLog::open_with(&dir, 250).unwrap();
        for at in 0..10 {
            log.write(&entry(if at % 2 == 0 { "ann" } else { "bob" }), at)
                .unwrap();
        }
        let all: Vec<u64> = (0..10).collect();
        assert_eq!(times(state.path(), &AuditFilter::default()), all);
        assert!(fs::read_dir(&dir).unwrap().count() >= 5);
        let some = AuditFilter {
            since_unix_ms: Some(2),
            until_unix_ms: Some(7),
            user: Some("ann".to_owned()),
        };
        assert_eq!(times(state.path(), &some), [2, 4, 6]);
        for at in 10..100 {
            log.write(&entry("ann"), at).unwrap();
        }
        let kept = times(state.path(), &AuditFilter::default());
        assert!(kept.len() < 60 && kept.last() == Some(&99), "{kept:?}");
        assert!(
            kept.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            "{kept:?}"
        );
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1 + MAX_FULL_FILES);
    }

    #[test]
    fn a_file_that_was_moved_away_is_begun_again() {
        let state = tempfile::tempdir().unwrap();
        let dir = state.path().join("server");
        fs::create_dir(&dir).unwrap();
        let log = AuditLog::open(&dir).unwrap();
        log.write(&entry("ann"), 1).unwrap();
        fs::rename(dir.join(NAME), dir.join("elsewhere")).unwrap();
        log.write(&entry("ann"), 2).unwrap();
        assert_eq!(times(state.path(), &AuditFilter::default()), [2]);
        // A truncated line is skipped, and the lines after it are read.
        let mut file = OpenOptions::new()
            .append(true)
            .open(dir.join(NAME))
            .unwrap();
        file.write_all(b"{\"at_unix_ms\":3,\"us\n").unwrap();
        log.write(&entry("ann"), 4).unwrap();
        assert_eq!(times(state.path(), &AuditFilter::default()), [2, 4]);
    }
}
