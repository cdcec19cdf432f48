//! The terminal as the user interface of an agent's run.

use super::View;
use super::approve::TerminalApproval;
use crate::cmd::{Cx, TerminalFrontend};
use crate::render::say;
use crate::streams::{Signals, StopWatch};
use crate::sync::question;
use glovebox_agent::{Log, Observe, Secrets, ToolServer};
use glovebox_session::agent::{AgentFrontend, AgentUser, OnStop, StopWish};
use glovebox_session::{Frontend, Notice};
use glovebox_workspace::Watch;
use std::sync::Arc;

/// Number of stop requests after which the next one ends the program.
const SECOND_WISH: u32 = 2;

/// User interface that displays events, and asks if a user is at the terminal.
#[derive(Debug)]
pub(crate) struct AgentTerminal<'a> {
    cx: &'a Cx,
    signals: &'a Signals,
    is_json: bool,
    lines: TerminalFrontend<'a>,
}

impl<'a> AgentTerminal<'a> {
    /// Creates the interface. `is_json` is true if a program reads the events.
    pub(crate) const fn new(cx: &'a Cx, signals: &'a Signals, is_json: bool) -> Self {
        Self {
            cx,
            signals,
            is_json,
            lines: TerminalFrontend::stoppable(cx, signals, false),
        }
    }
}

impl Frontend for AgentTerminal<'_> {
    fn notify(&self, notice: &Notice<'_>) {
        self.lines.notify(notice);
    }

    fn watch_progress(&self) -> Box<Watch<'_>> {
        self.lines.watch_progress()
    }
}

impl AgentFrontend for AgentTerminal<'_> {
    fn observer<'b>(&'b self, log: &'b Log, id: &'b str) -> Box<dyn Observe + 'b> {
        Box::new(View::new(self.cx, Some((log, id)), self.is_json))
    }

    fn user(&self, secrets: &Secrets, servers: Vec<ToolServer>) -> Option<Arc<dyn AgentUser>> {
        if !self.has_user() {
            return None;
        }
        Some(Arc::new(TerminalApproval::new(
            self.signals,
            secrets,
            servers,
            self.cx.talk.has_screen_color(),
        )))
    }

    fn has_user(&self) -> bool {
        question::is_possible()
    }

    fn watch_stop(&self, id: &str, on_stop: OnStop) {
        let (id, is_quiet) = (id.to_owned(), self.cx.talk.is_quiet);
        self.signals.work(StopWatch(Box::new(move |count| {
            on_stop(StopWish::Asked(count));
            if count == SECOND_WISH && !is_quiet {
                say(format_args!(
                    "glovebox: once more ends the program at once; `glovebox sessions resume {id}` goes on then"
                ));
            }
        })));
    }

    fn unwatch_stop(&self) -> u32 {
        self.signals.rest()
    }

    fn ask_for_more(&self) -> Option<String> {
        if self.is_json || !self.has_user() {
            return None;
        }
        question::words(
            "stopped. What should it do instead? (empty: leave it at that)",
            self.signals,
        )
    }
}
