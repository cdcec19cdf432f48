//! Whole trees on their way through the wall: what travels inside the channels of the `Tree`
//! requests.
//!
//! A tree stream is a sequence of blocks ([`Packer`], [`Unpacker`]); a block is a length, and items
//! one after the other, stored or compressed. Which items depends on request and channel:
//!
//! ```text
//! TreeScan   Content  ScanItem      what is there, sorted, directories before their content
//! TreePut    Input    PutItem       what to delete, make and write, in this order
//!            Content  PutReceipt    one for each item but chunks: what it has become
//! TreeGet    Input    Want          what to read
//!            Content  GotItem       for each want, in order: a file, or why not
//! ```
//!
//! Nothing here is ever held as a whole: a block is at most [`MAX_BLOCK_BYTES`], and an item never
//! leaves its block. So both sides need one block of memory each, whatever the tree.

mod block;
mod item;

pub use block::{Block, Items, Packer, Packing, Unpacker};
pub use item::{
    Digest, Entry, EntryKind, GotItem, PutItem, PutReceipt, ScanItem, Signature, TreeTotals, Want,
};

/// Most bytes of items in one block, before compression.
pub const MAX_BLOCK_BYTES: usize = 128 << 10;
