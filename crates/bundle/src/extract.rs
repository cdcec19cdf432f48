//! From the text of a bundle to its content: bounds, parser, exports, configuration.

use crate::config::ConfigReader;
use crate::evaluate::Evaluator;
use crate::exports;
use crate::limits::{MAX_OUTPUT_BYTES, MAX_SOURCE_BYTES, STACK_BYTES};
use crate::model::{Bundle, EXTRACTOR_VERSION, Extraction, Tool};
use crate::nesting;
use crate::problem::ProblemCode;
use crate::report::Report;
use crate::source::Source;
use crate::value::Refusal;
use oxc_allocator::Allocator;
use oxc_parser::{ParseOptions, Parser};
use oxc_semantic::SemanticBuilder;
use oxc_span::{SourceType, Span};

/// The language of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// JavaScript, a module or a script.
    JavaScript,
    /// TypeScript; types are read over.
    TypeScript,
}

impl Language {
    /// The language that a file name says.
    pub fn of_file(name: &str) -> Self {
        let extension = name.rsplit('.').next().unwrap_or_default();
        if matches!(extension, "ts" | "mts" | "cts") {
            Self::TypeScript
        } else {
            Self::JavaScript
        }
    }
}

/// Reads a bundle. Nothing of it is run. All problems are in the result, errors too.
///
/// # Errors
/// When the operating system gives no thread for it.
pub fn extract(source: &str, language: Language) -> std::io::Result<Extraction> {
    // The parser and walks over its tree recurse; `nesting` keeps them below this.
    std::thread::scope(|scope| {
        let handle = std::thread::Builder::new()
            .name("bundle".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || extract_here(source, language))?;
        handle
            .join()
            .map_err(|_| std::io::Error::other("the extraction of the bundle panicked"))
    })
}

fn extract_here(text: &str, language: Language) -> Extraction {
    let mut bundle = Bundle {
        format: None,
        extractor: EXTRACTOR_VERSION,
        metadata: None,
        agents: Vec::new(),
        tools: Vec::new(),
    };
    let source = Source::new(text);
    let mut report = Report::new(&source);
    if text.len() > MAX_SOURCE_BYTES {
        report.refuse(
            ProblemCode::TooLarge,
            "",
            Span::new(0, 0),
            format!(
                "the file has {} bytes, more than {MAX_SOURCE_BYTES}",
                text.len()
            ),
            "Leave out what the agents do not need, source maps in the file above all.",
        );
    } else if let Err(deep) = nesting::check(text) {
        report.refuse(
            ProblemCode::TooDeep,
            "",
            Span::new(deep.offset, deep.offset),
            "the source nests too deeply to be read",
            "Break the expression or statement up.",
        );
    } else {
        parse(&source, language, &mut bundle, &mut report);
    }
    let weight = weight(&bundle);
    if weight > MAX_OUTPUT_BYTES {
        report.refuse(
            ProblemCode::TooLarge,
            "",
            Span::new(0, 0),
            format!("prompts, descriptions and schemas have {weight} bytes, more than {MAX_OUTPUT_BYTES}"),
            "Shorten them.",
        );
        bundle.agents.clear();
        bundle.tools.clear();
    }
    Extraction {
        bundle,
        problems: report.finish(),
    }
}

fn parse(source: &Source<'_>, language: Language, bundle: &mut Bundle, report: &mut Report<'_>) {
    let allocator = Allocator::default();
    let kind = match language {
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
    if parsed.panicked || !parsed.diagnostics.is_empty() {
        const MAX_SYNTAX_ERRORS: usize = 20;
        for diagnostic in parsed.diagnostics.iter().take(MAX_SYNTAX_ERRORS) {
            let span = diagnostic.labels.first().map_or(Span::new(0, 0), |label| {
                let start = label.offset();
                Span::new(start, start + label.len())
            });
            report.refuse(
                ProblemCode::Parse,
                "",
                span,
                format!("this is no JavaScript: {}", diagnostic.message),
                "Give the file that a bundler made, or TypeScript in a file that ends in `.ts`.",
            );
        }
        return;
    }
    let program = parsed.program;
    let built = SemanticBuilder::new()
        .with_build_nodes(true)
        .build(&program);
    let evaluator = Evaluator::new(&built.semantic, source);
    read(&evaluator, language, bundle, report);
    for (code, span, reason) in evaluator.take_warnings() {
        report.warn(code, "", span, reason);
    }
}

fn read(
    evaluator: &Evaluator<'_>,
    language: Language,
    bundle: &mut Bundle,
    report: &mut Report<'_>,
) {
    let mut exports = exports::find(evaluator, evaluator.semantic.nodes().program());
    let mut reader = ConfigReader {
        evaluator,
        report,
        is_typescript: language == Language::TypeScript,
    };
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
                // Why the export is not known says more than that there is none.
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

/// Roughly how many bytes all that was read takes as text, without code.
fn weight(bundle: &Bundle) -> usize {
    let tool = |tool: &Tool| {
        tool.name.len()
            + tool.description.as_ref().map_or(0, String::len)
            + tool.input_schema.weight()
            + tool.output_schema.as_ref().map_or(0, crate::Json::weight)
            + tool
                .options
                .iter()
                .map(|(key, value)| key.len() + value.weight())
                .sum::<usize>()
    };
    let agents: usize = bundle
        .agents
        .iter()
        .map(|agent| {
            agent.system.len()
                + agent.name.len()
                + agent
                    .options
                    .iter()
                    .map(|(key, value)| key.len() + value.weight())
                    .sum::<usize>()
                + agent.tools.iter().map(tool).sum::<usize>()
        })
        .sum();
    agents + bundle.tools.iter().map(tool).sum::<usize>()
}
