//! Recorded models, for replays, demonstrations and tests without a server.

use crate::event::counted;
use crate::model::{AnswerFuture, OnDelta};
use crate::{Delta, Event, LoggedEvent, MessagePart, Model, ModelAnswer, ModelError, Prompt};
use glovebox_proto::{Code, Fault};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of events in a recording.
const MAX_EVENTS: usize = 100_000;

/// Parses an exported session: one event as JSON on each line.
///
/// # Errors
/// `invalid-argument` with the number of the line; `too-large` above 100,000 events.
pub fn read_recording(text: &str) -> Result<Vec<Event>, Fault> {
    let mut events = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        // TRUST: a recording may come from anywhere. It is only parsed into these types.
        let logged: LoggedEvent = serde_json::from_str(line).map_err(|error| {
            Fault::failed(
                Code::InvalidArgument,
                format!("line {} of the recording is no event: {error}", index + 1),
            )
            .remedy("write one with `glovebox sessions export`")
        })?;
        if events.len() >= MAX_EVENTS {
            return Err(Fault::failed(
                Code::TooLarge,
                format!("the recording has more than {MAX_EVENTS} events"),
            ));
        }
        events.push(logged.event);
    }
    Ok(events)
}

/// Model that returns recorded answers in order and ignores the prompt. The compactions of the
/// recording are repeated before each answer.
#[derive(Debug)]
pub struct RecordedModel {
    answers: Vec<ModelAnswer>,
    /// Compactions before each answer.
    compactions: Vec<Vec<Event>>,
    next: AtomicUsize,
    label: String,
}

impl RecordedModel {
    /// Creates a model from the answers in `events`. `label` is its name in new events.
    pub fn new(events: &[Event], label: impl Into<String>) -> Self {
        let (mut answers, mut compactions) = (Vec::new(), vec![Vec::new()]);
        for event in events {
            match event {
                Event::Answered {
                    parts, stop, usage, ..
                } => {
                    answers.push(ModelAnswer {
                        parts: parts.clone(),
                        stop: stop.clone(),
                        usage: counted(*usage),
                    });
                    compactions.push(Vec::new());
                }
                Event::Pruned { .. } | Event::Compacted { .. } | Event::NotCompacted { .. } => {
                    if let Some(before) = compactions.last_mut() {
                        before.push(event.clone());
                    }
                }
                _ => {}
            }
        }
        Self {
            answers,
            compactions,
            next: AtomicUsize::new(0),
            label: label.into(),
        }
    }
}

impl RecordedModel {
    /// Returns the number of answers that are left.
    pub fn left(&self) -> usize {
        self.answers
            .len()
            .saturating_sub(self.next.load(Ordering::SeqCst))
    }
}

impl Model for RecordedModel {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn answer<'a>(&'a self, _prompt: Prompt<'a>, on_delta: OnDelta<'a>) -> AnswerFuture<'a> {
        Box::pin(async move {
            let next = self.next.fetch_add(1, Ordering::SeqCst);
            let answer = self.answers.get(next).cloned().ok_or_else(|| {
                ModelError::lasting(format!(
                    "the recording has only {} answers: this run went another way",
                    self.answers.len()
                ))
            })?;
            for part in &answer.parts {
                if let MessagePart::Text { text } = part {
                    on_delta(Delta::Text(text.clone()));
                }
            }
            Ok(answer)
        })
    }

    fn skip(&self, answers: usize) {
        self.next.fetch_add(answers, Ordering::SeqCst);
    }

    fn compactions(&self) -> Option<Vec<Event>> {
        let next = self.next.load(Ordering::SeqCst);
        Some(self.compactions.get(next).cloned().unwrap_or_default())
    }
}

/// First call whose outcome differs between two runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// Number of the call, from 1.
    pub call: usize,
    /// Name of the tool.
    pub tool: String,
    /// Recorded output; `None` if the recording has no such call.
    pub before: Option<String>,
    /// New output; `None` if the new run did not make the call.
    pub now: Option<String>,
}

