//! The official conformance suite against `glovebox mcp --http`: what of it is about a server like this
//! one passes, and what is not is named with the reason.

use crate::clients::{command, run};
use crate::site::Site;
use serde_json::Value;
use std::collections::BTreeSet;
use testkit::{Person, installed};

const PROGRAM: &str = "conformance/node_modules/.bin/conformance";

/// What every server has to do, or this one says that it can.
const APPLICABLE: [&str; 6] = [
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
];

/// Tools, resources and prompts of the suite's own example server, by what their names begin with. What
/// they would show of this server is shown by `clients.rs` and `asks.rs`, with tools it has.
const OF_THE_EXAMPLE_SERVER: [&str; 5] = [
    "tools-call-",
    "elicitation-",
    "resources-read-",
    "json-schema-2020-12",
    "server-sse-polling",
];

/// What a server may leave out, and this one does: it does not announce it.
const NOT_ANNOUNCED: [&str; 6] = [
    "logging-set-level",
    "completion-complete",
    "prompts-",
    "resources-templates-",
    "resources-subscribe",
    "resources-unsubscribe",
];

#[test]
fn the_applicable_part_of_the_official_suite_passes() {
    let Some(suite) = installed(PROGRAM) else {
        testkit::skip!("needs {PROGRAM} in the directory GLOVEBOX_TEST_CLIENTS");
    };
    let person = Person::myself();
    person.write("project/a.txt", "one\n");
    let mut list = command(&person, &suite);
    list.args(["list", "--server"]);
    let listed = run(list);
    let known: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- "))
        .collect();
    let undecided: Vec<_> = known
        .iter()
        .filter(|name| !APPLICABLE.contains(name))
        .filter(|name| {
            !OF_THE_EXAMPLE_SERVER
                .iter()
                .chain(&NOT_ANNOUNCED)
                .any(|left_out| name.starts_with(left_out))
        })
        .collect();
    assert!(
        undecided.is_empty(),
        "neither run nor left out: {undecided:?}"
    );

    // The suite has no way to show a token.
    let site = Site::open_with(&person, "--no-token", None);
    let url = format!("http://{}/mcp", site.addr);
    for name in APPLICABLE {
        assert!(known.contains(name), "{name} is not among {known:?}");
        let mut scenario = command(&person, &suite);
        scenario.args(["server", "--url", &url, "--scenario", name]);
        let told = run(scenario);
        // A scenario that found nothing to look at passes as well.
        assert!(
            told.contains("0 failed") && !told.contains("Passed: 0/0"),
            "{name}: {told}"
        );
    }
}

/// What the table says of this server is what it says of itself.
#[test]
fn what_is_left_out_is_not_announced() {
    let person = Person::myself();
    let site = Site::open(&person, "");
    let body = site.hello(&[]).body;
    let message = &body[body.find("{\"jsonrpc\"").unwrap()..];
    let mut messages = serde_json::Deserializer::from_str(message).into_iter::<Value>();
    let said = messages.next().unwrap().unwrap();
    let capabilities = &said["result"]["capabilities"];
    for name in ["logging", "completions", "prompts"] {
        assert!(capabilities[name].is_null(), "{name}: {capabilities}");
    }
    assert!(capabilities["tools"].is_object(), "{capabilities}");
    assert_ne!(
        capabilities["resources"]["subscribe"], true,
        "{capabilities}"
    );
}
