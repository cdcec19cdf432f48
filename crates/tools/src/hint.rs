//! Hints that name tools.
//!
//! A toolset may omit any tool, and a model must not be told to use a tool that it lacks. A hint is
//! data: its text, and the tools that the text names. This module alone decides whether a hint is
//! shown.

use crate::call::Call;
use crate::catalog::CATALOG;
use crate::prefix::ToolPrefix;
use glovebox_proto::{Fault, Remedy};

/// Advice that names tools.
#[derive(Debug, Clone)]
pub(crate) struct Hint {
    tools: &'static [&'static str],
    text: String,
}

impl Hint {
    /// Creates a hint. `text` must name exactly these tools.
    pub(crate) fn new(tools: &'static [&'static str], text: impl Into<String>) -> Self {
        let text = text.into();
        debug_assert!(
            tools.iter().all(|tool| text.contains(tool)),
            "a hint names its tools: {text}"
        );
        Self { tools, text }
    }
}

impl Call<'_> {
    /// Returns the text of the first hint whose tools this session has. `None` if there is none.
    pub(crate) fn hint(&self, hints: impl IntoIterator<Item = Hint>) -> Option<String> {
        let is_usable = |hint: &Hint| hint.tools.iter().all(|tool| self.session.has(tool));
        let hint = hints.into_iter().find(is_usable)?;
        Some(self.session.prefix().write_names(&hint.text, hint.tools))
    }
}

/// Adds the hint to the fault as its remedy, if there is a hint.
pub(crate) fn with_hint(fault: Fault, hint: Option<impl Into<Remedy>>) -> Fault {
    match hint {
        Some(hint) => fault.remedy(hint),
        None => fault,
    }
}

/// Lists the names of the tools for which `has` returns true, with the prefix, separated by commas.
pub(crate) fn tool_names(has: impl Fn(&str) -> bool, prefix: &ToolPrefix) -> String {
    let names = CATALOG.iter().map(|tool| tool.name);
    names
        .filter(|name| has(name))
        .map(|name| prefix.name(name))
        .collect::<Vec<_>>()
        .join(", ")
}
