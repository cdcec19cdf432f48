//! What a user interface gives to a piece of work. The command line, a server and tests implement it.
//!
//! A piece of work says what happened as a [`Notice`], not as a sentence: which words fit, whether they are flags or
//! fields of JSON, and whether a line is shown at all is for each user interface to decide.

use crate::spec::ResolvedSpec;
use glovebox_proto::Fault;
use glovebox_sandbox::{Name, Report};
use glovebox_settings::Settings;
use glovebox_workspace::Watch;
use glovebox_workspace::copy::Pushed;
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
    Pushed(&'a Pushed),
    /// The toolset only reads, but commands can write to the copy of the project they work on.
    CopyIsWritable {
        /// The toolset.
        toolset: &'a str,
    },
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
