//! What this machine and this user are like: the only place that looks at the environment, the
//! current directory and the home directory. Everything below the binary gets these as values.

mod environment;
mod git;
mod passed;
mod project;
mod retries;
mod state;
mod toolchains;

pub(crate) use environment::{
    base_environment, carrier_environment, host_environment, is_shown, visible_path,
};
pub(crate) use git::GitQuestion;
pub(crate) use passed::{Shown, passed_inside};
pub(crate) use project::{Project, below, find_project, project_dir};
pub(crate) use retries::retries_without_network;
pub(crate) use state::state_dir;
pub(crate) use toolchains::{Toolchain, find as find_toolchains};

use glovebox_settings::Surroundings;
use std::path::Path;

/// Reads the environment of this process, once. `directory` is the `-C` flag; `is_here` says that the directory is the
/// project, as `-C` does.
pub(crate) fn read_surroundings(directory: Option<&Path>, is_here: bool) -> Surroundings {
    let is_here = is_here || directory.is_some();
    // A deleted current directory is an error only for commands that need one.
    let current = std::env::current_dir().unwrap_or_default();
    let directory = directory.map_or_else(|| current.clone(), |dir| current.join(dir));
    Surroundings::new(std::env::vars_os().collect(), directory, is_here)
}