/// Result of the comparison of two runs that do not differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayComparison {
    /// Number of calls with the same outcome.
    pub same: usize,
    /// Number of calls whose end was not recorded because the run broke off or was stopped. They
    /// are not compared.
    pub interrupted: usize,
}

/// Outcome of a call.
struct Outcome<'a> {
    tool: &'a str,
    text: &'a str,
    is_error: bool,
}

/// Calls of one run, by id. A server may repeat an id; calls of the same id are compared in order.
struct Calls<'a> {
    /// Calls that ended, in order.
    ended: Vec<(&'a str, Outcome<'a>)>,
    /// Number of calls of each id that the model requested.
    asked: BTreeMap<&'a str, usize>,
}

impl<'a> Calls<'a> {
    fn of(events: &'a [Event]) -> Self {
        let mut calls = Self {
            ended: Vec::new(),
            asked: BTreeMap::new(),
        };
        for event in events {
            match event {
                Event::Answered { parts, .. } => {
                    for call in crate::conversation::calls(parts) {
                        *calls.asked.entry(&call.id).or_default() += 1;
                    }
                }
                Event::CallFinished {
                    id,
                    tool,
                    text,
                    is_error,
                    facts,
                    ..
                } => {
                    // A cancelled command has the fact `cancelled`; any other cancelled call has a
                    // fault.
                    let is = |name: &str, value: Value| facts.get(name) == Some(&value);
                    let is_given_up = is("cancelled", true.into())
                        || is("fault", Code::Cancelled.as_str().into());
                    if !is_given_up {
                        let outcome = Outcome {
                            tool,
                            text,
                            is_error: *is_error,
                        };
                        calls.ended.push((id, outcome));
                    }
                }
                _ => {}
            }
        }
        calls
    }
}

/// Compares the tool calls of two runs by id. Durations and job numbers may differ.
///
/// # Errors
/// The first difference.
pub fn compare(before: &[Event], now: &[Event]) -> Result<ReplayComparison, Divergence> {
    let (before, now) = (Calls::of(before), Calls::of(now));
    let mut left: BTreeMap<&str, VecDeque<&Outcome<'_>>> = BTreeMap::new();
    for (id, outcome) in &now.ended {
        left.entry(id).or_default().push_back(outcome);
    }
    for (at, (id, was)) in before.ended.iter().enumerate() {
        let is = left.get_mut(id).and_then(VecDeque::pop_front);
        let is_same = is.is_some_and(|is| {
            was.tool == is.tool
                && was.is_error == is.is_error
                && steady(was.text) == steady(is.text)
        });
        if !is_same {
            return Err(Divergence {
                call: at + 1,
                tool: was.tool.to_owned(),
                before: Some(was.text.to_owned()),
                now: is.map(|is| is.text.to_owned()),
            });
        }
    }
    // The remaining calls are new, unless the recording has the request but not the end.
    for (at, (id, is)) in now.ended.iter().enumerate() {
        if left.get(id).is_none_or(VecDeque::is_empty) || before.asked.contains_key(id) {
            continue;
        }
        return Err(Divergence {
            call: at + 1,
            tool: is.tool.to_owned(),
            before: None,
            now: Some(is.text.to_owned()),
        });
    }
    let asked: usize = before.asked.values().sum();
    Ok(ReplayComparison {
        same: before.ended.len(),
        interrupted: asked.saturating_sub(before.ended.len()),
    })
}

