//! `glovebox-js`: runs scripts in the sandbox, one after the other, in one global scope.
//!
//! ```text
//! reader     lines from standard input: scripts, results of calls, cancellations
//! engine     JavaScript runtime in a thread with a large stack
//! watchdog   ends the program when a script cannot be interrupted
//! ```
//!
//! A script can use only the functions of the prelude: no files, no network, no modules. It
//! requests calls of tools, and the host decides about them. The program ends when its input ends.
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

/// Stack of the engine's thread, in bytes. Scripts get a quarter of it, against which the engine's
/// parsers and regular expressions count.
const STACK_BYTES: usize = 8 << 20;
/// Time that a script has to react to its time limit.
const GRACE: Duration = Duration::from_secs(2);
/// Interval between two checks of the watchdog.
const LOOK: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    // Other processes of the same user must not trace this program or open its descriptors under
    // /proc (prctl(2), PR_SET_DUMPABLE).
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // The program is executed from a descriptor without a path, so that the kernel cannot derive
    // its name.
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

/// Reads lines and passes them on until the input ends or a line is invalid.
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
        // Cancelled here and not in the engine's loop, because the engine may be busy with that
        // script.
        if let HostMessage::Cancel { token } = &told {
            desk.cancel(token);
        }
        if send.send(told).is_err() {
            return;
        }
    }
}

/// Ends the program if a script continues after its time limit: some loops of the engine do not
/// call the interrupt handler.
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
