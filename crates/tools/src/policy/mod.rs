//! Whether a call may be made: asked after its arguments were checked and before it waits for its turn.
//!
//! A sandbox decides what is possible; this decides what is asked about, and which calls are not made.

use crate::Definition;
use glovebox_proto::Fault;
use serde_json::Value;
use std::fmt::Debug;
use std::sync::atomic::AtomicBool;

/// A call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The tool.
    pub tool: &'static Definition,
    /// Its arguments under their own names, whichever names they came under.
    pub arguments: &'a Value,
    /// Set when the caller gives up.
    pub cancel: &'a AtomicBool,
}

/// Decides about calls. It may take its time, for example to ask a person.
pub trait Permit: Debug + Send + Sync {
    /// Returns when the call may be made.
    ///
    /// # Errors
    /// A refusal that says which rule applied.
    fn permit(&self, asked: &Asked<'_>) -> Result<(), Fault>;
}
