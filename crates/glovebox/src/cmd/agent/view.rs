//! Display of a session for a person or a program, and its log.
//!
//! The model's text goes to standard output, everything else to standard error. Text from tools and
//! models is escaped, line by line. Each event is logged before it is displayed.

use crate::cmd::Cx;
use crate::render::{self, escape_text, say};
use glovebox_agent::{Ending, Event, Log, Observe, ServerPlace, Spending, ToolServer};
use glovebox_proto::{Code, Fault};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

/// Maximum number of displayed lines of a result.
const PREVIEW_LINES: usize = 4;
/// Maximum number of displayed characters of a line.
const PREVIEW_CHARS: usize = 160;
/// Maximum number of lines of a running command that are displayed at once.
const LIVE_LINES: usize = 8;
/// Maximum number of displayed lines of a diff.
const DIFF_LINES: usize = 40;

/// Observer that logs and displays events.
#[derive(Debug)]
pub(crate) struct View<'a> {
    cx: &'a Cx,
    log: Option<(&'a Log, &'a str)>,
    is_json: bool,
    has_color: bool,
    /// True if the model's text ends in the middle of a line.
    is_mid_line: bool,
    spent: Spending,
    /// Events kept in memory after [`Self::collect`], for a comparison.
    pub events: Vec<Event>,
    is_collecting: bool,
    is_story: bool,
}

impl<'a> View<'a> {
    /// Creates a view that displays events as `is_json` says, and appends them to `log`.
    pub(crate) fn new(cx: &'a Cx, log: Option<(&'a Log, &'a str)>, is_json: bool) -> Self {
        let no_color = cx.host.var("NO_COLOR").is_some();
        Self {
            cx,
            log,
            is_json,
            has_color: io::stderr().is_terminal() && !no_color,
            is_mid_line: false,
            spent: Spending::default(),
            events: Vec::new(),
            is_collecting: false,
            is_story: false,
        }
    }

    /// Keeps events in memory as well.
    pub(crate) fn collect(&mut self) {
        self.is_collecting = true;
    }

    /// Directs all output to standard output, in order.
    pub(crate) fn tell_all_on_stdout(&mut self) {
        self.is_story = true;
        self.has_color &= io::stdout().is_terminal();
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.has_color {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    fn line(&mut self, text: &str) {
        if self.is_mid_line {
            self.is_mid_line = false;
            let _ = io::stdout().lock().write_all(b"\n");
            let _ = io::stdout().flush();
        }
        if self.is_story {
            let _ = render::print(format_args!("{text}\n"));
        } else if !self.cx.talk.is_quiet {
            say(text);
        }
    }

    fn words(&mut self, text: &str) -> Result<(), Fault> {
        let mut safe = String::with_capacity(text.len());
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                safe.push('\n');
            }
            // A tab is layout here, and harmless.
            for (index, part) in line.split('\t').enumerate() {
                if index > 0 {
                    safe.push('\t');
                }
                safe.push_str(&escape_text(part));
            }
        }
        self.is_mid_line = match safe.chars().last() {
            Some(last) => last != '\n',
            None => self.is_mid_line,
        };
        let mut out = io::stdout().lock();
        out.write_all(safe.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| unread(&error))
    }

    fn show(&mut self, event: &Event) -> Result<(), Fault> {
        match event {
            Event::Text { text } => self.words(text)?,
            Event::Reasoning { text } if self.cx.talk.is_verbose => {
                let text = self.paint("2", &escape_text(text));
                self.line(&text);
            }
            Event::CallStarted {
                tool,
                arguments,
                server,
                ..
            } => {
                let line = format!(
                    "{}{} {}",
                    self.paint("1;36", &format!("> {}", escape_text(tool))),
                    placed(server.as_ref()),
                    summary(arguments)
                );
                self.line(&line);
            }
            Event::ToolOutput { text, .. } if io::stderr().is_terminal() => self.show_live(text),
            Event::CallFinished {
                text,
                is_error,
                facts,
                diff,
                wall_ms,
                ..
            } => {
                let mut state = if *is_error {
                    self.paint("31", "failed")
                } else {
                    self.paint("32", "ok")
                };
                if let Some(code) = facts.get("exit_code") {
                    let _ = write!(state, ", exit {code}");
                }
                if *wall_ms > 0 {
                    let _ = write!(
                        state,
                        ", {}",
                        glovebox_settings::units::human_us(*wall_ms * 1000)
                    );
                }
                let mut shown = format!("  {state}");
                match diff {
                    Some(diff) => self.add_diff(&mut shown, diff),
                    None => self.add_preview(&mut shown, text),
                }
                self.line(&shown);
            }
            Event::Retrying {
                attempt,
                wait_ms,
                reason,
            } => {
                let line = format!(
                    "glovebox: {}; attempt {attempt} in {:.1} s",
                    escape_text(reason),
                    *wait_ms as f64 / 1000.0
                );
                self.line(&line);
            }
            Event::Pruned {
                results, tokens, ..
            } => {
                let line = format!(
                    "glovebox: {} of old output (about {tokens} tokens) left out from here on",
                    render::plural(*results, "piece", "pieces")
                );
                self.line(&line);
            }
            Event::Compacted {
                messages,
                tokens,
                usage,
                cost_usd,
                ..
            } => {
                self.spent.add(*usage, *cost_usd);
                let line = format!(
                    "glovebox: a summary stands for {} from here on (about {tokens} tokens less)",
                    render::plural(*messages, "message", "messages")
                );
                self.line(&line);
            }
            Event::NotCompacted {
                reason,
                usage,
                cost_usd,
            } => {
                self.spent.add(*usage, *cost_usd);
                let line = format!("glovebox: there is no summary: {}", escape_text(reason));
                self.line(&line);
            }
            Event::Answered {
                turn,
                usage,
                cost_usd,
                ..
            } => {
                self.spent.add(*usage, *cost_usd);
                if self.has_color {
                    let line = format!("  turn {turn}, {}", self.spent);
                    let line = self.paint("2", &line);
                    self.line(&line);
                } else {
                    // The next text begins on a line of its own.
                    self.end_line();
                }
            }
            Event::Ended { ending, turns, .. } => {
                self.end_line();
                let line = format!(
                    "glovebox: {} after {}, {}",
                    ending_words(*ending),
                    render::plural(*turns as usize, "turn", "turns"),
                    self.spent
                );
                self.line(&line);
            }
            _ => {}
        }
        Ok(())
    }

