//! Answers that were given before: for replays, demonstrations and tests without any server.

use crate::model::{Answering, OnDelta};
use crate::{Answer, Delta, Event, Logged, Model, ModelError, Part, Prompt};
use glovebox_proto::{Code, Fault};
use std::sync::atomic::{AtomicUsize, Ordering};

/// More than any recording that is worth playing.
const MAX_EVENTS: usize = 100_000;

/// Reads an exported session: one event as JSON on each line.
///
/// # Errors
/// `invalid-argument` that names the line.
pub fn read_recording(text: &str) -> Result<Vec<Event>, Fault> {
    let mut events = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        // TRUST: a recording comes from anywhere; it is data for these types and nothing else.
        let logged: Logged = serde_json::from_str(line).map_err(|error| {
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

/// Gives recorded answers in their order, whatever it is asked. What was left out of the prompts then is
/// left out again.
#[derive(Debug)]
pub struct Recorded {
    answers: Vec<Answer>,
    /// What was done to make room, before each answer.
    room_made: Vec<Vec<Event>>,
    next: AtomicUsize,
    label: String,
}

impl Recorded {
    /// Plays the answers among `events`. `label` is what it is called in events.
    pub fn new(events: &[Event], label: impl Into<String>) -> Self {
        let (mut answers, mut room_made) = (Vec::new(), vec![Vec::new()]);
        for event in events {
            match event {
                Event::Answered {
                    parts, stop, usage, ..
                } => {
                    answers.push(Answer {
                        parts: parts.clone(),
                        stop: stop.clone(),
                        usage: *usage,
                    });
                    room_made.push(Vec::new());
                }
                Event::Pruned { .. } | Event::Compacted { .. } | Event::NotCompacted { .. } => {
                    if let Some(before) = room_made.last_mut() {
                        before.push(event.clone());
                    }
                }
                _ => {}
            }
        }
        Self {
            answers,
            room_made,
            next: AtomicUsize::new(0),
            label: label.into(),
        }
    }
}

impl Recorded {
    /// How many answers were not given yet.
    pub fn left(&self) -> usize {
        self.answers
            .len()
            .saturating_sub(self.next.load(Ordering::SeqCst))
    }
}

impl Model for Recorded {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn answer<'a>(&'a self, _prompt: Prompt<'a>, on_delta: OnDelta<'a>) -> Answering<'a> {
        Box::pin(async move {
            let next = self.next.fetch_add(1, Ordering::SeqCst);
            let answer = self.answers.get(next).cloned().ok_or_else(|| {
                ModelError::lasting(format!(
                    "the recording has only {} answers: this run went another way",
                    self.answers.len()
                ))
            })?;
            for part in &answer.parts {
                if let Part::Text { text } = part {
                    on_delta(Delta::Text(text.clone()));
                }
            }
            Ok(answer)
        })
    }

    fn skip(&self, answers: usize) {
        self.next.fetch_add(answers, Ordering::SeqCst);
    }

    fn room_made(&self) -> Option<Vec<Event>> {
        let next = self.next.load(Ordering::SeqCst);
        Some(self.room_made.get(next).cloned().unwrap_or_default())
    }
}

/// The first call that came to something else than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// Which call, from 1.
    pub call: usize,
    /// The tool.
    pub tool: String,
    /// What it said then; `None` when it was not called then.
    pub before: Option<String>,
    /// What it says now; `None` when it was not called now.
    pub now: Option<String>,
}

/// Compares the tool calls of two runs. Times and job numbers may differ.
///
/// # Errors
/// The first difference.
pub fn compare(before: &[Event], now: &[Event]) -> Result<usize, Divergence> {
    let results = |events: &[Event]| -> Vec<(String, bool, String)> {
        events
            .iter()
            .filter_map(|event| match event {
                Event::CallFinished {
                    tool,
                    text,
                    is_error,
                    ..
                } => Some((tool.clone(), *is_error, text.clone())),
                _ => None,
            })
            .collect()
    };
    let (before, now) = (results(before), results(now));
    for at in 0..before.len().max(now.len()) {
        let (was, is) = (before.get(at), now.get(at));
        let is_same = match (was, is) {
            (Some(was), Some(is)) => {
                was.0 == is.0 && was.1 == is.1 && steady(&was.2) == steady(&is.2)
            }
            _ => false,
        };
        if !is_same {
            return Err(Divergence {
                call: at + 1,
                tool: was
                    .or(is)
                    .map(|result| result.0.clone())
                    .unwrap_or_default(),
                before: was.map(|result| result.2.clone()),
                now: is.map(|result| result.2.clone()),
            });
        }
    }
    Ok(before.len())
}

/// `text` without what differs from run to run: durations, and the numbers of jobs.
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
            // The number stands before the unit.
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

    fn finished(text: &str) -> Event {
        Event::CallFinished {
            id: String::new(),
            tool: "Bash".to_owned(),
            text: text.to_owned(),
            is_error: false,
            facts: serde_json::Map::new(),
            images: Vec::new(),
            diff: None,
            wall_ms: 0,
        }
    }

    #[test]
    fn times_may_differ_and_nothing_else() {
        let a = [finished("ok\n[exit code 0, 12 ms, job 3]")];
        let b = [finished("ok\n[exit code 0, 7 ms, job 9]")];
        assert_eq!(compare(&a, &b), Ok(1));
        let c = [finished("ok\n[exit code 1, 12 ms, job 3]")];
        assert_eq!(compare(&a, &c).unwrap_err().call, 1);
        assert_eq!(compare(&a, &[]).unwrap_err().now, None);
    }

    #[test]
    fn a_broken_line_is_named() {
        let text = "{\"type\":\"said\",\"text\":\"x\"}\n\n{\"type\":\"nothing\"}\n";
        let fault = read_recording(text).unwrap_err();
        assert!(fault.message.starts_with("line 3"), "{}", fault.message);
    }
}
