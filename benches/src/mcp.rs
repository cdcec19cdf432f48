//! What a client of `glovebox mcp` waits for beyond the tool itself: one call of Read over the pipes of a
//! server that lives, and over HTTP on this machine, beside the same call by library.

use crate::http::{Connection, place_of};
use crate::race::{Contestant, race};
use crate::running::Running;
use crate::table::Table;
use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use glovebox_tools::ToolSession;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) const GROUP: &str = "Read of 4 KiB by an MCP client";
/// The contestants the promise is about.
pub(crate) const PIPES: &str = "`glovebox mcp`, standard input and output";
pub(crate) const HTTP: &str = "`glovebox mcp --http`, one connection";
/// What they add to.
pub(crate) const LIBRARY: &str = "the tool by library";

static NEVER: AtomicBool = AtomicBool::new(false);

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let lines = "a line of the file\n".repeat(215);
    fs::write(world.workspace.join("small"), lines)?;
    let tools = ToolSession::new(Arc::new(world.sandbox(&world.unlimited())?));
    let mut contestants = vec![Contestant::whole(LIBRARY, || {
        let outcome = tools.call("Read", json!({ "path": "small" }), &NEVER)?;
        ensure!(!outcome.is_error, "{}", outcome.text);
        Ok(())
    })];
    let mut servers = Vec::new();
    match world.glovebox() {
        Ok(glovebox) => {
            let mut pipes = Pipes::open(glovebox, &mut servers)?;
            contestants.push(Contestant::whole(PIPES, move || pipes.read()));
            let mut http = Http::open(world.glovebox()?, &mut servers)?;
            contestants.push(Contestant::whole(HTTP, move || http.read()));
        }
        Err(error) => table.skip(GROUP, PIPES, format!("{error:#}")),
    }
    let outcome = race(contestants, world.rounds(1000), world.budget(8));
    table.race(GROUP, "a client that stays connected", outcome, &[LIBRARY]);
    Ok(())
}

fn message(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

fn introduction() -> String {
    let client = json!({ "name": "bench", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    message(1, "initialize", &params)
}

fn read_small(id: u64) -> String {
    message(
        id,
        "tools/call",
        &json!({ "name": "Read", "arguments": { "path": "small" } }),
    )
}

const READY: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The text of an answer, or what went wrong.
fn check(answer: &str) -> Result<()> {
    ensure!(answer.contains("a line of the file"), "{answer}");
    Ok(())
}

/// A connection over standard input and output.
struct Pipes {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    id: u64,
    line: String,
}

impl Pipes {
    fn open(mut glovebox: Command, servers: &mut Vec<Running>) -> Result<Self> {
        glovebox
            .arg("mcp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = glovebox.spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        servers.push(Running(child));
        let mut pipes = Self {
            input: input.context("no standard input")?,
            output: BufReader::new(output.context("no standard output")?),
            id: 1,
            line: String::new(),
        };
        pipes.ask(&introduction())?;
        writeln!(pipes.input, "{READY}")?;
        Ok(pipes)
    }

    /// Sends a message and waits for the next one.
    fn ask(&mut self, message: &str) -> Result<()> {
        self.input.write_all(format!("{message}\n").as_bytes())?;
        self.line.clear();
        self.output.read_line(&mut self.line)?;
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        self.id += 1;
        self.ask(&read_small(self.id))?;
        check(&self.line)
    }
}

/// A connection over HTTP that is kept open.
struct Http {
    connection: Connection,
    id: u64,
}

impl Http {
    fn open(mut glovebox: Command, servers: &mut Vec<Running>) -> Result<Self> {
        const TOKEN: &str = "0123456789abcdef0123456789abcdef";
        glovebox
            .args(["mcp", "--http", "127.0.0.1:0"])
            .env("GLOVEBOX_MCP_TOKEN", TOKEN)
            .stderr(Stdio::piped());
        let mut child = glovebox.spawn()?;
        let place = place_of(&mut child);
        servers.push(Running(child));
        let mut connection = Connection::open(&place?, TOKEN)?;
        connection.header("Accept", "application/json, text/event-stream");
        let mut http = Self { connection, id: 1 };
        let (head, _) = http.post(&introduction())?;
        let session = head
            .lines()
            .find_map(|line| line.strip_prefix("mcp-session-id: "));
        let session = session.context("there is no session")?;
        http.connection.header("Mcp-Session-Id", session);
        http.post(READY)?;
        Ok(http)
    }

    fn post(&mut self, message: &str) -> Result<(String, String)> {
        self.connection
            .ask("POST", "/mcp", "application/json", message)
    }

    fn read(&mut self) -> Result<()> {
        self.id += 1;
        let (_, body) = self.post(&read_small(self.id))?;
        check(&body)
    }
}
