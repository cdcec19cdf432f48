//! Throw-away sandbox in which Glovebox itself runs git.
//!
//! Filters of a repository are programs, and git runs them to make a commit. The box has the
//! programs and grants of the sandbox whose changes are committed, no network and no secrets. In
//! place of a project it has only a git directory of the host's present repository. The commit is
//! checked like one of any sandbox.

use super::git_inside::SandboxGit;
use super::large_files::take_large_files;
use super::{GIT, SandboxChanges, apply, single_file};
use crate::Error;
use crate::host::GitSettings;
use crate::spec::{resolve_spec, show_git_settings};
use glovebox_proto::visible::line_of_text as escape_text;
use glovebox_proto::{Code, EnvVar, Exec, Exit, Fault, Request, Setting};
use glovebox_sandbox::{Backend, CommandOutput, Name, Registry, Sandbox, SandboxSpec};
use glovebox_settings::{Settings, Surroundings};
use glovebox_spec::{Net, OutsideGitDirs, SeedRepository, WORKSPACE, WorkspaceAccess};
use glovebox_workspace::branch::{
    self, CommitBuilder, CommitDraft, CommitOutcome, HostRepository, OfferedCommit,
};
use glovebox_workspace::{Quota, Stage, SyncError};
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Working tree of the box. It contains only the files of the new commit.
const TREE: &str = "/workspace/tree";
/// Directory for files that are checked out.
const OUT: &str = "/workspace/out";
const GIT_DIR: &str = "/workspace/.git";
const INDEX: &str = "/workspace/index";
/// Maximum time for one call of git, including filters, in milliseconds.
const CALL_MS: u64 = 300_000;
/// Maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Settings that override the repository's: no hook or monitor runs, and files are stored exactly.
const SETTINGS: [&str; 11] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.splitIndex=false",
    "core.commitGraph=false",
    "core.multiPackIndex=false",
    "core.sparseCheckout=false",
    "core.fileMode=true",
    "core.symlinks=true",
    "core.safecrlf=false",
    "i18n.commitEncoding=utf-8",
];

/// Commits a sandbox's changes to a new branch of the repository at `to`.
///
/// # Errors
/// As [`branch::commit`]; the throw-away sandbox does not start.
pub fn commit_to_branch(
    registry: &Registry,
    host: &Surroundings,
    name: &Name,
    taken: &SandboxChanges,
    to: &Path,
    branch: &str,
    message: &str,
) -> Result<CommitOutcome, Error> {
    let failed = |fault| Error::from(SyncError::pull(Stage::Apply, fault));
    let repository = HostRepository::open(to, Path::new(GIT)).map_err(failed)?;
    repository.require_new(branch).map_err(failed)?;
    let mut git_box = GitBox::start(registry, host, name, to, &repository)?;
    let base = apply::base(taken, to);
    let collected = &taken.collected;
    branch::commit(
        collected,
        base.as_ref(),
        &repository,
        &mut git_box,
        branch,
        message,
    )
    .map_err(failed)
}

/// The box and the directory with its files. Dropping it removes both.
struct GitBox<'a> {
    host: &'a HostRepository<'a>,
    /// Running sandbox; `None` once it has ended.
    sandbox: Option<Sandbox>,
    dir: PathBuf,
    files: usize,
}

