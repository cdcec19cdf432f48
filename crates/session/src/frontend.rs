//! User interface of an operation. The command line, the server and tests implement it.
//!
//! An operation reports events as a [`Notice`], not as a sentence: the user interface decides on
//! the words, on flags or JSON fields, and on whether an event is shown at all.

use crate::Error;
use crate::GitWork;
use crate::LeaveOutcome;
use crate::spec::ResolvedSpec;
use glovebox_agent::ToolServer;
use glovebox_proto::Fault;
use glovebox_sandbox::{Name, Report};
use glovebox_settings::Settings;
use glovebox_workspace::branch::TakenCommits;
use glovebox_workspace::copy::PushTotals;
use glovebox_workspace::{ChangeSet, IgnoredChanges, Outcome, RefusedPath, Watch};
use std::fmt;
use std::path::Path;

/// User interface of one operation.
pub trait Frontend: fmt::Debug {
    /// Reports an event to the user. Nothing depends on whether it is read.
    fn notify(&self, notice: &Notice<'_>);

    /// Returns a callback for one operation that may take long. The operation passes its progress
    /// and stops if the callback returns false. Dropping the callback removes its display.
    fn watch_progress(&self) -> Box<Watch<'_>>;
}

/// Event of an operation for the user.
#[derive(Debug, Clone, Copy)]
pub enum Notice<'a> {
    /// A sandbox is about to start: its view of the machine, and the isolation that it lacks at the
    /// user's request.
    Starting {
        /// Specification of the sandbox.
        resolved: &'a ResolvedSpec,
        /// Settings from which it was resolved.
        settings: &'a Settings,
        /// Project of the sandbox.
        project: &'a Path,
    },
    /// A sandbox has started, with these limits.
    Started {
        /// Report of its isolation.
        report: &'a Report,
        /// Settings that were requested.
        settings: &'a Settings,
    },
    /// A copy of the project was sent into a sandbox.
    Pushed(&'a PushTotals),
    /// The toolset only reads, but commands can write to the copy of the project they work on.
    CopyIsWritable {
        /// Name of the toolset.
        toolset: &'a str,
    },
    /// A sandbox could not be frozen while its changes were collected, so they may be of different
    /// moments.
    Unheld {
        /// Reason.
        reason: &'a str,
    },
    /// Changes could not be collected, and no operation waits for them.
    NotCollected(&'a Error),
    /// Changes that are left out because the project ignores the files; may be empty.
    Ignored {
        /// The ignored changes.
        ignored: &'a IgnoredChanges,
        /// True if they are kept: the sandbox has a name, or its build output is kept for the next
        /// one.
        is_kept: bool,
    },
    /// Changes that cannot be applied and stay in the sandbox; may be empty.
    Refused(&'a [RefusedPath]),
    /// Changes that are not applied now.
    Changed(&'a ChangeSet),
    /// The user's files were not changed.
    NotApplied {
        /// Name of the sandbox that holds the changes, if any.
        kept_as: Option<&'a str>,
        /// True if the changes are in a patch.
        has_patch: bool,
    },
    /// Changes are discarded with their sandbox at the user's request.
    Discarded {
        /// Number of changes; `None` if they could not be counted.
        changes: Option<usize>,
        /// Git work that exists only in the sandbox.
        git: &'a GitWork,
    },
    /// Git work that exists only in the sandbox stays in it.
    GitStays {
        /// Name of the sandbox.
        name: &'a Name,
        /// The work that stays.
        work: &'a GitWork,
    },
    /// The guest's git did not report whether there is work that exists only in the sandbox.
    GitUnknown {
        /// Name of the sandbox.
        name: &'a Name,
        /// The failure.
        error: &'a Error,
    },
    /// Commits made inside are on a branch of the user's repository.
    CommitsTaken {
        /// Project with that repository.
        project: &'a Path,
        /// The branch and its commits.
        taken: &'a TakenCommits,
    },
    /// Commits made inside were to be taken, and stay in the sandbox.
    CommitsHeld {
        /// The reason.
        error: &'a Error,
    },
    /// A client of the MCP server works in a sandbox of its own.
    ClientArrived {
        /// Name of the sandbox.
        name: &'a Name,
    },
    /// Such a client has disconnected.
    ClientLeft {
        /// Name of the sandbox.
        name: &'a Name,
        /// State in which the sandbox was left.
        outcome: &'a LeaveOutcome,
    },
    /// Such a client has disconnected, and its sandbox could not be left in order.
    ClientNotLeft {
        /// Name of the sandbox.
        name: &'a Name,
        /// Reason.
        fault: &'a Fault,
    },
    /// Clients share a sandbox that existed before: their toolset only reads, but commands can
    /// write.
    SharedIsWritable {
        /// Name of the sandbox.
        name: &'a Name,
        /// Name of the toolset.
        toolset: &'a str,
    },
    /// Changes were applied.
    Applied {
        /// Name of the sandbox.
        name: &'a Name,
        /// Target directory.
        to: &'a Path,
        /// Outcome of the apply.
        outcome: &'a Outcome,
        /// True if the user has reviewed the changes and so knows the outcome.
        is_reviewed: bool,
    },
    /// The sandbox's versions of some conflicting paths could not be placed on the host and stay in
    /// the sandbox.
    Unplaced {
        /// Name of the sandbox.
        name: &'a Name,
        /// Outcome with these conflicts.
        outcome: &'a Outcome,
    },
    /// An instruction file of the project does not reach the model.
    InstructionsLeftOut {
        /// The file, relative to the project.
        path: &'a Path,
        /// Reason.
        reason: &'a str,
    },
    /// An MCP server could not be started; the operation continues without its tools.
    ServerLeftOut {
        /// Name of the server.
        name: &'a str,
        /// Fault, with a hint.
        fault: &'a Fault,
    },
    /// A tool of an MCP server is not offered. Holds its name and the reason.
    ServerToolLeftOut(&'a str),
    /// An MCP server has started.
    ServerStarted(&'a ToolServer),
    /// A sandbox and the changes in it were lost, because its files were not in layers on this
    /// disk.
    ChangesLost,
    /// A sandbox was lost; its changes are kept under its name.
    ChangesKept {
        /// Name of the sandbox.
        name: &'a Name,
    },
    /// A sandbox is kept with its changes.
    SandboxKept {
        /// Name of the sandbox.
        name: &'a Name,
    },
    /// The run of an agent failed.
    RunFailed(&'a Error),
    /// The additions of a sandbox to the package caches could not be kept.
    CachesLost(&'a Fault),
    /// A sandbox of this process has ended, but something of it is left.
    TakeDownIncomplete(&'a Fault),
    /// A sandbox with a supervisor could not be removed.
    RemovalFailed {
        /// Name of the sandbox.
        name: &'a Name,
        /// Reason.
        fault: &'a Fault,
    },
}
