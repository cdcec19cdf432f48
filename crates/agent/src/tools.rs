//! Tools of the agent loop: their definitions, and calls. Each source of tools implements
//! [`Tools`]; a [`Toolbox`] combines several.

use crate::Image;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use glovebox_proto::{Code, Fault, visible};
use glovebox_tools::{CATALOG, OutcomeView, ToolSession};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Definition of a tool for a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// Name.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON schema of the arguments.
    pub schema: Value,
    /// True if the tool changes nothing.
    pub is_read_only: bool,
    /// MCP server that provides the tool; `None` for Glovebox's own tools.
    pub server: Option<ToolServer>,
}

/// MCP server that provides tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolServer {
    /// Name. The names of its tools begin with it and `__`.
    pub name: String,
    /// Place where the server runs.
    pub place: ServerPlace,
}

/// Place where a server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerPlace {
    /// In the sandbox, with the other tools.
    Sandbox,
    /// On the user's machine.
    Host,
    /// At the other end of a network.
    Remote,
}

impl ServerPlace {
    /// Returns the name in events and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Host => "host",
            Self::Remote => "remote",
        }
    }
}

/// Output of a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// Text for the model.
    pub text: String,
    /// Data for programs.
    pub facts: Map<String, Value>,
    /// True if the call failed.
    pub is_error: bool,
    /// Pictures.
    pub images: Vec<Image>,
    /// Change for display, as a unified diff.
    pub diff: Option<String>,
}

/// Source of tools. Calls may come from several threads at once.
pub trait Tools: Send + Sync {
    /// Returns all definitions, always in the same order.
    fn definitions(&self) -> Vec<ToolDefinition>;

    /// Returns the exact name of the tool that `name` refers to; `None` if this source has no such
    /// tool.
    fn own_name(&self, name: &str) -> Option<String> {
        let mut tools = self.definitions().into_iter();
        tools.find(|tool| tool.name == name).map(|tool| tool.name)
    }

    /// Returns true if the tool that `name` refers to changes nothing; `None` if this source has no
    /// such tool.
    fn is_read_only(&self, name: &str) -> Option<bool> {
        let own = self.own_name(name)?;
        let mut tools = self.definitions().into_iter();
        tools
            .find(|tool| tool.name == own)
            .map(|tool| tool.is_read_only)
    }

    /// Calls a tool and blocks until it returns. Setting `cancel` ends what the call started.
    ///
    /// # Errors
    /// The error of the tool; class `lost` if the sandbox is gone.
    fn call(&self, name: &str, arguments: Value, cancel: &AtomicBool) -> Result<ToolOutput, Fault>;

    /// Returns the whole lines that the running call has written since the last request, for
    /// display; `None` if there are none.
    fn live_output(&self) -> Option<String> {
        None
    }
}

impl<T: Tools + ?Sized> Tools for Arc<T> {
    fn definitions(&self) -> Vec<ToolDefinition> {
        (**self).definitions()
    }

    fn own_name(&self, name: &str) -> Option<String> {
        (**self).own_name(name)
    }

    fn is_read_only(&self, name: &str) -> Option<bool> {
        (**self).is_read_only(name)
    }

    fn call(&self, name: &str, arguments: Value, cancel: &AtomicBool) -> Result<ToolOutput, Fault> {
        (**self).call(name, arguments, cancel)
    }

    fn live_output(&self) -> Option<String> {
        (**self).live_output()
    }
}

/// Several sources as one. If two have a tool of the same name, the earlier source provides it.
#[derive(Default)]
pub struct Toolbox {
    sources: Vec<Arc<dyn Tools>>,
}

impl Toolbox {
    /// Appends a source.
    #[must_use]
    pub fn with(mut self, source: Arc<dyn Tools>) -> Self {
        self.sources.push(source);
        self
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Toolbox({} sources)", self.sources.len())
    }
}

