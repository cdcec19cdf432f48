//! Words for people and objects for programs.
//!
//! Two rules. What a command was asked for goes to standard output, everything else to standard
//! error. And nothing that came from a sandbox or a project (names, paths, messages) reaches a
//! terminal unescaped, except the output of the commands themselves.

mod changes;
mod json;
mod meter;
mod pager;
mod remedy;
mod report;
mod table;

pub(crate) use changes::{
    applied, applied_summary, change_count, changes, conflicts, flagged, merged, paths, refused,
    summary,
};
pub(crate) use glovebox_proto::visible::{line as escape, line_of_text as escape_text};
pub(crate) use glovebox_session::sync::changes_json::{
    changes_json, outcome_json, output_fields, refused_json,
};
pub(crate) use json::{VERSION, envelope, failure};
pub(crate) use meter::Meter;
pub(crate) use pager::{Pager, Screen};
pub(crate) use remedy::in_flags;
pub(crate) use report::{limit_value, report};
pub(crate) use table::table;

use crate::args::GlobalArgs;
use crate::exit::{CommandError, CommandResult, Kind};
use glovebox_workspace::patch::Style;
use serde_json::Value;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// How much to say, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Messages {
    /// Only errors.
    pub is_quiet: bool,
    /// More than usual.
    pub is_verbose: bool,
    /// Standard error is read by a person.
    pub is_terminal: bool,
    has_color: bool,
    no_color: bool,
}

impl Messages {
    /// Settles how to talk. `no_color` is whether `NO_COLOR` is set or the terminal is a dumb one.
    pub(crate) fn new(global: &GlobalArgs, no_color: bool) -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self {
            is_quiet: global.quiet,
            is_verbose: global.verbose,
            is_terminal,
            has_color: is_terminal && !no_color,
            no_color,
        }
    }

    /// One line about what goes on; not with `--quiet`.
    pub(crate) fn note(self, line: impl Display) {
        if !self.is_quiet {
            say(format_args!("glovebox: {line}"));
        }
    }

    /// One line only with `--verbose`.
    pub(crate) fn detail(self, line: impl Display) {
        if self.is_verbose {
            self.note(line);
        }
    }

    /// One line that matters even in a hurry; not with `--quiet`.
    pub(crate) fn warning(self, line: impl Display) {
        if !self.is_quiet {
            say(format_args!("{} {line}", self.warning_label()));
        }
    }

    /// A failure: what was wrong and what to do about it.
    pub(crate) fn error(self, error: &CommandError) {
        if error.kind == Kind::BrokenPipe {
            return;
        }
        say(format_args!(
            "{} {}",
            self.label("error:", "31"),
            escape_text(&error.fault.message)
        ));
        for detail in &error.details {
            say(format_args!("  {}", escape_text(detail)));
        }
        if let Some(remedy) = &error.fault.remedy {
            say(format_args!(
                "{} {}",
                self.label("hint:", "36"),
                escape_text(&remedy::in_flags(remedy))
            ));
        }
    }

    /// Whether the user sees what is only told for information.
    pub(crate) const fn is_watched(self) -> bool {
        self.is_terminal || self.is_verbose
    }

    /// Whether results on standard output are read by a person, and may have colour.
    pub(crate) fn patch_style(self) -> Style {
        if io::stdout().is_terminal() {
            self.screen_style()
        } else {
            Style::Exact
        }
    }

    /// Whether a person at a terminal wants colours.
    pub(crate) const fn has_screen_color(self) -> bool {
        !self.no_color
    }

    /// How a person is shown a patch.
    pub(crate) const fn screen_style(self) -> Style {
        Style::Screen {
            has_color: self.has_screen_color(),
        }
    }

    /// Word before a warning.
    pub(crate) fn warning_label(self) -> String {
        self.label("warning:", "33")
    }

    fn label(self, word: &str, color: &str) -> String {
        if self.has_color {
            format!("\u{1b}[1;{color}m{word}\u{1b}[0m")
        } else {
            word.to_owned()
        }
    }
}

/// Writes one line to standard error. Nobody listening is no reason to fail.
pub(crate) fn say(line: impl Display) {
    // One write per line, so that lines of concurrent processes do not mix.
    let text = format!("{line}\n");
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes a warning that belongs to a question, whatever else is quiet.
pub(crate) fn say_warning(line: impl Display) {
    say(format_args!("glovebox: warning: {line}"));
}

/// Gives a failure to a reader of JSON as the answer on standard output, where the same words on standard error would
/// be noise; how else a command ended stays as it is. `data` is what there is to say beside the failure.
///
/// # Errors
/// The failure itself for a person, or when nobody reads; other errors of standard output as they come.
pub(crate) fn answer_failure(
    ended: CommandResult,
    is_json: bool,
    data: impl FnOnce() -> Value,
) -> CommandResult {
    match ended {
        Err(error) if is_json && error.kind != Kind::BrokenPipe => {
            print(failure(&error, &data()))?;
            Ok(error.exit_code())
        }
        ended => ended,
    }
}

/// Writes a result to standard output.
///
/// # Errors
/// [`Kind::BrokenPipe`] when nobody reads it; other errors as they come.
pub(crate) fn print(text: impl Display) -> Result<(), CommandError> {
    let mut stdout = io::stdout().lock();
    let written = write!(stdout, "{text}").and_then(|()| stdout.flush());
    written.map_err(|error| CommandError::io("write to standard output", &error))
}

/// `1 file`, `2 files`.
pub(crate) fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
