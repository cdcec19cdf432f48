//! Copy mode: a project's way into sandboxes whose files this machine cannot reach, and their changes'
//! way back, over the wire.
//!
//! ```text
//! push      project: walk   sandbox: scan   last push: manifest   -> what differs -> put -> manifest
//! collect   sandbox: scan   last push: manifest                   -> what differs -> get -> spool
//! ```
//!
//! A first push has nothing to compare with: it sends what the walk finds as it is found. A later one
//! compares either side with the manifest as it is looked at, and keeps what differs.
//!
//! All lists are sorted, kept in files and compared as streams, so memory does not grow with the
//! project. A file whose signature (length, times, inode) is the one it had when its digest was taken
//! is not read again; where that proves nothing, because it was modified in the same moment, it is.
//!
//! What a guest says is untrusted: it can be wrong only about its own sandbox. Its lists are checked
//! and bounded, its contents are kept apart and compared with their digests, and it is never asked
//! to say anything about the host.

mod collect;
mod difference;
mod digest;
mod entry;
mod fetch;
mod get;
mod manifest;
mod near;
mod push;
mod receipt;
mod remember;
mod scan;
mod send;
mod spool;
mod walk;

pub use collect::{CopyInputs, collect};
pub use glovebox_proto::tree::Packing;
pub use push::{PushOptions, PushRecords, PushTotals, push};
pub use walk::HiddenPredicate;

use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Sandbox;

/// A directory of a sandbox.
#[derive(Debug, Clone, Copy)]
pub struct SandboxRoot<'a> {
    /// The sandbox.
    pub sandbox: &'a Sandbox,
    /// The directory: absolute, or relative to where the sandbox's commands start.
    pub root: &'a [u8],
    /// Whether what travels is compressed: it pays where the wire is slower than a disk.
    pub packing: Packing,
}

/// The guest does not do what it was asked.
fn protocol(what: &str) -> Fault {
    Fault::failed(Code::Protocol, format!("the guest {what}"))
}
