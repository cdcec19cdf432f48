//! One conversation's use of the tools on one sandbox.

use crate::call::Call;
use crate::catalog::find;
use crate::ledger::Ledger;
use crate::policy::{Asked, CallId, Permit};
use crate::schedule::Schedule;
use crate::{Children, Outcome};
use glovebox_proto::Fault;
use glovebox_sandbox::Sandbox;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A sandbox, and what one conversation has seen in it. Share it between threads by reference or `Arc`.
#[derive(Debug)]
pub struct Hands {
    sandbox: Arc<Sandbox>,
    schedule: Arc<Schedule>,
    permit: Option<Arc<dyn Permit>>,
    children: Option<Arc<Children>>,
    pub(crate) ledger: Ledger,
}

impl Hands {
    /// Nothing has been seen yet. Where several conversations share a sandbox, the others come from
    /// [`Self::beside`]: changes are ordered between them.
    pub fn new(sandbox: Arc<Sandbox>) -> Self {
        Self {
            sandbox,
            schedule: Arc::new(Schedule::new()),
            permit: None,
            children: None,
            ledger: Ledger::default(),
        }
    }

    /// Another conversation on the same sandbox, under the same rules, which has seen nothing yet.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self {
            sandbox: Arc::clone(&self.sandbox),
            schedule: Arc::clone(&self.schedule),
            permit: self.permit.clone(),
            children: self.children.clone(),
            ledger: Ledger::default(),
        }
    }

    /// From now on `permit` is asked before every call.
    #[must_use]
    pub fn with_permit(mut self, permit: Arc<dyn Permit>) -> Self {
        self.permit = Some(permit);
        self
    }

    /// From now on sandboxes can be made beside this one, where the permit lets it.
    #[must_use]
    pub fn with_children(mut self, children: Arc<Children>) -> Self {
        self.children = Some(children);
        self
    }

    pub(crate) fn children(&self) -> Option<&Children> {
        self.children.as_deref()
    }

    /// Calls a tool by its name or an alias: its arguments are checked, the call is permitted, it waits
    /// for its turn and runs. `cancel` ends it wherever it is, with what it started inside.
    ///
    /// # Errors
    /// `not-found` for the name, `invalid-argument` for the arguments, a refusal, `cancelled`, the
    /// guest's own faults, and the loss of the sandbox. A call that was lost is never made a second
    /// time.
    pub fn call(&self, name: &str, args: Value, cancel: &AtomicBool) -> Result<Outcome, Fault> {
        let tool = find(name)?;
        let ready = tool.ready(args)?;
        let mut id = None;
        if let Some(permit) = &self.permit {
            let arguments = ready.arguments()?;
            permit.permit(&Asked {
                call: id.insert(CallId::random()),
                tool: tool.name,
                arguments: &arguments,
                cancel,
            })?;
        }
        let _turn = self.schedule.enter(ready.lane(), cancel)?;
        let mut outcome = ready.run(&Call::new(self, cancel))?;
        if let Some(id) = id {
            // What `glovebox why` knows the call by.
            outcome.facts.insert("call".to_owned(), id.as_str().into());
        }
        Ok(outcome)
    }

    /// The sandbox they work on.
    pub fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }
}
