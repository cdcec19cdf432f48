//! The user's environment as a value. The program that reads it from its process passes it down; nothing here looks
//! at the process.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Variables, working directory and home of the user.
#[derive(Debug, Clone)]
pub struct Surroundings {
    vars: BTreeMap<OsString, OsString>,
    directory: PathBuf,
    is_here: bool,
    home: Option<PathBuf>,
    umask: Option<u32>,
}

impl Surroundings {
    /// The surroundings of a process with these variables. `directory` is where the user works, and empty when it was
    /// deleted; `is_here` says that it is the project, whatever lies above it. The home is that of `HOME`, when there
    /// is such a directory.
    pub fn new(vars: BTreeMap<OsString, OsString>, directory: PathBuf, is_here: bool) -> Self {
        let home = usable_home(&vars);
        Self {
            vars,
            directory,
            is_here,
            home,
            umask: None,
        }
    }

    /// Surroundings that are given in full, the home included: for callers without an environment of their own, and
    /// for tests.
    pub fn fixed(home: &Path, directory: &Path, vars: &[(&str, &str)]) -> Self {
        let vars = vars
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        Self {
            vars,
            directory: directory.to_owned(),
            is_here: false,
            home: Some(home.to_owned()),
            umask: None,
        }
    }

    /// The same, with the directory as the project, whatever lies above it.
    #[must_use]
    pub fn with_project_here(mut self) -> Self {
        self.is_here = true;
        self
    }

    /// The same, with a file mode creation mask.
    #[must_use]
    pub const fn with_umask(mut self, umask: u32) -> Self {
        self.umask = Some(umask);
        self
    }

    /// File mode creation mask of the user's commands; `None` if it is not known.
    pub const fn umask(&self) -> Option<u32> {
        self.umask
    }

    /// A variable, unless it is unset or empty.
    pub fn var(&self, name: &str) -> Option<&OsStr> {
        self.vars
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }

    /// A variable of any name, empty ones included.
    pub fn exact_var(&self, name: &OsStr) -> Option<&OsStr> {
        self.vars.get(name).map(OsString::as_os_str)
    }

    /// All variables.
    pub fn vars(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.vars
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// The working directory, `-C` included; empty when that directory was deleted.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the working directory is the project, whatever lies above it.
    pub fn is_here(&self) -> bool {
        self.is_here
    }

    /// The working directory relative to the project; empty at its top and outside.
    pub fn start_dir(&self, project: &Path) -> PathBuf {
        let standing = self.directory.canonicalize().unwrap_or_default();
        let below = standing.strip_prefix(project);
        below.map(Path::to_owned).unwrap_or_default()
    }

    /// The home directory, when there is an absolute one that exists.
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// `path` seen from the working directory.
    pub fn absolute(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }

    /// Directory of the user's configuration (XDG base directories).
    pub fn config_dir(&self) -> Option<PathBuf> {
        self.xdg("XDG_CONFIG_HOME", ".config")
    }

    /// `$variable/glovebox` when it is absolute, else `HOME/fallback/glovebox`.
    pub fn xdg(&self, variable: &str, fallback: &str) -> Option<PathBuf> {
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
