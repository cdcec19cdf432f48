//! Arbitrary bytes through the decoder of the base index: an error or sorted paths, never a crash, and
//! never more memory than one block.
#![no_main]

use glovebox_workspace::base::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut previous = None;
    let mut seen = 0;
    let counted = decode(bytes, |path, _| {
        assert!(previous.as_ref().is_none_or(|before| before < path));
        previous = Some(path.clone());
        seen += 1;
        true
    });
    if let Ok(count) = counted {
        assert_eq!(count, seen);
    }
});
