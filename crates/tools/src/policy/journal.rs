//! Journal of decisions: one JSON object per line, appended by every process that decides.
//!
//! There are two files of bounded size. When the newer one is full, it replaces the older one. Each
//! line is written with one system call, so lines of several processes do not mix. Only the owner
//! can access the files.

use glovebox_proto::{Code, Fault};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum size of one file, in bytes.
const MAX_FILE_BYTES: u64 = 2 << 20;
/// Maximum length of a line that is read, in bytes.
const MAX_LINE_BYTES: usize = 16 << 10;

/// Recorded decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionEntry {
    /// Identifier of the call.
    pub call: String,
    /// Time of the decision, in milliseconds since the epoch.
    pub unix_ms: u64,
    /// Canonical name of the tool.
    pub tool: String,
    /// Subject of the call, in one line without secrets.
    pub summary: String,
    /// Effect of the rule.
    pub effect: String,
    /// Rule that applied.
    pub rule: String,
    /// Place where the rule was written.
    pub source: String,
    /// Name of the toolset.
    pub toolset: String,
    /// Answer to the question. `None` if no rule asked.
    pub answer: Option<String>,
    /// True if the call was permitted.
    pub is_made: bool,
}

/// Journal file. Its directory must exist.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
}

impl Journal {
    /// Creates a journal at `path`; the older file has the extension `.old`. No file is touched
    /// yet.
    pub const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn older(&self) -> PathBuf {
        self.path.with_extension("old")
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// `io` if the file cannot be written.
    pub fn write(&self, entry: &DecisionEntry) -> Result<(), Fault> {
        let broken = |error: std::io::Error| self.broken("write", &error);
        let mut line = serde_json::to_vec(entry).map_err(|error| broken(error.into()))?;
        line.push(b'\n');
        if fs::metadata(&self.path).is_ok_and(|meta| meta.len() >= MAX_FILE_BYTES) {
            // If two processes rotate at once, the second moves a short file over the older one,
            // and decisions are lost early. No lock is worth it.
            let _ = fs::rename(&self.path, self.older());
        }
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.path)
            .map_err(broken)?;
        // One write with O_APPEND (open(2)): in two, lines of several processes could mix.
        file.write_all(&line).map_err(broken)
    }

    /// Returns the decision about a call. `None` if it is unknown or was rotated away.
    ///
    /// # Errors
    /// `io` if an existing file cannot be read.
    pub fn find(&self, call: &str) -> Result<Option<DecisionEntry>, Fault> {
        Ok(self
            .entries()?
            .into_iter()
            .rev()
            .find(|entry| entry.call == call))
    }

    /// Returns the latest decisions, oldest first.
    ///
    /// # Errors
    /// `io` if an existing file cannot be read.
    pub fn latest(&self, count: usize) -> Result<Vec<DecisionEntry>, Fault> {
        let mut entries = self.entries()?;
        Ok(entries.split_off(entries.len().saturating_sub(count)))
    }

    fn entries(&self) -> Result<Vec<DecisionEntry>, Fault> {
        let mut entries = Vec::new();
        for path in [self.older(), self.path.clone()] {
            let text = read(&path).map_err(|error| self.broken("read", &error))?;
            // A truncated or foreign line is skipped.
            entries.extend(
                text.split(|byte| *byte == b'\n')
                    .filter(|line| line.len() <= MAX_LINE_BYTES)
                    .filter_map(|line| serde_json::from_slice::<DecisionEntry>(line).ok()),
            );
        }
        Ok(entries)
    }

    fn broken(&self, verb: &str, error: &std::io::Error) -> Fault {
        Fault::failed(
            Code::Io,
            format!("cannot {verb} {}: {error}", self.path.display()),
        )
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    file.take(2 * MAX_FILE_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

/// Current time, in milliseconds since the epoch.
pub(super) fn now_unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn entry(call: &str, summary: &str) -> DecisionEntry {
        DecisionEntry {
            call: call.to_owned(),
            unix_ms: 1,
            tool: "Bash".to_owned(),
            summary: summary.to_owned(),
            effect: "allow".to_owned(),
            rule: "default".to_owned(),
            source: "x".to_owned(),
            toolset: "implement".to_owned(),
            answer: None,
            is_made: true,
        }
    }

    #[test]
    fn what_is_written_is_found_and_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("decisions");
        let journal = Journal::new(path.clone());
        assert_eq!(journal.find("a").unwrap(), None);
        journal.write(&entry("a", "one")).unwrap();
        journal.write(&entry("b", "two\nlines \u{1b}")).unwrap();
        fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"call\":\"x\"\n\xff\n")
            .unwrap();
        journal.write(&entry("c", "three")).unwrap();
        assert_eq!(
            journal.find("b").unwrap().unwrap().summary,
            "two\nlines \u{1b}"
        );
        assert_eq!(journal.latest(2).unwrap().len(), 2);
        assert_eq!(journal.latest(9).unwrap().len(), 3);
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn it_stays_bounded_and_keeps_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path().join("decisions"));
        let long = "x".repeat(15 << 10);
        for n in 0..400 {
            journal.write(&entry(&n.to_string(), &long)).unwrap();
        }
        let bytes: u64 = fs::read_dir(dir.path())
            .unwrap()
            .flatten()
            .map(|file| file.metadata().unwrap().len())
            .sum();
        assert!(bytes <= 2 * MAX_FILE_BYTES + (32 << 10), "{bytes}");
        assert!(journal.find("399").unwrap().is_some());
        assert!(journal.find("0").unwrap().is_none());
    }

    #[test]
    fn lines_of_many_threads_do_not_mix() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path().join("decisions"));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let journal = &journal;
                scope.spawn(move || {
                    for n in 0..100 {
                        journal
                            .write(&entry(&format!("{thread}-{n}"), "y"))
                            .unwrap();
                    }
                });
            }
        });
        assert_eq!(journal.latest(usize::MAX).unwrap().len(), 400);
    }
}
