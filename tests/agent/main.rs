//! The agent from end to end: the real binary, a scripted model server, sandboxes of the real kernel.
//!
//! The server speaks the wire formats of the providers, so everything between a task and a change on
//! the host is tried as a user would: what the model is sent, what its calls do and where, how a run
//! ends, and what is left behind.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod costs;
mod endings;
mod interrupts;
mod room;
mod secrets;
mod servers;
mod sessions;
mod soak;
mod work;
mod workflows;

use testkit::{Glovebox, ModelServer, Person};

/// `glovebox ARGS...` with the server as an OpenAI-compatible one.
fn with<'a>(
    person: &Person,
    server: &ModelServer,
    args: impl IntoIterator<Item = &'a str>,
) -> Glovebox {
    person
        .glovebox(args)
        .env("OPENAI_BASE_URL", server.url())
        .env("GLOVEBOX_TOOLCHAINS", "false")
}

/// `glovebox agent ARGS... TASK` in the same surroundings.
fn agent<'a>(
    person: &Person,
    server: &ModelServer,
    args: impl IntoIterator<Item = &'a str>,
    task: &'a str,
) -> Glovebox {
    let args = ["agent", "--model", "openai/scripted"]
        .into_iter()
        .chain(args)
        .chain([task]);
    with(person, server, args)
}

/// The tool results the model was sent with its last request.
fn last_results(server: &ModelServer) -> Vec<String> {
    let asked = server.asked();
    let body: serde_json::Value = serde_json::from_str(&asked.last().unwrap().body).unwrap();
    body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Waits for something that happens soon.
fn until(what: &str, condition: impl FnMut() -> bool) {
    assert!(
        testkit::wait_until(std::time::Duration::from_secs(30), condition),
        "{what} did not come"
    );
}
