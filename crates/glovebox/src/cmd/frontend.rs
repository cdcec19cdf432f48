//! The terminal as the user interface of a command.

use super::{Cx, push};
use crate::exit::CommandError;
use crate::render::{Messages, Meter, escape_text, in_flags, plural};
use crate::streams::Signals;
use crate::sync::{self, settle};
use glovebox_agent::ServerPlace;
use glovebox_sandbox::Name;
use glovebox_session::sync::discard::{DiscardCount, DiscardedWork};
use glovebox_session::{Frontend, LeaveOutcome, Notice};
use glovebox_workspace::Watch;
use std::ops::ControlFlow;

/// User interface that prints lines and progress bars on standard error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TerminalFrontend<'a> {
    cx: &'a Cx,
    /// Signals by which the user stops long operations. None: no progress is displayed.
    signals: Option<&'a Signals>,
    is_json: bool,
}

impl<'a> TerminalFrontend<'a> {
    /// Creates the interface for work whose signals are handled elsewhere.
    pub(crate) const fn new(cx: &'a Cx) -> Self {
        Self {
            cx,
            signals: None,
            is_json: false,
        }
    }

    /// Creates the interface for work that the user can stop. `is_json` is true if a program reads
    /// the output.
    pub(crate) const fn stoppable(cx: &'a Cx, signals: &'a Signals, is_json: bool) -> Self {
        Self {
            cx,
            signals: Some(signals),
            is_json,
        }
    }
}

