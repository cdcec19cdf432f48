//! Questions to whoever can answer for the user.

use super::{CallId, PolicyDecision};
use serde_json::Value;
use std::fmt::Debug;
use std::sync::atomic::AtomicBool;

/// A call that needs somebody's word.
#[derive(Debug, Clone)]
pub struct PermitQuestion<'a> {
    /// The call.
    pub call: &'a CallId,
    /// The tool's own name.
    pub tool: &'a str,
    /// What it is about, in one bounded line.
    // TRUST: a model chose these words; whoever shows them escapes them for the place they go to.
    pub summary: &'a str,
    /// Its arguments in full, under the same trust.
    pub arguments: &'a Value,
    /// The rule that asks.
    pub verdict: &'a PolicyDecision,
    /// Set when the caller gives up; nobody waits for an answer then.
    pub cancel: &'a AtomicBool,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermitAnswer {
    /// This call may be made.
    Once,
    /// This one, and every later one of this tool that a rule asks about.
    Tool,
    /// It may not, for this reason.
    Deny(String),
    /// Nobody could be asked, for this reason.
    Unasked(String),
}

/// Somebody who can be asked. Calls of several threads ask at the same time.
pub trait Ask: Debug + Send + Sync {
    /// Waits for the answer.
    fn ask(&self, question: &PermitQuestion<'_>) -> PermitAnswer;
}
