//! Property tests: blocks decode to the items that were encoded, for any content and any split.
//! Bytes that no packer wrote yield an error.

use super::*;
use crate::tree::{PutItem, ScanItem};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum OwnedItem {
    Delete(Vec<u8>),
    Link(Vec<u8>, Vec<u8>),
    Chunk(Vec<u8>),
    End(u64, [u8; 32]),
}

impl OwnedItem {
    fn item(&self) -> PutItem<'_> {
        match self {
            Self::Delete(path) => PutItem::Delete { path },
            Self::Link(path, target) => PutItem::Link { path, target },
            Self::Chunk(bytes) => PutItem::Chunk(bytes),
            Self::End(size, digest) => PutItem::End {
                size: *size,
                digest: *digest,
            },
        }
    }
}

fn own() -> impl Strategy<Value = OwnedItem> {
    let bytes = |max| proptest::collection::vec(any::<u8>(), 0..max);
    prop_oneof![
        bytes(300).prop_map(OwnedItem::Delete),
        (bytes(300), bytes(300)).prop_map(|(path, target)| OwnedItem::Link(path, target)),
        bytes(60_000).prop_map(OwnedItem::Chunk),
        (0_usize..MAX_BLOCK_BYTES - 8).prop_map(|len| OwnedItem::Chunk(vec![7; len])),
        (any::<u64>(), any::<[u8; 32]>()).prop_map(|(size, digest)| OwnedItem::End(size, digest)),
    ]
}

fn packing() -> impl Strategy<Value = Packing> {
    prop_oneof![Just(Packing::Stored), Just(Packing::Zstd)]
}

/// Unpacks bytes that arrive in pieces, and returns the items as text.
fn unpack(bytes: &[u8], piece: usize) -> Result<Vec<String>, WireError> {
    let mut unpacker = Unpacker::new();
    let mut found = Vec::new();
    for mut input in bytes.chunks(piece.max(1)) {
        while let Some(block) = unpacker.next_block(&mut input)? {
            for item in block.items::<PutItem<'_>>() {
                found.push(format!("{:?}", item?));
            }
        }
        assert!(input.is_empty(), "bytes were left without a block");
    }
    if unpacker.is_between_blocks() {
        Ok(found)
    } else {
        Err(malformed("cut off"))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn items_survive(items in proptest::collection::vec(own(), 0..40), packing in packing(), piece in 1_usize..200_000) {
        let mut packer = Packer::new(packing).unwrap();
        let mut stream = Vec::new();
        for own in &items {
            packer.push(&own.item(), &mut stream).unwrap();
        }
        packer.seal(&mut stream).unwrap();
        let wanted: Vec<_> = items.iter().map(|own| format!("{:?}", own.item())).collect();
        prop_assert_eq!(unpack(&stream, piece).unwrap(), wanted);
        if stream.len() > 8 {
            prop_assert!(unpack(&stream[..stream.len() - 1], piece).is_err());
        }
    }

    #[test]
    fn content_cut_to_the_room_always_fits(sizes in proptest::collection::vec(0_usize..200_000, 0..20)) {
        let mut packer = Packer::new(Packing::Stored).unwrap();
        let mut stream = Vec::new();
        let mut sum = 0;
        for size in sizes {
            let bytes = vec![1; size.min(packer.chunk_room())];
            sum += bytes.len();
            packer.push(&PutItem::Chunk(&bytes), &mut stream).unwrap();
        }
        packer.seal(&mut stream).unwrap();
        prop_assert!(stream.len() >= sum);
    }

    #[test]
    fn any_bytes_give_an_error_or_items(bytes in proptest::collection::vec(any::<u8>(), 0..3000), piece in 1_usize..3000) {
        let _ = unpack(&bytes, piece);
    }

    #[test]
    fn damaged_blocks_give_an_error_or_items(seed in own(), at in any::<prop::sample::Index>(), bit in 0_u8..8, packing in packing()) {
        let mut packer = Packer::new(packing).unwrap();
        let mut stream = Vec::new();
        packer.push(&seed.item(), &mut stream).unwrap();
        packer.seal(&mut stream).unwrap();
        let at = at.index(stream.len());
        stream[at] ^= 1 << bit;
        let _ = unpack(&stream, 1000);
    }
}