impl Frontend for TerminalFrontend<'_> {
    fn notify(&self, notice: &Notice<'_>) {
        let talk = self.cx.talk;
        match *notice {
            Notice::Starting {
                resolved,
                settings,
                project,
            } => self.cx.announce(resolved, settings, project),
            Notice::Started { report, settings } => self.cx.announce_limits(report, settings),
            Notice::Pushed(pushed) => push::tell(self.cx, pushed),
            Notice::CopyIsWritable { toolset } => talk.warning(format_args!(
                "the toolset `{toolset}` is read-only, but a copy can be written by the commands in it"
            )),
            Notice::Unheld { reason } => sync::tell_unheld(talk, Some(reason)),
            Notice::NotCollected(error) => {
                let error = CommandError::from(error.clone());
                talk.detail(escape_text(&error.fault.message));
            }
            Notice::Ignored { ignored, is_kept } => sync::tell_ignored(talk, ignored, !is_kept),
            Notice::Refused(refused) => sync::tell_refused(talk, refused),
            Notice::Changed(set) => settle::tell_changed(talk, set),
            Notice::NotApplied {
                kept_as,
                has_patch,
            } => settle::tell_not_applied(talk, kept_as, has_patch),
            Notice::Discarded { changes, git } => sync::tell_discarded(
                talk,
                &DiscardedWork {
                    changes: changes.map_or(DiscardCount::Uncounted, DiscardCount::Changes),
                    git: git.clone(),
                },
                "; `--keep NAME` keeps them",
            ),
            Notice::GitStays { name, work } => sync::git::tell_left(name, work),
            Notice::GitUnknown { name, error } => sync::git::tell_unknown(name, error),
            Notice::CommitsTaken { project, taken } => {
                sync::git::tell_taken(talk, taken);
                if sync::git::signs_commits(self.cx, project) {
                    sync::git::tell_unsigned(talk, taken);
                }
            }
            Notice::CommitsHeld { error } => {
                let error = CommandError::from(error.clone());
                talk.warning(escape_text(&error.fault.message));
            }
            Notice::Applied {
                name,
                to,
                outcome,
                is_reviewed,
            } => settle::tell_applied(self.cx, name, to, outcome, is_reviewed),
            Notice::Unplaced { name, outcome } => sync::apply::tell_unplaced(name.as_str(), outcome),
            Notice::InstructionsLeftOut { path, reason } => talk.warning(format_args!(
                "the project's {} does not reach the model: {reason}",
                escape_text(&path.display().to_string())
            )),
            Notice::ServerLeftOut { name, fault } => talk.warning(format_args!(
                "{}; the run goes on without the tools of {name} ({}; `required = true` makes this an error)",
                escape_text(&fault.message),
                escape_text(&fault.remedy.as_ref().map_or_else(String::new, in_flags)),
            )),
            Notice::ServerToolLeftOut(note) => talk.warning(escape_text(note)),
            Notice::ServerStarted(server) => {
                let place = match server.place {
                    ServerPlace::Sandbox => "in the sandbox",
                    ServerPlace::Host => "on this machine, outside any sandbox",
                    ServerPlace::Remote => "elsewhere, over the network",
                };
                talk.note(format_args!("MCP server {} works {place}", server.name));
            }
            Notice::ClientArrived { name } => {
                talk.note(format_args!("a client works in the sandbox {name}"));
            }
            Notice::ClientLeft { name, outcome } => tell_left(talk, name, outcome),
            Notice::ClientNotLeft { name, fault } => talk.warning(format_args!(
                "the sandbox {name} could not be left in order ({}); look at it with `glovebox list`",
                escape_text(&fault.message)
            )),
            Notice::SharedIsWritable { name, toolset } => talk.warning(format_args!(
                "the sandbox `{name}` is as it was started: the toolset `{toolset}` is read-only, the commands in it are not"
            )),
            Notice::ChangesLost => talk.warning(
                "what it had changed cannot be reached any more: its files were not in layers on this disk",
            ),
            Notice::ChangesKept { name } => talk.note(format_args!(
                "what it had changed is kept: `glovebox diff {name}`, `glovebox pull {name}`, `glovebox kill {name}`"
            )),
            Notice::SandboxKept { name } => talk.note(format_args!(
                "the sandbox is kept: `glovebox diff {name}`, `glovebox pull {name}`, `glovebox kill {name}`"
            )),
            Notice::RunFailed(error) => talk.error(&CommandError::from(error.clone())),
            Notice::CachesLost(fault) => talk.warning(escape_text(&fault.message)),
            Notice::TakeDownIncomplete(fault) => talk.warning(format_args!(
                "the sandbox was not taken down completely ({}); `glovebox doctor --fix` finishes it",
                escape_text(&fault.message)
            )),
            Notice::RemovalFailed { name, fault } => talk.warning(format_args!(
                "the sandbox was not taken down ({}); `glovebox kill {name}` does it",
                escape_text(&fault.message)
            )),
        }
    }

    fn watch_progress(&self) -> Box<Watch<'_>> {
        let Some(signals) = self.signals else {
            return Box::new(|_| ControlFlow::Continue(()));
        };
        let mut meter = Meter::new(self.cx.talk, self.is_json, signals);
        Box::new(move |progress| meter.tick(progress))
    }
}

/// Reports what happened to the sandbox of a client that has left.
fn tell_left(talk: Messages, name: &Name, outcome: &LeaveOutcome) {
    match outcome {
        LeaveOutcome::Untouched | LeaveOutcome::Removed => {}
        LeaveOutcome::Stopped(count) => talk.note(format_args!(
            "{} in the sandbox {name}: `glovebox diff {name}`, `glovebox pull {name}`, `glovebox kill {name}`",
            plural(*count, "change is kept", "changes are kept")
        )),
        LeaveOutcome::Running(why) => talk.note(format_args!(
            "the sandbox {name} goes on because {why}; `glovebox kill {name}` ends it"
        )),
    }
}

/// User interface for work on several threads, which outlives the command's own values.
#[derive(Debug)]
pub(crate) struct SharedTerminal(Cx);

impl SharedTerminal {
    /// Creates the interface with the global flags of `cx`.
    pub(crate) fn new(cx: &Cx) -> Self {
        Self(Cx::new(cx.global.clone()))
    }
}

impl Frontend for SharedTerminal {
    fn notify(&self, notice: &Notice<'_>) {
        TerminalFrontend::new(&self.0).notify(notice);
    }

    fn watch_progress(&self) -> Box<Watch<'_>> {
        Box::new(|_| ControlFlow::Continue(()))
    }
}
