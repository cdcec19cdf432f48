//! Questions to the user of a session, and the answers that arrive over HTTP.

use glovebox_agent::{Approval, Approve, Secrets, ToolCall};
use glovebox_session::agent::{AgentUser, UNANSWERED};
use glovebox_tools::policy::{Ask, AskHost, HostReply, PermitAnswer, PermitQuestion};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use utoipa::ToSchema;

use super::HostRights;
use super::hub::Hub;

/// Maximum time that a question waits for its answer.
const ANSWER_WAIT: Duration = Duration::from_mins(15);
/// Interval at which a waiting question checks whether the call was cancelled.
const LOOK: Duration = Duration::from_millis(200);
/// Maximum number of open questions of a session.
const MAX_OPEN: usize = 64;

/// A question that waits for its answer.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct OpenApproval {
    /// What an answer names.
    pub id: String,
    /// The tool that is to be called, or `host` where a command was refused a host.
    pub tool: String,
    /// What it is about, in one line.
    pub summary: String,
    /// Its arguments.
    #[schema(value_type = Object)]
    pub arguments: Value,
}

/// The user's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    /// Once.
    Allow,
    /// This and every later call of the tool in this run.
    AllowTool,
    /// Not.
    Deny,
}

/// Name of the tool in questions about hosts.
const HOST: &str = "host";

impl OpenApproval {
    /// Returns the rule that the answer opens, if the question is about a host.
    pub(crate) fn host_rule(&self) -> Option<&str> {
        if self.tool != HOST {
            return None;
        }
        // Secrets were removed from the arguments, so the rule may be missing or invalid: then only
        // an administrator may open it.
        Some(self.arguments["rule"].as_str().unwrap_or_default())
    }
}

/// Answer of a user to a question.
#[derive(Debug)]
pub(crate) struct Reply {
    pub word: Word,
    /// Reason of a denial. None if the user gave none.
    pub reason: Option<String>,
    /// True if the session belongs to another user. A host that the reply opens is closed when the
    /// work ends.
    pub is_foreign: bool,
}

/// Open questions of one session.
#[derive(Debug, Default)]
pub(crate) struct Approvals {
    state: Mutex<Open>,
    /// Rules that administrators opened in the session of another user. They are closed when the
    /// current work ends.
    foreign_rules: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    open: BTreeMap<String, (OpenApproval, Sender<Reply>)>,
}

impl Approvals {
    fn state(&self) -> MutexGuard<'_, Open> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the open questions.
    pub(crate) fn open(&self) -> Vec<OpenApproval> {
        let state = self.state();
        state.open.values().map(|(one, _)| one.clone()).collect()
    }

    /// Returns an open question by its id.
    pub(crate) fn find(&self, id: &str) -> Option<OpenApproval> {
        self.state().open.get(id).map(|(one, _)| one.clone())
    }

    /// Delivers the answer to a question. Returns false if no question with this id is open.
    pub(crate) fn answer(&self, id: &str, reply: Reply) -> bool {
        let found = self.state().open.remove(id);
        found.is_some_and(|(_, answer)| answer.send(reply).is_ok())
    }

    /// Takes the rules that must be closed when the work ends.
    pub(super) fn take_foreign_rules(&self) -> Vec<String> {
        std::mem::take(&mut *self.foreign_rules())
    }

    fn foreign_rules(&self) -> MutexGuard<'_, Vec<String>> {
        let rules = self.foreign_rules.lock();
        rules.unwrap_or_else(PoisonError::into_inner)
    }

    fn put(
        &self,
        tool: &str,
        summary: String,
        arguments: Value,
    ) -> Option<(OpenApproval, Receiver<Reply>)> {
        let mut state = self.state();
        if state.open.len() >= MAX_OPEN {
            return None;
        }
        state.next += 1;
        let one = OpenApproval {
            id: format!("a{}", state.next),
            tool: tool.to_owned(),
            summary,
            arguments,
        };
        let (answer, answered) = channel();
        state.open.insert(one.id.clone(), (one.clone(), answer));
        Some((one, answered))
    }

    fn remove(&self, id: &str) {
        self.state().open.remove(id);
    }
}

/// The user of a session, who is asked over HTTP.
#[derive(Debug)]
pub(crate) struct RemoteUser {
    pub approvals: Arc<Approvals>,
    pub hub: Arc<Hub>,
    pub is_cancelled: Arc<AtomicBool>,
    pub secrets: Secrets,
    /// Hosts that the user who sent the request may open.
    pub host_rights: HostRights,
    /// Tools that the user has allowed for the rest of this run.
    pub always: Mutex<BTreeSet<String>>,
}

