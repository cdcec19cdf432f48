//! Messages of clients, for the server.

use super::{VERSION, id_of, is_answer, mend_error, mend_introduction, parse, parse_text};
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcError,
    JsonRpcMessage, RequestId,
};
use serde::Deserialize as _;
use serde_json::{Map, Value};

/// Method with which clients of protocol versions without sessions ask for the server's
/// capabilities.
const DISCOVER: &str = "server/discover";
/// Maximum number of requests of a batch that are answered individually.
const MAX_BATCH_ANSWERS: usize = 256;

/// Parameters of the known methods, for error messages.
const PARAMETERS: [(&str, &str); 7] = [
    ("tools/call", "`name` is a string and `arguments` an object"),
    ("tools/list", "an object, `cursor` in it a string"),
    ("resources/read", "`uri` is a string"),
    ("resources/list", "an object, `cursor` in it a string"),
    (
        "resources/templates/list",
        "an object, `cursor` in it a string",
    ),
    (
        "initialize",
        "`protocolVersion` is a string, `capabilities` and `clientInfo` are objects",
    ),
    ("ping", "an object, or none"),
];

/// Result of reading one message of a client.
#[derive(Debug)]
pub enum ClientMessage {
    /// Message for the SDK, and its JSON after repair.
    Decoded(Box<ClientJsonRpcMessage>, Value),
    /// Message that is not understood, with the replies to send: none for a notification, several
    /// for a batch.
    Refused(Vec<JsonRpcError>),
}

/// Reads one message of a client.
// TRUST: a client chose every byte. The JSON parser bounds the depth, the caller bounds the size.
pub fn read_client(bytes: &[u8]) -> ClientMessage {
    let message = match parse(bytes) {
        Ok(message) => message,
        Err(unreadable) if unreadable.head.is_answer => {
            return failed_answer(unreadable.head.id, &unreadable.why);
        }
        Err(unreadable) => {
            let text = format!("the message is not JSON: {}", unreadable.why);
            let error = match unreadable.head.id {
                Some(_) => ErrorData::invalid_request(text, None),
                None => ErrorData::parse_error(text, None),
            };
            return refuse(unreadable.head.id, error);
        }
    };
    match message {
        Value::Object(message) if is_answer(&message) => read_answer(message),
        Value::Object(message) => read_request(message),
        Value::Array(batch) => refuse_batch(&batch),
        _ => refuse(None, invalid("a message is a JSON object")),
    }
}

fn read_request(mut message: Map<String, Value>) -> ClientMessage {
    let is_notification = !message.contains_key("id");
    let id = id_of(&message);
    let Some(Value::String(method)) = message.get("method").cloned() else {
        return refuse(id, invalid("`method` is not a string"));
    };
    if !is_notification && id.is_none() {
        let error = invalid("`id` is neither a string nor a whole number");
        return refuse(None, error);
    }
    let error = if message.get("jsonrpc").and_then(Value::as_str) != Some(VERSION) {
        Some(invalid("`jsonrpc` is not \"2.0\""))
    } else if message.contains_key("result") || message.contains_key("error") {
        Some(invalid("a request has neither `result` nor `error`"))
    } else if method == DISCOVER && !is_notification {
        // The SDK's own reply makes clients give up instead of continuing with `initialize`.
        Some(unknown(&method))
    } else {
        None
    };
    if let Some(error) = error {
        return refuse_unless(is_notification, id, error);
    }
    mend_parameters(&method, &mut message);
    let message = Value::Object(message);
    let parameters = PARAMETERS.iter().find(|(known, _)| *known == method);
    let error = match (ClientJsonRpcMessage::deserialize(&message), parameters) {
        // The SDK decodes a known method with parameters that do not fit as a custom request.
        (Ok(JsonRpcMessage::Request(request)), Some((_, parameters)))
            if matches!(request.request, ClientRequest::CustomRequest(_)) =>
        {
            let text = format!("the parameters of {method} do not fit: {parameters}");
            ErrorData::invalid_params(text, None)
        }
        (Ok(decoded), _) => return ClientMessage::Decoded(Box::new(decoded), message),
        (Err(_), Some((_, parameters))) => {
            let text = format!("the parameters of {method} do not fit: {parameters}");
            ErrorData::invalid_params(text, None)
        }
        (Err(_), None) => unknown(&method),
    };
    refuse_unless(is_notification, id, error)
}

