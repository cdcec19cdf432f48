//! What this machine and this user are like: the only place that looks at the environment, the
//! current directory and the home directory. Everything below the binary gets these as values.

mod environment;
mod git;
mod machine;
mod passed;
mod project;
mod retries;
mod state;
mod toolchains;

pub(crate) use environment::{
    base_environment, carrier_environment, host_environment, is_shown, visible_path,
};
pub(crate) use git::GitQuestion;
pub(crate) use machine::memory_bytes;
pub(crate) use passed::{Shown, passed_inside};
pub(crate) use project::{Project, below, find_project, project_dir};
pub(crate) use retries::retries_without_network;
pub(crate) use state::state_dir;
pub(crate) use toolchains::{Toolchain, find as find_toolchains};

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The environment, read once.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    vars: BTreeMap<OsString, OsString>,
    directory: PathBuf,
    is_here: bool,
    home: Option<PathBuf>,
}

impl Surroundings {
    /// Reads the environment. `directory` is the `-C` flag; `is_here` says that the directory is the
    /// project, as `-C` does.
    pub(crate) fn read(directory: Option<&Path>, is_here: bool) -> Self {
        let is_here = is_here || directory.is_some();
        let vars: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        // A deleted current directory is an error only for commands that need one.
        let current = std::env::current_dir().unwrap_or_default();
        let directory = directory.map_or_else(|| current.clone(), |dir| current.join(dir));
        let home = usable_home(&vars);
        Self {
            vars,
            directory,
            is_here,
            home,
        }
    }

    /// Fixed surroundings.
    #[cfg(test)]
    pub(crate) fn for_tests(home: &Path, directory: &Path, vars: &[(&str, &str)]) -> Self {
        let vars = vars
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        Self {
            vars,
            directory: directory.to_owned(),
            is_here: false,
            home: Some(home.to_owned()),
        }
    }

    /// A variable, unless it is unset or empty.
    pub(crate) fn var(&self, name: &str) -> Option<&OsStr> {
        self.vars
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }

    /// A variable of any name, empty ones included.
    pub(crate) fn exact_var(&self, name: &OsStr) -> Option<&OsStr> {
        self.vars.get(name).map(OsString::as_os_str)
    }

    /// All variables.
    pub(crate) fn vars(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.vars
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// Where the user stands, `-C` included; empty when that directory was deleted.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the directory where the user stands is the project, whatever lies above it.
    pub(crate) fn is_here(&self) -> bool {
        self.is_here
    }

    /// Says so.
    #[cfg(test)]
    pub(crate) fn set_here(&mut self) {
        self.is_here = true;
    }

    /// Where the user stands in a project, relative to it; empty at its top and outside.
    pub(crate) fn start_dir(&self, project: &Path) -> PathBuf {
        let standing = self.directory.canonicalize().unwrap_or_default();
        let below = standing.strip_prefix(project);
        below.map(Path::to_owned).unwrap_or_default()
    }

    /// The home directory, when there is an absolute one that exists.
    pub(crate) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// `path` seen from where the user stands.
    pub(crate) fn absolute(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }

    /// Directory of the user's configuration (XDG base directories).
    pub(crate) fn config_dir(&self) -> Option<PathBuf> {
        self.xdg("XDG_CONFIG_HOME", ".config")
    }

    /// `$variable/glovebox` when it is absolute, else `HOME/fallback/glovebox`.
    fn xdg(&self, variable: &str, fallback: &str) -> Option<PathBuf> {
        let set = self
            .var(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute());
        set.or_else(|| self.home().map(|home| home.join(fallback)))
            .map(|dir| dir.join("glovebox"))
    }
}

fn usable_home(vars: &BTreeMap<OsString, OsString>) -> Option<PathBuf> {
    let home = PathBuf::from(vars.get(OsStr::new("HOME"))?);
    // `/` and `/nonexistent` are what accounts without a home have.
    (home.is_absolute() && home.parent().is_some() && home.is_dir()).then_some(home)
}
