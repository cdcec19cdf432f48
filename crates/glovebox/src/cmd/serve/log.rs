//! The log of `serve`: `tracing` events of this program's own crates, one line each on standard
//! error.
//!
//! A line has the fields of its event and of the spans around it, so that the ids of requests,
//! sessions and calls are in each line by their own names. Events of other libraries are left out,
//! because their content has not been reviewed. Span fields whose names contain a dot are left out
//! too: they are for traces.

use glovebox_settings::{LogFormat, LogLevel};
use serde_json::{Map, Value};
use std::fmt::{self, Write as _};
use std::io::Write;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_global_default;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// Prefix of the targets of our own crates.
const OWN: &str = "glovebox";
/// Maximum length of a field's text, in characters.
const MAX_TEXT_CHARS: usize = 1024;

/// Writes the log to standard error from now on, in all threads. Spans also go to `traces` if it is
/// given.
pub(super) fn start<L>(format: LogFormat, level: LogLevel, traces: Option<L>)
where
    L: Layer<Registry> + Send + Sync,
{
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let own = Targets::new().with_target(OWN, level);
    let lines = LineLayer {
        format,
        to: std::io::stderr,
    };
    // Cannot fail: a process runs one server, so no subscriber has been set before.
    let _ = match traces {
        Some(traces) => set_global_default(Registry::default().with(traces).with(own).with(lines)),
        None => set_global_default(Registry::default().with(own).with(lines)),
    };
}

/// Layer that writes one line for each event.
struct LineLayer<M> {
    format: LogFormat,
    to: M,
}

/// Fields in the order of their first occurrence.
#[derive(Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// Sets a field; a later value replaces an earlier one of the same name. Fields for traces are
    /// dropped.
    fn set(&mut self, name: &'static str, value: Value) {
        if name.contains('.') {
            return;
        }
        match self.0.iter_mut().find(|(one, _)| *one == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    /// Adds the fields of `others` whose names are missing.
    fn add_missing(&mut self, others: &Self) {
        for (name, value) in &others.0 {
            if !self.0.iter().any(|(one, _)| one == name) {
                self.0.push((name, value.clone()));
            }
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field.name(), cut(value).into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.name(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.name(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field.name(), cut(&format!("{value:?}")).into());
    }
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).collect()
}

impl<S, M, W> Layer<S> for LineLayer<M>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    M: Fn() -> W + 'static,
    W: Write,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    /// Copies the present fields of the followed span: the new span follows it but is not inside
    /// it.
    fn on_follows_from(&self, id: &Id, follows: &Id, context: Context<'_, S>) {
        let mut inherited = Fields::default();
        for one in context.span_scope(follows).into_iter().flatten() {
            if let Some(fields) = one.extensions().get::<Fields>() {
                inherited.add_missing(fields);
            }
        }
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            fields.add_missing(&inherited);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut of_event = Fields::default();
        event.record(&mut of_event);
        let mut all = Fields::default();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<Fields>() {
                // From the innermost span outwards, so that the nearest value wins.
                all.add_missing(fields);
            }
        }
        for (name, value) in of_event.0 {
            all.set(name, value);
        }
        let line = line(self.format, &now(), *event.metadata().level(), all);
        // One write per line, so that lines of several threads do not mix. A failure cannot be
        // reported anywhere.
        let _ = (self.to)().write_all(line.as_bytes());
    }
}

/// Returns the time in the format of RFC 3339.
fn now() -> String {
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// Formats one line, with its line end.
fn line(format: LogFormat, time: &str, level: Level, mut fields: Fields) -> String {
    let at = fields.0.iter().position(|(name, _)| *name == "message");
    let message = at.map(|at| fields.0.remove(at).1);
    let message = message.unwrap_or_default();
    let message = message.as_str().unwrap_or_default();
    let word = match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        _ => "debug",
    };
    match format {
        LogFormat::Json => {
            let mut line = Map::new();
            line.insert("time".to_owned(), time.into());
            line.insert("level".to_owned(), word.into());
            line.insert("message".to_owned(), message.into());
            for (name, value) in fields.0 {
                line.insert(name.to_owned(), value);
            }
            format!("{}\n", Value::Object(line))
        }
        LogFormat::Text => {
            let mut line = format!("{time} {word:<5} {}", plain(message));
            for (name, value) in fields.0 {
                // Writing into a string does not fail.
                let _ = write!(line, " {name}={}", shown(&value));
            }
            line.push('\n');
            line
        }
    }
}

/// Formats a value as text, quoted unless it is one plain word.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => {
            let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '=');
            if !text.is_empty() && text.chars().all(is_plain) {
                text.clone()
            } else {
                format!("\"{}\"", plain(text).replace('"', "\\\""))
            }
        }
        other => other.to_string(),
    }
}

/// Escapes characters that would end a line or control a terminal.
fn plain(text: &str) -> String {
    crate::render::escape_text(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tracing::{error_span, field, info};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn written(format: LogFormat, tell: impl FnOnce()) -> String {
        let lines = Lines::default();
        let to = lines.clone();
        let layer = LineLayer {
            format,
            to: move || to.clone(),
        };
        tracing::subscriber::with_default(Registry::default().with(layer), tell);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn tell() {
        let request = error_span!("request", request_id = "r1", session_id = field::Empty);
        let _request = request.entered();
        tracing::Span::current().record("session_id", "outer");
        let _session = error_span!("session", session_id = "s1").entered();
        info!(
            call_id = "c1",
            count = 3,
            none = None::<&str>,
            text = "a \"b\"\n\u{1b}[31m",
            "call ended"
        );
    }

    #[test]
    fn a_span_that_follows_from_another_has_its_ids_and_no_line_has_what_is_for_traces() {
        let text = written(LogFormat::Json, || {
            let user = error_span!("user", user = "ann");
            let request =
                error_span!(parent: &user, "request", request_id = "r1", session_id = "outer");
            let session = error_span!(parent: None, "session", session_id = "s1", otel.name = "x", gen_ai.x = field::Empty);
            session.follows_from(&request);
            drop((user, request));
            session.record("gen_ai.x", 3);
            session.in_scope(|| info!("session begins"));
        });
        let mut line: Value = serde_json::from_str(&text).unwrap();
        line["time"].take();
        let expected = serde_json::json!({
            "time": null, "level": "info", "message": "session begins", "session_id": "s1", "request_id": "r1",
            "user": "ann",
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn a_json_line_has_the_ids_of_all_spans_and_the_nearest_of_one_name() {
        let text = written(LogFormat::Json, tell);
        assert_eq!(text.lines().count(), 1, "{text}");
        let mut line: Value = serde_json::from_str(&text).unwrap();
        let time = line["time"].take();
        assert!(time.as_str().unwrap().ends_with('Z'), "{time}");
        let expected = serde_json::json!({
            "time": null, "level": "info", "message": "call ended", "request_id": "r1", "session_id": "s1",
            "call_id": "c1", "count": 3, "text": "a \"b\"\n\u{1b}[31m",
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn a_line_of_text_stays_one_line_and_does_not_steer_the_terminal() {
        let text = written(LogFormat::Text, tell);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        for part in [
            "info  call ended",
            " request_id=r1",
            " session_id=s1",
            " call_id=c1",
            " count=3",
            r#" text="a \"b\""#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
