//! Messages of servers, for the client.

use super::{VERSION, id_of, is_answer, mend_error, mend_introduction, parse};
use rmcp::model::{
    CustomResult, ErrorCode, ErrorData, ServerCapabilities, ServerJsonRpcMessage, ServerResult,
};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

/// Field that holds a result as the server sent it. The SDK decodes a result as the first of its
/// types that fits, which may not be the type of the request.
const RESULT: &str = "glovebox/result";
/// Code of a reply that cannot be read.
pub(crate) const UNREAD: ErrorCode = ErrorCode(i32::MIN + 2);
/// Lowest code that a server's error can have. Codes below it are assigned by this crate.
const FIRST_FOREIGN_CODE: i32 = i32::MIN + 16;
/// Maximum number of messages of one batch.
const MAX_BATCH: usize = 256;

/// Reads what a server sends as one message. Empty for bytes that are no message, and for
/// notifications that are not understood; several for a batch. A reply that cannot be read becomes
/// an error under its id.
// TRUST: a server chose every byte. The JSON parser bounds the depth, the caller bounds the size.
pub fn read_server(bytes: &[u8]) -> Vec<ServerJsonRpcMessage> {
    match parse(bytes) {
        Ok(Value::Object(message)) => read_message(message).into_iter().collect(),
        Ok(Value::Array(batch)) => {
            let messages = batch.into_iter().take(MAX_BATCH);
            messages
                .filter_map(|message| match message {
                    Value::Object(message) => read_message(message),
                    _ => None,
                })
                .collect()
        }
        Ok(_) => Vec::new(),
        Err(unreadable) => {
            let id = unreadable.head.id.filter(|_| unreadable.head.is_answer);
            let text = unreadable.why;
            let error = |id| ServerJsonRpcMessage::error(unread(text), Some(id));
            id.map(error).into_iter().collect()
        }
    }
}

/// Returns the result as the server sent it. `None` for the result of an introduction.
pub(crate) fn result_value(result: ServerResult) -> Option<Value> {
    match result {
        ServerResult::CustomResult(CustomResult(mut value)) => {
            value.get_mut(RESULT).map(Value::take)
        }
        _ => None,
    }
}

fn read_message(mut message: Map<String, Value>) -> Option<ServerJsonRpcMessage> {
    message.insert("jsonrpc".to_owned(), VERSION.into());
    if is_answer(&message) {
        return read_answer(message);
    }
    let message = Value::Object(message);
    if let Ok(decoded) = ServerJsonRpcMessage::deserialize(&message) {
        return Some(decoded);
    }
    // A request with unknown parameters: without them the SDK replies that the method is unknown.
    let bare = json!({ "jsonrpc": VERSION, "id": message["id"], "method": message["method"] });
    ServerJsonRpcMessage::deserialize(&bare).ok()
}

fn read_answer(mut message: Map<String, Value>) -> Option<ServerJsonRpcMessage> {
    let id = id_of(&message);
    let error = message.remove("error").filter(|error| !error.is_null());
    if let Some(mut error) = error {
        mend_error(&mut error);
        let mut error =
            ErrorData::deserialize(error).unwrap_or_else(|error| unread(error.to_string()));
        error.code.0 = error.code.0.max(FIRST_FOREIGN_CODE);
        return Some(ServerJsonRpcMessage::error(error, id));
    }
    let mut result = message.remove("result").unwrap_or_default();
    let is_introduction = result.get("protocolVersion").is_some()
        && (result.get("capabilities").is_some() || result.get("serverInfo").is_some());
    if is_introduction && let Value::Object(introduction) = &mut result {
        mend_introduction(introduction, "serverInfo", |capability| {
            ServerCapabilities::deserialize(capability).is_ok()
        });
        if let Ok(known) = ServerResult::deserialize(&result) {
            return Some(ServerJsonRpcMessage::response(known, id?));
        }
    }
    let result = CustomResult::new(json!({ RESULT: result }));
    Some(ServerJsonRpcMessage::response(
        ServerResult::CustomResult(result),
        id?,
    ))
}

fn unread(text: String) -> ErrorData {
    ErrorData::new(UNREAD, text, None)
}