impl RemoteUser {
    /// Asks about a call, unless the user allowed the tool for the run. Returns None if there is no
    /// answer.
    fn ask_about_call(
        &self,
        tool: &str,
        summary: &str,
        arguments: &Value,
        cancel: Option<&AtomicBool>,
    ) -> Option<(Word, Option<String>)> {
        let always = || self.always.lock().unwrap_or_else(PoisonError::into_inner);
        if always().contains(tool) {
            return Some((Word::Allow, None));
        }
        let reply = self.ask_user(tool, summary, arguments, cancel)?;
        if reply.word == Word::AllowTool {
            always().insert(tool.to_owned());
        }
        Some((reply.word, reply.reason))
    }

    /// Publishes a question and blocks until it is answered. Returns None if the call or the
    /// session is cancelled, after `ANSWER_WAIT`, or if too many questions are open.
    fn ask_user(
        &self,
        tool: &str,
        summary: &str,
        arguments: &Value,
        cancel: Option<&AtomicBool>,
    ) -> Option<Reply> {
        let summary = self.secrets.clean(summary.to_owned());
        let arguments = self.secrets.clean(arguments.to_string());
        let arguments = serde_json::from_str(&arguments).unwrap_or(Value::Null);
        // Registered before it is published: a client may answer as soon as it reads the event.
        let (one, answered) = self.approvals.put(tool, summary, arguments)?;
        let asked = json!({ "type": "approval_asked", "approval": one });
        self.hub.publish_piece("approval_asked", &asked);
        let begun = Instant::now();
        let answer = loop {
            match answered.recv_timeout(LOOK) {
                Ok(answer) => break Some(answer),
                Err(RecvTimeoutError::Disconnected) => break None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let is_given_up = cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed));
            let is_over = is_given_up || self.is_cancelled.load(Ordering::Relaxed);
            if is_over || begun.elapsed() > ANSWER_WAIT {
                break None;
            }
        };
        // Removed before the result is published: a client that has seen the result gets
        // `not-found` for another answer.
        self.approvals.remove(&one.id);
        let word = answer.as_ref().map(|reply| match reply.word {
            Word::Allow | Word::AllowTool => "allowed",
            Word::Deny => "denied",
        });
        let told =
            json!({ "type": "approval_answered", "id": one.id, "answer": word.unwrap_or("none") });
        self.hub.publish_piece("approval_answered", &told);
        answer
    }
}

fn reason(given: Option<String>) -> String {
    given.unwrap_or_else(|| "the user said no".to_owned())
}

impl Ask for RemoteUser {
    fn ask(&self, asked: &PermitQuestion<'_>) -> PermitAnswer {
        let (tool, summary) = (asked.tool, asked.summary);
        match self.ask_about_call(tool, summary, asked.arguments, Some(asked.cancel)) {
            Some((Word::Allow, _)) => PermitAnswer::Once,
            Some((Word::AllowTool, _)) => PermitAnswer::Tool,
            Some((Word::Deny, why)) => PermitAnswer::Deny(reason(why)),
            None => PermitAnswer::Deny(UNANSWERED.to_owned()),
        }
    }
}

impl RemoteUser {
    fn approve_call(&self, tool: &str, arguments: &Value) -> Approval {
        match self.ask_about_call(tool, "", arguments, None) {
            Some((Word::Allow | Word::AllowTool, _)) => Approval::Yes,
            Some((Word::Deny, why)) => Approval::No(reason(why)),
            None => Approval::No(UNANSWERED.to_owned()),
        }
    }
}

impl Approve for RemoteUser {
    fn approve(&self, call: &ToolCall) -> Approval {
        self.approve_call(&call.name, &call.arguments)
    }
}

impl AgentUser for RemoteUser {
    fn approve_nested(&self, tool: &str, arguments: &Value) -> Approval {
        self.approve_call(tool, arguments)
    }
}

impl AskHost for RemoteUser {
    fn ask_host(&self, rule: &str) -> HostReply {
        if !self.host_rights.cover(rule) {
            return HostReply::AdministratorOnly;
        }
        let arguments = json!({ "rule": rule });
        match self.ask_user(HOST, rule, &arguments, None) {
            Some(reply) if reply.word == Word::Deny => HostReply::Close,
            Some(reply) => {
                if reply.is_foreign {
                    self.approvals.foreign_rules().push(rule.to_owned());
                }
                HostReply::Open
            }
            None => HostReply::Unanswered,
        }
    }
}
