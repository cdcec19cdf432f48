//! What the agent's loop costs by itself: turns of a recorded model that calls one tool each, with every
//! event in the log on disk, beside the same calls of the tool alone. With a server on loopback, what the first request
//! weighs, and how long after the last byte of an answer the tool starts. And what of a model's window our own words take.

use crate::race::{Contestant, race};
use crate::table::Table;
use crate::world::World;
use anyhow::{Context as _, Result, anyhow, ensure};
use glovebox_agent::{
    AgentLoop, ContextBudget, Conversation, Date, Ending, Event, Log, MessagePart, Model,
    ModelName, NoApproval, Observe, Placement, PromptFacts, Provider, ProviderAccess, Questions,
    RecordedModel, RemoteModel, RetryPolicy, RunLimits, RunOutcome, Secrets, SessionInfo,
    SessionState, StopReason, StopSignal, ToolCall, ToolDefinition, ToolOutput, Tools, Usage,
    system_prompt,
};
use glovebox_proto::Fault;
use glovebox_tools::ToolSession;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Turns of one run.
const TURNS: [usize; 2] = [20, LONG];
/// Of the longer one.
pub(crate) const LONG: usize = 200;
/// The loop with its log.
pub(crate) const LOOP: &str = "turns of the loop, log included";
/// What it adds to.
pub(crate) const BARE: &str = "the same calls of the tool alone";
const CONTEXT: &str = "of a model's window";
/// Figures of turns with a server on loopback.
pub(crate) const SERVED: &str = "turns of a model server on loopback";
/// Bytes of the body of a session's first request.
pub(crate) const FIRST_REQUEST: &str = "the first request";
/// From the last byte of an answer, the end of its body included, to the tool's start.
pub(crate) const TO_TOOL: &str = "from an answer's last byte to the tool's start, p50";

static NEVER: AtomicBool = AtomicBool::new(false);

/// Name of the race of so many turns.
pub(crate) fn group(turns: usize) -> String {
    format!("{turns} turns of the agent, one Read each")
}

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let lines = "a line of the file\n".repeat(215);
    fs::write(world.workspace.join("small"), lines)?;
    let tools = ToolSession::new(Arc::new(world.sandbox(&world.unlimited())?));
    let log = Log::open(&world.scratch("sessions")?, || 0)?;
    let sessions = AtomicUsize::new(0);
    for turns in TURNS {
        let events = recording(turns);
        let contestants = vec![
            Contestant::whole(LOOP, || {
                let number = sessions.fetch_add(1, Ordering::Relaxed);
                turn(&tools, &log, &format!("s-{number}"), &events)
            }),
            Contestant::whole(BARE, || {
                for at in 0..turns {
                    let outcome = tools.call("Read", arguments(at), &NEVER)?;
                    ensure!(!outcome.is_error, "{}", outcome.text);
                }
                Ok(())
            }),
        ];
        let outcome = race(contestants, world.rounds(40), world.budget(6));
        table.race(
            &group(turns),
            "a recorded model, events in SQLite",
            outcome,
            &[BARE],
        );
    }
    measure_served(world, &tools, table)?;
    let definitions: usize = Tools::definitions(&tools)
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.schema.to_string().len())
        .sum();
    for (what, bytes) in [
        ("definitions of all tools", definitions),
        ("system prompt", prompt().len()),
    ] {
        table.figure(CONTEXT, what, bytes as f64 / 4.0, "tokens of 4 bytes");
    }
    Ok(())
}

/// Each call is another one, or the loop would think that the model goes in circles.
fn arguments(at: usize) -> Value {
    json!({ "path": "small", "offset": at + 1 })
}

fn recording(turns: usize) -> Vec<Event> {
    let answered = |turn: usize, part: MessagePart| Event::Answered {
        turn: turn as u32,
        parts: vec![part],
        stop: StopReason::Done,
        usage: Some(Usage::default()),
        cost_usd: None,
    };
    let text = "Done.".to_owned();
    (0..turns)
        .map(|at| {
            let call = ToolCall {
                id: format!("c{at}"),
                name: "Read".to_owned(),
                arguments: arguments(at),
                signatures: Vec::new(),
                extra: serde_json::Map::new(),
            };
            answered(at + 1, MessagePart::Call(call))
        })
        .chain([answered(turns + 1, MessagePart::Text { text })])
        .collect()
}

struct Kept<'a>(&'a Log, &'a str);

impl Observe for Kept<'_> {
    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        self.0.append(self.1, event).map(drop)
    }
}

fn turn(tools: &ToolSession, log: &Log, id: &str, events: &[Event]) -> Result<()> {
    create_session(log, id)?;
    let model = RecordedModel::new(events, "recorded");
    let verdict = run_loop(&model, tools, &mut Kept(log, id));
    ensure!(verdict.ending == Ending::Completed, "{verdict:?}");
    Ok(())
}

fn create_session(log: &Log, id: &str) -> Result<()> {
    log.create(&SessionInfo {
        id: id.to_owned(),
        state: SessionState::Running,
        task: "measure".to_owned(),
        model: "recorded".to_owned(),
        placement: Placement::Sandbox.to_string(),
        sandbox: None,
        project: Path::new("/").to_owned(),
        created_unix_ms: 0,
        updated_unix_ms: 0,
        events: 0,
    })?;
    Ok(())
}

