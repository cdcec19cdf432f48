//! Helpers for tests of the loop: an observer that stores events as a log does, and the invariants
//! of a conversation.

use glovebox_agent::{Conversation, Event, Message, MessagePart, Observe};
use glovebox_proto::Fault;
use std::collections::BTreeSet;

/// Observer that stores events as a log does.
#[derive(Default)]
pub(crate) struct EventStore(pub(crate) Vec<Event>);

impl EventStore {
    /// Creates an observer with the first event of a session.
    pub(crate) fn begun(task: &str) -> Self {
        Self(vec![Event::Started {
            task: task.to_owned(),
            model: "test/script".to_owned(),
            placement: "sandbox".to_owned(),
            sandbox: None,
            own_sandbox: None,
            system: String::new(),
            tools: Vec::new(),
            phase: None,
            addition: None,
            context: None,
            declared: None,
        }])
    }

    /// Returns the conversation that a log of these events leads to.
    pub(crate) fn conversation(&self) -> Conversation {
        Conversation::from_events(&self.0)
    }
}

impl Observe for EventStore {
    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        if event.is_kept() {
            let line = serde_json::to_string(event).unwrap();
            self.0.push(serde_json::from_str(&line).unwrap());
        }
        Ok(())
    }
}

/// Checks that every call has exactly one result directly after it, and every result has its call.
pub(crate) fn assert_whole(messages: &[Message]) {
    let mut seen = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        if matches!(message, Message::Results { .. }) {
            let before = at.checked_sub(1).map(|before| &messages[before]);
            let is_answer = matches!(before, Some(Message::Assistant { .. }));
            assert!(is_answer, "results of nothing at {at}: {messages:?}");
        }
        let Message::Assistant { parts } = message else {
            continue;
        };
        let calls: Vec<&str> = parts
            .iter()
            .filter_map(|part| match part {
                MessagePart::Call(call) => Some(call.id.as_str()),
                _ => None,
            })
            .collect();
        for id in &calls {
            assert!(seen.insert((*id).to_owned()), "{id} twice");
        }
        if calls.is_empty() {
            continue;
        }
        let Some(Message::Results { results }) = messages.get(at + 1) else {
            panic!("no results after {at}: {messages:?}");
        };
        let answered: Vec<&str> = results.iter().map(|result| result.id.as_str()).collect();
        assert_eq!(answered, calls);
    }
}
