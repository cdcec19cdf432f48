//! The tools as the head sees them: definitions, and a call.

use crate::Image;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use glovebox_proto::Fault;
use glovebox_tools::{CATALOG, Hands, View};
use serde_json::{Map, Value};
use std::sync::atomic::AtomicBool;

/// A tool as a model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// JSON schema of its arguments.
    pub schema: Value,
    /// Whether it leaves everything as it is.
    pub is_read_only: bool,
}

/// What a tool gave back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// For the model.
    pub text: String,
    /// For programs.
    pub facts: Map<String, Value>,
    /// Whether what was asked for did not succeed.
    pub is_error: bool,
    /// Pictures.
    pub images: Vec<Image>,
    /// For people: what changed, as a unified diff.
    pub diff: Option<String>,
}

/// What can be called. Safe to use from several threads.
pub trait Tools: Send + Sync {
    /// All of them, in a fixed order.
    fn definitions(&self) -> Vec<ToolDefinition>;

    /// Calls one. `cancel` ends what it started.
    ///
    /// # Errors
    /// As the tool; class `lost` when there is nothing left to call.
    fn call(&self, name: &str, arguments: Value, cancel: &AtomicBool) -> Result<ToolOutput, Fault>;
}

impl Tools for Hands {
    fn definitions(&self) -> Vec<ToolDefinition> {
        CATALOG
            .iter()
            .map(|tool| ToolDefinition {
                name: tool.name.to_owned(),
                description: tool.description.to_owned(),
                schema: tool.schema(),
                is_read_only: tool.is_read_only,
            })
            .collect()
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
                View::Diff(diff) => Some(diff),
                View::Text | View::Table { .. } | View::Image => None,
            },
        })
    }
}
