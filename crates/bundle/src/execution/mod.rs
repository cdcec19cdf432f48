//! Alternative to reading the syntax, on explicit request: the bundle is run, and reports its
//! declaration.
//!
//! ```text
//! wrap        bundle as a module: a function around it, and stand-ins for the packages outside
//! stand_ins   environment of the bundle when it is run (JavaScript)
//! ```
//!
//! This module runs nothing. The caller must run [`WrappedBundle::declaration`] in a sandbox. The
//! result is the text of a plain bundle with the same declaration, and the caller reads it with
//! [`extract`](crate::extract) and all of its checks. Untrusted code produced the result, so it is
//! trusted no further than the bundle itself.

mod wrap;

pub(crate) use wrap::wrap;

use crate::limits::{MAX_CODE_BYTES, MAX_SLICE_BYTES};
use crate::model::{Agent, ExtractedBy, Extraction, Slice, Tool, ToolSignature};
use crate::problem::{Problem, ProblemCode};
use crate::report::alone;
use serde::{Deserialize, Serialize};

/// Environment of a bundle that is run.
const STAND_INS: &str = include_str!("stand_ins.js");

/// Bundle as a module that can be run for its declaration or for one of its tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrappedBundle {
    /// The bundle as a constant of the module.
    code: String,
}

impl WrappedBundle {
    pub(crate) const fn new(code: String) -> Self {
        Self { code }
    }

    /// Returns an ECMAScript module whose default export is a function without arguments. It
    /// returns the text of a plain bundle with the same declaration.
    pub fn declaration(&self) -> String {
        self.module("glovebox.declare(bundle)")
    }

    /// Completes the extraction of the text that [`declaration`](Self::declaration) returned: each
    /// tool runs the whole bundle.
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
            // Each tool holds a copy of the whole bundle. The loop stops at the limit, before more
            // are made.
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

/// Returns the extraction of a bundle that was run but did not report its declaration.
pub fn not_declared(reason: &str, hint: &str) -> Extraction {
    not_wrapped(vec![alone(ProblemCode::Run, reason, hint)])
}

/// Returns the extraction of a bundle that could not be converted to a module.
pub fn not_wrapped(problems: Vec<Problem>) -> Extraction {
    Extraction {
        bundle: crate::Bundle {
            extracted_by: ExtractedBy::Execution,
            ..crate::Bundle::empty()
        },
        problems,
    }
}
