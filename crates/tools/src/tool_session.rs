//! Session of one conversation that uses the tools on one sandbox.

use crate::call::{Call, CallClient};
use crate::catalog::{Definition, find};
use crate::commands::Commands;
use crate::hint::tool_names;
use crate::home::HomeInside;
use crate::ledger::Ledger;
use crate::live::{self, LiveOutput};
use crate::policy::{CallId, HostConsent, Permit, PermitRequest};
use crate::prefix::ToolPrefix;
use crate::project_news::ProjectNews;
use crate::schedule::Schedule;
use crate::tools::job;
use crate::waits::WaitPolicy;
use crate::{ChildSandboxes, ContextData, ToolOutcome};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Sandbox;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A sandbox, and the record of what one conversation has seen in it. Threads share it by reference
/// or `Arc`.
#[derive(Debug)]
pub struct ToolSession {
    sandbox: Arc<Sandbox>,
    schedule: Arc<Schedule>,
    permit: Option<Arc<dyn Permit>>,
    children: Option<Arc<ChildSandboxes>>,
    context: Option<Arc<ContextData>>,
    hosts: Option<Arc<HostConsent>>,
    waits: WaitPolicy,
    prefix: ToolPrefix,
    pub(crate) ledger: Ledger,
    pub(crate) commands: Commands,
    pub(crate) live: LiveOutput,
    news: ProjectNews,
    home: HomeInside,
}

impl ToolSession {
    /// Creates a session that has seen nothing. Further conversations on the same sandbox must come
    /// from [`Self::new_conversation`]: it shares the schedule, without which changes of two
    /// conversations are not ordered.
    pub fn new(sandbox: Arc<Sandbox>) -> Self {
        let news = ProjectNews::new(&sandbox);
        Self {
            sandbox,
            news,
            home: HomeInside::default(),
            schedule: Arc::new(Schedule::new()),
            permit: None,
            children: None,
            context: None,
            hosts: None,
            waits: WaitPolicy::PATIENT,
            prefix: ToolPrefix::default(),
            ledger: Ledger::default(),
            commands: Commands::default(),
            live: LiveOutput::default(),
        }
    }

    /// Creates the session of another conversation on the same sandbox, with the same rules. The
    /// new conversation has seen nothing.
    #[must_use]
    pub fn new_conversation(&self) -> Self {
        Self {
            sandbox: Arc::clone(&self.sandbox),
            news: ProjectNews::new(&self.sandbox),
            home: HomeInside::default(),
            schedule: Arc::clone(&self.schedule),
            permit: self.permit.clone(),
            children: self.children.clone(),
            context: self.context.clone(),
            hosts: self.hosts.clone(),
            waits: self.waits,
            prefix: self.prefix.clone(),
            ledger: Ledger::default(),
            commands: Commands::default(),
            live: LiveOutput::default(),
        }
    }

    /// Asks `permit` before every call. Without it every call is permitted.
    #[must_use]
    pub fn with_permit(mut self, permit: Arc<dyn Permit>) -> Self {
        self.permit = Some(permit);
        self
    }

    /// Enables the tools that make sandboxes beside this one. `permit` may still refuse their
    /// calls.
    #[must_use]
    pub fn with_children(mut self, children: Arc<ChildSandboxes>) -> Self {
        self.children = Some(children);
        self
    }

    /// Gives scripts this file as `CONTEXT_DATA`.
    #[must_use]
    pub fn with_context(mut self, context: ContextData) -> Self {
        self.context = Some(Arc::new(context));
        self
    }

    /// Asks the user about hosts that the egress proxy refused to a command.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Arc<HostConsent>) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// Sets how long calls wait. The default is [`WaitPolicy::PATIENT`].
    #[must_use]
    pub const fn with_waits(mut self, waits: WaitPolicy) -> Self {
        self.waits = waits;
        self
    }

    /// Puts `prefix` before the names of tools in texts for the model. Callers still pass names
    /// without it.
    #[must_use]
    pub fn with_prefix(mut self, prefix: ToolPrefix) -> Self {
        self.prefix = prefix;
        self
    }

    pub(crate) const fn prefix(&self) -> &ToolPrefix {
        &self.prefix
    }

    /// Returns true if this conversation has the tool. A rule may still refuse a call of it.
    pub fn has(&self, tool: &str) -> bool {
        self.permit
            .as_ref()
            .is_none_or(|permit| permit.has_tool(tool))
    }