/// Reads a reply to a request of the server. An unreadable reply becomes an error, so that the
/// request does not wait for ever.
fn read_answer(mut message: Map<String, Value>) -> ClientMessage {
    let id = id_of(&message);
    message.insert("jsonrpc".to_owned(), VERSION.into());
    if let Some(error) = message.get_mut("error") {
        mend_error(error);
    }
    let message = Value::Object(message);
    match ClientJsonRpcMessage::deserialize(&message) {
        Ok(decoded) => ClientMessage::Decoded(Box::new(decoded), message),
        Err(error) => failed_answer(id, &error.to_string()),
    }
}

fn failed_answer(id: Option<RequestId>, why: &str) -> ClientMessage {
    let Some(id) = id else {
        // The reply belongs to no request, and replies are never answered.
        return ClientMessage::Refused(Vec::new());
    };
    let error = ErrorData::internal_error(format!("the answer cannot be read: {why}"), None);
    let message = ClientJsonRpcMessage::error(error, Some(id));
    let json = serde_json::to_value(&message).unwrap_or_default();
    ClientMessage::Decoded(Box::new(message), json)
}

fn refuse_batch(batch: &[Value]) -> ClientMessage {
    let error = || invalid("send messages one by one, not in a list");
    let requests = batch.iter().filter_map(Value::as_object);
    let ids = requests
        .filter(|message| !is_answer(message))
        .filter_map(id_of);
    let answers: Vec<_> = ids
        .take(MAX_BATCH_ANSWERS)
        .map(|id| JsonRpcError::new(Some(id), error()))
        .collect();
    if answers.is_empty() {
        return refuse(None, error());
    }
    ClientMessage::Refused(answers)
}

fn mend_parameters(method: &str, message: &mut Map<String, Value>) {
    let Some(Value::Object(parameters)) = message.get_mut("params") else {
        return;
    };
    if parameters
        .get("_meta")
        .is_some_and(|meta| !meta.is_object())
    {
        parameters.remove("_meta");
    }
    match method {
        "initialize" => mend_introduction(parameters, "clientInfo", |capability| {
            ClientCapabilities::deserialize(capability).is_ok()
        }),
        "tools/call" => mend_arguments(parameters),
        _ => {}
    }
}

/// Parses arguments that were sent as a string with a JSON object. Absent and empty ones become an
/// empty object.
fn mend_arguments(parameters: &mut Map<String, Value>) {
    let arguments = match parameters.get("arguments") {
        Some(Value::Null) => Value::Object(Map::new()),
        Some(Value::String(text)) if text.trim().is_empty() => Value::Object(Map::new()),
        Some(Value::String(text)) => match parse_text(text) {
            Ok(object @ Value::Object(_)) => object,
            _ => return,
        },
        _ => return,
    };
    parameters.insert("arguments".to_owned(), arguments);
}

fn invalid(text: &'static str) -> ErrorData {
    ErrorData::invalid_request(text, None)
}

fn unknown(method: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None)
}

fn refuse(id: Option<RequestId>, error: ErrorData) -> ClientMessage {
    ClientMessage::Refused(vec![JsonRpcError::new(id, error)])
}

fn refuse_unless(is_notification: bool, id: Option<RequestId>, error: ErrorData) -> ClientMessage {
    if is_notification {
        return ClientMessage::Refused(Vec::new());
    }
    refuse(id, error)
}
