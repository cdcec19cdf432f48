//! Bundles that are run to be asked what they declare: the explicit other way to read them, for those whose
//! configuration cannot be read from their syntax.
//!
//! ```text
//! extractor   the bundle -> a module that can be run; nothing runs
//! runner      that module, in a process that can only compute: no file, no network, a clock that stands
//!   | the text of a plain bundle that declares the same
//! extractor   reads that text as it reads any bundle, with every check
//! ```
//!
//! What ran is a stranger's code, so its answer is a stranger's text. It is never chosen by itself, and what comes of it
//! says so (`extracted_by`).

use super::store::ReadBundle;
use glovebox_bundle::{
    ConfinedExtractor, ExtractError, ExtractOptions, Extraction, Language, not_declared,
    not_wrapped,
};
use glovebox_js::tool_call::{CallLimits, FixedSources};
use glovebox_proto::Fault;
use glovebox_runner::{CallFailure, Engine, FailureKind, RunnerConfig, ToolRequest, ToolRunner};
use glovebox_sandbox::Registry;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What a bundle may use before it has said what it declares.
const LIMITS: CallLimits = CallLimits {
    wall_ms: 5_000,
    cpu_ms: 2_000,
    memory_bytes: 64 << 20,
    output_bytes: 1 << 20,
    log_bytes: 16 << 10,
};
/// The same bundle declares the same each time: midnight of 2025-01-01, and one row of random numbers.
const FIXED: FixedSources = FixedSources {
    now_ms: 1_735_689_600_000,
    seed: 1,
};
/// Sandboxes of bundles that are asked are shared with no tenant.
const TENANT: &str = "declarations";
const MAX_REASON_CHARS: usize = 500;

/// Reads bundles by running them where they can do nothing but compute.
#[derive(Debug)]
pub struct ExecutedReader {
    extractor: ConfinedExtractor,
    runner: ToolRunner,
}

impl ExecutedReader {
    /// One that keeps its sandboxes in this registry. They have no network, whatever tools are granted.
    ///
    /// # Errors
    /// As [`ToolRunner::new`].
    pub fn new(extractor: ConfinedExtractor, registry: Arc<Registry>) -> Result<Self, Fault> {
        let runner = ToolRunner::new(registry, RunnerConfig::default())?;
        Ok(Self { extractor, runner })
    }

    fn run(&self, code: &str) -> Result<String, CallFailure> {
        let request = ToolRequest {
            tenant: TENANT,
            tool: "declaration",
            session: None,
            engine: Engine::Quickjs,
            code,
            input: &Value::Null,
            context: &json!({}),
            call_id: "declaration",
            limits: LIMITS,
            fixed: Some(FIXED),
        };
        let done = self.runner.call(&request, &AtomicBool::new(false))?;
        Ok(match done.value {
            Value::String(text) => text,
            // The bundle has changed what was to write it down.
            other => other.to_string(),
        })
    }
}

impl ReadBundle for ExecutedReader {
    fn read_bundle(
        &self,
        source: &[u8],
        options: ExtractOptions,
    ) -> Result<Extraction, ExtractError> {
        if options.language == Language::TypeScript {
            return Ok(not_declared(
                "TypeScript is not run to be asked what it declares",
                "Give the JavaScript that a bundler made of it.",
            ));
        }
        let wrapped = match self.extractor.wrap(source)? {
            Ok(wrapped) => wrapped,
            Err(problems) => return Ok(not_wrapped(problems)),
        };
        let text = match self.run(&wrapped.declaration()) {
            Ok(text) => text,
            Err(failure) => match failure.kind {
                FailureKind::Busy | FailureKind::Unavailable | FailureKind::Cancelled => {
                    return Err(ExtractError::Start(io::Error::other(failure.message)));
                }
                _ => return Ok(not_declared(&reason(&failure), hint(failure.kind))),
            },
        };
        // TRUST: the text was written by what ran. It is read as every bundle is, in a process that runs nothing.
        let declared = self.extractor.extract(text.as_bytes(), options)?;
        Ok(wrapped.complete(declared))
    }
}

/// Why there is no declaration, with the words of what was thrown.
fn reason(failure: &CallFailure) -> String {
    let thrown = match (failure.name.as_str(), failure.message.as_str()) {
        ("", message) => message.to_owned(),
        (name, message) => format!("{name}: {message}"),
    };
    let text = format!(
        "the bundle was run and did not get to its configuration ({}): {thrown}",
        failure.kind
    );
    text.chars().take(MAX_REASON_CHARS).collect()
}

const fn hint(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Timeout | FailureKind::Cpu => {
            "Leave loops and waiting out of the top of the bundle; it has two seconds of a processor."
        }
        FailureKind::Memory => "Make less at the top of the bundle; it has 64 MiB.",
        FailureKind::OutputLimit => "Shorten prompts, descriptions and schemas.",
        _ => {
            "Let only tools use files, network, environment and packages that are not in the bundle; none of that is \
             there while the bundle says what it declares."
        }
    }
}
