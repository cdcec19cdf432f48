//! Content of each file as one conversation last saw it. A write is checked against content and not
//! times: formatters touch files without changing them, and tools change files without a new time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Digests of files that the conversation last read in full or wrote.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    seen: Mutex<HashMap<String, blake3::Hash>>,
}

/// Maximum number of remembered files. Beyond it all are forgotten, and the model must read files
/// again before it overwrites them.
const MAX_FILES: usize = 10_000;

impl Ledger {
    pub(crate) fn note(&self, path: &str, digest: blake3::Hash) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MAX_FILES {
            seen.clear();
        }
        seen.insert(key(path), digest);
    }

    /// Returns the digest of a file as the conversation last saw it.
    pub(crate) fn seen(&self, path: &str) -> Option<blake3::Hash> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&key(path)).copied()
    }

    pub(crate) fn has_seen(&self, path: &str, digest: blake3::Hash) -> bool {
        self.seen(path) == Some(digest)
    }
}

/// Returns one spelling for a path: relative to the workspace if it is below it. A file that was
/// seen under another name counts as unseen, which is safe.
fn key(path: &str) -> String {
    let absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match joined.strip_prefix("workspace/") {
        Some(below) if absolute => below.to_owned(),
        _ if absolute => format!("/{joined}"),
        _ => joined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_path_are_one() {
        let ledger = Ledger::default();
        let digest = blake3::hash(b"x");
        ledger.note("./src//main.rs", digest);
        assert!(ledger.has_seen("src/main.rs", digest));
        assert!(ledger.has_seen("/workspace/src/main.rs", digest));
        assert!(!ledger.has_seen("/src/main.rs", digest));
        assert!(!ledger.has_seen("src/main.rs", blake3::hash(b"y")));
    }
}
