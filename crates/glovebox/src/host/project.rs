//! The project directory: what the sandbox will see as `/workspace`.

use super::Surroundings;
use crate::exit::CommandError;
use std::io;
use std::path::{Path, PathBuf};

/// The project directory, absolute and without links: `-C DIR`, or the current directory.
///
/// # Errors
/// One sentence when it is gone, unreadable, no directory, or so wide that the home would be in it.
pub(crate) fn project_dir(host: &Surroundings) -> Result<PathBuf, CommandError> {
    let asked = host.directory();
    if asked.as_os_str().is_empty() {
        return Err(CommandError::usage(
            "the current directory does not exist any more",
            "change to your project, or pass -C DIR",
        ));
    }
    let shown = asked.display();
    let real = asked.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CommandError::usage(
            format!("the project directory {shown} does not exist"),
            "correct -C DIR",
        ),
        _ => CommandError::io(format!("open the project directory {shown}"), &error),
    })?;
    if !real.is_dir() {
        return Err(CommandError::usage(
            format!("{shown} is not a directory"),
            "name a project directory with -C DIR",
        ));
    }
    std::fs::read_dir(&real).map_err(|error| {
        CommandError::io(format!("read the project directory {shown}"), &error)
            .remedy("make it readable for you, or name another with -C DIR")
    })?;
    let home = host
        .home()
        .map(|home| home.canonicalize().unwrap_or_else(|_| home.to_owned()));
    if let Some(what) = too_wide(&real, home.as_deref()) {
        return Err(CommandError::refused(
            format!("{what} cannot be the workspace: it holds far more than a project"),
            "change to your project, or pass -C DIR",
        ));
    }
    Ok(real)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn message(home: &Path, dir: &Path) -> String {
        project_dir(&Surroundings::for_tests(home, dir, &[]))
            .unwrap_err()
            .fault
            .message
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
        let host = Surroundings::for_tests(&home, &project, &[]);
        assert_eq!(project_dir(&host).unwrap(), project.canonicalize().unwrap());
    }

    #[test]
    fn a_missing_or_deleted_directory_is_one_sentence() {
        let home = Path::new("/nonexistent-home");
        assert!(message(home, Path::new("")).contains("does not exist any more"));
        assert!(message(home, Path::new("/no/such/dir")).contains("does not exist"));
        assert!(message(home, Path::new("/etc/passwd")).contains("not a directory"));
    }
}
