//! MCP servers whose messages are not to the letter: each call fails alone or comes to something, and the server is
//! started once.

use super::{agent, last_results};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::{ModelServer, Person, Step, installed};

const PYTHON: &str = "/usr/bin/python3";
const FLAGS: [&str; 4] = ["--sandbox", "--yes", "--apply", "never"];

/// Forms of an answer over both transports, and the model's result.
const FORMS: [(&str, &str); 16] = [
    ("plain", "row 7"),
    ("audience", "row 7"),
    ("link-without-name", "row 7\n[ui://1]"),
    ("new-type", "row 7\n[a `video` that cannot be shown]"),
    (
        "image-without-type",
        "row 7\n[a picture that cannot be shown]",
    ),
    ("tools-beside", "row 7"),
    ("content-text", "row 7"),
    ("half", "row 7\u{FFFD}"),
    ("error-flag-text", "row 7"),
    ("structured", r#"{"row":7}"#),
    (
        "nothing",
        "[failed: protocol] the MCP server `desk` made the call, and `content` of its answer is not understood\n\
         [hint] look what the call did before you make it again",
    ),
    (
        "a-list",
        "[failed: protocol] the MCP server `desk` made the call, and `result` of its answer is not understood\n\
         [hint] look what the call did before you make it again",
    ),
    (
        "too-deep",
        "[failed: protocol] the MCP server `desk` made the call, and its answer cannot be read: recursion limit \
         exceeded",
    ),
    (
        "not-finished",
        "[failed: protocol] the MCP server `desk` made the call, and its answer cannot be read: ",
    ),
    (
        "error-text",
        "[failed: unavailable] the MCP server `desk` refused the call: out of ink",
    ),
    (
        "error-code-text",
        "[failed: unavailable] the MCP server `desk` refused the call: out of ink",
    ),
];

/// Forms that the official clients of Python and TypeScript take in another way: what comes of each, and why ours is
/// another one.
const CLIENTS: [(&str, [&str; 2], &str); 14] = [
    (
        "audience",
        ["ValidationError", "$ZodError"],
        "an annotation says how a text is shown; the text is whole",
    ),
    (
        "link-without-name",
        ["ValidationError", "$ZodError"],
        "the address tells the link apart",
    ),
    (
        "new-type",
        ["ValidationError", "$ZodError"],
        "a type of tomorrow takes nothing from the text beside it",
    ),
    (
        "image-without-type",
        ["ValidationError", "$ZodError"],
        "a picture that cannot be shown takes nothing from the text beside it",
    ),
    (
        "content-text",
        ["ValidationError", "$ZodError"],
        "a text is readable without its block",
    ),
    (
        "half",
        ["time-out", "row 7\u{FFFD}"],
        "half a character is mended, and the rest is read",
    ),
    (
        "error-flag-text",
        ["row 7", "$ZodError"],
        "the word is readable as text",
    ),
    (
        "structured",
        ["ValidationError", ""],
        "structured content is told where there is no other",
    ),
    (
        "nothing",
        ["ValidationError", ""],
        "the model is to hear that the call was made and how it ended is not known",
    ),
    ("a-list", ["time-out", "time-out"], AT_ONCE),
    (
        "too-deep",
        ["time-out", "row 7"],
        "depth is bounded, and a call that is answered does not wait for its time to be up",
    ),
    ("not-finished", ["time-out", "time-out"], AT_ONCE),
    ("error-text", ["time-out", "time-out"], AT_ONCE),
    ("error-code-text", ["time-out", "time-out"], AT_ONCE),
];
const AT_ONCE: &str = "a call that is answered does not wait for its time to be up";

const NO_EFFECT: &str = "\n[hint] the call had no effect";
const UNKNOWN: &str =
    "\n[hint] whether the call had an effect is not known: look before you make it again";

fn http_forms() -> Vec<(&'static str, String)> {
    let refused = |words: &str| {
        format!(
            "[failed: unavailable] the MCP server `desk` did not take the call: {words}{NO_EFFECT}"
        )
    };
    let failed = |words: &str| {
        format!(
            "[failed: unavailable] the MCP server `desk` failed during this call: {words}{UNKNOWN}"
        )
    };
    let key = |code| {
        refused(&format!(
            "it does not accept the key (HTTP {code}): set `bearer_env` or `headers_env`"
        ))
    };
    vec![
        ("401", key(401)),
        ("403", key(403)),
        (
            "429",
            refused("it has too many requests (HTTP 429); it asks to wait: 7 s"),
        ),
        (
            "418",
            refused("it failed with HTTP 418: <p>no</p>; it asks to wait: 9 s"),
        ),
        (
            "503",
            failed("it failed with HTTP 503: <p>no</p>; it asks to wait: 9 s"),
        ),
        (
            "elsewhere",
            refused("it leads to another address (HTTP 307): set `url` to https://other.test/mcp"),
        ),
        (
            "for-good",
            refused(
                "it leads to another address (HTTP 301): set `url` to http://127.0.0.1:[PORT]/other",
            ),
        ),
        (
            "round",
            refused("it leads to another address more than 5 times"),
        ),
        ("empty", failed("HTTP 200, and no answer")),
        (
            "page",
            failed("what it sent is no answer: <html>please log in</html>"),
        ),
        ("no-type", "row 7".to_owned()),
        (
            "error-without-id",
            "[failed: unavailable] the MCP server `desk` refused the call: no session".to_owned(),
        ),
        ("list", "row 7".to_owned()),
        ("events", "row 7".to_owned()),
        (
            "broken-off",
            failed("its answer broke off: the stream ended"),
        ),
        // From here on the server is where it led to.
        ("moved", "row 7".to_owned()),
        ("plain", "row 7".to_owned()),
    ]
}

/// A person with the server's source, and `[mcp.desk]` with these lines.
fn person_with(lines: impl FnOnce(&Path) -> String) -> (Person, PathBuf) {
    let person = Person::myself();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("agent/odd_server.py");
    let script = person.write("odd_server.py", fs::read(source).unwrap());
    person.write("project/a.txt", "one\n");
    let lines = lines(&script);
    person.write(
        "home/.config/glovebox/glovebox.toml",
        format!("[mcp.desk]\n{lines}\n"),
    );
    (person, script)
}

/// Runs an agent that makes a call in each form; the model's results, and what was told of the server.
fn results(person: &Person, forms: &[(&str, String)]) -> (Vec<String>, String) {
    let steps = forms
        .iter()
        .map(|(form, _)| Step::call("desk__write", &json!({ "form": form }).to_string()))
        .chain([Step::text("Done.")]);
    let server = ModelServer::start(steps.collect::<Vec<_>>());
    let ran = agent(person, &server, FLAGS, "write rows").run();
    let ran = ran.expect_code(0);
    assert!(!ran.err().contains("rmcp"), "{ran}");
    (last_results(&server), ran.err())
}

fn check(forms: &[(&str, String)], results: &[String], port: &str) {
    assert_eq!(results.len(), forms.len(), "{results:?}");
    for ((form, told), result) in forms.iter().zip(results) {
        let result = result.replace(port, "[PORT]");
        assert!(result.starts_with(told.as_str()), "{form}: {result}");
        for part in ["planted", "::", "Transport", "Error {"] {
            assert!(!result.contains(part), "{form}: {result}");
        }
    }
}

fn common_forms() -> Vec<(&'static str, String)> {
    FORMS
        .iter()
        .map(|(form, told)| (*form, (*told).to_owned()))
        .collect()
}

fn is_missing() -> bool {
    !Path::new(PYTHON).is_file()
}

#[test]
fn odd_answer_of_a_program_fails_alone() {
    if is_missing() {
        testkit::skip!("needs /usr/bin/python3");
    }
    let mut starts = PathBuf::new();
    let (person, _) = person_with(|script| {
        starts = script.with_file_name("starts");
        format!(
            "command = '{PYTHON}'\nargs = ['{}', '{}']\nplacement = 'host'",
            script.display(),
            starts.display()
        )
    });
    let forms = common_forms();
    let (results, told) = results(&person, &forms);
    check(&forms, &results, "no port");
    assert_eq!(fs::read_to_string(&starts).unwrap(), "started\n");
    for left_out in [
        "the tool `list` of the MCP server `desk` is left out: its `inputSchema` is not understood",
        "tool number 3 of the MCP server `desk` is left out: its `name` is not understood",
    ] {
        assert!(told.contains(left_out), "{told}");
    }
    person.assert_nothing_lives();
}

/// The server over HTTP. Killed when dropped.
struct Served(Child, String);

impl Served {
    fn start(script: &Path) -> Self {
        let mut child = Command::new(PYTHON)
            .arg(script)
            .arg(script.with_file_name("starts"))
            .arg("http")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut port).unwrap();
        Self(child, port.trim().to_owned())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn odd_answer_over_http_fails_alone() {
    if is_missing() {
        testkit::skip!("needs /usr/bin/python3");
    }
    let mut served = None;
    let (person, _) = person_with(|script| {
        let server = served.insert(Served::start(script));
        format!("url = 'http://127.0.0.1:{}/mcp'", server.1)
    });
    let mut forms = common_forms();
    forms.extend(http_forms());
    let (results, told) = results(&person, &forms);
    let port = served.as_ref().unwrap().1.clone();
    check(&forms, &results, &port);
    assert!(
        told.contains("the tool `list` of the MCP server `desk`"),
        "{told}"
    );
    // A server that is not there any more: nothing was done, and no word of a library.
    drop(served);
    let server = ModelServer::start([Step::text("Done.")]);
    let ran = agent(&person, &server, FLAGS, "write rows")
        .run()
        .expect_code(0);
    let told = ran.err();
    assert!(
        told.contains("the MCP server `desk` is not to be had: it cannot be reached: "),
        "{told}"
    );
    assert!(!told.contains("::") && !told.contains("rmcp"), "{told}");
}

/// Runs a client against the server over its standard streams, and compares what comes of each form.
fn compare(mut client: Command, column: usize) {
    let person = Person::myself();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("agent/odd_server.py");
    let output = client
        .arg(source)
        .arg(person.write("starts", ""))
        .args(FORMS.iter().map(|(form, _)| form))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}\n{told}");
    assert_eq!(printed.lines().count(), FORMS.len(), "{printed}\n{told}");
    for (line, (form, ours)) in printed.lines().zip(FORMS) {
        let outcome: Value = serde_json::from_str(line).unwrap();
        let row = CLIENTS.iter().find(|(name, ..)| *name == form);
        if let Some((_, theirs, why)) = row {
            assert!(theirs.iter().any(|theirs| *theirs != ours), "{form}: {why}");
        }
        let expected = row.map_or(ours, |(_, theirs, _)| theirs[column]);
        assert_eq!(outcome["outcome"], expected, "{form}: {printed}");
    }
}

#[test]
fn official_clients_differ_as_the_table_says() {
    let python = installed("python/bin/python3");
    let package = installed("node/node_modules/@modelcontextprotocol/sdk/package.json");
    let (Some(python), Some(package)) = (python, package) else {
        testkit::skip!("needs the MCP SDKs in the directory GLOVEBOX_TEST_CLIENTS");
    };
    if is_missing() || !testkit::has_program("node") {
        testkit::skip!("needs /usr/bin/python3 and node");
    }
    let script = |name: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("agent")
            .join(name)
    };
    let mut client = Command::new(python);
    client.arg(script("odd_client.py"));
    compare(client, 0);
    let packages = package.ancestors().nth(4).unwrap();
    let mut client = Command::new("node");
    client
        .arg(script("odd_client.mjs"))
        .args([packages, Path::new(PYTHON)]);
    compare(client, 1);
}
