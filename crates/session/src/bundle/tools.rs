//! Tools of one agent of a bundle, for its loop and for single calls. Each has a name, a schema for
//! arguments and one for results. Its code was cut out of the bundle when it was read: no request
//! brings code, and there are no other tools.

use super::defaults::fill_defaults;
use super::schema::{Mismatch, Schema};
use glovebox_agent::{ToolDefinition, ToolOutput, Tools};
use glovebox_bundle::{Slice, Tool, ToolKind};
use glovebox_js::tool_call::{CallLimits, LogRecord};
use glovebox_proto::visible::line_of_text as escape_text;
use glovebox_proto::{Code, Fault};
use glovebox_runner::{
    CallFailure, CallReport, Engine, FailureKind, MAX_TOOL_NAME_CHARS, ToolRequest, ToolRunner,
    is_tool_name,
};
use glovebox_tools::cut::{CutBias, CutSource, OUTPUT_BYTES, cut};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Maximum number of tools of one agent.
const MAX_TOOLS: usize = 128;
/// Maximum size of a tool's description, and below of its schema, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 16 << 10;
const MAX_SCHEMA_BYTES: usize = 64 << 10;

/// Tool that is not offered, or not as its bundle declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolNote {
    /// Name of the tool.
    pub tool: String,
    /// Reason.
    pub reason: String,
}

impl fmt::Display for ToolNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tool `{}`: {}", escape_text(&self.tool), self.reason)
    }
}

/// Reason why a call of a tool has no value.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolFailure {
    /// No tool has this name. Holds the message.
    NotFound(String),
    /// The tool has no code here: its caller or the model's provider runs it.
    NotExecutable(String),
    /// The arguments do not fit the tool's schema.
    InvalidArguments(Vec<Mismatch>),
    /// The result does not fit the tool's output schema.
    InvalidResult(Vec<Mismatch>, Vec<LogRecord>),
    /// The code threw, exceeded a limit, or could not be run.
    Call(Box<CallFailure>),
}

impl ToolFailure {
    /// Returns the stable name of the failure.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not_found",
            Self::NotExecutable(_) => "not_executable",
            Self::InvalidArguments(_) => "invalid_arguments",
            Self::InvalidResult(..) => "invalid_result",
            Self::Call(failure) => failure.kind.as_str(),
        }
    }

    /// Returns what the tool had logged before.
    pub fn log(&self) -> &[LogRecord] {
        match self {
            Self::Call(failure) => &failure.log,
            Self::InvalidResult(_, log) => log,
            _ => &[],
        }
    }
}

impl fmt::Display for ToolFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(message) | Self::NotExecutable(message) => f.write_str(message),
            Self::InvalidArguments(mismatches) => {
                write!(
                    f,
                    "the arguments do not fit the schema of the tool: {}",
                    joined(mismatches)
                )
            }
            Self::InvalidResult(mismatches, _) => {
                write!(
                    f,
                    "the result does not fit the output schema of the tool: {}",
                    joined(mismatches)
                )
            }
            // TRUST: the tool's code chooses the name and the message of an error.
            Self::Call(failure) if failure.name.is_empty() => {
                f.write_str(&escape_text(&failure.message))
            }
            Self::Call(failure) => {
                write!(
                    f,
                    "{}: {}",
                    escape_text(&failure.name),
                    escape_text(&failure.message)
                )
            }
        }
    }
}

/// Tool that can be called.
#[derive(Debug)]
struct OfferedTool {
    code: String,
    definition: ToolDefinition,
    input: Schema,
    output: Option<Schema>,
    /// True if fields that the schema does not declare are removed before the code sees them.
    drops_unknown: bool,
}

/// Tools of one agent, or those that a bundle exports without an agent.
#[derive(Debug)]
pub struct BundleTools {
    offered: Vec<OfferedTool>,
    left_out: Vec<ToolNote>,
}

