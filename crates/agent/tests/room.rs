//! Long conversations: dropped outputs and summaries, and equal prompts from a log, a resumed
//! session and a recording.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod scene;

use glovebox_agent::{
    AgentLoop, AnswerFuture, ContextBudget, Conversation, Ending, Event, MessagePart, Model,
    ModelAnswer, ModelError, NoApproval, OnDelta, Price, Prompt, RecordedModel, RunLimits,
    RunOutcome, Secrets, StopSignal, ToolCall, ToolDefinition, ToolOutput, Tools, Usage,
};
use glovebox_proto::Fault;
use scene::{EventStore, assert_whole};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// Reaction of a model to the request for a summary.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Summary {
    Good,
    Empty,
    Broken,
}

/// Model that writes reasoning and calls a tool for a number of turns. Refuses a prompt that is too
/// long.
struct TalkativeModel {
    turns: u32,
    bytes: usize,
    summary: Summary,
    /// Maximum size of a prompt; a longer one is refused.
    window_bytes: usize,
    /// True if the refusal names the length as its reason.
    says_why: bool,
    /// All prompts for an answer; below, all prompts for a summary.
    asked: Mutex<Vec<String>>,
    summed_up: Mutex<Vec<String>>,
}

impl TalkativeModel {
    fn new(turns: u32, bytes: usize, summary: Summary) -> Self {
        Self {
            turns,
            bytes,
            summary,
            window_bytes: usize::MAX,
            says_why: true,
            asked: Mutex::default(),
            summed_up: Mutex::default(),
        }
    }

    fn say(&self, prompt: &Prompt<'_>) -> Result<ModelAnswer, ModelError> {
        let usage = Usage {
            input: 100,
            output: 10,
            ..Usage::default()
        };
        let text = |text: String| ModelAnswer {
            parts: vec![MessagePart::Text { text }],
            usage: Some(usage),
            ..ModelAnswer::default()
        };
        assert_whole(prompt.messages);
        let told = format!("{:?}", prompt.messages);
        if prompt.tools.is_empty() {
            let mut summed_up = self.summed_up.lock().unwrap();
            summed_up.push(told);
            return match self.summary {
                Summary::Good => Ok(text(format!("SUMMARY {}", summed_up.len()))),
                Summary::Empty => Ok(text(" \n".to_owned())),
                Summary::Broken => Err(error(false)),
            };
        }
        let mut asked = self.asked.lock().unwrap();
        if told.len() > self.window_bytes {
            return Err(error(self.says_why));
        }
        asked.push(told);
        let turn = asked.len() as u32;
        if turn > self.turns {
            return Ok(text("done".to_owned()));
        }
        Ok(ModelAnswer {
            parts: vec![
                MessagePart::Text {
                    text: format!("thought {turn} {}", "t".repeat(self.bytes)),
                },
                MessagePart::Call(ToolCall {
                    id: format!("c{turn}"),
                    name: "Look".to_owned(),
                    arguments: json!({ "turn": turn }),
                    signatures: Vec::new(),
                    extra: serde_json::Map::new(),
                }),
            ],
            // The server does not count, so the estimate applies.
            usage: None,
            ..ModelAnswer::default()
        })
    }
}

fn error(is_too_long: bool) -> ModelError {
    ModelError {
        message: "refused".to_owned(),
        remedy: None,
        status: Some(400),
        is_passing: false,
        is_too_long,
        is_exhausted: false,
        retry_after: None,
    }
}

impl Model for TalkativeModel {
    fn label(&self) -> String {
        "test/talker".to_owned()
    }

    fn answer<'a>(&'a self, prompt: Prompt<'a>, _on_delta: OnDelta<'a>) -> AnswerFuture<'a> {
        Box::pin(async move { self.say(&prompt) })
    }
}

/// Recorded model that stores its prompts.
struct NotingModel(RecordedModel, Mutex<Vec<String>>);

impl Model for NotingModel {
    fn label(&self) -> String {
        self.0.label()
    }

    fn answer<'a>(&'a self, prompt: Prompt<'a>, on_delta: OnDelta<'a>) -> AnswerFuture<'a> {
        let told = format!("{:?}", prompt.messages);
        self.1.lock().unwrap().push(told);
        self.0.answer(prompt, on_delta)
    }

    fn compactions(&self) -> Option<Vec<Event>> {
        self.0.compactions()
    }
}

