//! Arbitrary contents and replacements through the rules of Edit, which are pure.
#![no_main]

#[path = "../../crates/guest/src/files/edit/by_lines.rs"]
mod by_lines;
#[path = "../../crates/guest/src/files/edit/nearest.rs"]
mod nearest;
#[path = "../../crates/guest/src/files/edit/replace.rs"]
mod replace;

use glovebox_proto::{MatchKind, Replacement};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use serde_bytes::ByteBuf;

#[derive(Debug, Arbitrary)]
struct Input {
    content: Vec<u8>,
    edits: Vec<(Vec<u8>, Vec<u8>, bool)>,
}

fuzz_target!(|input: Input| {
    let Input { content, edits } = input;
    let wanted: Vec<Replacement> = edits
        .into_iter()
        .take(4)
        .map(|(old, new, all)| Replacement {
            old: ByteBuf::from(old),
            new: ByteBuf::from(new),
            all,
        })
        .collect();
    let Ok((new, made)) = replace::all(&content, &wanted) else {
        return;
    };
    assert_eq!(made.len(), wanted.len());
    for (made, wanted) in made.iter().zip(&wanted) {
        assert!(made.places == 1 || (wanted.all && made.places > 1));
    }
    if let ([made], [wanted]) = (&made[..], &wanted[..])
        && made.how == MatchKind::Exact
    {
        let places: Vec<usize> = memchr::memmem::find_iter(&content, &wanted.old[..]).collect();
        assert_eq!(places.len(), made.places);
        let mut expected = Vec::new();
        let mut from = 0;
        for place in places {
            expected.extend_from_slice(&content[from..place]);
            expected.extend_from_slice(&wanted.new);
            from = place + wanted.old.len();
        }
        expected.extend_from_slice(&content[from..]);
        assert_eq!(new, expected);
    }
});