impl BundleTools {
    /// Prepares the tools of a bundle. Tools without code to run here are left out, with a note.
    ///
    /// # Errors
    /// A note for every tool that cannot be offered as declared.
    pub fn new(tools: &[Tool]) -> Result<Self, Vec<ToolNote>> {
        let (mut offered, mut left_out, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
        if tools.len() > MAX_TOOLS {
            wrong.push(ToolNote {
                tool: tools[MAX_TOOLS].name.clone(),
                reason: format!("an agent has at most {MAX_TOOLS} tools"),
            });
            return Err(wrong);
        }
        for tool in tools {
            let note = |reason: &str| ToolNote {
                tool: tool.name.clone(),
                reason: reason.to_owned(),
            };
            match (tool.kind, &tool.slice) {
                (ToolKind::Provider, _) => {
                    left_out.push(note(
                        "the provider of the model runs it, which is not supported here",
                    ));
                }
                (ToolKind::Client, _) | (_, None) => {
                    left_out.push(note("it has no `execute`, so it cannot be run here"));
                }
                (ToolKind::Function, Some(slice)) => match offer(tool, slice) {
                    Ok(tool) => offered.push(tool),
                    Err(reason) => wrong.push(note(&reason)),
                },
            }
        }
        if wrong.is_empty() {
            Ok(Self { offered, left_out })
        } else {
            Err(wrong)
        }
    }

    /// Returns the tools that are declared but not offered.
    pub fn left_out(&self) -> &[ToolNote] {
        &self.left_out
    }

    /// Returns the definitions for models.
    pub fn definitions(&self) -> Vec<ToolDefinition> {
        self.offered
            .iter()
            .map(|tool| tool.definition.clone())
            .collect()
    }

    /// Calls a tool: checks the arguments, inserts defaults, runs the code and checks the result.
    /// Blocks.
    ///
    /// # Errors
    /// [`ToolFailure`].
    pub fn call(
        &self,
        runner: &ToolRunner,
        name: &str,
        call: &CallContext<'_>,
        arguments: &Value,
        cancel: &AtomicBool,
    ) -> Result<CallReport, ToolFailure> {
        let Some(found) = self.offered.iter().find(|one| one.definition.name == name) else {
            return Err(self.not_offered(name));
        };
        found
            .input
            .check(arguments)
            .map_err(ToolFailure::InvalidArguments)?;
        let mut input = arguments.clone();
        fill_defaults(&found.definition.schema, found.drops_unknown, &mut input)
            .map_err(|mismatch| ToolFailure::InvalidArguments(vec![mismatch]))?;
        let usual = CallLimits::default();
        let request = ToolRequest {
            tenant: call.tenant,
            tool: name,
            session: call.session(),
            engine: call.engine,
            code: &found.code,
            input: &input,
            context: call.context,
            call_id: call.id,
            limits: CallLimits {
                wall_ms: call
                    .timeout
                    .map_or(usual.wall_ms, |timeout| timeout.as_millis() as u64),
                ..usual
            },
            fixed: None,
        };
        let done = runner.call(&request, cancel);
        let done = done.map_err(|failure| ToolFailure::Call(Box::new(failure)))?;
        if let Some(schema) = &found.output
            && let Err(mismatches) = schema.check(&done.value)
        {
            return Err(ToolFailure::InvalidResult(mismatches, done.log));
        }
        Ok(done)
    }

    fn not_offered(&self, name: &str) -> ToolFailure {
        if let Some(note) = self.left_out.iter().find(|note| note.tool == name) {
            return ToolFailure::NotExecutable(note.to_string());
        }
        let shown: String = name.chars().take(MAX_TOOL_NAME_CHARS).collect();
        let names: Vec<&str> = self
            .offered
            .iter()
            .map(|one| one.definition.name.as_str())
            .collect();
        let have = match names.as_slice() {
            [] => "there are none here".to_owned(),
            names => format!("the tools are {}", names.join(", ")),
        };
        ToolFailure::NotFound(format!(
            "there is no tool `{}`; {have}",
            escape_text(&shown)
        ))
    }
}

/// Context of a call, besides its arguments.
#[derive(Debug, Clone, Copy)]
pub struct CallContext<'a> {
    /// Tenant of the call. Calls of different tenants never share a sandbox.
    pub tenant: &'a str,
    /// Id of the call.
    pub id: &'a str,
    /// JSON object that the code receives as its context. Its `sessionId` is the session, if any.
    pub context: &'a Value,
    /// Engine that runs the code.
    pub engine: Engine,
    /// Maximum duration; `None` for the default.
    pub timeout: Option<Duration>,
}

impl CallContext<'_> {
    /// Returns the session in which the call is made.
    pub fn session(&self) -> Option<&str> {
        self.context["sessionId"].as_str()
    }
}

fn joined(mismatches: &[Mismatch]) -> String {
    let told: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
    told.join("; ")
}

