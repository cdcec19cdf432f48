//! Arbitrary bytes as a message of an MCP client: no panic, a request is decoded or answered under its id, and a
//! decoded message is one again after it was written.
#![no_main]

use glovebox_mcp::message::{ClientMessage, read_client};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let given = serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    let id = given.get("id").filter(|id| id.is_string() || id.is_i64());
    match read_client(bytes) {
        ClientMessage::Decoded(_, json) => {
            let again = read_client(json.to_string().as_bytes());
            assert!(matches!(again, ClientMessage::Decoded(..)), "{json}");
        }
        ClientMessage::Refused(answers) => {
            let answered = serde_json::to_value(&answers).unwrap_or_default();
            if let (Some(id), Some(_)) = (id, given.get("method")) {
                assert_eq!(&answered[0]["id"], id, "{answered}");
            }
        }
    }
});
