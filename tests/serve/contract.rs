//! The API and its description: schemathesis asks for every operation that `/api/openapi.json` has, rightly and wrongly, and
//! holds each answer against it.

use crate::server::{PATIENCE, Server, TOKEN};
use std::process::Command;
use testkit::{Person, installed};

/// Without an end, or in another protocol: `events`, `terminal` and `mcp` are about these.
const EXCLUDED: &str = "/(events|terminal)$|^/mcp$";
/// Not that what fits the description is taken: it does not say what a bundle or an archive is, nor which of a task's
/// fields go together.
const EXCLUDED_CHECKS: &str = "positive_data_acceptance";
/// Requests of one operation that are made up.
const EXAMPLES: &str = "20";
/// The same requests every time.
const SEED: &str = "20";
/// By what answers name, not by their `Location`, which leads it astray with some operations excluded.
const CONFIG: &str = "[phases.stateful.inference]\nalgorithms = [\"dependency-analysis\"]\n";

#[test]
fn every_answer_is_one_that_the_description_has() {
    let Some(program) = installed("schemathesis/bin/st") else {
        testkit::skip!("needs schemathesis (Python) in the directory GLOVEBOX_TEST_CLIENTS");
    };
    let person = Person::myself();
    person.write("project/a.txt", "one\n");
    person.write("contract/schemathesis.toml", CONFIG);
    let archives = include_str!("contract_archives.py");
    person.write("contract/contract_archives.py", archives);
    let args = "--project . --model demo --max-requests-per-second 100000";
    let server = Server::start(&person, args);
    let dir = person.place().root().join("contract");
    let output = Command::new(program)
        .args(["--config-file", "schemathesis.toml", "--no-color", "run"])
        .arg(format!("http://{}/api/openapi.json", server.addr))
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        .args(["--exclude-path-regex", EXCLUDED])
        .args(["--checks", "all", "--exclude-checks", EXCLUDED_CHECKS])
        .args(["--max-examples", EXAMPLES, "--seed", SEED, "--no-shrink"])
        .args(["--suppress-health-check", "all", "--warnings", "off"])
        .args(["--request-timeout", &PATIENCE.as_secs().to_string()])
        .args(["--generation-database", "none"])
        .env("SCHEMATHESIS_HOOKS", "contract_archives")
        .env("PYTHONPATH", &dir)
        .current_dir(&dir)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{told}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // That it has asked for them is the point.
    let operations = told.split("Tested: ").nth(1).unwrap();
    let operations = operations.split_whitespace().next().unwrap();
    assert!(operations.parse::<u32>().unwrap() >= 40, "{told}");
}
