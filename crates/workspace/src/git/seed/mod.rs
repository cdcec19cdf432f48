//! The seed: a consistent copy of a git directory, which a sandbox gets at its start.
//!
//! Input: the repositories of a project, and a new directory. Output: `workspace/` with a `.git`
//! for each of them, `held/` with hard links to their objects, links to the directories that are
//! shown live, and a record (`git.json`). The files copied are a closed list ([`parts`]). No git
//! runs here, and nothing is written into a repository. The project is untrusted: its files are
//! read without following links and up to a limit.

mod held;
mod parts;
mod refs;
pub(crate) mod sent;
mod settings;
mod skipped;
mod source;
mod state;
mod target;
mod untouched;

pub use held::complete_held;
pub use state::SeedReferences;

use crate::beneath::{Anchor, io};
use glovebox_proto::Fault;
use glovebox_sandbox::SeedMaker;
use glovebox_spec::seed::{GIT_DIR, HELD, LIVE_LFS, LIVE_OBJECTS};
use glovebox_spec::{Grant, Isolation, SeedRepository};
use held::{HeldObjects, LinkBudget};
use parts::Inside;
use serde::{Deserialize, Serialize};
use source::{Problem, Source};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use target::Target;

/// Version of the record.
const VERSION: u32 = 1;
/// Name of the record in a seed.
const RECORD: &str = "git.json";
/// Maximum number of repositories in one seed, including submodules.
const MAX_REPOSITORIES: usize = 1000;

/// Functions with which a registry makes the git directories of its sandboxes.
pub const SEED_MAKER: SeedMaker = SeedMaker {
    build: build_seed,
    drop_copies: crate::pushed::drop_copies,
    is_untouched: untouched::is_workspace_untouched,
};

/// Record of a seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedRecord {
    /// Version of this record.
    pub version: u32,
    /// Git directories, in the order of their held objects.
    pub repositories: Vec<RepositoryRecord>,
}

/// State of one repository when the seed was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryRecord {
    /// Git directory inside, relative to the workspace: `.git` for the project's own.
    pub inside: PathBuf,
    /// The host's directory with `HEAD` and the index.
    pub git_dir: PathBuf,
    /// The host's directory with references and objects.
    pub common_dir: PathBuf,
    /// Device of `git_dir`.
    pub device: u64,
    /// Inode of `git_dir`.
    pub inode: u64,
    /// Commit of `HEAD` in hexadecimal digits; `None` for a branch without a commit, or with
    /// `reftable`.
    pub head: Option<String>,
    /// Branch that is checked out, without `refs/heads/`; `None` for a detached `HEAD`.
    pub branch: Option<String>,
    /// Last line of the log of `HEAD`, without its line end; `None` if there is no log.
    pub last_log_line: Option<String>,
    /// Reason for which this repository has no git directory inside; `None` if it has one.
    pub problem: Option<String>,
}

impl SeedRecord {
    /// Returns the project's own repository; `None` if it has none.
    pub fn own(&self) -> Option<&RepositoryRecord> {
        let own = self.repositories.first();
        own.filter(|repository| repository.inside == Path::new(".git"))
    }
}

/// Reads the record of the seed in the directory `layer`; `None` if there is no valid one.
pub fn read_seed_record(layer: &Path) -> Option<SeedRecord> {
    let record: SeedRecord = serde_json::from_slice(&fs::read(layer.join(RECORD)).ok()?).ok()?;
    (record.version == VERSION).then_some(record)
}

/// Makes the seed for a sandbox of this spec in the empty directory `to`.
///
/// A repository that cannot be copied is left out; the record has the reason.
///
/// # Errors
/// Any failure to write, and a project that cannot be opened.
pub fn build_seed(spec: &Isolation, to: &Path) -> Result<(), Fault> {
    let Some(project) = &spec.workspace else {
        return Ok(());
    };
    let written = |error: std::io::Error| io("write a git directory to", to, error);
    let anchor = Anchor::open(project)?;
    let target = Target::new(&anchor).map_err(written)?;
    for dir in [GIT_DIR, HELD] {
        target.make_dir(&to.join(dir)).map_err(written)?;
    }
    let mut build = SeedBuild {
        to,
        target: &target,
        grants: &spec.grants,
        hidden: &spec.hidden,
        budget: LinkBudget::default(),
        records: Vec::new(),
    };
    for repository in &spec.repositories {
        build.add(&anchor, repository).map_err(written)?;
    }
    target
        .copy_attributes(&anchor, &to.join(GIT_DIR))
        .map_err(written)?;
    let record = SeedRecord {
        version: VERSION,
        repositories: build.records,
    };
    let text = serde_json::to_vec(&record).map_err(|error| written(error.into()))?;
    fs::write(to.join(RECORD), text).map_err(written)
}

/// A seed under construction.
struct SeedBuild<'a> {
    to: &'a Path,
    target: &'a Target,
    grants: &'a [Grant],
    hidden: &'a [PathBuf],
    budget: LinkBudget,
    records: Vec<RepositoryRecord>,
}

