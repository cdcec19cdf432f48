//! The isolation report as a few lines for people.

use super::{escape_text, plural, table};
use glovebox_sandbox::Report;
use glovebox_settings::units::{Span, human_bytes, human_us};
use glovebox_spec::{LimitKind, LimitUnit};
use std::fmt::Write;

/// Formats a limit's value in its own unit.
pub(crate) fn limit_value(kind: LimitKind, value: u64) -> String {
    match kind.unit() {
        LimitUnit::Milliseconds => Span(Some(value)).to_string(),
        _ => glovebox_sandbox::limit_in_words(kind, value),
    }
}

/// Formats walls and limits, one per line, then the weaknesses and the durations of the start.
pub(crate) fn report(report: &Report) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for wall in &report.walls {
        // TRUST: parts of the detail may come from a remote side.
        rows.push(vec![
            escape_text(&wall.name),
            wall.state.to_string(),
            escape_text(&wall.detail),
        ]);
    }
    for limit in &report.limits {
        let detail = format!(
            "{}, {}",
            limit_value(limit.kind, limit.value),
            escape_text(&limit.mechanism)
        );
        rows.push(vec![
            limit.kind.to_string(),
            limit.state.to_string(),
            detail,
        ]);
    }
    let mut text = table(&["WALL OR LIMIT", "STATE", "BY"], &rows);
    if let Some(link) = &report.link {
        let (sent, received) = (&link.sent, &link.received);
        let _ = writeln!(
            text,
            "link: {}, {} ({}) sent, {} ({}) received",
            plural(link.reconnects as usize, "reconnect", "reconnects"),
            plural(sent.frames as usize, "frame", "frames"),
            human_bytes(sent.bytes),
            plural(received.frames as usize, "frame", "frames"),
            human_bytes(received.bytes),
        );
    }
    for line in &report.degraded {
        let _ = writeln!(text, "weaker than it could be: {}", escape_text(line));
    }
    if !report.timings_us.is_empty() {
        let steps: Vec<String> = report
            .timings_us
            .iter()
            .map(|(step, us)| format!("{} {}", escape_text(step), human_us(*us)))
            .collect();
        let _ = writeln!(text, "start: {}", steps.join(", "));
    }
    text
}
