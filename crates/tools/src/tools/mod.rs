//! Implementations of the tools, one file each.

pub(crate) mod bash;
pub(crate) mod code;
pub(crate) mod delete;
mod denied;
pub(crate) mod edit;
pub(crate) mod glob;
pub(crate) mod grep;
pub(crate) mod job;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod move_file;
pub(crate) mod read;
mod rooted;
pub(crate) mod run_js;
pub(crate) mod sandboxes;
pub(crate) mod write;

use glovebox_proto::SearchEnd;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// `$0` of a command line that this program runs for itself (`sh -c LINE PROBE`). Such a job is not
/// shown to models.
pub const PROBE: &str = "glovebox-probe";

/// Returns a word that processes in the sandbox cannot predict: two hashes with keys from the
/// system's randomness.
fn token() -> String {
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}

/// Returns a note about a search that is incomplete. Empty if it is complete.
fn incomplete(end: SearchEnd, unreadable: u64) -> String {
    let mut note = String::new();
    if end == SearchEnd::Deadline {
        note.push_str(
            "[incomplete: the time for searching was up; narrow the path or the pattern]\n",
        );
    }
    if unreadable > 0 {
        let _ = writeln!(
            note,
            "[{unreadable} files or directories could not be read]"
        );
    }
    note
}
