//! Servers and clients that come again: the sandbox with the work of before is theirs, or they are told whose it is.

use crate::pipe::Pipe;
use crate::site::Site;
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{Person, wait_until};

/// Calls Bash; the text of its result, with the line about the sandbox.
fn bash(pipe: &mut Pipe, command: &str) -> String {
    let call = json!({ "name": "Bash", "arguments": { "command": command } });
    let answer = pipe.ask("tools/call", &call);
    text(&answer["result"])
}

fn text(result: &Value) -> String {
    let text = result["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// The name in the line about the sandbox.
fn sandbox(text: &str) -> &str {
    let (_, rest) = text.split_once("[this is the sandbox ").unwrap();
    rest.split([';', ']']).next().unwrap()
}

/// A client that has written `kept.txt` and runs a command.
fn at_work(person: &Person) -> (Pipe, String) {
    let mut pipe = Pipe::open(person, "");
    let told = bash(&mut pipe, "echo work > kept.txt");
    let name = sandbox(&told).to_owned();
    (pipe, name)
}

fn assert_has_work(pipe: &mut Pipe, name: &str) {
    let told = bash(pipe, "cat kept.txt");
    assert!(told.starts_with("work\n"), "{told}");
    assert_eq!(sandbox(&told), name);
    assert!(
        told.contains("it has 1 change from before that is not pulled"),
        "{told}"
    );
    let told = &pipe.instructions;
    assert!(told.contains("It has 1 change from before"), "{told}");
}

#[test]
fn server_started_after_a_killed_one_works_in_its_sandbox() {
    Person::each(|person| {
        let (mut killed, name) = at_work(person);
        killed.child.kill().unwrap();
        killed.child.wait().unwrap();
        let mut pipe = Pipe::open(person, "");
        assert_has_work(&mut pipe, &name);
        // It is this one's now: the lease of the one before does not end it.
        std::thread::sleep(Duration::from_secs(6));
        assert!(bash(&mut pipe, "cat kept.txt").starts_with("work\n"));
        pipe.hang_up();
        let _ = pipe.end();
        let _ = person.line(&format!("kill {name}")).run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn server_started_while_another_leaves_waits_for_its_sandbox() {
    let person = Person::myself();
    for signal in [None, Some("TERM")] {
        let (mut leaving, name) = at_work(&person);
        match signal {
            None => leaving.hang_up(),
            Some(signal) => {
                let pid = leaving.child.id().to_string();
                let mut kill = std::process::Command::new("kill");
                assert!(kill.args(["-s", signal, &pid]).status().unwrap().success());
            }
        }
        let mut pipe = Pipe::open(&person, "");
        assert_has_work(&mut pipe, &name);
        let _ = leaving.end();
        pipe.hang_up();
        let _ = pipe.end();
        let _ = person.line(&format!("kill {name}")).run().expect_code(0);
    }
    person.assert_nothing_left();
}

/// The twin: a sandbox with a client is nobody else's.
#[test]
fn server_beside_another_is_told_of_its_sandbox_and_has_its_own() {
    let person = Person::myself();
    let (mut first, name) = at_work(&person);
    let mut second = Pipe::open(&person, "");
    let told = bash(&mut second, "cat kept.txt");
    assert!(told.starts_with("cat: kept.txt"), "{told}");
    assert_ne!(sandbox(&told), name);
    assert!(
        told.contains(&format!("another client works in {name}")),
        "{told}"
    );
    let mut fresh = Pipe::open(&person, "--fresh");
    assert_ne!(sandbox(&bash(&mut fresh, "true")), name);
    for pipe in [&mut first, &mut second, &mut fresh] {
        pipe.hang_up();
        let _ = pipe.end();
    }
    let _ = person.line(&format!("kill {name}")).run().expect_code(0);
    person.assert_nothing_left();
}

#[test]
fn client_over_http_that_comes_back_after_idle_works_in_its_sandbox() {
    let person = Person::myself();
    // Long enough for two sessions to be at work at once on a busy machine.
    let site = Site::open(&person, "--idle 5s");
    let bash = |session: &str, command: &str| {
        let answer = site.call(session, "Bash", &json!({ "command": command }));
        (answer.status == 200).then(|| text(&answer.message()["result"]))
    };
    let session = site.session();
    let told = bash(&session, "echo work > kept.txt").unwrap();
    let name = sandbox(&told).to_owned();
    let has_ended = || {
        std::thread::sleep(Duration::from_secs(6));
        bash(&session, "true").is_none()
    };
    assert!(wait_until(Duration::from_mins(1), has_ended));
    let told = bash(&site.session(), "cat kept.txt").unwrap();
    assert!(told.starts_with("work\n"), "{told}");
    assert_eq!(sandbox(&told), name);
    // Another client at the same time has its own.
    let told = bash(&site.session(), "cat kept.txt").unwrap();
    assert_ne!(sandbox(&told), name);
    drop(site);
}

/// Events without data are read as messages by clients of versions before.
#[test]
fn only_clients_of_the_newest_version_get_events_without_data() {
    let person = Person::myself();
    let site = Site::open(&person, "");
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut hello = crate::site::hello();
        hello["params"]["protocolVersion"] = version.into();
        let answer = site.post(&hello, &[]);
        assert_eq!(answer.status, 200, "{version}: {answer:?}");
        let has_empty = |body: &str| {
            body.lines().any(|line| {
                line.strip_prefix("data:")
                    .is_some_and(|data| data.trim().is_empty())
            })
        };
        let is_newest = version == "2025-11-25";
        assert_eq!(has_empty(&answer.body), is_newest, "{version}: {answer:?}");
        let session = answer.head.lines().find_map(|line| {
            let line = line.to_ascii_lowercase();
            line.strip_prefix("mcp-session-id: ").map(str::to_owned)
        });
        let session = [("Mcp-Session-Id", session.as_deref().unwrap())];
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(site.post(&ready, &session).status, 202, "{version}");
        let call = crate::site::call("Bash", &json!({ "command": "echo called" }));
        let answer = site.post(&call, &session);
        assert!(
            text(&answer.message()["result"]).contains("called"),
            "{version}"
        );
        assert_eq!(has_empty(&answer.body), is_newest, "{version}: {answer:?}");
    }
}