#[test]
fn lengths_beyond_the_bound_are_refused_from_the_header_alone() {
    let header = |first: u32, raw: u32| [first.to_le_bytes(), raw.to_le_bytes()].concat();
    for (first, raw) in [
        (1, MAX_BLOCK_BYTES as u32 + 1),
        (MAX_BLOCK_BYTES as u32 + 1, MAX_BLOCK_BYTES as u32),
        (0, 0),
        (0, 5),
        (5, 4),
        (4, 5),
        (IS_PACKED, 10),
        (u32::MAX, u32::MAX),
    ] {
        let bytes = header(first, raw);
        let mut unpacker = Unpacker::new();
        assert!(
            unpacker.next_block(&mut bytes.as_slice()).is_err(),
            "{first:#x} {raw:#x}"
        );
        assert!(unpacker.partial.capacity() < 1024);
    }
}

#[test]
fn a_bomb_stays_within_its_announced_length() {
    let zeros = vec![0; 64 << 20];
    let mut packed = vec![0; zstd_safe::compress_bound(zeros.len())];
    let count = zstd_safe::compress(packed.as_mut_slice(), &zeros, 1).unwrap();
    let packed = &packed[..count];
    let mut stream = (count as u32 | IS_PACKED).to_le_bytes().to_vec();
    stream.extend_from_slice(&(MAX_BLOCK_BYTES as u32).to_le_bytes());
    stream.extend_from_slice(packed);
    let mut unpacker = Unpacker::new();
    assert!(unpacker.next_block(&mut stream.as_slice()).is_err());
    assert!(unpacker.items.capacity() <= 2 * MAX_BLOCK_BYTES);
}

#[test]
fn an_item_that_fits_nowhere_is_refused_and_the_block_stays_good() {
    let mut packer = Packer::new(Packing::Zstd).unwrap();
    let mut stream = Vec::new();
    packer
        .push(&PutItem::Delete { path: b"a" }, &mut stream)
        .unwrap();
    let fault = packer
        .push(&PutItem::Chunk(&vec![0; MAX_BLOCK_BYTES]), &mut stream)
        .unwrap_err();
    assert_eq!(fault.code, Code::TooLarge);
    packer
        .push(&PutItem::Delete { path: b"b" }, &mut stream)
        .unwrap();
    packer.seal(&mut stream).unwrap();
    assert_eq!(unpack(&stream, 3).unwrap().len(), 2);
}

#[test]
fn what_compresses_is_smaller_and_what_does_not_is_stored() {
    let mut packer = Packer::new(Packing::Zstd).unwrap();
    let mut small = Vec::new();
    packer
        .push(&PutItem::Chunk(&vec![0; 100_000]), &mut small)
        .unwrap();
    packer.seal(&mut small).unwrap();
    assert!(small.len() < 1000, "{}", small.len());

    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    })
    .take(100_000)
    .collect();
    let mut large = Vec::new();
    packer.push(&PutItem::Chunk(&noise), &mut large).unwrap();
    packer.seal(&mut large).unwrap();
    assert!(large.len() < noise.len() + 32, "{}", large.len());
}

#[test]
fn a_scan_item_borrows_from_its_block() {
    let item = ScanItem::Missed {
        path: b"x/\xff",
        code: Code::PermissionDenied,
    };
    let mut packer = Packer::new(Packing::Stored).unwrap();
    let mut stream = Vec::new();
    packer.push(&item, &mut stream).unwrap();
    packer.seal(&mut stream).unwrap();
    let mut unpacker = Unpacker::new();
    let block = unpacker
        .next_block(&mut stream.as_slice())
        .unwrap()
        .unwrap();
    let items: Vec<_> = block.items::<ScanItem<'_>>().map(Result::unwrap).collect();
    assert_eq!(items, [item]);
}
