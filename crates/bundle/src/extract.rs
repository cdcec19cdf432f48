//! Extraction: from the text of a bundle to its content, through limits, parser, exports and
//! configuration.

use crate::config::ConfigReader;
use crate::erase::Erasure;
use crate::evaluate::Evaluator;
use crate::execution::{self, WrappedBundle};
use crate::exports;
use crate::limits::{
    MAX_CODE_BYTES, MAX_JSON_DEPTH, MAX_OUTPUT_BYTES, MAX_SOURCE_BYTES, STACK_BYTES,
};
use crate::model::{Bundle, Extraction};
use crate::problem::{Problem, ProblemCode};
use crate::report::{Report, alone};
use crate::source::Source;
use crate::source_map;
use crate::syntax::{refuse_nesting, refuse_syntax};
use crate::unread::warn_of_unread_agents;
use crate::value::Refusal;
use crate::weigh;
use oxc_allocator::Allocator;
use oxc_parser::{ParseOptions, Parser};
use oxc_semantic::SemanticBuilder;
use oxc_span::{SourceType, Span};
use serde::{Deserialize, Serialize};

/// Language of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Language {
    /// JavaScript, as a module or a script.
    JavaScript,
    /// TypeScript. Types are ignored, and tools run without them.
    TypeScript,
}

impl Language {
    /// Returns the language for a file name, by its extension.
    pub fn of_file(name: &str) -> Self {
        let extension = name.rsplit('.').next().unwrap_or_default();
        if matches!(extension, "ts" | "mts" | "cts") {
            Self::TypeScript
        } else {
            Self::JavaScript
        }
    }
}

/// Options of an extraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractOptions {
    /// Language of the bundle.
    pub language: Language,
    /// Refuses a schema that JSON Schema cannot express in full, instead of warning of it.
    pub strict_schema: bool,
}

impl From<Language> for ExtractOptions {
    fn from(language: Language) -> Self {
        Self {
            language,
            strict_schema: false,
        }
    }
}

/// Reads a bundle in this process. A hostile bundle can exhaust its stack and memory, so this is
/// for trusted bundles and tests; [`ConfinedExtractor`](crate::ConfinedExtractor) is for all
/// others. No code of the bundle is run. All problems are in the result, errors included.
///
/// # Errors
/// If no thread can be created, or the extraction panics.
pub fn extract(source: &str, options: impl Into<ExtractOptions>) -> std::io::Result<Extraction> {
    extract_with_map(source, None, options)
}

/// Reads a bundle with a source map, which takes precedence over one in the bundle's last comment.
///
/// # Errors
/// As [`extract`].
pub fn extract_with_map(
    source: &str,
    map: Option<&[u8]>,
    options: impl Into<ExtractOptions>,
) -> std::io::Result<Extraction> {
    let options = options.into();
    let (source, inside) = source_map::split(source.as_bytes());
    let map = map.or(inside);
    on_large_stack(|| extract_bytes(source, map, options))
}

/// Runs `work` in a thread with [`STACK_BYTES`] of stack. The parser and the walks over its tree
/// recurse; `nesting` keeps their depth within that stack.
fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let handle = std::thread::Builder::new()
            .name("bundle".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)?;
        handle
            .join()
            .map_err(|_| std::io::Error::other("the extraction of the bundle panicked"))
    })
}

/// Reads a bundle on the caller's stack, which must have [`STACK_BYTES`].
pub(crate) fn extract_bytes(
    bytes: &[u8],
    map: Option<&[u8]>,
    options: ExtractOptions,
) -> Extraction {
    match std::str::from_utf8(bytes) {
        Ok(text) => extract_here(text, map, options),
        Err(error) => {
            let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let text = String::from_utf8_lossy(valid);
            let end = text.len() as u32;
            refused(&text, |report| {
                report.refuse(
                    ProblemCode::Parse,
                    "",
                    Span::new(end, end),
                    "here is a byte that is no UTF-8",
                    "Save the file as UTF-8.",
                );
            })
        }
    }
}

/// Converts a JavaScript bundle to a module that can be run for its declaration, in this process as
/// [`extract`].
///
/// # Errors
/// The problems of the bundle.
pub fn wrap(source: &str) -> Result<WrappedBundle, Vec<Problem>> {
    let (source, _) = source_map::split(source.as_bytes());
    on_large_stack(|| wrap_bytes(source)).unwrap_or_else(|_| {
        let reason = "there is no thread for reading the bundle, or it panicked";
        Err(vec![alone(ProblemCode::Run, reason, "Try again.")])
    })
}

/// Converts a bundle on the caller's stack, which must have [`STACK_BYTES`].
pub(crate) fn wrap_bytes(bytes: &[u8]) -> Result<WrappedBundle, Vec<Problem>> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) if text.len() <= MAX_SOURCE_BYTES => text,
        // These functions return the problem.
        Ok(text) => return Err(too_large(text.len()).problems),
        Err(_) => return Err(extract_bytes(bytes, None, Language::JavaScript.into()).problems),
    };
    let source = Source::new(text);
    let mut report = Report::new(&source);
    match execution::wrap(&source, &mut report) {
        Some(code) => Ok(WrappedBundle::new(code)),
        None => Err(report.finish()),
    }
}

/// Returns the extraction of a source that is too large and was not read.
pub(crate) fn too_large(bytes: usize) -> Extraction {
    refused("", |report| refuse_size(report, bytes))
}

