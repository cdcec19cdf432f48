//! What the agent's loop costs by itself: turns of a recorded model that calls one tool each, with every
//! event in the log on disk, beside the same calls of the tool alone. And what of a model's window our
//! own words take.

use crate::race::{Contestant, race};
use crate::table::Table;
use crate::world::World;
use anyhow::{Result, ensure};
use glovebox_agent::{
    AgentLoop, ContextBudget, Conversation, Date, Ending, Event, Log, MessagePart, NoApproval,
    Observe, Placement, PromptFacts, Questions, RecordedModel, RunLimits, Secrets, SessionInfo,
    SessionState, StopReason, StopSignal, ToolCall, Tools, Usage, system_prompt,
};
use glovebox_proto::Fault;
use glovebox_tools::ToolSession;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Turns of one run.
const TURNS: [usize; 2] = [20, LONG];
/// Of the longer one.
pub(crate) const LONG: usize = 200;
/// The loop with its log.
pub(crate) const LOOP: &str = "turns of the loop, log included";
/// What it adds to.
pub(crate) const BARE: &str = "the same calls of the tool alone";
const CONTEXT: &str = "of a model's window";

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
    let (model, secrets, system) = (
        RecordedModel::new(events, "recorded"),
        Secrets::default(),
        prompt(),
    );
    let head = AgentLoop {
        model: &model,
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
    let verdict = head.run(&mut Conversation::new("measure"), &mut Kept(log, id));
    ensure!(verdict.ending == Ending::Completed, "{verdict:?}");
    Ok(())
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
