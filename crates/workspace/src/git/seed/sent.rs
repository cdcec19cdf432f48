//! Git directories for a copy of a project on another machine: their files, without objects.

use super::parts::{self, Inside};
use super::source::Source;
use super::target::Target;
use super::{Anchor, MAX_REPOSITORIES, hidden_below};
use crate::git::GitHistory;
use glovebox_spec::SeedRepository;
use std::io;
use std::path::{Path, PathBuf};

/// A git directory that was written, or the reason for which it was not.
#[derive(Debug)]
pub(crate) struct SentGitDir {
    /// Path inside, relative to the workspace: `.git` for the project's own.
    pub(crate) inside: PathBuf,
    /// Source of the git directory, or the reason for which it was not written.
    pub(crate) made: Result<SentSource, String>,
}

/// The host's directories from which a git directory was written.
#[derive(Debug)]
pub(crate) struct SentSource {
    /// Directory of `HEAD` and the index.
    pub(crate) git_dir: PathBuf,
    /// Directory of references and objects.
    pub(crate) common_dir: PathBuf,
}

/// Writes the git directory of a repository, and those of its submodules, at their paths below
/// `to`.
///
/// # Errors
/// Any failure to write.
pub(crate) fn write_sent(
    project: &Anchor,
    repository: &SeedRepository,
    hidden: &[PathBuf],
    history: GitHistory,
    to: &Path,
) -> io::Result<Vec<SentGitDir>> {
    let target = Target::new(project)?;
    let mut sent = Vec::new();
    let mut write = |source: Result<&Source, String>, inside: PathBuf, is_module| {
        let made = match source {
            Ok(source) => write_one(source, &target, to, &inside, hidden, history, is_module)?,
            Err(why) => Err(why),
        };
        sent.push(SentGitDir { inside, made });
        Ok::<bool, io::Error>(sent.len() < MAX_REPOSITORIES)
    };
    let inside = repository.path.join(".git");
    let source = match Source::open(project, repository) {
        Ok(source) => source,
        Err(problem) => {
            write(Err(problem.to_string()), inside, false)?;
            return Ok(sent);
        }
    };
    write(Ok(&source), inside.clone(), false)?;
    source.each_module(|path, module| {
        write(module.map_err(ToString::to_string), inside.join(path), true)
    })?;
    Ok(sent)
}

fn write_one(
    source: &Source,
    target: &Target,
    to: &Path,
    inside: &Path,
    hidden: &[PathBuf],
    history: GitHistory,
    is_module: bool,
) -> io::Result<Result<SentSource, String>> {
    let cx = Inside {
        grants: &[],
        hidden: hidden_below(hidden, inside),
        held: 0,
        is_live: false,
        is_module,
    };
    let read = |head, branch: Option<&[u8]>| parts::read_sent(source, &cx, history, head, branch);
    match parts::read_at_one_moment(source, read) {
        Ok((files, _)) => parts::write(files, target, to, inside)?,
        Err(problem) => return Ok(Err(problem.to_string())),
    }
    Ok(Ok(SentSource {
        git_dir: source.git_dir.path().to_owned(),
        common_dir: source.common.path().to_owned(),
    }))
}