/// Returns the extraction of a source that was not read.
fn refused(text: &str, say: impl FnOnce(&mut Report<'_>)) -> Extraction {
    let source = Source::new(text);
    let mut report = Report::new(&source);
    say(&mut report);
    Extraction {
        bundle: Bundle::empty(),
        problems: report.finish(),
    }
}

fn refuse_size(report: &mut Report<'_>, bytes: usize) {
    report.refuse(
        ProblemCode::TooLarge,
        "",
        Span::new(0, 0),
        format!("the file has {bytes} bytes, more than {MAX_SOURCE_BYTES}"),
        "Leave out what the agents do not need.",
    );
}

fn extract_here(text: &str, map: Option<&[u8]>, options: ExtractOptions) -> Extraction {
    let mut bundle = Bundle::empty();
    let source = Source::new(text);
    let mut report = Report::new(&source);
    // Size first, then nesting, then the parser, whose recursion the nesting bounds.
    if text.len() > MAX_SOURCE_BYTES {
        refuse_size(&mut report, text.len());
    } else if !refuse_nesting(text, &mut report) {
        parse(&source, options, &mut bundle, &mut report);
    }
    bound_output(&mut bundle, &mut report);
    let mut problems = report.finish();
    if options.strict_schema {
        problems.iter_mut().for_each(refuse_lossy);
    }
    if let Some(map) = map {
        source_map::apply(map, &source, &mut problems);
    }
    Extraction { bundle, problems }
}

fn parse(
    source: &Source<'_>,
    options: ExtractOptions,
    bundle: &mut Bundle,
    report: &mut Report<'_>,
) {
    let allocator = Allocator::default();
    let kind = match options.language {
        Language::TypeScript => SourceType::ts(),
        Language::JavaScript => SourceType::unambiguous(),
    };
    let parsed = Parser::new(&allocator, source.text(), kind)
        .with_options(ParseOptions {
            preserve_parens: false,
            allow_return_outside_function: true,
            ..ParseOptions::default()
        })
        .parse();
    let hint = "Give the file that a bundler made, or TypeScript in a file that ends in `.ts`.";
    if refuse_syntax(&parsed, hint, report) {
        return;
    }
    let program = parsed.program;
    let built = SemanticBuilder::new()
        .with_build_nodes(true)
        .build(&program);
    let erasure = match options.language {
        Language::TypeScript => Some(Erasure::new(source.text())),
        Language::JavaScript => None,
    };
    let evaluator = Evaluator::new(&built.semantic, source, erasure);
    read(&evaluator, bundle, report);
    warn_of_unread_agents(&evaluator, report);
    evaluator.warn_of_eval();
    for (code, span, reason) in evaluator.take_warnings() {
        report.warn(code, "", span, reason);
    }
}

fn read(evaluator: &Evaluator<'_>, bundle: &mut Bundle, report: &mut Report<'_>) {
    let mut exports = exports::find(evaluator, evaluator.semantic.nodes().program());
    let mut reader = ConfigReader { evaluator, report };
    match exports.configs.as_slice() {
        [config] => {
            if exports.is_unexported {
                reader.report.warn(
                    ProblemCode::Ignored,
                    "",
                    config.span,
                    "the configuration is not exported in a way that is known; it is the only one in the bundle and taken",
                );
            }
            reader.config(config, bundle);
        }
        [] if !exports.tools.entries.is_empty() => reader.tools(&exports.tools, bundle),
        [] => {
            let missing = exports::missing(evaluator);
            if let Some(refusal) = exports.refusals.pop() {
                // The reason for an unknown export is more specific than the missing configuration.
                reader.report.add("", &refusal);
            }
            reader.report.add("", &missing);
        }
        [first, rest @ ..] => {
            let mut refusal = Refusal::new(
                ProblemCode::ManyConfigs,
                first.span,
                format!("the bundle has {} configurations", rest.len() + 1),
                "Export one of them.",
            );
            for other in rest.iter().take(8) {
                refusal = refusal.also(other.span, "another one");
            }
            reader.report.add("", &refusal);
        }
    }
}

/// Turns the warning about a schema that JSON Schema cannot express in full into an error.
fn refuse_lossy(problem: &mut Problem) {
    if problem.code == ProblemCode::SchemaLossy {
        problem.code = ProblemCode::SchemaUnsupported;
        "Say it with what JSON Schema has, or check it in the tool's code."
            .clone_into(&mut problem.hint);
    }
}

/// Clears a bundle whose content exceeds the limits of the output, and reports the problem.
fn bound_output(bundle: &mut Bundle, report: &mut Report<'_>) {
    let (weight, code, depth) = (
        weigh::text(bundle),
        weigh::code(bundle),
        weigh::depth(bundle),
    );
    let (problem, reason, hint) = if weight > MAX_OUTPUT_BYTES {
        let reason = format!(
            "prompts, descriptions and schemas have {weight} bytes, more than {MAX_OUTPUT_BYTES}"
        );
        (ProblemCode::TooLarge, reason, "Shorten them.")
    } else if code > MAX_CODE_BYTES {
        let reason = format!("the code of all tools has {code} bytes, more than {MAX_CODE_BYTES}");
        let hint =
            "Each tool has its own copy of what it needs: share less, or make several bundles.";
        (ProblemCode::TooLarge, reason, hint)
    } else if depth > MAX_JSON_DEPTH {
        let reason =
            format!("a schema or an option nests {depth} levels deep, more than {MAX_JSON_DEPTH}");
        (ProblemCode::TooDeep, reason, "Write it flatter.")
    } else {
        return;
    };
    report.refuse(problem, "", Span::new(0, 0), reason, hint);
    bundle.metadata = None;
    bundle.agents.clear();
    bundle.tools.clear();
}
