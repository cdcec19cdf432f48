//! Parts of this machine and this user that a sandbox gets: the project, variables, toolchains, the
//! git identity and the state directory. The user's environment is passed in as a value
//! ([`glovebox_settings::Surroundings`]).

mod caches;
mod certificates;
mod environment;
mod environments;
mod git;
mod host_facts;
mod links;
mod passed;
mod project;
mod proxy;
mod retries;
mod state;
mod terminfo;
mod toolchains;

pub use caches::{CacheOptions, find as find_caches, find_build_output};
pub use certificates::trusted_certificates;
pub use environment::{
    base_environment, carrier_environment, host_environment, is_shown, visible_path,
};
pub use environments::find_environments;
pub use git::GitSettings;
pub use host_facts::HostFacts;
pub(crate) use host_facts::program_version;
pub use links::tell_links;
pub(crate) use passed::place_inside;
pub use passed::{PassedEnvironment, SandboxView, passed_inside};
pub use project::{Project, below, find_project, project_dir, short_path};
pub use proxy::proxy_variables;
pub use retries::retry_limits;
pub use state::state_dir;
pub use terminfo::find_terminal;
pub use toolchains::{Toolchain, find as find_toolchains};

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time in milliseconds since 1970.
pub fn now_unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}
