//! Hints that name tools, rendered for a session that may not have them.
//!
//! What a model is told to use it has to have: a toolset may leave out any tool. A hint is data, the tools it names
//! beside its words, and this is the one place that decides whether it is said.

use crate::call::Call;
use crate::catalog::CATALOG;
use crate::prefix::ToolPrefix;
use glovebox_proto::{Fault, Remedy};

/// An advice that names tools.
#[derive(Debug, Clone)]
pub(crate) struct Hint {
    tools: &'static [&'static str],
    text: String,
}

impl Hint {
    /// `text` names these tools and no others.
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
    /// The first hint all of whose tools this session has.
    pub(crate) fn hint(&self, hints: impl IntoIterator<Item = Hint>) -> Option<String> {
        let is_usable = |hint: &Hint| hint.tools.iter().all(|tool| self.session.has(tool));
        let hint = hints.into_iter().find(is_usable)?;
        Some(self.session.prefix().write_names(&hint.text, hint.tools))
    }
}

/// A fault with a hint as its remedy, where there is one.
pub(crate) fn with_hint(fault: Fault, hint: Option<impl Into<Remedy>>) -> Fault {
    match hint {
        Some(hint) => fault.remedy(hint),
        None => fault,
    }
}

/// The names of the tools for which `has` holds, as a sentence lists them.
pub(crate) fn tool_names(has: impl Fn(&str) -> bool, prefix: &ToolPrefix) -> String {
    let names = CATALOG.iter().map(|tool| tool.name);
    names
        .filter(|name| has(name))
        .map(|name| prefix.name(name))
        .collect::<Vec<_>>()
        .join(", ")
}
