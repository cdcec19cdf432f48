//! The user's environment as a value. The program reads it from its process and passes it down; the
//! crate never inspects the process.

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
    /// Creates the environment of a process with these variables. `directory` is the working
    /// directory, empty if it was deleted. `is_here` makes it the project even if a parent
    /// directory looks like one. The home directory is `HOME` if that is a usable directory.
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

    /// Creates an environment with a given home directory, for callers without an environment of
    /// their own, and for tests.
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

    /// Makes the working directory the project, even if a parent directory looks like one.
    #[must_use]
    pub fn with_project_here(mut self) -> Self {
        self.is_here = true;
        self
    }

    /// Sets the file mode creation mask.
    #[must_use]
    pub const fn with_umask(mut self, umask: u32) -> Self {
        self.umask = Some(umask);
        self
    }

    /// Returns the file mode creation mask of the user's commands; `None` if unknown.
    pub const fn umask(&self) -> Option<u32> {
        self.umask
    }

    /// Returns a variable, or `None` if it is unset or empty.
    pub fn var(&self, name: &str) -> Option<&OsStr> {
        self.vars
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns a variable of any name, or `None` if it is unset. Its value may be empty.
    pub fn exact_var(&self, name: &OsStr) -> Option<&OsStr> {
        self.vars.get(name).map(OsString::as_os_str)
    }

    /// Returns all variables.
    pub fn vars(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.vars
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// Returns the working directory after `-C`; empty if that directory was deleted.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns true if the working directory is the project, even if a parent directory looks like
    /// one.
    pub fn is_here(&self) -> bool {
        self.is_here
    }

    /// Returns the working directory relative to the project; empty at the project's top and
    /// outside.
    pub fn start_dir(&self, project: &Path) -> PathBuf {
        let standing = self.directory.canonicalize().unwrap_or_default();
        let below = standing.strip_prefix(project);
        below.map(Path::to_owned).unwrap_or_default()
    }

    /// Returns the home directory, or `None` unless it is absolute, not `/`, and exists.
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// Resolves `path` from the working directory.
    pub fn absolute(&self, path: &Path) -> PathBuf {
        self.directory.join(path)
    }

    /// Returns the directory of the user's configuration (XDG base directories).
    pub fn config_dir(&self) -> Option<PathBuf> {
        self.xdg("XDG_CONFIG_HOME", ".config")
    }

    /// Returns `$variable/glovebox` if the variable is an absolute path, else
    /// `HOME/fallback/glovebox`; `None` without either.
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
    // Accounts without a home directory have `/` or `/nonexistent`.
    (home.is_absolute() && home.parent().is_some() && home.is_dir()).then_some(home)
}
