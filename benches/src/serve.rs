//! `glovebox serve`: one tool call beside the library's, the start of a session with and without a sandbox ahead, a hundred
//! sessions at once, a hundred who follow one session, and what one costs that has nothing to do.

use crate::http::{Connection, place_of};
use crate::idle::{children, pss_of_all};
use crate::race::{Contestant, Sample, race};
use crate::table::Table;
use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use glovebox_sandbox::{Registry, RegistryConfig};
use glovebox_tools::ToolSession;
use serde_json::{Value, json};
use std::fs;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) const GROUP: &str = "serve";
/// Name of a figure in KiB.
pub(crate) const IDLE_MEMORY: &str = "an idle session with its sandbox: memory of all processes";
const CALL: &str = "one Read through the server";
const START: &str = "a session of one answer, from its request to its last event";
pub(crate) const SESSIONS: usize = 100;
const CALLS: usize = 20;
/// Sessions whose sandboxes go on although nothing is to do.
const IDLE: usize = 20;
/// Who follows one session at the same time.
const READERS: usize = 100;
/// Commands of that session, one after the other.
const COMMANDS: usize = 20;
/// How long a pool has to fill again.
const REFILL: Duration = Duration::from_millis(700);
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

static NEVER: AtomicBool = AtomicBool::new(false);

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let server = match Server::start(world, CALLS, &["--max-running", "100"]) {
        Ok(server) => server,
        Err(error) => {
            table.skip(GROUP, "everything", format!("{error:#}"));
            return Ok(());
        }
    };
    calls(world, table, &server)?;
    load(world, table, &server);
    drop(server);
    let done = starts(world, table)
        .and_then(|()| fan_out(world, table))
        .and_then(|()| idle(world, table));
    remove_all(world)?;
    done
}

/// What sessions leave, which goes on until somebody comes back.
fn remove_all(world: &World) -> Result<()> {
    let registry = registry(world)?;
    for entry in registry.list()? {
        registry.kill(&entry.name)?;
    }
    Ok(())
}

fn registry(world: &World) -> Result<Registry> {
    Ok(Registry::open(RegistryConfig {
        state_dir: world.cli_state()?,
        max_sandboxes: 1200,
        seed_maker: Some(glovebox_workspace::SEED_MAKER),
    })?)
}

/// A server whose model makes so many calls of Read; it ends when this is dropped.
struct Server {
    child: Child,
    place: String,
}

impl Server {
    fn start(world: &World, calls: usize, args: &[&str]) -> Result<Self> {
        Self::start_playing(world, &calls.to_string(), &reads(calls), args)
    }

