//! Questions about calls to the person who decides for the user.

use super::{CallId, PolicyDecision};
use serde_json::Value;
use std::fmt::Debug;
use std::sync::atomic::AtomicBool;

/// Question about a call to which an ask rule applies.
#[derive(Debug, Clone)]
pub struct PermitQuestion<'a> {
    /// Identifier of the call.
    pub call: &'a CallId,
    /// Canonical name of the tool.
    pub tool: &'a str,
    /// Subject of the call, in one bounded line.
    // TRUST: a model chose the text. The asker escapes it for the medium on which it shows it.
    pub summary: &'a str,
    /// Full arguments, with the same trust as `summary`.
    pub arguments: &'a Value,
    /// Rule that asks.
    pub verdict: &'a PolicyDecision,
    /// Set when the caller cancels the call. An answer has no effect then.
    pub cancel: &'a AtomicBool,
}

/// Answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermitAnswer {
    /// The call may be made.
    Once,
    /// This call may be made, and every later call of the tool to which an ask rule applies.
    Tool,
    /// The call is denied, for this reason.
    Deny(String),
    /// The question could not be put to a person, for this reason.
    Unasked(String),
}

/// Channel to a person who answers questions. Several threads may ask at the same time.
pub trait Ask: Debug + Send + Sync {
    /// Puts the question and blocks until there is an answer. The policy gate does not watch
    /// `cancel`; the implementation may return early when it is set.
    fn ask(&self, question: &PermitQuestion<'_>) -> PermitAnswer;
}
