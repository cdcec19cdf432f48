//! Active Python environments outside of the project: virtual environments and those of conda.

use super::PassedEnvironment;
use crate::note::Note;
use glovebox_proto::{Remedy, Setting};
use glovebox_settings::Surroundings;
use glovebox_spec::Grant;
use std::fs;
use std::path::{Path, PathBuf};

/// Kind of environment.
struct Kind {
    /// Variable that holds its directory while it is active.
    variable: &'static str,
    /// Entry that every such directory has.
    mark: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        variable: "VIRTUAL_ENV",
        mark: "pyvenv.cfg",
    },
    Kind {
        variable: "CONDA_PREFIX",
        mark: "conda-meta",
    },
];

/// Finds the active environments, which are shown read-only at the same path. `is_visible` returns
/// true for host paths that are shown inside anyway.
///
/// An environment within the project is part of it. One that contains the home directory or the
/// project is not shown: a variable that names such a directory by mistake must not reveal all of
/// the user's files.
pub fn find_environments(
    host: &Surroundings,
    project: &Path,
    is_visible: impl Fn(&Path) -> bool,
) -> PassedEnvironment {
    let mut passed = PassedEnvironment::default();
    for kind in KINDS {
        let Some(dir) = host.var(kind.variable).map(PathBuf::from) else {
            continue;
        };
        let holds = |path: &Path| path.starts_with(&dir);
        let is_taken = dir.is_absolute()
            && !dir.starts_with(project)
            && !holds(project)
            && !host.home().is_some_and(holds)
            && dir.join(kind.mark).exists();
        let Some(text) = dir.to_str().filter(|_| is_taken) else {
            continue;
        };
        if !is_visible(&dir) {
            passed.grants.push(Grant {
                source: dir.clone(),
                target: dir.clone(),
            });
        }
        passed.env.push((kind.variable.to_owned(), text.to_owned()));
        if let Some(base) = base_interpreter(&dir).filter(|base| !is_visible(base)) {
            passed.notes.push(Note {
                what: format!(
                    "the Python of {} lies in {}, which is not shown inside",
                    dir.display(),
                    base.display()
                ),
                remedy: Remedy::advice([
                    Setting::Grant.of(base.display().to_string()),
                    " shows it".into(),
                ]),
            });
        }
    }
    passed
}

/// Returns the directory of the interpreter that a virtual environment was created with, if it
/// exists.
fn base_interpreter(dir: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(dir.join("pyvenv.cfg")).ok()?;
    let home = text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "home").then(|| PathBuf::from(value.trim()))
    })?;
    (home.is_absolute() && home.is_dir()).then_some(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(home: &Path, vars: &[(&str, &str)], visible: &Path) -> PassedEnvironment {
        let host = Surroundings::fixed(home, home, vars);
        find_environments(&host, &home.join("project"), |path| {
            path.starts_with(visible)
        })
    }

    #[test]
    fn active_environments_are_shown_and_their_python_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        let (venv, conda) = (home.join("venv"), home.join("conda"));
        fs::create_dir_all(&venv).unwrap();
        fs::create_dir_all(conda.join("conda-meta")).unwrap();
        fs::create_dir_all(home.join("python/bin")).unwrap();
        let config = format!(
            "home = {}\nversion = 3.12\n",
            home.join("python/bin").display()
        );
        fs::write(venv.join("pyvenv.cfg"), config).unwrap();
        let vars = [
            ("VIRTUAL_ENV", venv.to_str().unwrap()),
            ("CONDA_PREFIX", conda.to_str().unwrap()),
        ];
        let found = find(home, &vars, Path::new("/usr"));
        let sources: Vec<_> = found.grants.iter().map(|grant| &grant.source).collect();
        assert_eq!(sources, [&venv, &conda]);
        assert_eq!(found.env.len(), 2);
        assert!(found.notes[0].what.contains("python/bin"), "{found:?}");
        let found = find(home, &vars, home);
        assert!(
            found.grants.is_empty() && found.notes.is_empty(),
            "{found:?}"
        );
    }

    #[test]
    fn what_holds_more_than_an_environment_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        for place in ["", "project", "project/.venv", "empty"] {
            fs::create_dir_all(home.join(place)).unwrap();
            if place != "empty" {
                fs::write(home.join(place).join("pyvenv.cfg"), "").unwrap();
            }
            let text = home.join(place);
            let found = find(
                home,
                &[("VIRTUAL_ENV", text.to_str().unwrap())],
                Path::new("/usr"),
            );
            assert!(
                found.grants.is_empty() && found.env.is_empty(),
                "{place}: {found:?}"
            );
        }
        let found = find(home, &[("VIRTUAL_ENV", "relative")], Path::new("/usr"));
        assert!(found.grants.is_empty(), "{found:?}");
    }
}
