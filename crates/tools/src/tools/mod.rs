//! The tools, one file each.

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

/// `$0` of a command line of our own (`sh -c LINE PROBE`), which is no job of a model's.
pub const PROBE: &str = "glovebox-probe";

/// A word that nobody inside can know before: two hashers with keys from the system's randomness.
fn token() -> String {
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}

/// What to say when a search did not look at everything.
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
