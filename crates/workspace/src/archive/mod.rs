//! A workspace as one tar stream: unpacked where a sandbox is to start from it, packed for whoever takes it along.
//!
//! ```text
//! unpack   bytes of a stranger -> gzip, if it is -> headers -> names checked -> files, then links, in an empty directory
//! pack     collected changes, all of them additions -> headers and contents -> bytes
//! ```
//!
//! An archive is taken whole or not at all: its first entry that breaks a rule refuses it, under a word of its own
//! ([`ArchiveProblem::code`]). The rules are those of what a sandbox changed: names as in [`RelPath`](crate::RelPath),
//! links that stay within the tree, no special files, no repository's own directory, the executable bit as the only
//! permission.

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

/// Bytes of a header, and what contents are padded to.
const BLOCK_BYTES: usize = 512;
