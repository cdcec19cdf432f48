//! Workspaces as tar streams: unpacked for a sandbox to start from, packed for a client to
//! download.
//!
//! ```text
//! unpack   untrusted bytes -> gunzip if gzipped -> headers -> checked names
//!          -> files, then links, in an empty directory
//! pack     collected changes, all of them additions -> headers and contents -> bytes
//! ```
//!
//! An archive is taken completely or not at all: the first entry that breaks a rule refuses it,
//! with an identifier for the rule ([`ArchiveProblem::code`]). The rules are those for the changes
//! of a sandbox: names as in [`RelPath`](crate::RelPath), links that stay within the tree, no
//! special files, no git directory, the owner's execute bit as the only permission.

mod header;
mod pack;
mod pax;
mod problem;
mod read;
#[cfg(test)]
mod tests;
mod unpack;

pub use pack::{PackError, pack, pack_gzip};
pub use problem::{ArchiveError, ArchiveProblem};
pub use unpack::{UnpackedTotals, unpack};

/// Size of a header, in bytes. Contents are padded to a multiple of it.
const BLOCK_BYTES: usize = 512;