    /// Displays the last lines of a running command's output since the previous call.
    fn show_live(&mut self, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        let more = lines.len().saturating_sub(LIVE_LINES);
        if more > 0 {
            let line = self.paint("2", &format!("  . ... {more} more lines"));
            self.line(&line);
        }
        for line in &lines[more..] {
            let line = self.paint("2", &format!("  . {}", cut(line)));
            self.line(&line);
        }
    }

    fn end_line(&mut self) {
        if self.is_mid_line {
            self.is_mid_line = false;
            let _ = io::stdout().lock().write_all(b"\n");
            let _ = io::stdout().flush();
        }
    }

    fn add_diff(&self, shown: &mut String, diff: &str) {
        for line in diff.lines().take(DIFF_LINES) {
            let code = match line.as_bytes().first() {
                Some(b'+') => "32",
                Some(b'-') => "31",
                Some(b'@') => "36",
                _ => "0",
            };
            let _ = write!(shown, "\n  {}", self.paint(code, &cut(line)));
        }
        let more = diff.lines().count().saturating_sub(DIFF_LINES);
        if more > 0 {
            let _ = write!(shown, "\n  ... {more} more lines");
        }
    }

    fn add_preview(&self, shown: &mut String, text: &str) {
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let more = lines.len().saturating_sub(PREVIEW_LINES);
        if more > 0 {
            let _ = write!(
                shown,
                "\n  {}",
                self.paint("2", &format!("| ... {more} lines before"))
            );
        }
        for line in &lines[more..] {
            let _ = write!(
                shown,
                "\n  {}",
                self.paint("2", &format!("| {}", cut(line)))
            );
        }
    }
}

impl Observe for View<'_> {
    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        if let Some((log, id)) = self.log {
            log.append(id, event)?;
        }
        if self.is_collecting && event.is_kept() {
            self.events.push(event.clone());
        }
        if !self.is_json {
            return self.show(event);
        }
        let mut line = serde_json::to_value(event).unwrap_or_default();
        if let Some(fields) = line.as_object_mut() {
            fields.insert("version".to_owned(), glovebox_agent::EVENT_VERSION.into());
            if let Some((_, id)) = self.log {
                fields.insert("session".to_owned(), id.into());
            }
        }
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")
            .and_then(|()| out.flush())
            .map_err(|error| unread(&error))
    }
}

fn unread(error: &io::Error) -> Fault {
    Fault::failed(
        Code::Io,
        format!("cannot write to standard output: {error}"),
    )
}

fn ending_words(ending: Ending) -> &'static str {
    match ending {
        Ending::Completed => "done",
        Ending::StoppedByLimit => "stopped by a limit",
        Ending::Aborted => "stopped",
        Ending::Lost => "the sandbox was lost",
        Ending::Failed => "failed",
    }
}

fn cut(line: &str) -> String {
    let mut chars = line.chars();
    let text: String = chars.by_ref().take(PREVIEW_CHARS).collect();
    let mut safe = escape_text(&text);
    if chars.next().is_some() {
        safe.push_str("...");
    }
    safe
}

/// Returns the label of the place where a call is executed; empty if that is the place of the other
/// tools.
pub(crate) fn placed(server: Option<&ToolServer>) -> &'static str {
    match server.map(|server| server.place) {
        None | Some(ServerPlace::Sandbox) => "",
        Some(ServerPlace::Host) => " (on this machine)",
        Some(ServerPlace::Remote) => " (elsewhere)",
    }
}

/// Summarises the arguments of a call in one line: the main argument if there is one, else all.
pub(crate) fn summary(arguments: &Value) -> String {
    let Value::Object(fields) = arguments else {
        return cut(&arguments.to_string());
    };
    let main = ["command", "path", "file_path", "pattern", "id"]
        .into_iter()
        .find_map(|name| fields.get(name));
    match main {
        Some(Value::String(text)) => cut(text),
        Some(other) => cut(&other.to_string()),
        None if fields.is_empty() => String::new(),
        None => cut(&arguments.to_string()),
    }
}
