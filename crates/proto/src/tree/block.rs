//! Blocks: items collected up to a bound, then stored or compressed together.
//!
//! ```text
//! 0  u32 little-endian   bytes that follow the header; highest bit set if compressed (zstd)
//! 4  u32 little-endian   bytes of items, at most MAX_BLOCK_BYTES
//! ```
//!
//! Each block is compressed on its own. A receiver therefore holds one block and no history, and it
//! detects a forged length before it stores a byte. A block that compression does not shrink is
//! stored.

use super::MAX_BLOCK_BYTES;
use crate::{Code, Fault, WireError};
use serde::{Deserialize, Serialize};
use std::fmt;
use zstd_safe::{CCtx, CParameter, DCtx};

const HEADER_BYTES: usize = 8;
const IS_PACKED: u32 = 1 << 31;
/// Compression level: the fastest one that still pays over any network.
const LEVEL: i32 = 1;
/// Room in a block, in bytes, below which content goes into the next block instead.
const MIN_CHUNK_BYTES: usize = 4 << 10;
/// Most bytes of an encoded item around its piece of content.
const CHUNK_OVERHEAD_BYTES: usize = 8;

/// Compression of the blocks of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Packing {
    /// No compression: within one machine the wire is faster than compression.
    Stored,
    /// zstd.
    Zstd,
}

/// Encoder that collects items into blocks.
pub struct Packer {
    items: Vec<u8>,
    used: usize,
    packed: Vec<u8>,
    cx: Option<CCtx<'static>>,
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer")
            .field("used", &self.used)
            .field("is_packing", &self.cx.is_some())
            .finish_non_exhaustive()
    }
}

fn internal(what: &str, error: impl fmt::Display) -> Fault {
    Fault::failed(Code::Internal, format!("cannot {what}: {error}"))
}

impl Packer {
    /// Creates an encoder with an empty block.
    ///
    /// # Errors
    /// `internal` if the compressor cannot be created or configured.
    pub fn new(packing: Packing) -> Result<Self, Fault> {
        let cx = match packing {
            Packing::Stored => None,
            Packing::Zstd => {
                let mut cx = CCtx::try_create()
                    .ok_or_else(|| internal("compress", "no memory for the compressor"))?;
                cx.set_parameter(CParameter::CompressionLevel(LEVEL))
                    .map_err(|code| internal("compress", zstd_safe::get_error_name(code)))?;
                Some(cx)
            }
        };
        Ok(Self {
            items: Vec::new(),
            used: 0,
            packed: Vec::new(),
            cx,
        })
    }

    /// Adds an item. If it does not fit into the current block, that block is appended to `out`
    /// first.
    ///
    /// # Errors
    /// `too-large` for an item that does not fit into an empty block; `internal` as for
    /// [`Self::seal`], or if the item cannot be serialized.
    pub fn push<T: Serialize>(&mut self, item: &T, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.items.resize(MAX_BLOCK_BYTES, 0);
        if !self.fit(item)? {
            self.seal(out)?;
            if !self.fit(item)? {
                let message = format!("an item of a tree exceeds {MAX_BLOCK_BYTES} bytes");
                return Err(Fault::failed(Code::TooLarge, message));
            }
        }
        Ok(())
    }

    fn fit<T: Serialize>(&mut self, item: &T) -> Result<bool, Fault> {
        match postcard::to_slice(item, &mut self.items[self.used..]) {
            Ok(written) => {
                self.used += written.len();
                Ok(true)
            }
            Err(postcard::Error::SerializeBufferFull) => Ok(false),
            Err(error) => Err(internal("encode an item of a tree", error)),
        }
    }

    /// Returns the length of the next piece of content, in bytes, such that its item fits into the
    /// current block, or into the next one if little room is left.
    pub fn chunk_room(&self) -> usize {
        let room = MAX_BLOCK_BYTES - self.used;
        if room < MIN_CHUNK_BYTES {
            MAX_BLOCK_BYTES - CHUNK_OVERHEAD_BYTES
        } else {
            room - CHUNK_OVERHEAD_BYTES
        }
    }

    /// Appends the current block to `out`. Does nothing if the block is empty.
    ///
    /// # Errors
    /// `internal` if the compressor fails. Its output buffer is always large enough.
    pub fn seal(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        if self.used == 0 {
            return Ok(());
        }
        let items = &self.items[..self.used];
        let mut bytes = items;
        let mut mark = 0;
        if let Some(cx) = &mut self.cx {
            self.packed
                .resize(zstd_safe::compress_bound(items.len()), 0);
            let count = cx
                .compress2(self.packed.as_mut_slice(), items)
                .map_err(|code| internal("compress", zstd_safe::get_error_name(code)))?;
            if count < items.len() {
                bytes = &self.packed[..count];
                mark = IS_PACKED;
            }
        }
        out.extend_from_slice(&(bytes.len() as u32 | mark).to_le_bytes());
        out.extend_from_slice(&(items.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
        self.used = 0;
        Ok(())
    }
}

/// Decoder that splits a byte stream into blocks.
pub struct Unpacker {
    /// Header and body of the block that is arriving.
    partial: Vec<u8>,
    /// True if the block in `partial` is complete and was returned.
    is_taken: bool,
    items: Vec<u8>,
    cx: Option<DCtx<'static>>,
}

impl fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacker")
            .field("partial", &self.partial.len())
            .finish_non_exhaustive()
    }
}

