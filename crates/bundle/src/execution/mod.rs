//! The explicit other way to read a bundle: it is run, and asked what it declares.
//!
//! ```text
//! wrap        the bundle as a module: a function around it, and stand-ins for the packages that it leaves outside
//! stand_ins   what it finds when it is run (JavaScript)
//! ```
//!
//! Nothing is run here. A caller runs [`WrappedBundle::declaration`] where it can do no harm, and has what comes back,
//! the text of a plain bundle that declares the same, read by [`extract`](crate::extract) with all of its checks. What
//! ran is a stranger's code, so its answer is believed as little as the bundle itself.

mod wrap;

pub(crate) use wrap::wrap;

use crate::limits::{MAX_CODE_BYTES, MAX_SLICE_BYTES};
use crate::model::{Agent, ExtractedBy, Extraction, Slice, Tool, ToolSignature};
use crate::problem::{Problem, ProblemCode};
use crate::report::alone;
use serde::{Deserialize, Serialize};

/// What bundles find around them.
const STAND_INS: &str = include_str!("stand_ins.js");

/// A bundle as a module that can be run for its declaration or for one of its tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrappedBundle {
    /// The bundle as a constant of that module.
    code: String,
}

impl WrappedBundle {
    pub(crate) const fn new(code: String) -> Self {
        Self { code }
    }

    /// An ECMAScript module whose default export is a function without arguments. It returns the text of a bundle that
    /// declares the same, in plain words.
    pub fn declaration(&self) -> String {
        self.module("glovebox.declare(bundle)")
    }

    /// What was read from the text that [`declaration`](Self::declaration) has returned, made into what is known of
    /// this bundle: its tools run the whole bundle, and nothing else.
    pub fn complete(&self, mut declared: Extraction) -> Extraction {
        declared.bundle.extracted_by = ExtractedBy::Execution;
        let agents = declared.bundle.agents.iter_mut();
        let of_agents = agents.flat_map(|Agent { key, tools, .. }| {
            let key: &str = key;
            tools.iter_mut().map(move |tool| (Some(key), tool))
        });
        let of_bundle = declared.bundle.tools.iter_mut().map(|tool| (None, tool));
        let (mut bytes, mut largest, mut is_too_large) = (0, 0, false);
        for (agent, tool) in of_agents.chain(of_bundle) {
            if tool.slice.is_none() {
                continue;
            }
            let slice = self.slice(agent, tool);
            bytes += slice.code.len();
            largest = largest.max(slice.code.len());
            // Each is a copy of the whole bundle: no more of them than are handed on.
            is_too_large = largest > MAX_SLICE_BYTES || bytes > MAX_CODE_BYTES;
            if is_too_large {
                break;
            }
            tool.slice = Some(slice);
        }
        if is_too_large {
            let reason = format!(
                "each tool of a bundle that is run has the whole bundle as its code, {largest} bytes; at most are \
                 {MAX_SLICE_BYTES}, and {MAX_CODE_BYTES} of all tools"
            );
            let hint = "Leave out of the bundle what it does not need, or write what can be read without running it.";
            declared
                .problems
                .push(alone(ProblemCode::TooLarge, reason, hint));
            declared.bundle.agents.clear();
            declared.bundle.tools.clear();
        }
        declared
    }

    fn slice(&self, agent: Option<&str>, tool: &Tool) -> Slice {
        let place = serde_json::json!({
            "agent": agent,
            "tool": tool.name,
            "isBare": tool.signature == ToolSignature::Function,
        });
        Slice {
            code: self.module(&format!("glovebox.tool(bundle, {place})")),
            modules: Vec::new(),
            globals: Vec::new(),
            state: Vec::new(),
        }
    }

    fn module(&self, export: &str) -> String {
        format!("{STAND_INS}{}\nexport default {export};\n", self.code)
    }
}

/// What there is to say about a bundle that was run and did not come to say what it declares.
pub fn not_declared(reason: &str, hint: &str) -> Extraction {
    not_wrapped(vec![alone(ProblemCode::Run, reason, hint)])
}

/// What there is to say about a bundle that could not be made a module to run.
pub fn not_wrapped(problems: Vec<Problem>) -> Extraction {
    Extraction {
        bundle: crate::Bundle {
            extracted_by: ExtractedBy::Execution,
            ..crate::Bundle::empty()
        },
        problems,
    }
}