impl SeedBuild<'_> {
    fn add(&mut self, project: &Anchor, repository: &SeedRepository) -> std::io::Result<()> {
        let inside = repository.path.join(".git");
        let source = match Source::open(project, repository) {
            Ok(source) => source,
            Err(problem) => {
                self.records.push(missing(inside, &problem));
                return Ok(());
            }
        };
        self.lead(project, &repository.path)?;
        let is_own = repository.path.as_os_str().is_empty();
        self.add_git_dir(&source, inside.clone(), is_own, false)?;
        // Creating an entry changed the times of the directory that contains it, so they are set
        // again.
        self.lead(project, &repository.path)?;
        if is_own && self.records.last().is_some_and(|own| own.problem.is_none()) {
            self.show_live(&source)?;
        }
        source.each_module(|path, module| {
            if self.records.len() >= MAX_REPOSITORIES {
                return Ok(false);
            }
            match module {
                Ok(module) => self.add_git_dir(module, inside.join(path), false, true)?,
                Err(problem) => self.records.push(missing(inside.join(path), problem)),
            }
            Ok(true)
        })
    }

    /// Creates the directories above a nested repository, with the attributes of the project's.
    fn lead(&self, project: &Anchor, path: &Path) -> std::io::Result<()> {
        let mut place = self.to.join(GIT_DIR);
        let mut above = PathBuf::new();
        for part in path.components() {
            above.push(part);
            place.push(part);
            self.target.make_dir(&place)?;
            if let Ok(dir) = project.beneath(above.as_os_str().as_bytes()) {
                self.target.copy_attributes(&dir, &place)?;
            }
        }
        Ok(())
    }

    /// Copies one git directory, or records the reason for which it cannot be copied.
    fn add_git_dir(
        &mut self,
        source: &Source,
        inside: PathBuf,
        is_own: bool,
        is_module: bool,
    ) -> std::io::Result<()> {
        let number = self.records.len();
        let place = self.to.join(GIT_DIR).join(&inside);
        let cx = Inside {
            grants: self.grants,
            hidden: hidden_below(self.hidden, &inside),
            held: number,
            is_live: is_own,
            is_module,
        };
        match parts::copy(source, self.target, &self.to.join(GIT_DIR), &inside, &cx)? {
            Ok(head) => {
                let dir = self.to.join(HELD).join(number.to_string());
                let objects = HeldObjects::new(&source.common, self.target, &dir)?;
                objects.link(&mut self.budget)?;
                self.records.push(RepositoryRecord {
                    inside,
                    git_dir: source.git_dir.path().to_owned(),
                    common_dir: source.common.path().to_owned(),
                    device: source.identity.0,
                    inode: source.identity.1,
                    head: head.commit,
                    branch: head.branch,
                    last_log_line: head.last_log_line,
                    problem: None,
                });
            }
            Err(problem) => {
                match fs::remove_dir_all(&place) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(error);
                    }
                    _ => {}
                }
                self.records.push(missing(inside, &problem));
            }
        }
        Ok(())
    }

    /// Creates links to the host's directories that the sandbox sees live.
    fn show_live(&self, source: &Source) -> std::io::Result<()> {
        let common = source.common.path();
        for (name, below) in [(LIVE_OBJECTS, "objects"), (LIVE_LFS, "lfs/objects")] {
            if source.common.dir(below.as_bytes()).is_ok() {
                std::os::unix::fs::symlink(common.join(below), self.to.join(name))?;
            }
        }
        Ok(())
    }
}

/// Returns the hidden paths of the working tree whose git directory is `inside`, relative to its
/// top.
fn hidden_below(hidden: &[PathBuf], inside: &Path) -> BTreeSet<PathBuf> {
    let top = inside.parent().filter(|_| inside.ends_with(".git"));
    hidden
        .iter()
        .filter_map(|path| path.strip_prefix(top?).ok())
        .map(Path::to_owned)
        .collect()
}

/// Returns the reason for which a repository cannot be copied, as far as a check of its main files
/// shows.
pub(crate) fn why_unusable(project: &Path, repository: &SeedRepository) -> Option<String> {
    let anchor = Anchor::open(project).ok()?;
    let checked = Source::open(&anchor, repository).and_then(|source| source.check());
    checked.err().map(|problem| problem.to_string())
}

/// Returns the directories from which a repository takes objects and that no grant shows.
pub(crate) fn hidden_alternates(
    project: &Path,
    repository: &SeedRepository,
    grants: &[Grant],
) -> Vec<PathBuf> {
    let listed = Anchor::open(project)
        .ok()
        .and_then(|anchor| Source::open(&anchor, repository).ok())
        .and_then(|source| parts::listed_alternates(&source.common).ok());
    let mut hidden = listed.unwrap_or_default();
    hidden.retain(|path| parts::shown_at(path, grants).is_none());
    hidden
}

fn missing(inside: PathBuf, problem: &Problem) -> RepositoryRecord {
    RepositoryRecord {
        inside,
        git_dir: PathBuf::new(),
        common_dir: PathBuf::new(),
        device: 0,
        inode: 0,
        head: None,
        branch: None,
        last_log_line: None,
        problem: Some(problem.to_string()),
    }
}