impl Drop for GitBox<'_> {
    fn drop(&mut self) {
        // The sandbox shows the directory, so the sandbox must end first. What cannot be removed
        // now is removed with the sandbox whose changes are committed.
        if let Some(sandbox) = self.sandbox.take() {
            let _ = sandbox.finish();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl<'a> GitBox<'a> {
    fn start(
        registry: &Registry,
        host: &Surroundings,
        name: &Name,
        project: &Path,
        repository: &'a HostRepository<'a>,
    ) -> Result<Self, Error> {
        let Some(entry) = registry.entry(name)? else {
            return Err(Error::no_sandbox(name));
        };
        let dir = entry.dir.join(Name::random("git-box").as_str());
        let workspace = dir.join("workspace");
        let made = fs::create_dir(&dir).and_then(|()| fs::create_dir(&workspace));
        made.map_err(|error| Error::io(format!("make {}", workspace.display()), &error))?;
        let mut git_box = Self {
            host: repository,
            sandbox: None,
            dir,
            files: 0,
        };
        let mut spec = base_spec(registry.spec(name)?, host, &workspace)?;
        spec.jail.repositories = vec![SeedRepository {
            path: PathBuf::new(),
            outside: Some(OutsideGitDirs {
                git_dir: repository.git_dir().to_owned(),
                common_dir: repository.common_dir().to_owned(),
            }),
        }];
        show_git_settings(&mut spec.jail, &GitSettings::read(host, project));
        let sandbox = registry.create(&spec, None).map_err(|fault| {
            let message = format!(
                "cannot start the sandbox in which git makes the commit: {}",
                fault.message
            );
            let remedy = [
                "pull without ".into(),
                Setting::Branch.into(),
                ", or with ".into(),
                Setting::Patch.into(),
            ];
            Fault { message, ..fault }.remedy(remedy)
        })?;
        for path in [TREE, OUT] {
            sandbox.call(Request::Mkdir {
                path: ByteBuf::from(path),
                permissions: 0o755,
                make_parents: true,
            })?;
        }
        git_box.sandbox = Some(sandbox);
        Ok(git_box)
    }

    fn sandbox(&self) -> Result<&Sandbox, Fault> {
        let ended = || Fault::failed(Code::Internal, "the sandbox for git has ended");
        self.sandbox.as_ref().ok_or_else(ended)
    }

    /// Runs git and returns its output, regardless of its exit code.
    fn run(
        &self,
        cwd: &str,
        env: &[(&str, &[u8])],
        args: &[&str],
        input: &[u8],
    ) -> Result<CommandOutput, Fault> {
        let settings = SETTINGS.iter().flat_map(|setting| ["-c", setting]);
        let words = ["git"]
            .into_iter()
            .chain(settings)
            .chain(args.iter().copied());
        let own: [(&str, &[u8]); 4] = [
            ("GIT_DIR", GIT_DIR.as_bytes()),
            ("GIT_WORK_TREE", TREE.as_bytes()),
            ("GIT_INDEX_FILE", INDEX.as_bytes()),
            ("GIT_NO_REPLACE_OBJECTS", b"1"),
        ];
        let env = own.iter().chain(env).map(|(name, value)| EnvVar {
            name: ByteBuf::from(*name),
            value: ByteBuf::from(*value),
        });
        let exec = Exec {
            cwd: Some(ByteBuf::from(cwd)),
            env: env.collect(),
            timeout_ms: Some(CALL_MS),
            ..Exec::new(words)
        };
        self.sandbox()?.exec_with(exec, input, MAX_ANSWER_BYTES)
    }

    /// Runs git, which must succeed, and returns its complete output.
    fn git(&self, what: &str, args: &[&str], input: &[u8]) -> Result<Vec<u8>, Fault> {
        answer(what, self.run(TREE, &[], args, input)?)
    }

    fn line(&self, what: &str, args: &[&str], input: &[u8]) -> Result<String, Fault> {
        let answer = self.git(what, args, input)?;
        Ok(String::from_utf8_lossy(&answer).trim().to_owned())
    }

    /// Checks files out, converted as for a working tree.
    fn check_out_files(&self, list: &[u8]) -> Result<(), Fault> {
        let prefix = format!("--prefix={OUT}/");
        let args = ["checkout-index", "-z", "-f", "--stdin", &prefix];
        let first = self.run(TREE, &[], &args, list)?;
        if first.report.exit == Exit::Code(0) {
            return Ok(());
        }
        // Large files that were never fetched are pointers in the working tree too.
        let skipping: [(&str, &[u8]); 1] = [("GIT_LFS_SKIP_SMUDGE", b"1")];
        let second = self.run(TREE, &skipping, &args, list)?;
        if second.report.exit == Exit::Code(0) {
            return Ok(());
        }
        answer("check the files out", first).map(drop)
    }
}

impl CommitBuilder for GitBox<'_> {
    fn check_out(
        &mut self,
        head: &str,
        files: &[(Vec<u8>, String)],
    ) -> Result<HashMap<Vec<u8>, PathBuf>, Fault> {
        self.git("read the commit of HEAD", &["read-tree", head], b"")?;
        let mut converted = HashMap::new();
        if files.is_empty() {
            return Ok(converted);
        }
        let list: Vec<u8> = files
            .iter()
            .flat_map(|(path, _)| path.iter().copied().chain([0]))
            .collect();
        self.check_out_files(&list)?;
        let names: Vec<u8> = files
            .iter()
            .flat_map(|(path, _)| quoted_line(&[OUT.as_bytes(), b"/", path].concat()))
            .collect();
        let args = ["hash-object", "--no-filters", "--stdin-paths"];
        let answer = self.git("look at the files", &args, &names)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let max_bytes = Quota::default().max_bytes;
        for ((path, id), found) in files.iter().zip(answer.lines()) {
            if id == found {
                continue;
            }
            self.files += 1;
            let local = self.dir.join(self.files.to_string());
            let mut file = File::create_new(&local)
                .map_err(|error| Error::io(format!("make {}", local.display()), &error))
                .map_err(Error::into_fault)?;
            let inside = Path::new(OUT).join(OsStr::from_bytes(path));
            single_file::receive(self.sandbox()?, &inside, &mut file, max_bytes)
                .map_err(Error::into_fault)?;
            converted.insert(path.clone(), local);
        }
        Ok(converted)
    }

    fn write(
        &mut self,
        path: &[u8],
        is_executable: bool,
        content: &mut dyn Read,
    ) -> Result<(), Fault> {
        let permissions = if is_executable { 0o755 } else { 0o644 };
        let path = Path::new(OsStr::from_bytes(path));
        let place = Path::new(TREE).join(path);
        let sandbox = self.sandbox()?;
        single_file::send_content(sandbox, content, path, permissions, &place, true)
            .map(drop)
            .map_err(Error::into_fault)
    }

    fn commit(&mut self, draft: &CommitDraft<'_>) -> Result<Option<OfferedCommit>, Fault> {
        let zero = "0".repeat(draft.parent.len());
        let mut lines = Vec::new();
        let mut add = |mode: &str, id: &str, path: &[u8]| {
            lines.extend_from_slice(format!("{mode} {id}\t").as_bytes());
            lines.extend_from_slice(path);
            lines.push(0);
        };
        // Removed paths come first: they may be in the way of added ones, and their attributes no
        // longer apply.
        for path in &draft.removed {
            add("0", &zero, path);
        }
        for (mode, id, path) in &draft.kept {
            add(mode, id, path);
        }
        for (path, target) in &draft.links {
            let args = ["hash-object", "-w", "--stdin"];
            add("120000", &self.line("store a link", &args, target)?, path);
        }
        let args = ["update-index", "-z", "--index-info"];
        self.git("change the index", &args, &lines)?;
        if !draft.written.is_empty() {
            let list: Vec<u8> = draft
                .written
                .iter()
                .flat_map(|path| path.iter().copied().chain([0]))
                .collect();
            let args = ["update-index", "--add", "--replace", "-z", "--stdin"];
            self.git("store the files", &args, &list)?;
        }
        // A partial clone may lack unchanged files of HEAD.
        let args = ["write-tree", "--missing-ok"];
        let tree = self.line("write the tree", &args, b"")?;
        let before = format!("{}^{{tree}}", draft.parent);
        if tree == self.line("find the tree of HEAD", &["rev-parse", &before], b"")? {
            return Ok(None);
        }
        let author = identity_variables("AUTHOR", draft.author)?;
        let committer = identity_variables("COMMITTER", draft.committer)?;
        let env: BTreeMap<&str, &[u8]> = author
            .iter()
            .chain(&committer)
            .map(|(name, value)| (name.as_str(), value.as_slice()))
            .collect();
        let env: Vec<(&str, &[u8])> = env.into_iter().collect();
        let args = ["commit-tree", "-p", draft.parent, &tree];
        let output = self.run(TREE, &env, &args, draft.message.as_bytes())?;
        let commit = answer("make the commit", output)?;
        let commit = String::from_utf8_lossy(&commit).trim().to_owned();
        // Pointers are useless without the large files that they refer to.
        take_large_files(self.sandbox()?, WORKSPACE.as_bytes(), self.host)
            .map_err(Error::into_fault)?;
        let inside = SandboxGit::new(self.sandbox()?);
        inside.offer(&commit, &draft.known).map(Some)
    }
}

/// Returns the specification of the box: the recorded one of the sandbox, without project, network
/// and secrets, over the directory `workspace`. That of a remote sandbox does not fit this machine
/// and is replaced by the default.
fn base_spec(
    made: SandboxSpec,
    host: &Surroundings,
    workspace: &Path,
) -> Result<SandboxSpec, Error> {
    let mut jail = if made.backend.has_layers() {
        made.jail
    } else {
        resolve_spec(&Settings::default(), host, workspace, None)?
            .spec
            .jail
    };
    jail.workspace = Some(workspace.to_owned());
    jail.workspace_access = WorkspaceAccess::Overlay;
    jail.start_dir = PathBuf::new();
    jail.hidden.clear();
    jail.protected.clear();
    jail.replaced.retain(|file| file.path.is_absolute());
    jail.caches.clear();
    jail.net = Net::None;
    jail.is_nested = false;
    // A grant whose path no longer exists would keep the box from starting.
    jail.grants
        .retain(|grant| grant.source.symlink_metadata().is_ok());
    Ok(SandboxSpec {
        jail,
        ..SandboxSpec::new(Backend::NATIVE)
    })
}

/// Formats a path as a line of git's input, quoted if it contains a line feed or begins with a
/// quotation mark.
fn quoted_line(path: &[u8]) -> Vec<u8> {
    let needs_quotes = path.contains(&b'\n') || path.first() == Some(&b'"');
    if !needs_quotes {
        return [path, b"\n"].concat();
    }
    let mut line = vec![b'"'];
    for byte in path {
        match byte {
            b'\n' => line.extend_from_slice(b"\\n"),
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', *byte]),
            byte => line.push(*byte),
        }
    }
    line.extend_from_slice(b"\"\n");
    line
}

/// Returns the variables that set the identity of a commit, from the form in a commit object.
fn identity_variables(whose: &str, identity: &[u8]) -> Result<[(String, Vec<u8>); 3], Fault> {
    let parts = || {
        let start = identity.iter().position(|byte| *byte == b'<')?;
        let end = identity.iter().rposition(|byte| *byte == b'>')?;
        Some((
            identity.get(..start)?.trim_ascii(),
            identity.get(start + 1..end)?,
            identity.get(end + 1..)?.trim_ascii(),
        ))
    };
    let broken = || Fault::failed(Code::Internal, "git told an identity of no known form");
    let (name, address, time) = parts().ok_or_else(broken)?;
    Ok([("NAME", name), ("EMAIL", address), ("DATE", time)]
        .map(|(what, value)| (format!("GIT_{whose}_{what}"), value.to_vec())))
}

fn answer(what: &str, output: CommandOutput) -> Result<Vec<u8>, Fault> {
    if output.report.exit == Exit::Code(0) && !output.truncated {
        return Ok(output.stdout);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    // The first line names the filter that failed, the last one is git's own error.
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let why = match lines.as_slice() {
        [] if output.truncated => "its answer is too long".to_owned(),
        [] => format!("it ended with {}", exit_text(output.report.exit)),
        [only] => escape_text(only),
        [first, .., last] => escape_text(&format!("{first}; {last}")),
    };
    let fault = Fault::failed(Code::Io, format!("git could not {what}: {why}"));
    Err(fault.remedy([
        "filters run in a sandbox without network: ".into(),
        Setting::Grant.of("PATH"),
        " at its start shows a program, or pull without ".into(),
        Setting::Branch.into(),
    ]))
}

fn exit_text(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_end_lines_are_quoted() {
        assert_eq!(quoted_line(b"/a b"), b"/a b\n");
        assert_eq!(quoted_line(b"/a\nb\"c\\"), b"\"/a\\nb\\\"c\\\\\"\n");
    }

    #[test]
    fn an_identity_becomes_variables() {
        let found = identity_variables("AUTHOR", b"A <B> <a@b> 12 +0100");
        assert!(found.is_ok());
        let [name, address, date] =
            identity_variables("AUTHOR", b"A Person <a@b.org> 1200000000 +0100").unwrap();
        assert_eq!(name, ("GIT_AUTHOR_NAME".to_owned(), b"A Person".to_vec()));
        assert_eq!(address.1, b"a@b.org");
        assert_eq!(date.1, b"1200000000 +0100");
    }
}
