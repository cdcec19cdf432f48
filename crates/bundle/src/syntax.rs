//! What is refused before anything is made of a source: text that nests too deeply for the parser, and text that is no
//! program.

use crate::nesting;
use crate::problem::ProblemCode;
use crate::report::Report;
use oxc_parser::ParserReturn;
use oxc_span::Span;

/// Whether a source nests too deeply for the parser, which is then said.
pub(crate) fn refuse_nesting(text: &str, report: &mut Report<'_>) -> bool {
    let Err(deep) = nesting::check(text) else {
        return false;
    };
    report.refuse(
        ProblemCode::TooDeep,
        "",
        Span::new(deep.offset, deep.offset),
        "the source nests too deeply to be read",
        "Break the expression or statement up.",
    );
    true
}

/// Whether the parser found errors, which are then said.
pub(crate) fn refuse_syntax(
    parsed: &ParserReturn<'_>,
    hint: &str,
    report: &mut Report<'_>,
) -> bool {
    const MAX_SYNTAX_ERRORS: usize = 20;
    for diagnostic in parsed.diagnostics.iter().take(MAX_SYNTAX_ERRORS) {
        let span = diagnostic.labels.first().map_or(Span::new(0, 0), |label| {
            let start = label.offset();
            Span::new(start, start + label.len())
        });
        let reason = format!("this is no JavaScript: {}", diagnostic.message);
        report.refuse(ProblemCode::Parse, "", span, reason, hint);
    }
    parsed.panicked || !parsed.diagnostics.is_empty()
}
