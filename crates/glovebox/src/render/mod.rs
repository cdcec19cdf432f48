//! Text for people and objects for programs.
//!
//! Two rules. The result of a command goes to standard output, everything else to standard error.
//! Names, paths and messages from a sandbox or a project never reach a terminal unescaped; only the
//! output of the commands themselves does.

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

/// Verbosity and style of the messages on standard error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Messages {
    /// Print errors only.
    pub is_quiet: bool,
    /// Print details as well.
    pub is_verbose: bool,
    /// True if standard error is a terminal.
    pub is_terminal: bool,
    has_color: bool,
    no_color: bool,
}

impl Messages {
    /// Creates the style from the global flags. `no_color` is true if `NO_COLOR` is set or the
    /// terminal is a dumb one.
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

    /// Prints one line about the progress; nothing with `--quiet`.
    pub(crate) fn note(self, line: impl Display) {
        if !self.is_quiet {
            say(format_args!("glovebox: {line}"));
        }
    }

    /// Prints one line with `--verbose` only.
    pub(crate) fn detail(self, line: impl Display) {
        if self.is_verbose {
            self.note(line);
        }
    }

    /// Prints one warning; nothing with `--quiet`.
    pub(crate) fn warning(self, line: impl Display) {
        if !self.is_quiet {
            say(format_args!("{} {line}", self.warning_label()));
        }
    }

    /// Prints a failure: its message, details and hint. Nothing is printed if the reader of our
    /// output has closed it.
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

    /// Returns true if purely informational messages reach a person.
    pub(crate) const fn is_watched(self) -> bool {
        self.is_terminal || self.is_verbose
    }

    /// Returns the style of a patch on standard output: for a person if that is a terminal, else
    /// exact.
    pub(crate) fn patch_style(self) -> Style {
        if io::stdout().is_terminal() {
            self.screen_style()
        } else {
            Style::Exact
        }
    }

    /// Returns true if colours are allowed at a terminal.
    pub(crate) const fn has_screen_color(self) -> bool {
        !self.no_color
    }

    /// Returns the style of a patch that a person reads.
    pub(crate) const fn screen_style(self) -> Style {
        Style::Screen {
            has_color: self.has_screen_color(),
        }
    }

    /// Returns the label that precedes a warning.
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

/// Writes one line to standard error. A failed write is ignored: a closed standard error is no
/// failure of the command.
pub(crate) fn say(line: impl Display) {
    // One write per line, so that lines of concurrent processes do not mix.
    let text = format!("{line}\n");
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes a warning that belongs to a question; with `--quiet` too.
pub(crate) fn say_warning(line: impl Display) {
    say(format_args!("glovebox: warning: {line}"));
}

/// Prints a failure as JSON on standard output, if the output is JSON: the same message on standard
/// error would be noise. Returns any other result unchanged. `data` provides the data next to the
/// failure.
///
/// # Errors
/// The failure itself if the output is not JSON or its reader has closed it; errors of standard
/// output.
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
/// [`Kind::BrokenPipe`] if the reader has closed it; any other error of the write.
pub(crate) fn print(text: impl Display) -> Result<(), CommandError> {
    let mut stdout = io::stdout().lock();
    let written = write!(stdout, "{text}").and_then(|()| stdout.flush());
    written.map_err(|error| CommandError::io("write to standard output", &error))
}

/// Returns `1 file` or `2 files`.
pub(crate) fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