    /// One whose model gives these answers, kept under `name`.
    fn start_playing(world: &World, name: &str, answers: &[String], args: &[&str]) -> Result<Self> {
        let model = world.scratch("serve")?.join(format!("{name}.jsonl"));
        fs::write(&model, answers.join("\n"))?;
        let model = format!("replay:{}", model.display());
        let mut child = world
            .glovebox()?
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--no-toolchains",
                "--log-level",
                "error",
            ])
            .args([
                "--max-requests-per-second",
                "0",
                "--max-running-per-user",
                "100",
            ])
            .args(["--max-queued-per-user", "200", "--model", &model])
            .args(args)
            .env("GLOVEBOX_SERVER_TOKEN", TOKEN)
            .stderr(Stdio::piped())
            .spawn()?;
        let place = place_of(&mut child);
        let mut server = Self {
            child,
            place: String::new(),
        };
        server.place = place?;
        Ok(server)
    }

    fn connect(&self) -> Result<Connection> {
        Connection::open(&self.place, TOKEN)
    }

    /// Does a task: how long it took, and its events.
    fn work(&self) -> Result<(Duration, Vec<Value>)> {
        let mut connection = self.connect()?;
        let begun = Instant::now();
        let task = json!({ "task": "x" }).to_string();
        let (_, answer) = connection.ask("POST", "/api/tasks", "application/json", &task)?;
        let answer: Value = serde_json::from_str(&answer)?;
        let events = answer["events_url"].as_str().context(answer.to_string())?;
        let (_, text) = connection.ask("GET", events, "application/json", "")?;
        let took = begun.elapsed();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events = data
            .map(serde_json::from_str)
            .collect::<Result<Vec<Value>, _>>()?;
        let last = events.last().context("no events")?;
        ensure!(last["ending"] == "completed", "{last}");
        Ok((took, events))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Asked to end, it ends what waits in its pool; it may have ended already.
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// Answers that write a file, and read it until there are so many calls.
fn reads(calls: usize) -> Vec<String> {
    let content = "a line\n".repeat(calls + 1);
    let write = json!({ "path": "file", "content": content });
    let mut answers = vec![call_line(1, "Write", &write)];
    // Each a little different: an agent that only repeats itself is stopped.
    answers.extend(
        (1..calls)
            .map(|turn| call_line(turn + 1, "Read", &json!({ "path": "file", "offset": turn }))),
    );
    answers.push(last_line(calls + 1));
    answers
}

fn last_line(turn: usize) -> String {
    let text = json!({ "kind": "text", "text": "done" });
    json!({ "type": "answered", "turn": turn, "parts": [text] }).to_string()
}

fn call_line(turn: usize, tool: &str, arguments: &Value) -> String {
    let call =
        json!({ "kind": "call", "id": format!("c{turn}"), "name": tool, "arguments": arguments });
    json!({ "type": "answered", "turn": turn, "parts": [call] }).to_string()
}

fn calls(world: &World, table: &mut Table, server: &Server) -> Result<()> {
    fs::write(world.workspace.join("read-by-call"), "a line\n")?;
    let tools = ToolSession::new(Arc::new(world.sandbox(&world.unlimited())?));
    let mut connection = server.connect()?;
    let (_, made) = connection.ask("POST", "/api/sandboxes", "application/json", "{}")?;
    let made: Value = serde_json::from_str(&made)?;
    let path = format!(
        "/api/sandboxes/{}/call",
        made["id"].as_str().context(made.to_string())?
    );
    let write = json!({ "tool": "Write", "arguments": { "path": "file", "content": "a line\n" } });
    connection.ask("POST", &path, "application/json", &write.to_string())?;
    let read = json!({ "tool": "Read", "arguments": { "path": "file" } }).to_string();
    let contestants = vec![
        Contestant::whole("the library's call", || {
            let outcome = tools.call("Read", json!({ "path": "read-by-call" }), &NEVER)?;
            ensure!(!outcome.is_error, "{}", outcome.text);
            Ok(())
        }),
        Contestant::whole(
            "`POST /api/sandboxes/{id}/call`, one connection",
            move || {
                let (head, answer) = connection.ask("POST", &path, "application/json", &read)?;
                ensure!(head.contains(" 200 "), "{answer}");
                Ok(())
            },
        ),
    ];
    let outcome = race(contestants, world.rounds(1000), world.budget(10));
    table.race(CALL, "a small file, the sandbox waits", outcome, &[]);
    Ok(())
}

/// So many sessions at once, each of several calls: how long the calls took by the sessions' own logs.
fn load(world: &World, table: &mut Table, server: &Server) {
    let sessions = if world.is_quick { 10 } else { SESSIONS };
    let begun = Instant::now();
    let done = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..sessions)
            .map(|_| scope.spawn(|| server.work()))
            .collect();
        let ended = threads.into_iter().map(|thread| {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a thread panicked"))
                .flatten()
        });
        ended.collect::<Vec<_>>()
    });
    let wall = begun.elapsed();
    let mut errors = 0;
    let mut taken = Vec::new();
    for work in done {
        let events = match work {
            Ok((_, events)) => events,
            Err(error) => {
                table.skip(GROUP, "one of the sessions at once", format!("{error:#}"));
                errors += 1;
                continue;
            }
        };
        let of = |kind: &'static str| {
            let all = events.iter().filter(move |event| event["type"] == kind);
            all.map(|event| (event["at_unix_ms"].as_u64().unwrap_or(0), event))
        };
        for ((begun, _), (ended, event)) in of("call_started").zip(of("call_finished")) {
            if event["is_error"] == true {
                errors += 1;
            }
            taken.push(Duration::from_millis(ended.saturating_sub(begun)));
        }
    }
    let sample = Sample::of("calls", &taken);
    let what = at_once(sessions);
    table.figure(GROUP, format!("{what}: errors"), f64::from(errors), "");
    table.figure(
        GROUP,
        format!("{what}: all done in"),
        wall.as_secs_f64(),
        "s",
    );
    table.figure(
        GROUP,
        format!("{what}: a call, p50"),
        sample.p50_us / 1e3,
        "ms",
    );
    // How soon calls are done says nothing where some are not.
    if errors == 0 {
        table.figure(GROUP, load_p95(sessions), sample.p95_us / 1e3, "ms");
    }
}

fn at_once(sessions: usize) -> String {
    format!("{sessions} sessions at once, {CALLS} calls each")
}

/// Name of the figure of slow calls, in milliseconds.
pub(crate) fn load_p95(sessions: usize) -> String {
    format!("{}: a call, p95", at_once(sessions))
}

