//! The vendors' own clients against the servers: a server that they do not work with has another
//! contract than the service. And requests that a server refuses, so that a mistake of our own
//! client shows.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, Stdio};
use testkit::{ContractServer, installed};

const TOKEN: &str = "contract/1/token";

/// Runs a script with the address and the token of a server of its own.
fn run_against_sprites(mut command: Command) {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["--token", TOKEN, "--dir", dir.path().to_str().unwrap()];
    let server = ContractServer::start("sprites", &arguments);
    let output = command
        .args([server.url(), TOKEN])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(server.journal()["refusals"], serde_json::json!([]));
}

fn script(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("clients")
        .join(name)
}

#[test]
fn sprites_py_works_with_the_server() {
    let Some(python) = installed("sprites-py/bin/python3") else {
        testkit::skip!("needs sprites-py in the directory GLOVEBOX_TEST_CLIENTS");
    };
    let mut command = Command::new(python);
    command.arg(script("sprites_py.py"));
    run_against_sprites(command);
}

#[test]
fn sprites_js_works_with_the_server() {
    let Some(node) = installed("sprites-js/node_modules/node/bin/node") else {
        testkit::skip!("needs @fly/sprites in the directory GLOVEBOX_TEST_CLIENTS");
    };
    // Node looks for packages beside the script.
    let dir = tempfile::tempdir().unwrap();
    let packages = node.ancestors().nth(3).unwrap();
    std::os::unix::fs::symlink(packages, dir.path().join("node_modules")).unwrap();
    let copy = dir.path().join("script.mjs");
    std::fs::copy(script("sprites_js.mjs"), &copy).unwrap();
    let mut command = Command::new(&node);
    command.arg(copy);
    run_against_sprites(command);
}

#[test]
fn agent_sandbox_works_with_the_server() {
    let Some(python) = installed("agent-sandbox/bin/python3") else {
        testkit::skip!("needs agent-sandbox in the directory GLOVEBOX_TEST_CLIENTS");
    };
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let options = ["--key", TOKEN, "--prefix", "/box/1", "--dir"];
    let arguments = [&options[..], &[home.to_str().unwrap()]].concat();
    let server = ContractServer::start("aio", &arguments);
    let output = Command::new(python)
        .arg(script("aio_py.py"))
        .args([&format!("{}/box/1", server.url()), TOKEN])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.ends_with("all checks passed\n"), "{said}");
    assert_eq!(server.journal()["refusals"], serde_json::json!([]));
}

#[test]
fn aio_requests_that_the_description_does_not_know_are_refused_and_noted() {
    let dir = tempfile::tempdir().unwrap();
    let server = ContractServer::start("aio", &["--dir", dir.path().to_str().unwrap()]);
    let write = r#"{"session_id": "a", "input": ""}"#;
    for (path, body, status) in [
        ("/v1/bash/exec", r#"{"command": "true", "tty": true}"#, 422),
        ("/v1/bash/exec", "{}", 422),
        ("/v1/bash/write?wait=1", write, 422),
        ("/v1/shell/exec", r#"{"command": "true"}"#, 404),
    ] {
        let (found, answer) = server.request("POST", path, body);
        assert_eq!(found, status, "{path} {body}: {answer}");
    }
    let journal = server.journal();
    let refusals = journal["refusals"].as_array().unwrap();
    assert_eq!(refusals.len(), 4, "{journal}");
}
