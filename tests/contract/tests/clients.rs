//! The vendors' own clients against the servers: a server that they do not work with has another
//! contract than the service.
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
