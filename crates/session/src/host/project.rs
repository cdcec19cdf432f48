//! The project directory, which the sandbox shows as `/workspace`, and the start directory in it.
//!
//! The project is the top of the git working tree that contains the current directory, so that the
//! crates of a workspace and the packages of a monorepo find each other; or a directory on the way
//! there that has a `glovebox.toml`, whose rules apply to that directory. `-C DIR` and `--here`
//! name the directory explicitly.

use crate::Error;
use glovebox_settings::PROJECT_FILE_NAME;
use glovebox_settings::Surroundings;
use glovebox_workspace::find_working_tree;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Project of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// The directory, absolute and without links.
    pub dir: PathBuf,
    /// Reason why it is not the top of the git working tree; `None` if it is, or if that was not
    /// expected.
    pub note: Option<String>,
}

/// Returns the project directory.
///
/// # Errors
/// As [`find_project`].
pub fn project_dir(host: &Surroundings) -> Result<PathBuf, Error> {
    find_project(host).map(|project| project.dir)
}

/// Joins `path` to `dir`. Returns `dir` for an empty path, where `Path::join` would leave a
/// trailing slash.
pub fn below(dir: &Path, path: &Path) -> PathBuf {
    dir.components().chain(path.components()).collect()
}

/// Finds the project.
///
/// # Errors
/// The directory does not exist, is not a directory, cannot be read, or contains the home
/// directory.
pub fn find_project(host: &Surroundings) -> Result<Project, Error> {
    let standing = standing_dir(host)?;
    let home = host
        .home()
        .map(|home| home.canonicalize().unwrap_or_else(|_| home.to_owned()));
    if let Some(what) = too_wide(&standing, home.as_deref()) {
        return Err(Error::refused(
            format!("{what} cannot be the workspace: it holds far more than a project"),
            "change to your project, or pass -C DIR",
        ));
    }
    if host.is_here() {
        return Ok(Project {
            dir: standing,
            note: None,
        });
    }
    let top = top_level(&standing);
    let note = if top == standing {
        None
    } else if let Some(what) = too_wide(&top, home.as_deref()) {
        Some(format!("{what} holds far more than a project"))
    } else if !is_owners(&top, &standing) {
        Some(format!("{} belongs to somebody else", top.display()))
    } else if fs::read_dir(&top).is_err() {
        Some(format!("{} cannot be read", top.display()))
    } else {
        None
    };
    Ok(match note {
        None => Project {
            dir: top,
            note: None,
        },
        Some(why) => Project {
            note: Some(format!(
                "the workspace is {}, not the top of its git repository: {why}",
                standing.display()
            )),
            dir: standing,
        },
    })
}

/// Returns the canonical current directory.
fn standing_dir(host: &Surroundings) -> Result<PathBuf, Error> {
    let asked = host.directory();
    if asked.as_os_str().is_empty() {
        return Err(Error::usage(
            "the current directory does not exist any more",
            "change to your project, or pass -C DIR",
        ));
    }
    let shown = asked.display();
    let real = asked.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::usage(
            format!("the project directory {shown} does not exist"),
            "correct -C DIR",
        ),
        _ => Error::io(format!("open the project directory {shown}"), &error),
    })?;
    if !real.is_dir() {
        return Err(Error::usage(
            format!("{shown} is not a directory"),
            "name a project directory with -C DIR",
        ));
    }
    fs::read_dir(&real).map_err(|error| {
        Error::io(format!("read the project directory {shown}"), &error)
            .with_remedy("make it readable for you, or name another with -C DIR")
    })?;
    Ok(real)
}

/// Returns the top of the working tree that contains a directory, or the nearest directory on the
/// way with a `glovebox.toml`.
fn top_level(standing: &Path) -> PathBuf {
    let Some(tree) = find_working_tree(standing) else {
        return standing.to_owned();
    };
    standing
        .ancestors()
        .take_while(|dir| dir.starts_with(&tree.top))
        .find(|dir| dir.join(PROJECT_FILE_NAME).symlink_metadata().is_ok())
        .map_or(tree.top.clone(), Path::to_owned)
}