fn starts(world: &World, table: &mut Table) -> Result<()> {
    let cold = Server::start(world, 1, &[])?;
    let warm = Server::start(world, 1, &["--pool", "2"])?;
    let start = |server: &Server| {
        std::thread::sleep(REFILL);
        Ok(server.work()?.0)
    };
    let contestants = vec![
        Contestant::new("its sandbox is started", || start(&cold)),
        Contestant::new("its sandbox was started ahead (`--pool`)", || start(&warm)),
    ];
    let outcome = race(contestants, world.rounds(30), world.budget(60));
    table.race(START, "over HTTP, recorded answers, one call", outcome, &[]);
    Ok(())
}

/// How long after it happened each event reaches those who follow its session, all of them at the same time.
fn fan_out(world: &World, table: &mut Table) -> Result<()> {
    let mut answers: Vec<String> = (1..=COMMANDS)
        .map(|turn| {
            let command = format!("sleep 0.15; echo {turn}");
            call_line(turn, "Bash", &json!({ "command": command }))
        })
        .collect();
    answers.push(last_line(COMMANDS + 1));
    let server = Server::start_playing(world, "commands", &answers, &[])?;
    let mut connection = server.connect()?;
    let task = json!({ "task": "x" }).to_string();
    let (_, begun) = connection.ask("POST", "/api/tasks", "application/json", &task)?;
    let begun: Value = serde_json::from_str(&begun)?;
    let events = begun["events_url"].as_str().context(begun.to_string())?;
    let delays = std::thread::scope(|scope| -> Result<Vec<Duration>> {
        let readers: Vec<_> = (0..READERS)
            .map(|_| scope.spawn(|| follow(&server, events)))
            .collect();
        let mut delays = Vec::new();
        for reader in readers {
            let reader = reader.join();
            delays.extend(reader.map_err(|_| anyhow::anyhow!("a thread panicked"))??);
        }
        Ok(delays)
    })?;
    let mut millis: Vec<f64> = delays.iter().map(|one| one.as_secs_f64() * 1e3).collect();
    millis.sort_by(f64::total_cmp);
    let what = format!("an event until each of {READERS} readers of its session has it");
    for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let place = (millis.len() as f64 - 1.0).max(0.0) * part;
        let value = millis.get(place.round() as usize).copied();
        table.figure(
            GROUP,
            format!("{what}: {name}"),
            value.unwrap_or(f64::NAN),
            "ms",
        );
    }
    Ok(())
}

/// Follows a session to its end: how long each event was under way that happened after this has begun. The server tells
/// when an event happened in whole milliseconds.
fn follow(server: &Server, events: &str) -> Result<Vec<Duration>> {
    let mut connection = server.connect()?;
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    };
    let mut begun = None;
    let mut delays = Vec::new();
    let mut rest = String::new();
    connection.ask_in_pieces("GET", events, "application/json", "", |piece| {
        let now = now();
        // What was there before comes with the first piece.
        let begun = *begun.get_or_insert(now);
        rest.push_str(&String::from_utf8_lossy(piece));
        while let Some(end) = rest.find('\n') {
            let line: String = rest.drain(..=end).collect();
            let event = line
                .strip_prefix("data: ")
                .map(serde_json::from_str::<Value>);
            if let Some(Ok(event)) = event
                && let Some(at) = event["at_unix_ms"].as_u64().map(Duration::from_millis)
                && at > begun
            {
                delays.push(now.saturating_sub(at));
            }
        }
    })?;
    ensure!(!delays.is_empty(), "no event came while somebody followed");
    Ok(delays)
}

/// Sessions that have ended and whose sandboxes wait for somebody to come back.
fn idle(world: &World, table: &mut Table) -> Result<()> {
    let server = Server::start(world, 1, &[])?;
    let registry = registry(world)?;
    let total = || -> Result<f64> {
        let mut all = vec![server.child.id()];
        let entries = registry.list()?;
        for supervisor in entries.into_iter().filter_map(|entry| entry.pid) {
            all.push(supervisor);
            all.extend(children(&supervisor.to_string())?);
        }
        Ok(pss_of_all(&all))
    };
    for _ in 0..3 {
        server.work()?;
    }
    std::thread::sleep(REFILL);
    let before = total()?;
    for _ in 0..IDLE {
        server.work()?;
    }
    std::thread::sleep(REFILL);
    let each = (total()? - before) / IDLE as f64;
    table.figure(GROUP, IDLE_MEMORY, each, "KiB");
    Ok(())
}
