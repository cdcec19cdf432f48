//! One session's use of the tools on one sandbox.

use crate::Outcome;
use crate::catalog::find;
use crate::ledger::Ledger;
use glovebox_proto::{Code, Fault, Reply, Request};
use glovebox_sandbox::Sandbox;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A sandbox, and what its user has seen in it.
#[derive(Debug)]
pub struct Hands {
    sandbox: Arc<Sandbox>,
    pub(crate) ledger: Ledger,
}

impl Hands {
    /// Nothing has been seen yet.
    pub fn new(sandbox: Arc<Sandbox>) -> Self {
        Self {
            sandbox,
            ledger: Ledger::default(),
        }
    }

    /// Calls a tool by its name or an alias. `cancel` ends what it started.
    ///
    /// # Errors
    /// `not-found` for the name, `invalid-argument` for the arguments, the guest's own faults, and the
    /// loss of the sandbox. A call that was lost is never made a second time.
    pub fn call(&self, name: &str, args: Value, cancel: &AtomicBool) -> Result<Outcome, Fault> {
        find(name)?.run(self, args, cancel)
    }

    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    pub(crate) fn ask(&self, request: Request) -> Result<Reply, Fault> {
        self.sandbox.call(request)
    }
}

/// An answer to another question.
pub(crate) fn unexpected(reply: &Reply) -> Fault {
    let debug = format!("{reply:?}");
    let word = debug
        .split(|c: char| !c.is_alphanumeric())
        .next()
        .unwrap_or_default();
    Fault::lost(
        Code::Protocol,
        format!("the guest answered something else: {word}"),
    )
}