    /// Returns the tool of this name or alias. The fault lists the tools of this conversation
    /// alone.
    fn find(&self, name: &str) -> Result<&'static Definition, Fault> {
        find(name).map_err(|fault| {
            let names = tool_names(|tool| self.has(tool), &self.prefix);
            fault.remedy(format!("the tools are {names}"))
        })
    }

    pub(crate) const fn waits(&self) -> WaitPolicy {
        self.waits
    }

    pub(crate) fn context(&self) -> Option<&ContextData> {
        self.context.as_deref()
    }

    pub(crate) fn hosts(&self) -> Option<&HostConsent> {
        self.hosts.as_deref()
    }

    pub(crate) fn children(&self) -> Option<&ChildSandboxes> {
        self.children.as_deref()
    }

    /// Calls a tool by its name or an alias. Checks the arguments, asks the permit, waits for the
    /// turn of the call, and runs it. Blocks until the call ends. Setting `cancel` ends the call at
    /// any of these steps, with the command that it started, if the wait policy does not keep it.
    ///
    /// # Errors
    /// `not-found` for the name, `invalid-argument` for the arguments, the permit's refusal,
    /// `cancelled`, faults of the guest, and the loss of the sandbox. A lost call is never
    /// repeated.
    pub fn call(&self, name: &str, args: Value, cancel: &AtomicBool) -> Result<ToolOutcome, Fault> {
        self.make(self.find(name)?, args, false, None, cancel)
    }

    /// Same as [`Self::call`], for a client that answers the questions of rules about this call and
    /// about the calls that it makes in turn.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn call_from(
        &self,
        client: CallClient<'_>,
        name: &str,
        args: Value,
        cancel: &AtomicBool,
    ) -> Result<ToolOutcome, Fault> {
        self.make(self.find(name)?, args, false, Some(client), cancel)
    }

    /// Same as [`Self::call`], for a call that a script makes. The permit sees that the call is
    /// nested.
    pub(crate) fn call_nested(
        &self,
        name: &str,
        args: Value,
        client: Option<CallClient<'_>>,
        cancel: &AtomicBool,
    ) -> Result<ToolOutcome, Fault> {
        let tool = self.find(name)?;
        if !tool.is_for_scripts {
            let message = format!("{} cannot be called from a script", tool.name);
            return Err(
                Fault::refused(Code::PermissionDenied, message).remedy("call it without a script")
            );
        }
        self.make(tool, args, true, client, cancel)
    }

    fn make(
        &self,
        tool: &'static Definition,
        args: Value,
        is_nested: bool,
        client: Option<CallClient<'_>>,
        cancel: &AtomicBool,
    ) -> Result<ToolOutcome, Fault> {
        let mut ready = tool.ready(args)?;
        let mut arguments = ready.arguments()?;
        // Before the permit: a rule on the home must hold for `~` too.
        if self.home.expand(tool.name, &mut arguments, &self.sandbox)? {
            ready = tool.ready(arguments.clone())?;
        }
        let mut id = None;
        if let Some(permit) = &self.permit {
            permit.permit(&PermitRequest {
                call: id.insert(CallId::random()),
                tool: tool.name,
                arguments: &arguments,
                is_nested,
                asker: client.map(|client| client.asker),
                cancel,
            })?;
        }
        // `ready` holds the arguments in its own form. Freed here, because the call may wait for
        // its turn, and its command may run, for minutes.
        drop(arguments);
        // After the permit, so that a question to a person does not hold up the calls of others.
        let _turn = self.schedule.enter(ready.lane(), cancel)?;
        let call = Call::new(self, cancel).of_client(client);
        let mut outcome = ready.run(&call)?;
        if !is_nested {
            job::tell_left(&call, &mut outcome);
            self.news.tell(&self.sandbox, &mut outcome);
        }
        if let Some(id) = id {
            // Identifier that `glovebox why` takes.
            outcome.facts.insert("call".to_owned(), id.as_str().into());
        }
        Ok(outcome)
    }

    /// Returns the whole lines that the awaited command has written since the previous call of this
    /// function, at most 8 KiB. `None` if there are none. The bytes are as the command wrote them.
    pub fn live_output(&self) -> Option<Vec<u8>> {
        live::look(&Call::new(self, &live::NEVER))
    }

    /// Returns the sandbox that the tools work on.
    pub fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }
}
