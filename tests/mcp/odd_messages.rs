//! Messages of clients that are not to the letter: each is answered under its id, over both transports, and the
//! client's session goes on.

use crate::pipe::Pipe;
use crate::site::Site;
use serde_json::{Value, json};
use testkit::Person;

/// The fate of a message.
enum Fate {
    /// The call is made, and its text begins like this.
    Made(&'static str),
    /// An error of this code under the request's id, with this in its text.
    Refused(i64, &'static str),
    /// An error of this code that names no request.
    Unnamed(i64, &'static str),
    /// Nothing is answered.
    Silent,
}
use Fate::{Made, Refused, Silent, Unnamed};

/// The id of the message in each row.
const ID: u64 = 4711;

fn call(arguments: &str) -> Vec<u8> {
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":{ID},"method":"tools/call","params":{{"name":"Bash","arguments":{arguments}}}}}"#
    );
    message.into_bytes()
}

fn request(rest: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{ID},{rest}}}"#).into_bytes()
}

#[rustfmt::skip]
fn rows() -> Vec<(&'static str, Vec<u8>, Fate)> {
    let deep = format!(r#"{{"command":{}1{}}}"#, "[".repeat(300), "]".repeat(300));
    let not_utf8 = [&call(r#"{"command":"echo "#)[..call("").len() - 2], b"\xff\"}}}"].concat();
    vec![
        ("a byte order mark", [b"\xEF\xBB\xBF", &call(r#"{"command":"echo bom"}"#)[..]].concat(), Made("bom\n")),
        ("a carriage return", [&call(r#"{"command":"echo cr"}"#)[..], b"\r"].concat(), Made("cr\n")),
        ("the first half of a pair", call(r#"{"command":"echo a\ud83d"}"#), Made("a\u{FFFD}\n")),
        ("the second half of a pair", call(r#"{"command":"echo \ude00b"}"#), Made("\u{FFFD}b\n")),
        ("a whole pair", call(r#"{"command":"echo \ud83d\ude00"}"#), Made("\u{1F600}\n")),
        ("an escaped backslash", call(r#"{"command":"echo '\\ud83d'"}"#), Made("\\ud83d\n")),
        ("a half in a name", call(r#"{"command":"echo name","\ud83d":1}"#), Refused(0, "")),
        ("arguments as text", call(r#""{\"command\":\"echo text\"}""#), Made("text\n")),
        ("arguments as text with a half", call(r#""{\"command\":\"echo \\ud83d\"}""#), Made("\u{FFFD}\n")),
        ("arguments as a list", call("[1]"), Refused(-32602, "`arguments` an object")),
        ("arguments as other text", call(r#""echo""#), Refused(-32602, "`arguments` an object")),
        ("arguments too deep", call(&deep), Refused(-32600, "recursion")),
        ("a number too large", call(r#"{"command":"echo","wait_ms":1e999}"#), Refused(-32600, "number out of range")),
        ("bytes that are not UTF-8", not_utf8, Refused(-32600, "UTF-8")),
        ("meta that is no object", request(r#""method":"tools/call","params":{"_meta":3,"name":"Bash","arguments":{"command":"echo meta"}}"#), Made("meta\n")),
        ("a name that is no text", request(r#""method":"tools/call","params":{"name":7}"#), Refused(-32602, "`name` is a string")),
        ("no parameters", request(r#""method":"tools/call""#), Refused(-32602, "`name` is a string")),
        ("parameters by place", request(r#""method":"tools/call","params":["Bash"]"#), Refused(-32602, "`name` is a string")),
        ("parameters of a ping", request(r#""method":"ping","params":5"#), Refused(-32602, "ping")),
        ("an unknown method", request(r#""method":"tools/burn","params":5"#), Refused(-32601, "tools/burn")),
        ("a method that is no text", request(r#""method":5"#), Refused(-32600, "`method`")),
        ("no method", request(r#""params":{}"#), Refused(-32600, "`method`")),
        ("another version", format!(r#"{{"jsonrpc":"1.0","id":{ID},"method":"ping"}}"#).into_bytes(), Refused(-32600, "`jsonrpc`")),
        ("no version", format!(r#"{{"id":{ID},"method":"ping"}}"#).into_bytes(), Refused(-32600, "`jsonrpc`")),
        ("a request with a result", request(r#""method":"ping","result":{}"#), Refused(-32600, "`result`")),
        ("text that breaks off", format!(r#"{{"jsonrpc":"2.0","id":{ID},"method":"tools/call","params":{{"name":"Bash""#).into_bytes(), Refused(-32600, "EOF")),
        ("a list", format!(r#"[{{"jsonrpc":"2.0","id":{ID},"method":"ping"}}]"#).into_bytes(), Refused(-32600, "one by one")),
        ("an id that is no id", br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#.to_vec(), Unnamed(-32600, "`id`")),
        ("an empty id", br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#.to_vec(), Unnamed(-32600, "`id`")),
        ("a fraction as id", br#"{"jsonrpc":"2.0","id":0.5,"method":"ping"}"#.to_vec(), Unnamed(-32600, "`id`")),
        ("no JSON", b"GET / HTTP/1.1".to_vec(), Unnamed(-32700, "not JSON")),
        ("a text", br#""ping""#.to_vec(), Unnamed(-32600, "object")),
        ("an empty list", b"[]".to_vec(), Unnamed(-32600, "one by one")),
        ("an odd notification", br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}"#.to_vec(), Silent),
        ("a notification of no version", br#"{"method":"notifications/odd"}"#.to_vec(), Silent),
        ("an answer to nothing", br#"{"jsonrpc":"2.0","id":99,"result":"\ud83d"}"#.to_vec(), Silent),
        ("an answer that breaks off", br#"{"jsonrpc":"2.0","id":99,"result":{"#.to_vec(), Silent),
        ("an odd error", br#"{"jsonrpc":"2.0","id":99,"error":"no"}"#.to_vec(), Silent),
    ]
}

/// Fails unless the answer is what the row says.
fn check(name: &str, fate: &Fate, answer: &Value) {
    let (code, text) = (&answer["error"]["code"], &answer["error"]["message"]);
    match fate {
        Made(begin) => {
            assert_eq!(answer["id"], ID, "{name}: {answer}");
            let said = answer["result"]["content"][0]["text"].as_str();
            assert!(
                said.is_some_and(|said| said.starts_with(begin)),
                "{name}: {answer}"
            );
        }
        // A tool's own refusal is a result.
        Refused(0, _) => {
            assert_eq!(answer["id"], ID, "{name}: {answer}");
            assert_eq!(answer["result"]["isError"], true, "{name}: {answer}");
        }
        Refused(wanted, part) | Unnamed(wanted, part) => {
            let id = if matches!(fate, Refused(..)) {
                json!(ID)
            } else {
                Value::Null
            };
            assert_eq!(answer["id"], id, "{name}: {answer}");
            assert_eq!(code, wanted, "{name}: {answer}");
            assert!(
                text.as_str().is_some_and(|text| text.contains(part)),
                "{name}: {answer}"
            );
        }
        Silent => panic!("{name} is answered: {answer}"),
    }
}

#[test]
fn odd_message_over_a_pipe_is_answered_and_the_session_goes_on() {
    let person = Person::myself();
    let mut pipe = Pipe::open(&person, "");
    for (name, bytes, fate) in rows() {
        pipe.write(&bytes);
        pipe.write(b"\n");
        if !matches!(fate, Silent) {
            check(name, &fate, &pipe.hear().unwrap());
        }
        // The next message must be the answer to this, so nothing else was said.
        let id = pipe.send("tools/list", &json!({}));
        let next = pipe.hear().unwrap();
        assert!(
            next["id"] == id && next["result"].is_object(),
            "after {name}: {next}"
        );
    }
    let said = pipe.call("Bash", &json!({ "command": "printf fine" }));
    assert_eq!(said.lines().next(), Some("fine"));
    pipe.hang_up();
    assert_eq!(pipe.end().0, Some(0));
    person.assert_nothing_left();
}

#[test]
fn odd_message_over_http_is_answered_and_the_session_goes_on() {
    let person = Person::myself();
    let site = Site::open(&person, "");
    let session = site.session();
    let header = [("Mcp-Session-Id", session.as_str())];
    for (name, bytes, fate) in rows() {
        let answer = site.post_bytes(&bytes, &header);
        match fate {
            Silent => assert_eq!(answer.status, 202, "{name}: {answer:?}"),
            Made(_) | Refused(0, _) => {
                assert_eq!(answer.status, 200, "{name}: {answer:?}");
                check(name, &fate, &answer.message());
            }
            Refused(-32601, _) => {
                // An unknown method is the SDK's to answer where its parameters can be read.
                assert!([200, 404].contains(&answer.status), "{name}: {answer:?}");
                check(name, &fate, &answer.message());
            }
            _ => {
                assert_eq!(answer.status, 400, "{name}: {answer:?}");
                assert!(
                    answer.head.contains("application/json"),
                    "{name}: {answer:?}"
                );
                check(name, &fate, &answer.message());
            }
        }
        let list = json!({ "jsonrpc": "2.0", "id": "next", "method": "tools/list" });
        let next = site.post(&list, &header);
        assert_eq!(next.message()["id"], "next", "after {name}: {next:?}");
    }
    let said = site.call(&session, "Bash", &json!({ "command": "printf fine" }));
    assert!(said.body.contains("fine"), "{said:?}");
}

#[test]
fn list_of_requests_is_answered_for_each() {
    let person = Person::myself();
    let mut pipe = Pipe::open(&person, "");
    pipe.write(
        b"[{\"jsonrpc\":\"2.0\",\"id\":71,\"method\":\"ping\"},{\"jsonrpc\":\"2.0\",\"id\":\"b\",\"method\":\"ping\"}]\n",
    );
    for id in [json!(71), json!("b")] {
        let answer = pipe.hear().unwrap();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&id, &json!(-32600))
        );
    }
    let site = Site::open(&person, "");
    let session = site.session();
    let both = json!([
        { "jsonrpc": "2.0", "id": 71, "method": "ping" },
        { "jsonrpc": "2.0", "id": "b", "method": "ping" },
    ]);
    let answer = site.post(&both, &[("Mcp-Session-Id", &session)]);
    assert_eq!(answer.status, 400, "{answer:?}");
    let answers: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(
        (&answers[0]["id"], &answers[1]["id"]),
        (&json!(71), &json!("b"))
    );
}

/// Introductions that the protocol does not allow, and clients make.
fn introductions() -> [(&'static str, Value); 7] {
    let info = json!({ "name": "test", "version": "1" });
    let with = |capabilities: Value, info: &Value| json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": info });
    [
        ("roots as a boolean", with(json!({ "roots": true }), &info)),
        (
            "an experimental ability that is no object",
            with(json!({ "experimental": { "x": 1 }, "sampling": [] }), &info),
        ),
        ("no version", with(json!({}), &json!({ "name": "test" }))),
        (
            "a version that is no text",
            with(
                json!({}),
                &json!({ "name": "test", "version": 1, "icons": 5 }),
            ),
        ),
        ("no description", with(json!({}), &Value::Null)),
        ("abilities as a list", with(json!([]), &info)),
        (
            "meta that is no object",
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info, "_meta": [] }),
        ),
    ]
}

#[test]
fn odd_introduction_is_taken() {
    let person = Person::myself();
    let site = Site::open(&person, "");
    for (name, introduction) in introductions() {
        let mut pipe = Pipe::start(&person, "");
        // What comes before it is passed over.
        pipe.say(&json!({ "jsonrpc": "2.0", "method": "notifications/odd" }));
        let answer = pipe.ask("initialize", &introduction);
        assert_eq!(
            answer["result"]["serverInfo"]["name"], "glovebox",
            "{name}: {answer}"
        );
        let listed = pipe.ask("tools/list", &json!({}));
        assert!(listed["result"]["tools"].is_array(), "{name}: {listed}");
        let hello =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": introduction });
        let answer = site.post(&hello, &[]);
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
        assert_eq!(answer.message()["result"]["serverInfo"]["name"], "glovebox");
    }
    let refused = json!({ "protocolVersion": 5, "capabilities": {}, "clientInfo": {} });
    let mut pipe = Pipe::start(&person, "");
    let answer = pipe.ask("initialize", &refused);
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    // It may try again.
    let (_, good) = introductions().into_iter().next().unwrap();
    assert!(pipe.ask("initialize", &good)["result"].is_object());
}

#[test]
fn accept_is_read_with_ranges_and_weights() {
    let person = Person::myself();
    let site = Site::open(&person, "");
    for accept in [
        "",
        "*/*",
        "application/*, text/*",
        "text/event-stream;q=0.5, application/json",
    ] {
        let answer = site.hello(&[("Accept", accept)]);
        assert_eq!(answer.status, 200, "{accept}: {answer:?}");
    }
    for accept in [
        "application/json",
        "*/*, text/event-stream;q=0",
        "text/html",
    ] {
        let answer = site.hello(&[("Accept", accept)]);
        assert_eq!(answer.status, 406, "{accept}: {answer:?}");
        let message = answer.message();
        assert_eq!(message["id"], 1, "{message}");
        assert!(
            message["error"]["message"]
                .as_str()
                .unwrap()
                .contains("text/event-stream")
        );
    }
}