struct LookTool;

impl Tools for LookTool {
    fn definitions(&self) -> Vec<ToolDefinition> {
        vec![ToolDefinition {
            name: "Look".to_owned(),
            description: String::new(),
            schema: json!({}),
            is_read_only: true,
            server: None,
        }]
    }

    fn call(&self, _: &str, arguments: Value, _: &AtomicBool) -> Result<ToolOutput, Fault> {
        Ok(ToolOutput {
            text: format!("result of {arguments} {}", "r".repeat(1000)),
            ..ToolOutput::default()
        })
    }
}

fn run(
    model: &dyn Model,
    window: u64,
    limits: RunLimits,
    conversation: &mut Conversation,
    kept: &mut EventStore,
) -> RunOutcome {
    let secrets = Secrets::default();
    let head = AgentLoop {
        model,
        tools: &LookTool,
        approve: &NoApproval,
        system: "",
        limits,
        price: Some(Price::parse("1000/1000").unwrap().into()),
        budget: ContextBudget::of_window(window),
        secrets: &secrets,
        stop: StopSignal::default(),
    };
    head.run(conversation, kept)
}

/// Runs a session from its beginning.
fn talk(
    model: &TalkativeModel,
    window: u64,
    limits: RunLimits,
) -> (RunOutcome, Conversation, EventStore) {
    let (mut conversation, mut kept) = (Conversation::new("task"), EventStore::begun("task"));
    let verdict = run(model, window, limits, &mut conversation, &mut kept);
    (verdict, conversation, kept)
}

fn count(kept: &EventStore, kind: &str) -> usize {
    kept.0.iter().filter(|event| event.kind() == kind).count()
}

#[test]
fn a_long_conversation_goes_on_with_a_summary_and_a_log_gives_the_same_bytes() {
    let model = TalkativeModel::new(40, 2000, Summary::Good);
    let mut conversation = Conversation::new("the task itself");
    let mut kept = EventStore::begun("the task itself");
    let verdict = run(
        &model,
        10_000,
        RunLimits::default(),
        &mut conversation,
        &mut kept,
    );
    assert_eq!(verdict.ending, Ending::Completed, "{verdict:?}");
    assert!(count(&kept, "compacted") > 1 && count(&kept, "pruned") > 0);
    assert_eq!(conversation.turns, 41);

    let asked = model.asked.into_inner().unwrap();
    let summed_up = model.summed_up.into_inner().unwrap();
    // Every prompt fits the window and contains the task; the last one contains the last summary.
    assert!(
        asked
            .iter()
            .all(|told| told.len() < 40_000 && told.contains("the task itself"))
    );
    assert!(
        asked
            .last()
            .unwrap()
            .contains(&format!("SUMMARY {}", summed_up.len()))
    );
    assert!(!asked.last().unwrap().contains("thought 1 "));
    // A summary is made from the one before and everything since, with calls and outcomes.
    assert!(summed_up[1].contains("SUMMARY 1") && summed_up[1].contains("the task itself"));
    assert!(summed_up[0].contains("thought 1 ") && summed_up[0].contains("result of"));

    // Summaries count towards tokens and cost.
    let summaries = summed_up.len() as u64;
    assert_eq!(
        conversation.spent.counted_tokens().input,
        100 * summaries + 100
    );
    let spent = conversation.spent.counted_tokens().total() as f64 / 1000.0;
    assert!((conversation.spent.known_cost_usd() - spent).abs() < 1e-6);

    // The log reproduces the conversation.
    let from_log = kept.conversation();
    assert_eq!(from_log, conversation);

    // A session that is resumed after any event continues with the same prompts.
    for (at, event) in kept.0.iter().enumerate() {
        let Event::TurnStarted { turn } = event else {
            continue;
        };
        let resumed = Conversation::from_events(&kept.0[..at]);
        let told = format!("{:?}", resumed.told());
        assert_eq!(told, asked[*turn as usize - 1], "turn {turn}");
    }

    // A recording leads to the same prompts with any window, and asks for no summary.
    let recorded = NotingModel(RecordedModel::new(&kept.0, "recorded"), Mutex::default());
    let mut again = Conversation::new("the task itself");
    let mut kept_again = EventStore::begun("the task itself");
    let verdict = run(
        &recorded,
        1_000,
        RunLimits::default(),
        &mut again,
        &mut kept_again,
    );
    assert_eq!(verdict.ending, Ending::Completed, "{verdict:?}");
    assert_eq!(recorded.1.into_inner().unwrap(), asked);
    assert_eq!(again, conversation);
    assert_eq!(count(&kept_again, "compacted"), count(&kept, "compacted"));
}