fn malformed(detail: impl Into<String>) -> WireError {
    WireError::BadPayload {
        what: "block",
        detail: detail.into(),
    }
}

impl Unpacker {
    /// Creates a decoder at the beginning of a stream.
    pub const fn new() -> Self {
        Self {
            partial: Vec::new(),
            is_taken: false,
            items: Vec::new(),
            cx: None,
        }
    }

    /// Returns true if no block has begun to arrive. A stream may end only there.
    pub fn is_between_blocks(&self) -> bool {
        self.is_taken || self.partial.is_empty()
    }

    /// Consumes bytes from the front of `input` until a block is complete. Returns `None` if
    /// `input` ends first. A stored block that lies in `input` as a whole is not copied.
    ///
    /// # Errors
    /// [`WireError::BadPayload`] for a length beyond the bound, or for bytes that do not decompress
    /// to the announced length. The position in the stream is lost then.
    pub fn next_block<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Block<'s>>, WireError> {
        if std::mem::take(&mut self.is_taken) {
            self.partial.clear();
        }
        if self.partial.is_empty()
            && let Some(header) = input.first_chunk()
        {
            let (stored, _, is_packed) = lengths(*header)?;
            if !is_packed && let Some((block, rest)) = input.split_at_checked(HEADER_BYTES + stored)
            {
                *input = rest;
                return Ok(Some(Block(&block[HEADER_BYTES..])));
            }
        }
        if !self.gather(input, HEADER_BYTES) {
            return Ok(None);
        }
        let Some(header) = self.partial.first_chunk() else {
            return Ok(None);
        };
        let (stored, raw, is_packed) = lengths(*header)?;
        if !self.gather(input, HEADER_BYTES + stored) {
            return Ok(None);
        }
        // The returned block borrows from `partial`, so the next call clears it, not this one.
        self.is_taken = true;
        let bytes = &self.partial[HEADER_BYTES..];
        if is_packed {
            let cx = match &mut self.cx {
                Some(cx) => cx,
                none => none.insert(
                    DCtx::try_create().ok_or_else(|| malformed("no memory to decompress it"))?,
                ),
            };
            self.items.resize(MAX_BLOCK_BYTES, 0);
            // TRUST: the decompressor writes into a buffer of the announced length and no further.
            let count = cx
                .decompress(&mut self.items[..raw], bytes)
                .map_err(|code| malformed(zstd_safe::get_error_name(code)))?;
            if count != raw {
                return Err(malformed(format!("{count} bytes instead of {raw}")));
            }
            return Ok(Some(Block(&self.items[..raw])));
        }
        Ok(Some(Block(bytes)))
    }

    /// Moves bytes from `input` to `partial` until it has `wanted` bytes. Returns true if it has.
    fn gather(&mut self, input: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.partial.len());
        let (taken, rest) = input.split_at(missing.min(input.len()));
        self.partial.extend_from_slice(taken);
        *input = rest;
        self.partial.len() >= wanted
    }
}

/// Returns the number of bytes behind the header, the number of bytes of items, and true if the
/// block is compressed.
// TRUST: both lengths come from the peer; they are checked before anything is stored.
fn lengths(header: [u8; HEADER_BYTES]) -> Result<(usize, usize, bool), WireError> {
    let both = u64::from_le_bytes(header);
    let (first, raw) = (both as u32, (both >> 32) as usize);
    let stored = (first & !IS_PACKED) as usize;
    let is_packed = first & IS_PACKED != 0;
    if raw == 0 || raw > MAX_BLOCK_BYTES || stored == 0 || stored > raw {
        return Err(malformed(format!("{stored} bytes for {raw}")));
    }
    if !is_packed && stored != raw {
        return Err(malformed("a stored block of another length"));
    }
    Ok((stored, raw, is_packed))
}

impl Default for Unpacker {
    fn default() -> Self {
        Self::new()
    }
}

/// Encoded items of one block.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a>(&'a [u8]);

impl<'a> Block<'a> {
    /// Returns an iterator that decodes the items. It ends after the first error.
    pub fn items<T: Deserialize<'a>>(self) -> Items<'a, T> {
        Items {
            bytes: self.0,
            kind: std::marker::PhantomData,
        }
    }
}

/// Iterator over the items of a block.
#[derive(Debug)]
pub struct Items<'a, T> {
    bytes: &'a [u8],
    kind: std::marker::PhantomData<fn() -> T>,
}

impl<'a, T: Deserialize<'a>> Iterator for Items<'a, T> {
    type Item = Result<T, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        // TRUST: the decoder never reads past the slice; strings are borrowed from it.
        match postcard::take_from_bytes(self.bytes) {
            // An item without bytes would repeat forever.
            Ok((_, rest)) if rest.len() == self.bytes.len() => {
                self.bytes = &[];
                Some(Err(malformed("an empty item")))
            }
            Ok((item, rest)) => {
                self.bytes = rest;
                Some(Ok(item))
            }
            Err(error) => {
                self.bytes = &[];
                Some(Err(malformed(error.to_string())))
            }
        }
    }
}

#[cfg(test)]
mod tests;
