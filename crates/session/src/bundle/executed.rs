//! Reads bundles by running them. This is the explicit alternative for bundles whose configuration
//! cannot be read from their syntax.
//!
//! ```text
//! extractor   the bundle -> a module that can be run; nothing runs
//! runner      that module, in a process that can only compute: no file, no network, a fixed clock
//!   | the text of a plain bundle that declares the same
//! extractor   reads that text as it reads any bundle, with every check
//! ```
//!
//! The executed code is untrusted, and so is its result. This reader is never chosen automatically,
//! and its extractions say so (`extracted_by`).

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

/// Limits for running a bundle to read its declaration.
const LIMITS: CallLimits = CallLimits {
    wall_ms: 5_000,
    cpu_ms: 2_000,
    memory_bytes: 64 << 20,
    output_bytes: 1 << 20,
    log_bytes: 16 << 10,
};
/// Fixed clock (midnight of 2025-01-01) and random seed, so that the same bundle declares the same
/// each time.
const FIXED: FixedSources = FixedSources {
    now_ms: 1_735_689_600_000,
    seed: 1,
};
/// Tenant of declaration runs, whose sandboxes are shared with no other tenant.
const TENANT: &str = "declarations";
const MAX_REASON_CHARS: usize = 500;

/// Reader that runs bundles where they can only compute.
#[derive(Debug)]
pub struct ExecutedReader {
    extractor: ConfinedExtractor,
    runner: ToolRunner,
}

impl ExecutedReader {
    /// Creates a reader whose sandboxes are in this registry. They have no network, whatever tools
    /// are granted.
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
            // The bundle replaced the function that writes the declaration.
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
        // TRUST: the executed code wrote this text. It is read like every bundle, in a process that
        // runs nothing.
        let declared = self.extractor.extract(text.as_bytes(), options)?;
        Ok(wrapped.complete(declared))
    }
}

/// Returns why there is no declaration, with the name and message of the exception.
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
