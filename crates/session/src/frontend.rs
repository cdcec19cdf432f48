//! What a user interface gives to a piece of work. The command line, a server and tests implement it.
//!
//! A piece of work says what happened as a [`Notice`], not as a sentence: which words fit, whether they are flags or
//! fields of JSON, and whether a line is shown at all is for each user interface to decide.

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

/// The user interface of one piece of work.
pub trait Frontend: fmt::Debug {
    /// Tells the user what happened. Nothing depends on whether anybody reads it.
    fn notify(&self, notice: &Notice<'_>);

    /// For one operation that may take long: is told how far it is, and answers whether to go on. What it shows is
    /// taken away when it is dropped.
    fn watch_progress(&self) -> Box<Watch<'_>>;
}

/// What a user may want to know of a piece of work.
#[derive(Debug, Clone, Copy)]
pub enum Notice<'a> {
    /// A sandbox is about to start: what it is shown of the machine, and which walls are missing because it was
    /// asked for.
    Starting {
        /// What it is going to be.
        resolved: &'a ResolvedSpec,
        /// Where that comes from.
        settings: &'a Settings,
        /// The project it is for.
        project: &'a Path,
    },
    /// A sandbox has started: which limits hold.
    Started {
        /// What holds around it.
        report: &'a Report,
        /// What was asked for.
        settings: &'a Settings,
    },
    /// A copy of the project was sent into a sandbox.
    Pushed(&'a PushTotals),
    /// The toolset only reads, but commands can write to the copy of the project they work on.
    CopyIsWritable {
        /// The toolset.
        toolset: &'a str,
    },
    /// A sandbox went on working while its changes were collected, so they may be of different moments.
    Unheld {
        /// Why.
        reason: &'a str,
    },
    /// Changes could not be collected, and nobody waits for them.
    NotCollected(&'a Error),
    /// What was left out because the project ignores it; may be nothing.
    Ignored {
        /// What.
        ignored: &'a IgnoredChanges,
        /// Whether it stays where it is: the sandbox has a name, or its build output is kept for the next one.
        is_kept: bool,
    },
    /// What cannot come back, and stays in the sandbox; may be nothing.
    Refused(&'a [RefusedPath]),
    /// What was changed and is not taken over now.
    Changed(&'a ChangeSet),
    /// The user's files are as before.
    NotApplied {
        /// Name of the sandbox that holds the changes.
        kept_as: Option<&'a str>,
        /// Whether the changes are in a patch.
        has_patch: bool,
    },
    /// Changes go with their sandbox, because the user said so.
    Discarded {
        /// Number of changes; `None` when they could not be counted.
        changes: Option<usize>,
        /// Git work that only the sandbox had.
        git: &'a GitWork,
    },
    /// Git work that only the sandbox has stays in it.
    GitStays {
        /// The sandbox.
        name: &'a Name,
        /// The work that stays.
        work: &'a GitWork,
    },
    /// Git inside did not say whether there is work that only the sandbox has.
    GitUnknown {
        /// The sandbox.
        name: &'a Name,
        /// The failure.
        error: &'a Error,
    },
    /// Commits that were made inside are on a branch of the user's repository.
    CommitsTaken(&'a TakenCommits),
    /// Commits that were made inside were to come, and stay in the sandbox.
    CommitsHeld {
        /// The reason.
        error: &'a Error,
    },
    /// A client of our MCP server works in a sandbox of its own.
    ClientArrived {
        /// The sandbox.
        name: &'a Name,
    },
    /// Such a client has gone.
    ClientLeft {
        /// The sandbox.
        name: &'a Name,
        /// What became of it.
        outcome: &'a LeaveOutcome,
    },
    /// Such a client has gone, and its sandbox could not be left in order.
    ClientNotLeft {
        /// The sandbox.
        name: &'a Name,
        /// Why.
        fault: &'a Fault,
    },
    /// Clients work in a sandbox that was there before: their toolset only reads, but commands do as they did.
    SharedIsWritable {
        /// The sandbox.
        name: &'a Name,
        /// The toolset.
        toolset: &'a str,
    },
    /// Changes were taken over.
    Applied {
        /// The sandbox.
        name: &'a Name,
        /// The directory.
        to: &'a Path,
        /// What was done.
        outcome: &'a Outcome,
        /// Whether the user has agreed to it, and so has seen what it comes to.
        is_reviewed: bool,
    },
    /// The sandbox's versions of some paths in conflict have no place on the host, and stay in the sandbox.
    Unplaced {
        /// The sandbox.
        name: &'a Name,
        /// The outcome with these conflicts.
        outcome: &'a Outcome,
    },
    /// A file of the project's with instructions does not reach the model.
    InstructionsLeftOut {
        /// The file, relative to the project.
        path: &'a Path,
        /// Why.
        reason: &'a str,
    },
    /// An MCP server could not be started, and the work goes on without its tools.
    ServerLeftOut {
        /// The server.
        name: &'a str,
        /// Why, and what to do about it.
        fault: &'a Fault,
    },
    /// A tool of an MCP server is not offered: which, and why.
    ServerToolLeftOut(&'a str),
    /// An MCP server works.
    ServerStarted(&'a ToolServer),
    /// A sandbox was lost, and what was changed in it with it: its files were not in layers on this disk.
    ChangesLost,
    /// A sandbox was lost, and what was changed in it is kept under its name.
    ChangesKept {
        /// The sandbox.
        name: &'a Name,
    },
    /// A sandbox stays, with what was changed in it.
    SandboxKept {
        /// The sandbox.
        name: &'a Name,
    },
    /// The run of an agent could not go on.
    RunFailed(&'a Error),
    /// What a sandbox added to the package caches is not kept.
    CachesLost(&'a Fault),
    /// A sandbox of this process has ended, and something of it is left.
    TakeDownIncomplete(&'a Fault),
    /// A sandbox with a supervisor could not be removed.
    RemovalFailed {
        /// The sandbox.
        name: &'a Name,
        /// Why.
        fault: &'a Fault,
    },
}
