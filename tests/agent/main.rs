//! The agent from end to end: the real binary, a scripted model server, sandboxes of the real kernel.
//!
//! The server speaks the wire formats of the providers, so everything between a task and a change on
//! the host is tried as a user would: what the model is sent, what its calls do and where, how a run
//! ends, and what is left behind.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod approvals;
mod costs;
mod dialects;
mod endings;
mod honesty;
mod hosts;
mod interrupts;
mod odd_servers;
mod room;
mod scripts;
mod secrets;
mod servers;
mod sessions;
mod soak;
mod told;
mod work;
mod workflows;

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::sync::mpsc;
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

/// `glovebox agent --local TASK` with a person at a terminal.
fn at_terminal(
    person: &Person,
    server: &ModelServer,
    task: &str,
    answers: &[(&str, &str)],
) -> Option<String> {
    at_terminal_with(person, server, "--local", task, answers)
}

/// `glovebox agent FLAGS TASK` with a person at a terminal, who types an answer when its question has been
/// shown. What was shown in the end; `None` where there is no terminal to be had.
fn at_terminal_with(
    person: &Person,
    server: &ModelServer,
    flags: &str,
    task: &str,
    answers: &[(&str, &str)],
) -> Option<String> {
    if !testkit::has_program("script") {
        testkit::skip_loudly(
            "questions at a terminal",
            "there is no `script` to make one with",
        );
        return None;
    }
    let command = format!(
        "{} agent --model openai/scripted {flags} '{task}'",
        person.binary().display()
    );
    let mut child = person
        .program("script")
        .args(["-qec", &command, "/dev/null"])
        .env("OPENAI_BASE_URL", server.url())
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keyboard = child.stdin.take().unwrap();
    let mut screen = child.stdout.take().unwrap();
    let (send, shows) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut piece) {
            let _ = send.send(String::from_utf8_lossy(&piece[..count]).into_owned());
        }
    });
    let mut shown = String::new();
    let mut seen = 0;
    for (question, answer) in answers {
        until(question, || {
            shown.extend(shows.try_iter());
            let asked = shown[seen..].find(question).map(|at| seen + at);
            let prompt = asked.and_then(|at| Some(at + shown[at..].find("[n]o")?));
            seen = prompt.unwrap_or(seen);
            prompt.is_some()
        });
        keyboard.write_all(answer.as_bytes()).unwrap();
    }
    until("the end", || server.steps_left() == 0);
    let status = child.wait().unwrap();
    drop(keyboard);
    reader.join().unwrap();
    shown.extend(shows.try_iter());
    assert_eq!(status.code(), Some(0), "{shown}");
    Some(shown)
}

/// Starts it where nobody sees what it says, without waiting for its end.
fn unseen(mut call: Glovebox) -> Child {
    let command = call.command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().unwrap()
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

/// The lines of what was said that are wanted.
fn lines_of(said: &str, is_wanted: impl Fn(&str) -> bool) -> String {
    let wanted: Vec<&str> = said.lines().filter(|line| is_wanted(line)).collect();
    wanted.join("\n")
}

/// What went wrong and what to do about it, without what is said after that about changes, which not every
/// machine says in the same words.
fn complaint(said: &str) -> String {
    lines_of(said, |line| {
        line.starts_with("error:") || line.starts_with("hint:")
    })
}

/// The last message of a request.
fn last_message(request: &str) -> String {
    let body: serde_json::Value = serde_json::from_str(request).unwrap();
    let messages = body["messages"].as_array().unwrap();
    let content = messages.last().unwrap()["content"].as_str();
    content.unwrap().to_owned()
}

/// Waits for something that happens soon.
fn until(what: &str, condition: impl FnMut() -> bool) {
    assert!(
        testkit::wait_until(std::time::Duration::from_secs(30), condition),
        "{what} did not come"
    );
}
