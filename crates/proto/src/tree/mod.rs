//! Transfer of whole trees: content of the channels of the `Tree` requests.
//!
//! A tree stream is a sequence of blocks ([`Packer`], [`Unpacker`]). A block is a length and
//! consecutive items, stored or compressed. Request and channel determine the items:
//!
//! ```text
//! TreeScan   Content  ScanItem      existing paths, sorted, directories before their content
//! TreePut    Input    PutItem       deletions and creations, in this order
//!            Content  PutReceipt    result of each item except chunks
//! TreeGet    Input    Want          files to read
//!            Content  GotItem       for each want, in order: a file, or the reason of a failure
//! ```
//!
//! Neither side holds a tree as a whole: a block has at most [`MAX_BLOCK_BYTES`], and an item never
//! spans blocks. Both sides therefore need memory for one block, independent of the tree's size.

mod block;
mod item;

pub use block::{Block, Items, Packer, Packing, Unpacker};
pub use item::{
    Digest, Entry, EntryKind, GotItem, PutItem, PutReceipt, ScanItem, Signature, TreeTotals, Want,
};

/// Most bytes of items in one block, before compression.
pub const MAX_BLOCK_BYTES: usize = 128 << 10;
