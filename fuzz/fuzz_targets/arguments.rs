//! Arbitrary JSON as the arguments of every tool: taken or refused, never a panic, and what was taken
//! is taken again as it was understood.
#![no_main]

use glovebox_tools::CATALOG;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(arguments) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    for tool in &CATALOG {
        if let Ok(understood) = tool.check(arguments.clone()) {
            assert_eq!(
                tool.check(understood.clone()),
                Ok(understood),
                "{}",
                tool.name
            );
        }
    }
});
