//! Tree streams made of any bytes, cut anywhere, taken apart as every kind of item: an error or
//! items within the bounds, never a crash or memory without bound.

#![no_main]

use glovebox_proto::tree::{
    Block, GotItem, MAX_BLOCK_BYTES, Packer, Packing, PutItem, PutReceipt, ScanItem, Unpacker, Want,
};
use libfuzzer_sys::fuzz_target;

fn count(block: Block<'_>) -> usize {
    let oks = |found: usize| {
        assert!(found <= MAX_BLOCK_BYTES, "more items than bytes");
        found
    };
    oks(block.items::<ScanItem<'_>>().filter(Result::is_ok).count())
        + oks(block.items::<PutItem<'_>>().filter(Result::is_ok).count())
        + oks(block.items::<PutReceipt>().filter(Result::is_ok).count())
        + oks(block.items::<Want<'_>>().filter(Result::is_ok).count())
        + oks(block.items::<GotItem<'_>>().filter(Result::is_ok).count())
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else {
        return;
    };
    // As a stream of the peer's own making.
    let mut unpacker = Unpacker::new();
    'stream: for mut piece in bytes.chunks(usize::from(cut) + 1) {
        loop {
            match unpacker.next_block(&mut piece) {
                Ok(Some(block)) => {
                    count(block);
                }
                Ok(None) => break,
                Err(_) => break 'stream,
            }
        }
    }
    // As content: it must come out as it went in, in both packings.
    for packing in [Packing::Stored, Packing::Zstd] {
        let Ok(mut packer) = Packer::new(packing) else {
            return;
        };
        let mut stream = Vec::new();
        for chunk in bytes.chunks(MAX_BLOCK_BYTES / 2) {
            packer
                .push(&PutItem::Chunk(chunk), &mut stream)
                .expect("half a block fits");
        }
        packer.seal(&mut stream).expect("a block can be sealed");
        let mut unpacker = Unpacker::new();
        let mut rest = stream.as_slice();
        let mut content = Vec::new();
        while let Some(block) = unpacker.next_block(&mut rest).expect("own blocks are good") {
            for item in block.items::<PutItem<'_>>() {
                match item.expect("own items are good") {
                    PutItem::Chunk(chunk) => content.extend_from_slice(chunk),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(content, bytes);
    }
});
