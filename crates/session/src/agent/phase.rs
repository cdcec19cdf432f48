//! Phases: each is a toolset of the same name and an instruction for the model.

use glovebox_agent::{ToolDefinition, ToolOutput, Tools, unknown_tool};
use glovebox_proto::{Code, Fault, Remedy, Setting};
use glovebox_tools::policy::Policy;
use serde_json::Value;
use std::sync::atomic::AtomicBool;

/// Returns the instruction for the model in a phase; `None` for a phase without one.
pub(super) fn phase_instruction(phase: &str) -> Option<&'static str> {
    Some(match phase {
        "research" => {
            "# Phase: research\nFind out what the task asks about. Change nothing. Answer with what you found \
             and where it stands (file and line)."
        }
        "plan" => {
            "# Phase: plan\nWork out how the task is to be done. Change nothing. Answer with the steps, the \
             files each touches, how it will be checked, and what is uncertain."
        }
        "implement" => "# Phase: implement\nDo the task and check that it is done.",
        "review" => {
            "# Phase: review\nJudge the work the task names. Change nothing. Answer with what is wrong, the \
             gravest first, each with file and line and why it is wrong."
        }
        _ => return None,
    })
}

/// Tools narrowed to those of a toolset.
pub struct ToolsetFilter<T> {
    /// All available tools.
    pub tools: T,
    /// Policy with the toolset.
    pub policy: Policy,
    /// True on the user's own machine, where no isolation keeps a command from writing: a read-only
    /// phase then has no commands.
    pub is_local: bool,
}

impl<T> std::fmt::Debug for ToolsetFilter<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ToolsetFilter({})", self.policy.toolset().name)
    }
}

impl<T> ToolsetFilter<T> {
    fn is_shut(&self, is_read_only: bool) -> bool {
        self.is_local && self.policy.toolset().is_read_only && !is_read_only
    }
}

impl<T: Tools> Tools for ToolsetFilter<T> {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let mut tools = self.tools.definitions();
        tools.retain(|tool| self.policy.has(&tool.name) && !self.is_shut(tool.is_read_only));
        tools
    }

    fn own_name(&self, name: &str) -> Option<String> {
        self.tools.own_name(name)
    }

    fn live_output(&self) -> Option<String> {
        self.tools.live_output()
    }

    fn call(&self, name: &str, arguments: Value, cancel: &AtomicBool) -> Result<ToolOutput, Fault> {
        // The fault names only the tools of the filter, because the model was given no others.
        if self.tools.own_name(name).is_none() {
            return Err(unknown_tool(name, &self.definitions()));
        }
        // Aliases lead to the same tool, so the tool is asked and not its name. The policy gate
        // decides whether the toolset contains it.
        if let Some(is_read_only) = self.tools.is_read_only(name)
            && self.is_shut(is_read_only)
        {
            let own = self.tools.own_name(name).unwrap_or_default();
            let phase = &self.policy.toolset().name;
            return Err(Fault::refused(
                Code::PermissionDenied,
                format!("{own} may change things, which the phase `{phase}` does not"),
            )
            .remedy(Remedy::advice([
                "say what would have to be done; commands can run in this phase with ".into(),
                Setting::Sandbox.into(),
            ])));
        }
        self.tools.call(name, arguments, cancel)
    }
}
