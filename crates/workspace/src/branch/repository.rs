//! Finds the host's repository and reads it as data.
//!
//! Input: the project directory. Output: the location of its repository, and the few values of its
//! configuration that a commit needs. No git command runs in it, because its configuration can name
//! programs (a file-system monitor, hooks, a promisor's `uploadpack`): the configuration is only
//! listed as a file.

use super::failed;
use super::git::{Config, Git};
use super::layout;
use crate::git::{WorkingTree, common_dir, find_working_tree, pointer, with_slash};
use glovebox_proto::{Code, Fault, Setting};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Maximum length of a value that is read from a configuration, in bytes.
const MAX_VALUE_BYTES: usize = 1000;
/// Settings that identify the author of a commit. They are passed on under the same names.
const IDENTITY: [&str; 6] = [
    "user.name",
    "user.email",
    "author.name",
    "author.email",
    "committer.name",
    "committer.email",
];
/// Extensions of the repository format that do not change how a commit is written.
const HARMLESS_EXTENSIONS: [&str; 6] = [
    "noop",
    "noop-v1",
    "partialclone",
    "preciousobjects",
    "relativeworktrees",
    "worktreeconfig",
];

/// Location of a repository, and the trusted values of its configuration.
#[derive(Debug)]
pub(super) struct Repository {
    /// Top directory of its working tree.
    pub(super) top: PathBuf,
    /// Directory with `HEAD`.
    pub(super) git_dir: PathBuf,
    /// Directory with objects and branches: the same as `git_dir`, except for a linked working
    /// tree.
    pub(super) common_dir: PathBuf,
    /// Path of the project in the working tree: empty, or ends in a slash.
    pub(super) prefix: Vec<u8>,
    /// Content of `HEAD`.
    pub(super) head: Vec<u8>,
    pub(super) format: Format,
    /// Settings about the author, with their values.
    pub(super) identity: Vec<(&'static str, String)>,
}

/// Storage format of a repository.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Format {
    /// `sha1` or `sha256`; `None` for the default.
    pub(super) objects: Option<String>,
    /// `files` or `reftable`; `None` for the default.
    pub(super) references: Option<String>,
    /// Permissions of new files, as in `core.sharedRepository`; `None` if it is not set.
    pub(super) sharing: Option<String>,
    /// True if objects may be missing (a partial clone).
    pub(super) is_partial: bool,
}

impl Repository {
    /// Finds the repository that contains the project.
    ///
    /// # Errors
    /// [`Code::NotFound`] if there is no usable one, [`Code::Unsupported`] for an unknown format.
    pub(super) fn find(project: &Path, git: &Git<'_>) -> Result<Self, Fault> {
        let project = project
            .canonicalize()
            .map_err(|error| unusable(project, &error.to_string()))?;
        let WorkingTree { top, git_dir } = find_working_tree(&project)
            .ok_or_else(|| unusable(&project, "there is none above it"))?;
        let common_dir = common_dir(&git_dir).map_err(|why| unusable(&project, &why))?;
        // This must precede opening any of its files: a FIFO in place of a file would block this
        // call.
        layout::examine(&git_dir, &common_dir)?;
        for part in ["objects", "refs"] {
            if !common_dir.join(part).is_dir() {
                return Err(unusable(
                    &project,
                    &format!("{} has no `{part}`", common_dir.display()),
                ));
            }
        }
        let head = pointer(&git_dir.join("HEAD"))
            .map_err(|error| unusable(&project, &format!("its HEAD cannot be read: {error}")))?;
        check_owner(&top, &[&git_dir, &common_dir], git)?;
        let prefix = with_slash(project.strip_prefix(&top).unwrap_or(Path::new("")));
        let mut config = git.list_file(&common_dir.join("config"))?;
        config.extend(git.list_file(&git_dir.join("config.worktree"))?);
        let format = Format::read(&config)?;
        if format.references.as_deref() == Some("reftable") && git_dir != common_dir {
            return Err(unsupported("a linked working tree with reftables"));
        }
        Ok(Self {
            top,
            git_dir,
            common_dir,
            prefix,
            head,
            format,
            identity: identity(&config),
        })
    }
}

impl Format {
    /// Returns the complete configuration of a git directory of ours with this storage format.
    pub(super) fn configuration(&self) -> String {
        let version = u8::from(self.objects.is_some() || self.references.is_some());
        let setting = |name: &str, value: &Option<String>| {
            let line = |value: &String| format!("\t{name} = {value}\n");
            value.as_ref().map(line).unwrap_or_default()
        };
        [
            format!("[core]\n\trepositoryFormatVersion = {version}\n\tbare = false\n"),
            setting("sharedRepository", &self.sharing),
            "[extensions]\n".to_owned(),
            setting("objectFormat", &self.objects),
            setting("refStorage", &self.references),
        ]
        .concat()
    }

