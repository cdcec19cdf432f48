//! The user's consent at the terminal: to each change if the tools work on the user's own files, to
//! calls that a rule asks about, and to hosts that a command was refused. One question is asked at
//! a time, for any number of calls that wait.

use super::shown_call::ShownCall;
use super::view::placed;
use crate::render::{escape_text, say};
use crate::streams::Signals;
use crate::sync::question;
use glovebox_agent::{Approval, Approve, Secrets, ToolCall, ToolServer};
use glovebox_session::agent::{AgentUser, UNANSWERED};
use glovebox_tools::policy::{Ask, AskHost, HostReply, PermitAnswer, PermitQuestion, served_parts};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// User interface for consent at the terminal.
#[derive(Debug)]
pub(crate) struct TerminalApproval {
    signals: Signals,
    secrets: Secrets,
    /// MCP servers whose tools the agent may call.
    servers: Vec<ToolServer>,
    /// True if signs for hidden characters are shown in reverse video.
    has_marks: bool,
    /// Tools that may change things in this run without another question. The lock is held while a
    /// question is open, which serialises the questions.
    always: Mutex<BTreeSet<String>>,
}

impl TerminalApproval {
    pub(crate) fn new(
        signals: &Signals,
        secrets: &Secrets,
        servers: Vec<ToolServer>,
        has_marks: bool,
    ) -> Self {
        Self {
            signals: signals.clone(),
            secrets: secrets.clone(),
            servers,
            has_marks,
            always: Mutex::default(),
        }
    }

    fn turn(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.always.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the label of the place where a call is executed; empty if that is the place of the
    /// other tools.
    fn place_of(&self, tool: &str) -> &'static str {
        let server = served_parts(tool).map(|(server, _)| server);
        let mut servers = self.servers.iter();
        placed(servers.find(|known| Some(known.name.as_str()) == server))
    }

    /// Displays a call's arguments, and asks about them. None if the user interrupts or leaves.
    fn answer(&self, tool: &str, arguments: &Value) -> Option<char> {
        let call = ShownCall::new(arguments, |text| self.secrets.clean(text));
        let is_whole = call.show_beginning(self.has_marks);
        call.warn();
        let view = if is_whole { "" } else { ", [v]iew all" };
        let text = format!("allow? [y]es, [a]lways {tool} in this run, [n]o{view}");
        loop {
            match question::ask(&text, &['y', 'a', 'n', 'v'], &self.signals) {
                Some('v') => {
                    call.show_all(self.has_marks);
                    call.warn();
                }
                answer => return answer,
            }
        }
    }
}

impl TerminalApproval {
    /// Asks about one call. `by` names the caller if it is not the model itself, else it is empty.
    fn approve_call(&self, name: &str, arguments: &Value, by: &str) -> Approval {
        let mut always = self.turn();
        if always.contains(name) {
            return Approval::Yes;
        }
        let tool = escape_text(name);
        let place = self.place_of(name);
        say(format_args!("glovebox: {tool}{place}{by} wants to:"));
        match self.answer(&tool, arguments) {
            Some('y') => Approval::Yes,
            Some('a') => {
                always.insert(name.to_owned());
                Approval::Yes
            }
            Some(_) => Approval::No(
                question::words(
                    "why not? (the agent is told; empty for no reason)",
                    &self.signals,
                )
                .unwrap_or_default(),
            ),
            None => Approval::No(UNANSWERED.to_owned()),
        }
    }
}

impl Approve for TerminalApproval {
    fn approve(&self, call: &ToolCall) -> Approval {
        // An alias names the same tool; "always" must hold for all of its names.
        let name = glovebox_tools::find(&call.name).map_or(call.name.as_str(), |tool| tool.name);
        self.approve_call(name, &call.arguments, "")
    }
}

impl AgentUser for TerminalApproval {
    fn approve_nested(&self, tool: &str, arguments: &Value) -> Approval {
        self.approve_call(tool, arguments, ", called by the script,")
    }
}

impl AskHost for TerminalApproval {
    fn ask_host(&self, rule: &str) -> HostReply {
        let _turn = self.turn();
        let rule = escape_text(rule);
        say(format_args!(
            "glovebox: a command asked for {rule}, which this sandbox may not reach"
        ));
        let text = format!("open {rule} until the sandbox ends? [y]es, [n]o");
        match question::ask(&text, &['y', 'n'], &self.signals) {
            Some('y') => HostReply::Open,
            Some(_) => HostReply::Close,
            None => HostReply::Unanswered,
        }
    }
}

impl Ask for TerminalApproval {
    fn ask(&self, asked: &PermitQuestion<'_>) -> PermitAnswer {
        let _turn = self.turn();
        let unanswered = || PermitAnswer::Deny(UNANSWERED.to_owned());
        if asked.cancel.load(Ordering::Relaxed) {
            return unanswered();
        }
        let summary = self.secrets.clean(asked.summary.to_owned());
        say(format_args!(
            "glovebox: {}{} wants to: {} (asked by the rule `{}`)",
            asked.tool,
            self.place_of(asked.tool),
            escape_text(&summary),
            escape_text(&asked.verdict.rule)
        ));
        match self.answer(asked.tool, asked.arguments) {
            Some('y') => PermitAnswer::Once,
            Some('a') => PermitAnswer::Tool,
            Some(_) => PermitAnswer::Deny("the user said no".to_owned()),
            None => unanswered(),
        }
    }
}
