//! First checks of a source: nesting that is too deep for the parser, and syntax errors.

use crate::nesting;
use crate::problem::ProblemCode;
use crate::report::Report;
use oxc_parser::ParserReturn;
use oxc_span::Span;

/// True if a source nests too deeply for the parser. Reports the problem.
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

/// True if the parser found errors. Reports them.
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