    // TRUST: a value is used only if it is in a closed list, or consists of letters and digits.
    pub(super) fn read(config: &Config) -> Result<Self, Fault> {
        let mut format = Self::default();
        for (key, value) in config {
            let value = value.to_ascii_lowercase();
            match key.as_str() {
                "core.repositoryformatversion" if value != "0" && value != "1" => {
                    return Err(unsupported(&format!("format version {value}")));
                }
                "core.sharedrepository"
                    if value.len() < 10 && value.bytes().all(|b| b.is_ascii_alphanumeric()) =>
                {
                    format.sharing = Some(value);
                }
                "extensions.objectformat" if value == "sha1" || value == "sha256" => {
                    format.objects = Some(value);
                }
                "extensions.refstorage" if value == "files" || value == "reftable" => {
                    format.references = Some(value);
                }
                "extensions.partialclone" => format.is_partial = true,
                key if key.starts_with("remote.") && key.ends_with(".promisor") => {
                    format.is_partial = true;
                }
                key => {
                    let extension = key.strip_prefix("extensions.");
                    if let Some(name) = extension
                        && !HARMLESS_EXTENSIONS.contains(&name)
                    {
                        return Err(unsupported(&format!("the extension `{name}`")));
                    }
                }
            }
        }
        Ok(format)
    }
}

fn identity(config: &Config) -> Vec<(&'static str, String)> {
    // The last setting of a name applies, as in git.
    let last = |wanted: &str| config.iter().rev().find(|(key, _)| key == wanted);
    IDENTITY
        .into_iter()
        .filter_map(|key| Some((key, last(key)?.1.clone())))
        .filter(|(_, value)| value.len() <= MAX_VALUE_BYTES)
        .collect()
}

/// Refuses an object store that the user does not own.
pub(super) fn require_own(store: &Path) -> Result<(), Fault> {
    let own = rustix::process::geteuid().as_raw();
    if fs::metadata(store).is_ok_and(|meta| meta.uid() == own) {
        return Ok(());
    }
    Err(Fault::refused(
        Code::PermissionDenied,
        format!("the object store {} is somebody else's", store.display()),
    )
    .remedy([
        "clone the repository with its objects, or pull without ".into(),
        Setting::Branch.into(),
        " and ".into(),
        Setting::Commits.into(),
    ]))
}

/// Refuses a repository of another user, unless the user's own configuration names it as safe.
fn check_owner(top: &Path, dirs: &[&Path], git: &Git<'_>) -> Result<(), Fault> {
    let own = rustix::process::geteuid().as_raw();
    let is_own = |path: &Path| fs::metadata(path).is_ok_and(|meta: Metadata| meta.uid() == own);
    if is_own(top) && dirs.iter().all(|dir| is_own(dir)) {
        return Ok(());
    }
    let mut is_safe = false;
    for entry in git.safe_directories()? {
        is_safe = match entry.as_str() {
            "" => false,
            "*" => true,
            entry => {
                is_safe
                    || Path::new(entry) == top
                    || entry
                        .strip_suffix("/*")
                        .is_some_and(|above| top.starts_with(above))
            }
        };
    }
    if is_safe {
        return Ok(());
    }
    Err(Fault::refused(
        Code::PermissionDenied,
        format!("the repository of {} is somebody else's", top.display()),
    )
    .remedy(format!(
        "if it can be trusted, run `git config --global --add safe.directory {}`",
        top.display()
    )))
}

fn unusable(project: &Path, why: &str) -> Fault {
    Fault::failed(
        Code::NotFound,
        format!(
            "{} is in no git repository that can be used: {why}",
            project.display()
        ),
    )
    .remedy([
        "run `git init` and commit first, or pull without ".into(),
        Setting::Branch.into(),
    ])
}

fn unsupported(what: &str) -> Fault {
    Fault::failed(
        Code::Unsupported,
        format!("the repository has {what}, to which no branch can be added here"),
    )
    .remedy([
        "pull without ".into(),
        Setting::Branch.into(),
        ", or with ".into(),
        Setting::Patch.into(),
    ])
}

/// Returns the fault for a path that could not be created in the repository.
pub(super) fn cannot_make(path: &Path, error: &std::io::Error) -> Fault {
    failed(
        &format!("cannot make {}", path.display()),
        error.to_string().as_bytes(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(lines: &[(&str, &str)]) -> Config {
        lines
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_format_that_is_not_known_is_refused() {
        let known = [
            ("core.repositoryformatversion", "1"),
            ("extensions.objectformat", "sha256"),
            ("extensions.partialclone", "origin"),
            ("core.fsmonitor", "evil"),
            ("core.sharedrepository", "group"),
        ];
        let format = Format::read(&config(&known)).unwrap();
        assert_eq!(format.objects.as_deref(), Some("sha256"));
        assert_eq!(format.sharing.as_deref(), Some("group"));
        assert!(format.is_partial);
        for unknown in [
            ("core.repositoryformatversion", "2"),
            ("extensions.objectformat", "sha3"),
            ("extensions.refstorage", "elsewhere"),
            ("extensions.fresh", "true"),
        ] {
            let fault = Format::read(&config(&[unknown])).unwrap_err();
            assert_eq!(fault.code, Code::Unsupported, "{unknown:?}");
        }
        let odd = [("core.sharedrepository", "x\n[core]")];
        assert_eq!(Format::read(&config(&odd)).unwrap(), Format::default());
    }

    #[test]
    fn the_last_value_of_an_identity_counts() {
        let config = config(&[("user.name", "a"), ("x.y", "z"), ("user.name", "b")]);
        assert_eq!(identity(&config), [("user.name", "b".to_owned())]);
    }
}