fn run_loop(model: &dyn Model, tools: &dyn Tools, observe: &mut dyn Observe) -> RunOutcome {
    let (secrets, system) = (Secrets::default(), prompt());
    let head = AgentLoop {
        model,
        tools,
        approve: &NoApproval,
        system: &system,
        limits: RunLimits {
            max_turns: None,
            ..RunLimits::default()
        },
        price: None,
        budget: ContextBudget::default(),
        secrets: &secrets,
        stop: StopSignal::default(),
    };
    head.run(&mut Conversation::new("measure"), observe)
}

fn prompt() -> String {
    system_prompt(&PromptFacts {
        placement: Placement::Sandbox,
        today: Date::from_unix_ms(0),
        questions: Questions::Rules,
        workspace: "/workspace".to_owned(),
        network: glovebox_agent::NetworkReach::None,
        can_run_scripts: false,
        context: None,
        limits: Vec::new(),
        system: glovebox_agent::SystemFacts::default(),
        programs: Vec::new(),
        is_read_only: false,
        changes_come_back: true,
        servers: Vec::new(),
        addition: None,
        instructions: Vec::new(),
    })
}

/// A clock's reading that one thread leaves for another.
type LastByte = Arc<Mutex<Option<Instant>>>;

/// The tools, noting how long after the last byte of the answer a call starts.
struct TimedTools<'a> {
    tools: &'a ToolSession,
    last_byte: LastByte,
    starts_us: Mutex<Vec<f64>>,
}

impl Tools for TimedTools<'_> {
    fn definitions(&self) -> Vec<ToolDefinition> {
        Tools::definitions(self.tools)
    }

    fn call(&self, name: &str, arguments: Value, cancel: &AtomicBool) -> Result<ToolOutput, Fault> {
        if let Some(last_byte) = lock(&self.last_byte).take() {
            lock(&self.starts_us).push(last_byte.elapsed().as_secs_f64() * 1e6);
        }
        Tools::call(self.tools, name, arguments, cancel)
    }
}

/// Events that are thrown away.
struct NullObserver;

impl Observe for NullObserver {
    fn observe(&mut self, _: &Event) -> Result<(), Fault> {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn measure_served(world: &World, tools: &ToolSession, table: &mut Table) -> Result<()> {
    let turns = world.rounds(200);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}/v1", listener.local_addr()?);
    let last_byte = LastByte::default();
    let server = std::thread::spawn({
        let last_byte = Arc::clone(&last_byte);
        move || serve_turns(&listener, turns, &last_byte)
    });
    let access = ProviderAccess::find(Provider::OpenAi, |name| {
        (name == Provider::OpenAi.base_variable()).then(|| address.clone())
    });
    let model = RemoteModel::new(
        ModelName::parse("openai/served").map_err(|error| anyhow!("{error}"))?,
        &access.map_err(|error| anyhow!(error))?,
        Secrets::default(),
        RetryPolicy::default(),
    )
    .map_err(|error| anyhow!("{error}"))?;
    let timed = TimedTools {
        tools,
        last_byte,
        starts_us: Mutex::default(),
    };
    let verdict = run_loop(&model, &timed, &mut NullObserver);
    ensure!(verdict.ending == Ending::Completed, "{verdict:?}");
    let first = server
        .join()
        .map_err(|_| anyhow!("the server broke down"))??;
    let mut starts = lock(&timed.starts_us).clone();
    ensure!(starts.len() == turns, "{} of {turns} calls", starts.len());
    starts.sort_by(f64::total_cmp);
    table.figure(SERVED, FIRST_REQUEST, first as f64 / 1024.0, "KiB");
    table.figure(SERVED, TO_TOOL, starts[starts.len() / 2], "us");
    Ok(())
}

/// Answers so many requests with a call each, and one more with text. Returns the size of the first.
fn serve_turns(listener: &TcpListener, turns: usize, last_byte: &LastByte) -> Result<usize> {
    let mut first = None;
    let mut answered = 0;
    while answered <= turns {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        while answered <= turns {
            let Some(size) = read_request(&mut reader)? else {
                break;
            };
            first.get_or_insert(size);
            let call = (answered < turns).then_some(answered);
            answer_turn(&stream, call, last_byte)?;
            answered += 1;
        }
    }
    first.context("nothing was asked")
}

/// Reads one request and returns the size of its body; `None` at the end of the connection.
fn read_request(reader: &mut BufReader<TcpStream>) -> Result<Option<usize>> {
    let mut size = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            size = value.trim().parse()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; size];
    reader.read_exact(&mut body)?;
    Ok(Some(size))
}

/// Sends a call of Read, or the last text; the clock is read before the last byte goes.
fn answer_turn(mut stream: &TcpStream, at: Option<usize>, last_byte: &LastByte) -> Result<()> {
    let (delta, end) = match at {
        Some(at) => {
            let arguments = arguments(at).to_string();
            let function = json!({ "name": "Read", "arguments": arguments });
            let call = json!({ "index": 0, "id": format!("c{at}"), "function": function });
            (json!({ "tool_calls": [call] }), "tool_calls")
        }
        None => (json!({ "content": "Done." }), "stop"),
    };
    let mut body = String::new();
    for (delta, end) in [(delta, None), (json!({}), Some(end))] {
        let event = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": end }] });
        body.extend(["data: ", &event.to_string(), "\n\n"]);
    }
    body.push_str("data: [DONE]\n\n");
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let (body, last) = body.as_bytes().split_at(body.len() - 1);
    stream.write_all(&[head.as_bytes(), body].concat())?;
    *lock(last_byte) = Some(Instant::now());
    stream.write_all(last)?;
    Ok(())
}
