//! Property tests: a run ends in a documented way, for any failures and any moment of a stop.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod scene;

use glovebox_agent::{
    AgentLoop, AnswerFuture, ContextBudget, Conversation, Ending, Event, Message, MessagePart,
    Model, ModelAnswer, ModelError, NoApproval, OnDelta, Prompt, RunLimits, RunOutcome, Secrets,
    StopSignal, ToolCall, ToolDefinition, ToolOutput, Tools,
};
use glovebox_proto::{Code, Fault};
use proptest::prelude::*;
use scene::{EventStore, assert_whole};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Behaviour of one tool call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CallBehaviour {
    Succeed,
    Fail,
    Refuse,
    /// Works until it is cancelled.
    Hang,
    /// Fails because the sandbox is lost.
    Lose,
}

/// Kind of one answer.
#[derive(Debug, Clone)]
enum ScriptedAnswer {
    Words,
    Nothing,
    Calls(Vec<CallBehaviour>),
    /// The provider fails for good.
    Break,
    /// No answer arrives.
    Silence,
}

struct Script {
    says: Vec<ScriptedAnswer>,
    next: AtomicUsize,
    prompts: Mutex<Vec<Vec<Message>>>,
}

impl Model for Script {
    fn label(&self) -> String {
        "test/script".to_owned()
    }

    fn answer<'a>(&'a self, prompt: Prompt<'a>, _on_delta: OnDelta<'a>) -> AnswerFuture<'a> {
        self.prompts.lock().unwrap().push(prompt.messages.to_vec());
        let turn = self.next.fetch_add(1, Ordering::SeqCst);
        let say = self
            .says
            .get(turn)
            .cloned()
            .unwrap_or(ScriptedAnswer::Words);
        Box::pin(async move {
            let parts = match say {
                ScriptedAnswer::Words => vec![MessagePart::Text {
                    text: "done".to_owned(),
                }],
                ScriptedAnswer::Nothing => Vec::new(),
                ScriptedAnswer::Calls(acts) => acts
                    .iter()
                    .enumerate()
                    .map(|(index, act)| {
                        MessagePart::Call(ToolCall {
                            // The same ids in every answer, as from some servers.
                            id: format!("call_{index}"),
                            name: if index % 2 == 0 { "Look" } else { "Change" }.to_owned(),
                            arguments: json!({ "act": format!("{act:?}"), "turn": turn }),
                            signatures: Vec::new(),
                            extra: serde_json::Map::new(),
                        })
                    })
                    .collect(),
                ScriptedAnswer::Break => {
                    return Err(ModelError {
                        message: "broken".to_owned(),
                        remedy: None,
                        status: Some(400),
                        is_passing: false,
                        is_too_long: false,
                        is_exhausted: false,
                        retry_after: None,
                    });
                }
                ScriptedAnswer::Silence => std::future::pending().await,
            };
            Ok(ModelAnswer {
                parts,
                ..ModelAnswer::default()
            })
        })
    }
}

#[derive(Default)]
struct Scene {
    changing: AtomicUsize,
}

impl Tools for Scene {
    fn definitions(&self) -> Vec<ToolDefinition> {
        ["Look", "Change"]
            .map(|name| ToolDefinition {
                name: name.to_owned(),
                description: String::new(),
                schema: json!({ "type": "object" }),
                is_read_only: name == "Look",
                server: None,
            })
            .into()
    }

    fn call(&self, name: &str, arguments: Value, cancel: &AtomicBool) -> Result<ToolOutput, Fault> {
        if name == "Change" {
            assert_eq!(self.changing.fetch_add(1, Ordering::SeqCst), 0);
        }
        let outcome = match arguments["act"].as_str().unwrap() {
            "Succeed" => Ok(ToolOutput {
                text: format!("ok {arguments}"),
                ..ToolOutput::default()
            }),
            "Refuse" => Err(Fault::refused(Code::PermissionDenied, "no")),
            "Hang" => {
                while !cancel.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(Fault::failed(Code::Cancelled, "given up"))
            }
            "Lose" => Err(Fault::lost(Code::LinkLost, "gone")),
            _ => Err(Fault::failed(Code::NotFound, "nothing there")),
        };
        if name == "Change" {
            self.changing.fetch_sub(1, Ordering::SeqCst);
        }
        outcome
    }
}

