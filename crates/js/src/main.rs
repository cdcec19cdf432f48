//! `glovebox-js`: runs scripts in the sandbox, one after the other, with what they leave behind.
//!
//! ```text
//! reader     lines from standard input: scripts, answers to calls, scripts that are given up
//! engine     the JavaScript runtime, on a stack of its own
//! watchdog   ends the program when a script cannot be interrupted
//! ```
//!
//! A script reaches nothing but what the prelude gives it: no files, no network, no modules. What it wants
//! done it asks for; the other end decides. The end of the input ends the program.
//!
//! In another mode it answers one call of a bundle's tool instead (`tool`).

mod console;
mod desk;
mod engine;
mod outlet;
mod tool;

use desk::ScriptTable;
use engine::Engine;
use glovebox_js::tool_call::TOOL_MODE;
use glovebox_js::{Ending, HostMessage, MAX_LINE_BYTES, ScriptEvent, ScriptException};
use outlet::LineWriter;
use rustix::process::DumpableBehavior;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Stack of the engine. Scripts get a quarter of it; regular expressions and parsers count against that.
const STACK_BYTES: usize = 8 << 20;
/// How long a script may take to notice that its time is up.
const GRACE: Duration = Duration::from_secs(2);
/// How often the watchdog looks.
const LOOK: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    // Nobody else may look into this program or write to its output, whoever it is started for.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // It was executed without a path, from which it would have its name.
    let _ = rustix::thread::set_name(c"glovebox-js");
    if std::env::args_os()
        .nth(1)
        .is_some_and(|mode| mode == TOOL_MODE)
    {
        return tool::answer();
    }
    let desk = Arc::new(ScriptTable::default());
    let outlet = LineWriter::default();
    let (send, receive) = channel();
    let watched = {
        let (desk, outlet) = (Arc::clone(&desk), outlet.clone());
        Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || watch(&desk, &outlet))
    };
    let working = {
        let desk = Arc::clone(&desk);
        Builder::new()
            .name("engine".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || Engine::new(desk, outlet, STACK_BYTES / 4).work(&receive))
    };
    if watched.is_err() || working.is_err() {
        return ExitCode::FAILURE;
    }
    read(&desk, &send);
    ExitCode::SUCCESS
}

/// Takes lines until there are no more.
fn read(desk: &ScriptTable, send: &Sender<HostMessage>) {
    let mut input = BufReader::new(std::io::stdin());
    loop {
        let mut line = Vec::new();
        let read = input
            .by_ref()
            .take(MAX_LINE_BYTES as u64)
            .read_until(b'\n', &mut line);
        if !matches!(read, Ok(bytes) if bytes > 0) || line.last() != Some(&b'\n') {
            return;
        }
        let Ok(told) = serde_json::from_slice(&line) else {
            return;
        };
        // Noted at once: the engine may be in the middle of that script.
        if let HostMessage::Cancel { token } = &told {
            desk.cancel(token);
        }
        if send.send(told).is_err() {
            return;
        }
    }
}

/// Ends the program when a script goes on after its time: some loops within the engine do not look.
fn watch(desk: &ScriptTable, outlet: &LineWriter) {
    loop {
        std::thread::sleep(LOOK);
        let Some((token, until)) = desk.deadline() else {
            continue;
        };
        if Instant::now() > until + GRACE {
            outlet.say(
                &token,
                ScriptEvent::End {
                    ending: Ending::TimedOut,
                    error: Some(ScriptException {
                        message: "the script could not be interrupted".to_owned(),
                        ..ScriptException::default()
                    }),
                    is_fresh: true,
                },
            );
            outlet.leave();
        }
    }
}