/// Returns `text` with a mark in place of durations and job numbers, which differ from run to run.
fn steady(text: &str) -> String {
    let mut words = Vec::new();
    let mut after_job = false;
    for word in text.split_inclusive([' ', '\n', ',', ';', ']', ')']) {
        let bare = word.trim_end_matches([' ', '\n', ',', ';', ']', ')']);
        let unit = bare.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let has_number = unit.len() < bare.len();
        if has_number && (matches!(unit, "ms" | "s" | "us" | "µs") || after_job) {
            words.push("#".to_owned());
        } else if matches!(bare, "ms" | "s" | "us" | "µs") {
            // The number is the word before the unit.
            if let Some(last) = words.last_mut() {
                "#".clone_into(last);
            }
            words.push(word.to_owned());
        } else {
            words.push(word.to_owned());
        }
        after_job = bare == "job" || bare.ends_with("[job");
    }
    words.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(ids: &[&str]) -> Event {
        let call = |id: &&str| {
            MessagePart::Call(crate::ToolCall {
                id: (*id).to_owned(),
                name: "Bash".to_owned(),
                arguments: serde_json::json!({}),
                signatures: Vec::new(),
                extra: serde_json::Map::new(),
            })
        };
        Event::Answered {
            turn: 1,
            parts: ids.iter().map(call).collect(),
            stop: crate::StopReason::Done,
            usage: None,
            cost_usd: None,
        }
    }

    fn finished(id: &str, text: &str) -> Event {
        Event::CallFinished {
            id: id.to_owned(),
            tool: "Bash".to_owned(),
            text: text.to_owned(),
            is_error: false,
            facts: serde_json::Map::new(),
            images: Vec::new(),
            diff: None,
            wall_ms: 0,
        }
    }

    const fn same(same: usize, interrupted: usize) -> ReplayComparison {
        ReplayComparison { same, interrupted }
    }

    #[test]
    fn times_may_differ_and_nothing_else() {
        let one = |text| [asked(&["a"]), finished("a", text)];
        let a = one("ok\n[exit code 0, 12 ms, job 3]");
        assert_eq!(
            compare(&a, &one("ok\n[exit code 0, 7 ms, job 9]")),
            Ok(same(1, 0))
        );
        let other = one("ok\n[exit code 1, 12 ms, job 3]");
        assert_eq!(compare(&a, &other).unwrap_err().call, 1);
        assert_eq!(compare(&a, &[]).unwrap_err().now, None);
        assert_eq!(compare(&[], &a).unwrap_err().before, None);
    }

    #[test]
    fn a_call_that_was_interrupted_moves_no_other() {
        let ended = |name: &str, value: Value| {
            let mut ended = finished("b", "ended with its call");
            if let Event::CallFinished { facts, .. } = &mut ended {
                facts.insert(name.to_owned(), value);
            }
            ended
        };
        let now = [
            asked(&["a", "b"]),
            finished("a", "one"),
            finished("b", "slow"),
            asked(&["c"]),
            finished("c", "three"),
        ];
        // Killed while it ran, and given up.
        for interrupted in [
            None,
            Some(ended("fault", "cancelled".into())),
            Some(ended("cancelled", true.into())),
        ] {
            let mut before = vec![asked(&["a", "b"]), finished("a", "one")];
            before.extend(interrupted);
            before.extend([asked(&["c"]), finished("c", "three")]);
            assert_eq!(compare(&before, &now), Ok(same(2, 1)));
            before.pop();
            before.push(finished("c", "other"));
            let differs = compare(&before, &now).unwrap_err();
            assert_eq!((differs.call, differs.now.as_deref()), (2, Some("three")));
        }
    }

    #[test]
    fn ids_that_come_again_are_compared_in_their_order() {
        let run = |first, second| {
            [
                asked(&["x"]),
                finished("x", first),
                asked(&["x"]),
                finished("x", second),
            ]
        };
        assert_eq!(compare(&run("a", "b"), &run("a", "b")), Ok(same(2, 0)));
        let differs = compare(&run("a", "b"), &run("a", "c")).unwrap_err();
        assert_eq!((differs.call, differs.now.as_deref()), (2, Some("c")));
    }

    #[test]
    fn a_broken_line_is_named() {
        let text = "{\"type\":\"said\",\"text\":\"x\"}\n\n{\"type\":\"nothing\"}\n";
        let fault = read_recording(text).unwrap_err();
        assert!(fault.message.starts_with("line 3"), "{}", fault.message);
    }
}
