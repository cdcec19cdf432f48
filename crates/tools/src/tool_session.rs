//! One conversation's use of the tools on one sandbox.

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

/// A sandbox, and what one conversation has seen in it. Share it between threads by reference or `Arc`.
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
    /// Nothing has been seen yet. Where several conversations share a sandbox, the others come from
    /// [`Self::new_conversation`]: changes are ordered between them.
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

    /// Another conversation on the same sandbox, under the same rules, which has seen nothing yet.
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

    /// From now on `permit` is asked before every call.
    #[must_use]
    pub fn with_permit(mut self, permit: Arc<dyn Permit>) -> Self {
        self.permit = Some(permit);
        self
    }

    /// From now on sandboxes can be made beside this one, where the permit lets it.
    #[must_use]
    pub fn with_children(mut self, children: Arc<ChildSandboxes>) -> Self {
        self.children = Some(children);
        self
    }

    /// From now on scripts have this file as `CONTEXT_DATA`.
    #[must_use]
    pub fn with_context(mut self, context: ContextData) -> Self {
        self.context = Some(Arc::new(context));
        self
    }

    /// From now on the user is asked about hosts that a command was refused.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Arc<HostConsent>) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// From now on calls wait as long as this caller does.
    #[must_use]
    pub const fn with_waits(mut self, waits: WaitPolicy) -> Self {
        self.waits = waits;
        self
    }

    /// From now on what is said names tools with this word before them. Calls are made without it.
    #[must_use]
    pub fn with_prefix(mut self, prefix: ToolPrefix) -> Self {
        self.prefix = prefix;
        self
    }

    pub(crate) const fn prefix(&self) -> &ToolPrefix {
        &self.prefix
    }

    /// Whether this conversation has a tool.
    pub fn has(&self, tool: &str) -> bool {
        self.permit
            .as_ref()
            .is_none_or(|permit| permit.has_tool(tool))
    }

    /// The tool of this name or alias. The names that a failure lists are those of this conversation.
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

    /// Calls a tool by its name or an alias: its arguments are checked, the call is permitted, it waits
    /// for its turn and runs. `cancel` ends it wherever it is, with what it started inside.
    ///
    /// # Errors
    /// `not-found` for the name, `invalid-argument` for the arguments, a refusal, `cancelled`, the
    /// guest's own faults, and the loss of the sandbox. A call that was lost is never made a second
    /// time.
    pub fn call(&self, name: &str, args: Value, cancel: &AtomicBool) -> Result<ToolOutcome, Fault> {
        self.make(self.find(name)?, args, false, None, cancel)
    }

    /// [`Self::call`], from a client that is asked what a rule asks about it, and about what it calls in turn.
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

    /// [`Self::call`] for a script: permitted as any other call, by somebody who knows that it is one.
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
        // The tool has a form of its own; a call may wait for its turn, and a command work, for long.
        drop(arguments);
        let _turn = self.schedule.enter(ready.lane(), cancel)?;
        let call = Call::new(self, cancel).of_client(client);
        let mut outcome = ready.run(&call)?;
        if !is_nested {
            job::tell_left(&call, &mut outcome);
            self.news.tell(&self.sandbox, &mut outcome);
        }
        if let Some(id) = id {
            // What `glovebox why` knows the call by.
            outcome.facts.insert("call".to_owned(), id.as_str().into());
        }
        Ok(outcome)
    }

    /// The whole lines that the command a call waits for has written since this was asked last; `None` when there
    /// are none. They are as the command wrote them.
    pub fn live_output(&self) -> Option<Vec<u8>> {
        live::look(&Call::new(self, &live::NEVER))
    }

    /// The sandbox they work on.
    pub fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }
}
