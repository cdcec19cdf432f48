//! JSON-RPC messages as the other side writes them, read before the SDK sees them.
//!
//! The SDK drops a message that it cannot decode, or ends the connection. This module repairs such
//! a message if its meaning is clear. Otherwise it is answered under its id, so that neither side
//! waits for a reply that never comes.

mod from_client;
mod from_server;

pub use from_client::{ClientMessage, read_client};
pub use from_server::read_server;
pub(crate) use from_server::{UNREAD, result_value};

use glovebox_proto::json::mend;
use rmcp::model::{ErrorCode, RequestId};
use serde::Deserialize as _;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value, json};
use std::fmt;

/// Byte order mark. JSON may begin with one (RFC 8259, 8.1).
const BOM: &[u8] = b"\xEF\xBB\xBF";
const VERSION: &str = "2.0";

/// Bytes that are not JSON.
#[derive(Debug)]
struct UnreadableMessage {
    why: String,
    head: Head,
}

/// Part of a message that identifies its request, as far as it could be read.
#[derive(Debug, Default)]
struct Head {
    id: Option<RequestId>,
    is_answer: bool,
}

/// Parses JSON. Unpaired UTF-16 surrogates become U+FFFD.
fn parse(bytes: &[u8]) -> Result<Value, UnreadableMessage> {
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err(UnreadableMessage {
            why: "it is not UTF-8".to_owned(),
            head: read_head(&String::from_utf8_lossy(bytes)),
        });
    };
    parse_text(text).map_err(|error| UnreadableMessage {
        why: error.to_string(),
        head: read_head(text),
    })
}

fn parse_text(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|error| match mend(text) {
        Some(mended) => serde_json::from_str(&mended),
        None => Err(error),
    })
}

/// Reads the head of a message up to the first error. Values are skipped, so their depth and size
/// do not matter.
fn read_head(text: &str) -> Head {
    struct HeadVisitor<'a>(&'a mut Head);

    impl<'de> Visitor<'de> for HeadVisitor<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a message")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<String>()? {
                // Recorded before the value is read, because parsing may fail in the value.
                self.0.is_answer |= matches!(key.as_str(), "result" | "error");
                if key == "id" {
                    self.0.id = map.next_value()?;
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(())
        }
    }

    let mut head = Head::default();
    let mut reader = serde_json::Deserializer::from_str(text);
    // An error is expected; the fields before it are recorded.
    let _ = reader.deserialize_map(HeadVisitor(&mut head));
    head
}

/// Returns the id of a message. `None` if there is none, or one that no request can have.
fn id_of(message: &Map<String, Value>) -> Option<RequestId> {
    RequestId::deserialize(message.get("id")?).ok()
}

/// Returns true for a reply to a request of this side.
fn is_answer(message: &Map<String, Value>) -> bool {
    !message.contains_key("method")
        && (message.contains_key("result") || message.contains_key("error"))
}

/// Repairs the introduction of the other side. Keeps the capabilities that `is_known` accepts, each
/// tested by itself, and the name and version from the field `info`.
fn mend_introduction(
    introduction: &mut Map<String, Value>,
    info: &str,
    is_known: impl Fn(&Value) -> bool,
) {
    let capabilities = match introduction.remove("capabilities") {
        Some(Value::Object(capabilities)) => capabilities,
        _ => Map::new(),
    };
    let known = capabilities
        .into_iter()
        .filter(|(name, value)| is_known(&json!({ name: value })));
    let known: Map<String, Value> = known.collect();
    introduction.insert("capabilities".to_owned(), known.into());
    let program = introduction.remove(info).unwrap_or_default();
    let text = |field: &str| program[field].as_str().unwrap_or_default().to_owned();
    let program = json!({ "name": text("name"), "version": text("version") });
    introduction.insert(info.to_owned(), program);
}

/// Rewrites the error of a reply to a form that the SDK decodes: a number and a text.
fn mend_error(error: &mut Value) {
    let code = error["code"]
        .as_i64()
        .and_then(|code| i32::try_from(code).ok())
        .unwrap_or(ErrorCode::INTERNAL_ERROR.0);
    let message = match (&error["message"], &*error) {
        (Value::String(text), _) | (Value::Null, Value::String(text)) => text.clone(),
        (Value::Null, _) => String::new(),
        (other, _) => other.to_string(),
    };
    let data = error.get_mut("data").map(Value::take);
    *error = json!({ "code": code, "message": message });
    if let Some(data) = data {
        error["data"] = data;
    }
}
