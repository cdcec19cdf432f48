//! Collection of all problems of a bundle, without duplicates, up to a limit.

use crate::limits::MAX_PROBLEMS;
use crate::problem::{Problem, ProblemCode, RelatedPlace};
use crate::provenance;
use crate::source::{Source, shown};
use crate::value::{Refusal, Value};
use oxc_span::Span;

/// Problems of one bundle.
pub(crate) struct Report<'a> {
    source: &'a Source<'a>,
    problems: Vec<(u32, Problem)>,
}

impl<'a> Report<'a> {
    pub(crate) const fn new(source: &'a Source<'a>) -> Self {
        Self {
            source,
            problems: Vec::new(),
        }
    }

    /// Adds a problem about the field `path`, such as `agents.x.model`. Duplicates are ignored, and
    /// so are problems above [`MAX_PROBLEMS`].
    pub(crate) fn add(&mut self, path: &str, refusal: &Refusal) {
        if self.problems.len() >= MAX_PROBLEMS {
            return;
        }
        let span = refusal.span;
        let (line, column) = self.source.position(span.start);
        let snippet = self.source.snippet(span);
        let is_there = self.problems.iter().any(|(_, other)| {
            other.code == refusal.code
                && other.path == path
                && (other.line, other.column) == (line, column)
                && other.reason == refusal.reason
        });
        if is_there {
            return;
        }
        let clean = |text: &str| text.chars().map(shown).collect::<String>();
        let also = refusal.also.iter().map(|(span, reason)| {
            let (line, column) = self.source.position(span.start);
            RelatedPlace {
                line,
                column,
                reason: clean(reason),
                original: None,
            }
        });
        let problem = Problem {
            code: refusal.code,
            agent: agent_of(path).map(clean),
            path: clean(path),
            line,
            column,
            snippet: snippet.text,
            snippet_start: snippet.start,
            snippet_length: snippet.length,
            reason: clean(&refusal.reason),
            hint: clean(&refusal.hint),
            also: also.collect(),
            original: None,
        };
        self.problems.push((span.start, problem));
    }

    /// Adds a problem from its parts.
    pub(crate) fn refuse(
        &mut self,
        code: ProblemCode,
        path: &str,
        span: Span,
        reason: impl Into<String>,
        hint: &str,
    ) {
        self.add(path, &Refusal::new(code, span, reason, hint));
    }

    /// Adds a problem about an unexpected value. If the value comes from outside the bundle, the
    /// problem says so instead.
    pub(crate) fn refuse_value(
        &mut self,
        value: &Value<'_>,
        code: ProblemCode,
        path: &str,
        span: Span,
        reason: impl Into<String>,
        hint: &str,
    ) {
        match provenance::imported(value, span) {
            Some(refusal) => self.add(path, &refusal),
            None => self.refuse(code, path, span, reason, hint),
        }
    }

    pub(crate) fn warn(
        &mut self,
        code: ProblemCode,
        path: &str,
        span: Span,
        reason: impl Into<String>,
    ) {
        self.refuse(code, path, span, reason, "");
    }

    /// Returns the number of problems so far.
    pub(crate) const fn count(&self) -> usize {
        self.problems.len()
    }

    /// Returns the problems in the order of the source.
    pub(crate) fn finish(mut self) -> Vec<Problem> {
        self.problems.sort_by_key(|(offset, _)| *offset);
        self.problems
            .into_iter()
            .map(|(_, problem)| problem)
            .collect()
    }
}

/// Returns a problem without a place, about a source that was not read.
pub(crate) fn alone(code: ProblemCode, reason: impl Into<String>, hint: &str) -> Problem {
    let source = Source::new("");
    let mut report = Report::new(&source);
    report.refuse(code, "", Span::new(0, 0), reason, hint);
    report.finish().swap_remove(0)
}

/// Returns the agent in `agents.NAME.field`.
fn agent_of(path: &str) -> Option<&str> {
    path.strip_prefix("agents.")?.split('.').next()
}
