//! Approval: every call that runs was asked about, whatever its arguments are.

use glovebox_agent::{
    AgentLoop, AnswerFuture, Approval, Approve, ContextBudget, Conversation, Event, Message,
    MessagePart, Model, ModelAnswer, Observe, OnDelta, Prompt, RunLimits, Secrets, StopSignal,
    ToolCall, ToolDefinition, ToolOutput, Tools,
};
use glovebox_proto::Fault;
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Model that calls a tool once with these arguments.
struct OneCall(Value);

impl Model for OneCall {
    fn label(&self) -> String {
        "test/one-call".to_owned()
    }

    fn answer<'a>(&'a self, prompt: Prompt<'a>, _on_delta: OnDelta<'a>) -> AnswerFuture<'a> {
        let is_called = prompt
            .messages
            .iter()
            .any(|message| matches!(message, Message::Results { .. }));
        let part = if is_called {
            MessagePart::Text {
                text: "done".to_owned(),
            }
        } else {
            MessagePart::Call(ToolCall {
                id: "1".to_owned(),
                name: "Change".to_owned(),
                arguments: self.0.clone(),
                signatures: Vec::new(),
                extra: Map::new(),
            })
        };
        let answer = ModelAnswer {
            parts: vec![part],
            ..ModelAnswer::default()
        };
        Box::pin(async move { Ok(answer) })
    }
}

/// Tool that changes something, and counts its calls.
#[derive(Default)]
struct ChangeTool(AtomicU32);

impl Tools for ChangeTool {
    fn definitions(&self) -> Vec<ToolDefinition> {
        vec![ToolDefinition {
            name: "Change".to_owned(),
            description: String::new(),
            schema: json!({}),
            is_read_only: false,
            server: None,
        }]
    }

    fn call(&self, _: &str, _: Value, _: &AtomicBool) -> Result<ToolOutput, Fault> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(ToolOutput::default())
    }
}

/// Observer that stores nothing.
struct Forget;

impl Observe for Forget {
    fn observe(&mut self, _: &Event) -> Result<(), Fault> {
        Ok(())
    }
}

/// Refuses every call, and counts them.
#[derive(Default)]
struct RefuseAll(AtomicU32);

impl Approve for RefuseAll {
    fn approve(&self, _: &ToolCall) -> Approval {
        self.0.fetch_add(1, Ordering::Relaxed);
        Approval::No(String::new())
    }
}

#[test]
fn call_refused_by_the_user_never_runs_whatever_its_arguments_are() {
    for (arguments, questions) in [
        (json!({ "a": 1 }), 1),
        (json!({}), 1),
        // No arguments at all.
        (Value::Null, 1),
        // Rejected before anybody is asked.
        (json!("text"), 0),
        (json!([1]), 0),
    ] {
        let (tools, refuse) = (ChangeTool::default(), RefuseAll::default());
        let model = OneCall(arguments.clone());
        let secrets = Secrets::default();
        let mut conversation = Conversation::new("task");
        let agent = AgentLoop {
            model: &model,
            tools: &tools,
            approve: &refuse,
            system: "",
            limits: RunLimits::default(),
            price: None,
            budget: ContextBudget::of_window(100_000),
            secrets: &secrets,
            stop: StopSignal::default(),
        };
        let _ = agent.run(&mut conversation, &mut Forget);
        assert_eq!(refuse.0.load(Ordering::Relaxed), questions, "{arguments}");
        assert_eq!(tools.0.load(Ordering::Relaxed), 0, "{arguments}");
    }
}