/// Returns true if `top` belongs to the user, or to the owner of `standing`. Any user can create a
/// repository in `/tmp`, for example.
fn is_owners(top: &Path, standing: &Path) -> bool {
    let owner = |path: &Path| fs::metadata(path).map(|meta| meta.uid()).ok();
    let top = owner(top);
    top == Some(rustix::process::geteuid().as_raw()) || (top.is_some() && top == owner(standing))
}

fn too_wide(dir: &Path, home: Option<&Path>) -> Option<String> {
    if dir.parent().is_none() {
        return Some("the root directory".to_owned());
    }
    match home {
        Some(home) if dir == home => Some(format!("the home directory {}", dir.display())),
        Some(home) if home.starts_with(dir) => Some(format!(
            "{}, which holds the home directory,",
            dir.display()
        )),
        _ => None,
    }
}

/// Formats a path for display, with `~` for the home directory.
pub fn short_path(host: &Surroundings, path: &Path) -> String {
    let below = host.home().and_then(|home| path.strip_prefix(home).ok());
    let text = below.map_or_else(
        || path.display().to_string(),
        |rest| format!("~/{}", rest.display()),
    );
    glovebox_proto::visible::line_of_text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(home: &Path, dir: &Path) -> String {
        let found = project_dir(&Surroundings::fixed(home, dir, &[]));
        found.unwrap_err().message().to_owned()
    }

    #[test]
    fn the_root_the_home_and_what_holds_it_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().join("home/user");
        let project = home.join("project");
        std::fs::create_dir_all(&project).unwrap();
        assert!(message(&home, Path::new("/")).contains("the root directory"));
        assert!(message(&home, &home).contains("the home directory"));
        assert!(
            message(&home, &temp.path().join("home")).contains("which holds the home directory")
        );
        let host = Surroundings::fixed(&home, &project, &[]);
        assert_eq!(project_dir(&host).unwrap(), project.canonicalize().unwrap());
    }

    #[test]
    fn the_top_of_the_working_tree_is_the_project() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let home = root.join("home");
        let make = |dir: &str| std::fs::create_dir_all(root.join(dir)).unwrap();
        let project =
            |dir: &str| find_project(&Surroundings::fixed(&home, &root.join(dir), &[])).unwrap();
        make("home/mono/.git");
        make("home/mono/crates/a/src");
        std::fs::write(root.join("home/mono/.git/HEAD"), "").unwrap();
        assert_eq!(project("home/mono/crates/a").dir, root.join("home/mono"));
        assert_eq!(project("home/mono").dir, root.join("home/mono"));
        // Rules of a directory of its own are about that directory.
        std::fs::write(root.join("home/mono/crates/a/glovebox.toml"), "").unwrap();
        let found = project("home/mono/crates/a/src");
        assert_eq!(found.dir, root.join("home/mono/crates/a"));
        // A home under version control is no project.
        make("home/.git");
        make("home/notes");
        std::fs::write(root.join("home/.git/HEAD"), "").unwrap();
        let found = project("home/notes");
        assert_eq!(found.dir, root.join("home/notes"));
        assert!(
            found
                .note
                .unwrap()
                .contains("holds far more than a project")
        );
        // Who names a directory is taken at their word.
        let host =
            Surroundings::fixed(&home, &root.join("home/mono/crates"), &[]).with_project_here();
        assert_eq!(project_dir(&host).unwrap(), root.join("home/mono/crates"));
        assert_eq!(host.start_dir(&root.join("home/mono")), Path::new("crates"));
        assert_eq!(host.start_dir(&root.join("elsewhere")), Path::new(""));
    }

    #[test]
    fn a_missing_or_deleted_directory_is_one_sentence() {
        let home = Path::new("/nonexistent-home");
        assert!(message(home, Path::new("")).contains("does not exist any more"));
        assert!(message(home, Path::new("/no/such/dir")).contains("does not exist"));
        assert!(message(home, Path::new("/etc/passwd")).contains("not a directory"));
    }
}
