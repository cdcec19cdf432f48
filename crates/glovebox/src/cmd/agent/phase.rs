//! Kinds of work: which tools there are for it, and what is added to the prompt.

use crate::args::Phase;
use glovebox_agent::{ToolDefinition, ToolOutput, Tools};
use glovebox_proto::{Code, Fault};
use serde_json::Value;
use std::sync::atomic::AtomicBool;

impl Phase {
    /// Whether the work leaves everything as it is.
    const fn is_read_only(self) -> bool {
        !matches!(self, Self::Implement)
    }

    /// What the model is told about it.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Research => {
                "# Phase: research\nFind out what the task asks about. Change nothing. Answer with what you found \
                 and where it stands (file and line)."
            }
            Self::Plan => {
                "# Phase: plan\nWork out how the task is to be done. Change nothing. Answer with the steps, the \
                 files each touches, how it will be checked, and what is uncertain."
            }
            Self::Implement => "# Phase: implement\nDo the task and check that it is done.",
            Self::Review => {
                "# Phase: review\nJudge the work the task names. Change nothing. Answer with what is wrong, the \
                 gravest first, each with file and line and why it is wrong."
            }
        }
    }
}

/// The tools of a phase.
pub(crate) struct Narrowed<T> {
    pub tools: T,
    pub phase: Option<Phase>,
}

impl<T> std::fmt::Debug for Narrowed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Narrowed({:?})", self.phase)
    }
}

impl<T: Tools> Tools for Narrowed<T> {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let mut tools = self.tools.definitions();
        if self.phase.is_some_and(Phase::is_read_only) {
            tools.retain(|tool| tool.is_read_only);
        }
        tools
    }

    fn call(&self, name: &str, arguments: Value, cancel: &AtomicBool) -> Result<ToolOutput, Fault> {
        if let Some(phase) = self.phase.filter(|phase| phase.is_read_only()) {
            // Aliases lead to the same tool, so the tool is asked and not its name.
            let tool = glovebox_tools::find(name)?;
            if !tool.is_read_only {
                return Err(Fault::refused(
                    Code::PermissionDenied,
                    format!(
                        "{} changes things, which the phase `{}` does not",
                        tool.name,
                        phase.as_str()
                    ),
                )
                .remedy("say what would have to be changed; `--phase implement` does it"));
            }
        }
        self.tools.call(name, arguments, cancel)
    }
}
