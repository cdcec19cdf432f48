//! Copy mode: transfers a project into sandboxes whose files this machine cannot access, and their
//! changes back, through the guest.
//!
//! ```text
//! push      project: walk   sandbox: scan   last push: manifest
//!           -> differences -> put -> manifest
//! collect                   sandbox: scan   last push: manifest
//!           -> differences -> get -> spool
//! ```
//!
//! A first push has nothing to compare with: it sends the project while walking it. A later one
//! compares each side with the manifest while listing it, and stores the differences.
//!
//! All lists are sorted, kept in files and compared as streams, so memory does not grow with the
//! project. A file is not read again if its signature (length, times, inode) is the one from the
//! time of its digest. It is read if the signature proves nothing, because the file was modified
//! within the same clock tick.
//!
//! The guest is untrusted, but can only misrepresent its own sandbox. Its lists are checked and
//! bounded, its contents are stored apart and compared with their digests, and nothing about the
//! host is taken from it.

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
    /// Path of the directory: absolute, or relative to the directory in which the sandbox's
    /// commands start.
    pub root: &'a [u8],
    /// Compression of transferred data. It pays if the connection is slower than a disk.
    pub packing: Packing,
}

/// Returns the fault for a guest that violates the protocol.
fn protocol(what: &str) -> Fault {
    Fault::failed(Code::Protocol, format!("the guest {what}"))
}