impl Tools for Toolbox {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let mut tools: Vec<ToolDefinition> = Vec::new();
        for tool in self.sources.iter().flat_map(Tools::definitions) {
            if tools.iter().all(|known| known.name != tool.name) {
                tools.push(tool);
            }
        }
        tools
    }

    fn own_name(&self, name: &str) -> Option<String> {
        self.sources.iter().find_map(|source| source.own_name(name))
    }

    fn is_read_only(&self, name: &str) -> Option<bool> {
        self.sources
            .iter()
            .find_map(|source| source.is_read_only(name))
    }

    fn call(&self, name: &str, arguments: Value, cancel: &AtomicBool) -> Result<ToolOutput, Fault> {
        let found = self
            .sources
            .iter()
            .find_map(|source| Some((source, source.own_name(name)?)));
        let Some((source, name)) = found else {
            return Err(unknown_tool(name, &self.definitions()));
        };
        source.call(&name, arguments, cancel)
    }

    fn live_output(&self) -> Option<String> {
        self.sources.iter().find_map(Tools::live_output)
    }
}

/// Returns the error for a call of a tool that does not exist. Its hint lists `tools`.
pub fn unknown_tool(name: &str, tools: &[ToolDefinition]) -> Fault {
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    Fault::failed(Code::NotFound, format!("there is no tool `{name}`"))
        .remedy(format!("the tools are {}", names.join(", ")))
}

impl Tools for ToolSession {
    fn live_output(&self) -> Option<String> {
        Self::live_output(self).map(|bytes| visible::lines(&bytes))
    }

    fn definitions(&self) -> Vec<ToolDefinition> {
        CATALOG
            .iter()
            .map(|tool| ToolDefinition {
                name: tool.name.to_owned(),
                description: tool.described(|name| self.has(name)),
                schema: tool.schema(),
                is_read_only: tool.is_read_only,
                server: None,
            })
            .collect()
    }

    fn own_name(&self, name: &str) -> Option<String> {
        let tool = glovebox_tools::find(name).ok()?;
        Some(tool.name.to_owned())
    }

    fn is_read_only(&self, name: &str) -> Option<bool> {
        let tool = glovebox_tools::find(name).ok()?;
        Some(tool.is_read_only)
    }

    fn call(&self, name: &str, arguments: Value, cancel: &AtomicBool) -> Result<ToolOutput, Fault> {
        let outcome = Self::call(self, name, arguments, cancel)?;
        Ok(ToolOutput {
            text: outcome.text,
            facts: outcome.facts,
            is_error: outcome.is_error,
            images: outcome
                .images
                .into_iter()
                .map(|image| Image {
                    mime: image.mime.to_owned(),
                    base64: STANDARD.encode(image.bytes),
                })
                .collect(),
            diff: match outcome.view {
                OutcomeView::Change(change) => Some(change.diff()),
                OutcomeView::Text | OutcomeView::Table { .. } | OutcomeView::Image => None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Source(&'static [&'static str], &'static str);

    impl Tools for Source {
        fn definitions(&self) -> Vec<ToolDefinition> {
            let one = |name: &&str| ToolDefinition {
                name: (*name).to_owned(),
                description: self.1.to_owned(),
                schema: json!({}),
                is_read_only: false,
                server: None,
            };
            self.0.iter().map(one).collect()
        }

        fn call(&self, name: &str, _: Value, _: &AtomicBool) -> Result<ToolOutput, Fault> {
            Ok(ToolOutput {
                text: format!("{}:{name}", self.1),
                ..ToolOutput::default()
            })
        }
    }

    #[test]
    fn a_call_goes_to_the_first_source_that_has_the_tool() {
        let tools = Toolbox::default()
            .with(Arc::new(Source(&["A", "B"], "one")))
            .with(Arc::new(Source(&["B", "C"], "two")));
        let names: Vec<_> = tools.definitions().into_iter().map(|t| t.name).collect();
        assert_eq!(names, ["A", "B", "C"]);
        let call = |name| tools.call(name, json!({}), &AtomicBool::new(false));
        assert_eq!(call("B").unwrap().text, "one:B");
        assert_eq!(call("C").unwrap().text, "two:C");
        let fault = call("D").unwrap_err();
        assert_eq!(fault.code, Code::NotFound);
        assert_eq!(fault.remedy.unwrap().to_string(), "the tools are A, B, C");
    }
}