/// Runs a script, and stops the run after `stop_ms`.
fn play(
    says: Vec<ScriptedAnswer>,
    stop_ms: u64,
    budget: ContextBudget,
) -> (RunOutcome, Conversation, EventStore, Script) {
    let model = Script {
        says,
        next: AtomicUsize::new(0),
        prompts: Mutex::new(Vec::new()),
    };
    let stop = StopSignal::default();
    let later = stop.clone();
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(stop_ms));
        later.ask();
    });
    let tools = Scene::default();
    let secrets = Secrets::default();
    let head = AgentLoop {
        model: &model,
        tools: &tools,
        approve: &NoApproval,
        system: "",
        limits: RunLimits::default(),
        price: None,
        budget,
        secrets: &secrets,
        stop,
    };
    let mut conversation = Conversation::new("task");
    let mut kept = EventStore::begun("task");
    let verdict = head.run(&mut conversation, &mut kept);
    stopper.join().unwrap();
    (verdict, conversation, kept, model)
}

fn act() -> impl Strategy<Value = CallBehaviour> {
    prop_oneof![
        6 => Just(CallBehaviour::Succeed),
        2 => Just(CallBehaviour::Fail),
        1 => Just(CallBehaviour::Refuse),
        1 => Just(CallBehaviour::Hang),
        1 => Just(CallBehaviour::Lose),
    ]
}

fn say() -> impl Strategy<Value = ScriptedAnswer> {
    prop_oneof![
        6 => prop::collection::vec(act(), 1..5).prop_map(ScriptedAnswer::Calls),
        1 => Just(ScriptedAnswer::Words),
        1 => Just(ScriptedAnswer::Nothing),
        1 => Just(ScriptedAnswer::Break),
        1 => Just(ScriptedAnswer::Silence),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_run_ends_in_a_documented_way(says in prop::collection::vec(say(), 0..6), stop_ms in 0_u64..30,
        window in prop_oneof![Just(200_000), Just(100), Just(200)]) {
        let begin = Instant::now();
        let (verdict, conversation, kept, model) = play(says, stop_ms, ContextBudget::of_window(window));
        prop_assert!(begin.elapsed() < Duration::from_secs(10));
        assert_whole(&conversation.messages);
        for prompt in model.prompts.lock().unwrap().iter() {
            assert_whole(prompt);
        }
        // The log alone reproduces the conversation.
        let from_log = kept.conversation();
        prop_assert_eq!(&from_log.messages, &conversation.messages);
        prop_assert_eq!(from_log.told(), conversation.told());
        prop_assert_eq!(from_log.spent, conversation.spent);
        let is_told = matches!(kept.0.last(), Some(Event::Ended { ending, .. }) if *ending == verdict.ending);
        prop_assert!(is_told);
        match verdict.ending {
            Ending::Completed => {
                let is_last = matches!(conversation.messages.last(), Some(Message::Assistant { .. }));
                prop_assert!(is_last);
            }
            Ending::Lost => prop_assert!(verdict.fault.is_some()),
            Ending::Aborted | Ending::Failed => prop_assert!(!verdict.message.is_empty()),
            Ending::StoppedByLimit => {
                prop_assert!(window < 1000 && verdict.message.contains("agent.window"), "{}", verdict.message);
            }
        }
    }
}

#[test]
fn five_hundred_turns_need_little_memory() {
    let model = Script {
        says: (0..500)
            .map(|_| ScriptedAnswer::Calls(vec![CallBehaviour::Succeed]))
            .collect(),
        next: AtomicUsize::new(0),
        prompts: Mutex::new(Vec::new()),
    };
    let (tools, secrets) = (Scene::default(), Secrets::default());
    let head = AgentLoop {
        model: &ForgetfulModel(&model),
        tools: &tools,
        approve: &NoApproval,
        system: "",
        limits: RunLimits {
            max_turns: None,
            ..RunLimits::default()
        },
        price: None,
        budget: ContextBudget::default(),
        secrets: &secrets,
        stop: StopSignal::default(),
    };
    let mut conversation = Conversation::new("task");
    let before = resident_kib();
    let verdict = head.run(&mut conversation, &mut EventStore::default());
    assert_eq!(verdict.ending, Ending::Completed);
    assert_eq!(conversation.turns, 501);
    assert_whole(&conversation.messages);
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 16 * 1024, "{grown} KiB");
}

/// Model that does not store its prompts.
struct ForgetfulModel<'a>(&'a Script);

impl Model for ForgetfulModel<'_> {
    fn label(&self) -> String {
        self.0.label()
    }

    fn answer<'a>(&'a self, prompt: Prompt<'a>, on_delta: OnDelta<'a>) -> AnswerFuture<'a> {
        let answer = self.0.answer(prompt, on_delta);
        self.0.prompts.lock().unwrap().clear();
        answer
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok())
        .unwrap()
}