#[test]
fn a_summary_that_fails_ends_no_run() {
    for summary in [Summary::Empty, Summary::Broken] {
        // Short reasoning: dropping the outputs suffices.
        let model = TalkativeModel::new(60, 20, summary);
        let (verdict, conversation, kept) = talk(&model, 6_000, RunLimits::default());
        assert_eq!(verdict.ending, Ending::Completed, "{summary:?} {verdict:?}");
        assert_eq!(kept.conversation(), conversation);

        // Long reasoning: dropping the outputs does not suffice.
        let model = TalkativeModel::new(60, 2000, summary);
        let (verdict, conversation, kept) = talk(&model, 10_000, RunLimits::default());
        assert_eq!(verdict.ending, Ending::StoppedByLimit, "{verdict:?}");
        assert!(verdict.message.contains("agent.window"), "{verdict:?}");
        assert_eq!(count(&kept, "not_compacted"), 2, "it is not tried for ever");
        assert_eq!(kept.conversation(), conversation);
    }
}

#[test]
fn a_server_that_says_it_was_told_too_much_is_believed_once() {
    // The server's window is smaller than the configured one.
    let mut model = TalkativeModel::new(12, 2000, Summary::Good);
    model.window_bytes = 20_000;
    let (verdict, conversation, kept) = talk(&model, 200_000, RunLimits::default());
    assert_eq!(verdict.ending, Ending::Completed, "{verdict:?}");
    assert!(count(&kept, "compacted") > 0);
    assert_eq!(conversation.turns, 13);
    assert_eq!(kept.conversation(), conversation);

    // The server refuses every prompt.
    let mut model = TalkativeModel::new(12, 2000, Summary::Good);
    model.window_bytes = 1;
    let (verdict, ..) = talk(&model, 200_000, RunLimits::default());
    assert_eq!(verdict.ending, Ending::StoppedByLimit, "{verdict:?}");
    assert!(verdict.message.contains("agent.window"), "{verdict:?}");
}

#[test]
fn a_refusal_that_does_not_say_why_is_taken_for_length_once_where_much_was_told() {
    let mut model = TalkativeModel::new(12, 2000, Summary::Good);
    (model.window_bytes, model.says_why) = (30_000, false);
    let (verdict, conversation, kept) = talk(&model, 12_000, RunLimits::default());
    assert_eq!(verdict.ending, Ending::Completed, "{verdict:?}");
    assert!(count(&kept, "compacted") > 0);
    assert_eq!(kept.conversation(), conversation);

    // If the prompt is short, the refusal has another reason and is reported unchanged.
    let mut model = TalkativeModel::new(12, 2000, Summary::Good);
    (model.window_bytes, model.says_why) = (10_000, false);
    let (verdict, _, kept) = talk(&model, 200_000, RunLimits::default());
    assert_eq!(
        (verdict.ending, verdict.message.as_str()),
        (Ending::Failed, "refused")
    );
    assert_eq!(count(&kept, "compacted"), 0);
}

#[test]
fn what_a_summary_costs_counts_against_the_limits() {
    let model = TalkativeModel::new(40, 2000, Summary::Good);
    let limits = RunLimits {
        // The server does not count answers; a summary costs 110 tokens.
        max_tokens: Some(110),
        ..RunLimits::default()
    };
    let (verdict, conversation, kept) = talk(&model, 10_000, limits);
    assert_eq!(verdict.ending, Ending::StoppedByLimit, "{verdict:?}");
    let remedy = verdict.remedy.as_ref().unwrap().to_string();
    assert!(remedy.contains("agent.max_tokens"), "{verdict:?}");
    assert_eq!(count(&kept, "compacted"), 1);
    assert!(conversation.turns < 20, "{}", conversation.turns);
}
