//! Progress of a long operation: a bar for people, lines of JSON for programs, nothing with
//! `--quiet`.
//!
//! It also polls for interruption: after a signal the operation undoes its work.

use super::{Messages, VERSION, say};
use crate::streams::Signals;
use glovebox_settings::units::human_bytes;
use glovebox_workspace::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Delay before a bar appears; a shorter operation shows none.
const PATIENCE: Duration = Duration::from_millis(300);
/// Time between two lines of JSON.
const EVENT_INTERVAL: Duration = Duration::from_millis(200);

/// Progress display of one operation. It also tells the operation when the user wants it to stop.
#[derive(Debug)]
pub(crate) struct Meter {
    signals: Signals,
    begun: Instant,
    how: MeterStyle,
}

#[derive(Debug)]
enum MeterStyle {
    Silent,
    Bar(Option<ProgressBar>),
    Events { last: Option<Instant> },
}

impl Meter {
    /// Creates the meter of one operation. `is_json` is true if a program reads the output.
    pub(crate) fn new(talk: Messages, is_json: bool, signals: &Signals) -> Self {
        let how = match (talk.is_quiet, is_json, talk.is_terminal) {
            (true, _, _) | (_, false, false) => MeterStyle::Silent,
            (_, true, _) => MeterStyle::Events { last: None },
            (_, false, true) => MeterStyle::Bar(None),
        };
        Self {
            signals: signals.clone(),
            begun: Instant::now(),
            how,
        }
    }

    /// Displays the progress. Breaks if the user has asked to stop.
    pub(crate) fn tick(&mut self, progress: Progress) -> ControlFlow<()> {
        match &mut self.how {
            MeterStyle::Silent => {}
            MeterStyle::Bar(bar) => {
                if bar.is_none() && self.begun.elapsed() >= PATIENCE {
                    *bar = Some(new_bar());
                }
                if let Some(bar) = bar {
                    draw(bar, progress);
                }
            }
            MeterStyle::Events { last } => {
                if last.is_none_or(|last| last.elapsed() >= EVENT_INTERVAL) {
                    *last = Some(Instant::now());
                    say(event(progress));
                }
            }
        }
        if self.signals.check().is_err() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Removes the bar, so that other text can be printed.
    pub(crate) fn clear(&mut self) {
        if let MeterStyle::Bar(bar) = &mut self.how
            && let Some(bar) = bar.take()
        {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.clear();
    }
}

fn new_bar() -> ProgressBar {
    // No steady tick: indicatif would redraw from a thread of its own; each tick redraws here.
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    if let Ok(style) = ProgressStyle::with_template("glovebox: {msg} {wide_bar} {percent}%") {
        bar.set_style(style);
    }
    bar
}

fn draw(bar: &ProgressBar, progress: Progress) {
    match progress {
        Progress::Collecting { paths, bytes } => {
            bar.set_message(format!("collecting: {paths} paths, {}", human_bytes(bytes)));
        }
        Progress::Staging {
            files,
            total_files,
            bytes,
            total_bytes,
        } => {
            bar.set_length(total_bytes);
            bar.set_position(bytes);
            bar.set_message(format!("copying: {files} of {total_files} files"));
        }
    }
}

fn event(progress: Progress) -> String {
    let mut object = match progress {
        Progress::Collecting { paths, bytes } => {
            json!({ "stage": "collect", "paths": paths, "bytes": bytes })
        }
        Progress::Staging {
            files,
            total_files,
            bytes,
            total_bytes,
        } => json!({
            "stage": "transfer",
            "files": files,
            "total_files": total_files,
            "bytes": bytes,
            "total_bytes": total_bytes,
        }),
    };
    object["version"] = VERSION.into();
    object["event"] = "progress".into();
    object.to_string()
}
