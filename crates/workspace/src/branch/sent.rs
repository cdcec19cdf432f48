//! Prepares the repositories of a project for a copy of it on another machine.
//!
//! Input: the project, and how much of the history is sent. Output: a directory with a complete git
//! directory for each repository: closed lists of files as in the seed of a native sandbox, and the
//! objects as one pack. The host's git writes the pack in the new directory and with a
//! configuration of ours, so that the repository's configuration is not applied on this machine.

use super::git::{Git, without_configuration};
use super::layout;
use super::repository::Format;
use super::{failed, repository};
use crate::beneath::{Anchor, io};
use crate::git::seed::sent::{SentSource, write_sent};
use crate::git::{GitHistory, find_repositories};
use glovebox_proto::{Code, Fault};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Repositories of a project that are sent with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SentRepositories {
    /// Their `.git` paths relative to the project. Each is a directory below the one in which they
    /// were built.
    pub git_dirs: Vec<PathBuf>,
    /// `.git` paths of the repositories that are not sent, with reasons.
    pub left_out: Vec<(PathBuf, String)>,
}

impl SentRepositories {
    /// Returns true if the path is one of these `.git`, or below one, so that the project's own
    /// version of it is not sent.
    pub fn covers(&self, path: &Path) -> bool {
        let left_out = self.left_out.iter().map(|(git_dir, _)| git_dir);
        let mut all = self.git_dirs.iter().chain(left_out);
        all.any(|git_dir| path.starts_with(git_dir))
    }
}

/// Builds the git directories of the repositories at `dirs`, which are paths relative to the
/// project, in the empty directory `to`. `hidden` are paths of the project that are not sent.
///
/// # Errors
/// Any failure to write, and a project that cannot be opened. A repository that cannot be sent is
/// left out.
pub fn build_sent(
    project: &Path,
    dirs: &[PathBuf],
    hidden: &[PathBuf],
    history: GitHistory,
    git: &Path,
    to: &Path,
) -> Result<SentRepositories, Fault> {
    let anchor = Anchor::open(project)?;
    let found = find_repositories(project, dirs, &[]);
    let excess = found.excess.into_iter();
    let excess = excess.map(|path| (path, "there are too many repositories".to_owned()));
    let mut sent = SentRepositories {
        git_dirs: Vec::new(),
        left_out: found.unusable.into_iter().chain(excess).collect(),
    };
    for repository in &found.seeded {
        let own = repository.path.join(".git");
        let written = write_sent(&anchor, repository, hidden, history, to)
            .map_err(|error| io("write a git directory to", to, error))?;
        for one in written {
            let place = to.join(&one.inside);
            let packed = one.made.and_then(|source| {
                let packed = pack(&Git { program: git }, &source, &place);
                packed.map_err(|fault| fault.message)
            });
            match packed {
                Ok(()) if one.inside == own => sent.git_dirs.push(one.inside),
                Ok(()) => {}
                Err(why) => {
                    remove(&place)?;
                    sent.left_out.push((one.inside, why));
                }
            }
        }
    }
    Ok(sent)
}

fn remove(place: &Path) -> Result<(), Fault> {
    match fs::remove_dir_all(place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(io("remove", place, error))
        }
        _ => Ok(()),
    }
}

/// Packs the objects that the references and the index of a new git directory need, into that
/// directory.
fn pack(git: &Git<'_>, source: &SentSource, place: &Path) -> Result<(), Fault> {
    layout::examine(&source.git_dir, &source.common_dir)?;
    let objects = source.common_dir.join("objects");
    if objects.as_os_str().as_bytes().contains(&b'\n') {
        return Err(Fault::failed(
            Code::Unsupported,
            "the path of its objects has a line end",
        ));
    }
    let format = Format::read(&git.list_file(&source.common_dir.join("config"))?)?;
    let config = place.join("config");
    let wrote = |error| repository::cannot_make(place, &error);
    let settings = fs::read(&config).map_err(wrote)?;
    // Git must not read the project's configuration, so that is written only after the pack.
    fs::write(&config, format.configuration()).map_err(wrote)?;
    let alternates = place.join("objects/info/alternates");
    fs::write(&alternates, objects.as_os_str().as_bytes()).map_err(wrote)?;
    let args = [
        "pack-objects",
        "-q",
        "--all",
        "--indexed-objects",
        "--non-empty",
        "objects/pack/pack",
    ];
    let mut command = git.command(&args);
    let command = without_configuration(&mut command);
    let command = command.current_dir(place).env("GIT_DIR", place);
    let output = git.run(command, b"")?;
    if !output.status.success() {
        return Err(failed("its objects cannot be packed", &output.stderr));
    }
    fs::remove_file(&alternates).map_err(wrote)?;
    fs::write(&config, settings).map_err(wrote)
}