/// Prepares a tool; fails if any part of its declaration cannot be honoured.
fn offer(tool: &Tool, slice: &Slice) -> Result<OfferedTool, String> {
    if !is_tool_name(&tool.name) {
        return Err(format!(
            "models cannot call it by that name: write letters, digits, `_` and `-`, at most {MAX_TOOL_NAME_CHARS}"
        ));
    }
    let description = tool.description.clone().unwrap_or_default();
    if description.len() > MAX_DESCRIPTION_BYTES {
        return Err(format!(
            "its description has {} bytes, more than {MAX_DESCRIPTION_BYTES}",
            description.len()
        ));
    }
    let schema = to_value(&tool.input_schema);
    let bytes = schema.to_string().len();
    if bytes > MAX_SCHEMA_BYTES {
        return Err(format!(
            "its input schema has {bytes} bytes, more than {MAX_SCHEMA_BYTES}"
        ));
    }
    let input = Schema::new(&schema).map_err(|reason| format!("its input schema: {reason}"))?;
    let output = tool.output_schema.as_ref().map(to_value);
    let output = output.as_ref().map(Schema::new).transpose();
    let output = output.map_err(|reason| format!("its output schema: {reason}"))?;
    Ok(OfferedTool {
        definition: ToolDefinition {
            name: tool.name.clone(),
            description,
            schema,
            // The effects of the code are unknown, so calls of one run are made one at a time.
            is_read_only: false,
            server: None,
        },
        code: slice.code.clone(),
        input,
        output,
        drops_unknown: tool.drops_unknown_fields,
    })
}

fn to_value(json: &glovebox_bundle::Json) -> Value {
    // JSON of a bundle has string keys and finite numbers, so it always has a JSON form.
    serde_json::to_value(json).unwrap_or_default()
}

/// Tools of one run of an agent, with the runner of their code.
#[derive(Debug, Clone)]
pub struct RunTools {
    /// Tools of the agent.
    pub tools: Arc<BundleTools>,
    /// Runner of their code.
    pub runner: Arc<ToolRunner>,
    /// Engine of the runner.
    pub engine: Engine,
    /// Tenant of the run.
    pub tenant: String,
    /// JSON object that the code receives as its context.
    pub context: Value,
}

impl Tools for RunTools {
    fn definitions(&self) -> Vec<ToolDefinition> {
        self.tools.definitions()
    }

    fn call(&self, name: &str, arguments: Value, cancel: &AtomicBool) -> Result<ToolOutput, Fault> {
        let id = glovebox_sandbox::Name::random("call");
        let call = CallContext {
            tenant: &self.tenant,
            id: id.as_str(),
            context: &self.context,
            engine: self.engine,
            timeout: None,
        };
        let done = self
            .tools
            .call(&self.runner, name, &call, &arguments, cancel);
        match done {
            Ok(done) => Ok(output(done)),
            Err(ToolFailure::Call(failure)) if failure.kind == FailureKind::Cancelled => {
                Err(Fault::failed(Code::Cancelled, failure.message))
            }
            Err(failure) => Ok(failed(&failure)),
        }
    }
}

/// Formats a result for a model: strings unchanged, everything else as JSON.
fn output(done: CallReport) -> ToolOutput {
    let mut facts = Map::new();
    let text = match done.value {
        Value::String(text) => text,
        value => {
            // For programs that display the value itself.
            facts.insert("is_json".to_owned(), true.into());
            value.to_string()
        }
    };
    if !done.warnings.is_empty() {
        facts.insert("warnings".to_owned(), done.warnings.into());
    }
    add_log(&mut facts, &done.log);
    told(&text, facts, false)
}

/// Formats a failure for a model.
fn failed(failure: &ToolFailure) -> ToolOutput {
    let mut facts = Map::new();
    facts.insert("failure".to_owned(), failure.as_str().into());
    add_log(&mut facts, failure.log());
    told(&failure.to_string(), facts, true)
}

fn add_log(facts: &mut Map<String, Value>, log: &[LogRecord]) {
    if !log.is_empty() {
        // Levels and texts always have a JSON form.
        facts.insert(
            "log".to_owned(),
            serde_json::to_value(log).unwrap_or_default(),
        );
    }
}

// TRUST: the output of untrusted code is truncated once and escaped.
fn told(text: &str, mut facts: Map<String, Value>, is_error: bool) -> ToolOutput {
    let source = CutSource {
        head: text.as_bytes(),
        gap: 0,
        tail: &[],
    };
    let cut = cut(source, OUTPUT_BYTES, CutBias::Even);
    if cut.left_out > 0 {
        facts.remove("is_json");
        facts.insert("left_out_bytes".to_owned(), cut.left_out.into());
    }
    ToolOutput {
        text: cut.text,
        facts,
        is_error,
        ..ToolOutput::default()
    }
}
