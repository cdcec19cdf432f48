//! The user's word on each change, where the tools work on the user's own files.

use crate::render::{escape_text, say};
use crate::session::Signals;
use crate::sync::question;
use glovebox_agent::{Approval, Approve, Call, Secrets};
use glovebox_tools::policy::{Answer, Ask, Question};
use serde_json::Value;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// More of a call than anybody reads before saying yes.
const MAX_LINES: usize = 60;

/// Asks at the terminal.
#[derive(Debug)]
pub(crate) struct AtTerminal<'a> {
    pub signals: &'a Signals,
    pub secrets: &'a Secrets,
}

impl Approve for AtTerminal<'_> {
    fn approve(&self, call: &Call) -> Approval {
        let tool = escape_text(&call.name);
        say(format_args!("glovebox: {tool} wants to:"));
        for line in self.shown(&call.arguments) {
            say(format_args!("    {line}"));
        }
        let text = format!("allow? [y]es, [a]lways {tool} in this run, [n]o");
        match question::ask(&text, &['y', 'a', 'n'], self.signals) {
            Some('y') => Approval::Once,
            Some('a') => Approval::Always,
            Some(_) => Approval::Deny(
                question::words(
                    "why not? (the agent is told; empty for no reason)",
                    self.signals,
                )
                .unwrap_or_default(),
            ),
            None => Approval::Deny("the user left the question unanswered".to_owned()),
        }
    }
}

impl AtTerminal<'_> {
    /// The whole call, so that what is agreed to is what happens.
    fn shown(&self, arguments: &Value) -> Vec<String> {
        let Value::Object(fields) = arguments else {
            return vec![escape_text(&arguments.to_string())];
        };
        let mut lines = Vec::new();
        for (name, value) in fields {
            let text = match value {
                Value::String(text) => self.secrets.clean(text.clone()),
                other => other.to_string(),
            };
            for (index, line) in text.lines().enumerate() {
                let label = if index == 0 {
                    format!("{name}: ")
                } else {
                    "  ".to_owned()
                };
                lines.push(format!("{}{}", escape_text(&label), escape_text(line)));
            }
        }
        if lines.len() > MAX_LINES {
            let more = lines.len() - MAX_LINES;
            lines.truncate(MAX_LINES);
            lines.push(format!("... {more} more lines"));
        }
        lines
    }
}

/// The user's word on calls that a rule asks about.
#[derive(Debug)]
pub(crate) struct PolicyAsker {
    signals: Signals,
    secrets: Secrets,
    /// One question at a time, however many calls wait for an answer.
    turn: Mutex<()>,
}

impl PolicyAsker {
    pub(crate) fn new(signals: &Signals, secrets: &Secrets) -> Self {
        Self {
            signals: signals.clone(),
            secrets: secrets.clone(),
            turn: Mutex::new(()),
        }
    }
}

impl Ask for PolicyAsker {
    fn ask(&self, asked: &Question<'_>) -> Answer {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let unanswered = || Answer::Deny("the user left the question unanswered".to_owned());
        if asked.cancel.load(Ordering::Relaxed) {
            return unanswered();
        }
        let summary = self.secrets.clean(asked.summary.to_owned());
        say(format_args!(
            "glovebox: {} wants to: {} (asked by the rule `{}`)",
            asked.tool,
            escape_text(&summary),
            escape_text(&asked.verdict.rule)
        ));
        let text = format!("allow? [y]es, [a]lways {} in this run, [n]o", asked.tool);
        match question::ask(&text, &['y', 'a', 'n'], &self.signals) {
            Some('y') => Answer::Once,
            Some('a') => Answer::Tool,
            Some(_) => Answer::Deny("the user said no".to_owned()),
            None => unanswered(),
        }
    }
}
