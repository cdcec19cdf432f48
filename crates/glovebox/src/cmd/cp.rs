//! `glovebox cp`: copies a file or a directory between this machine and a sandbox.
//!
//! A single file is streamed (`glovebox_session::sync::single_file`). A directory is copied as by
//! `push` and `pull`: with the same walk, the same checks of data from the sandbox, and the same
//! all-or-nothing commit on this machine.

use super::{Cx, run::supervisor};
use crate::args::CpArgs;
use crate::exit::{CommandError, CommandResult, Kind};
use crate::render::{self, Meter, plural};
use crate::streams::Signals;
use crate::sync::apply::{self, ApplyOutcome, ApplyTarget, ReviewAnswer};
use crate::sync::{self, ChangesRequest, copied};
use glovebox_proto::{Code, Fault, FileKind, Request};
use glovebox_sandbox::{Name, Sandbox};
use glovebox_session::sync::single_file::{self, PERMISSIONS, path_bytes};
use glovebox_settings::units::human_bytes;
use glovebox_spec::WORKSPACE;
use glovebox_workspace::copy::{self, PushOptions, PushRecords, SandboxRoot};
use glovebox_workspace::{Change, Node, RefusedPath, Resolution};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

/// First part of a path in the home directory inside.
const HOME: &str = "~";

/// Side of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CopySide {
    /// Path on this machine.
    Here(PathBuf),
    /// Name of a sandbox, and a path in it.
    Inside(String, PathBuf),
}

/// Result of a copy.
#[derive(Debug, Default)]
struct CopyTotals {
    files: u64,
    bytes: u64,
    skipped: Vec<RefusedPath>,
}

impl CopyTotals {
    fn of_file(bytes: u64) -> Self {
        Self {
            files: 1,
            bytes,
            skipped: Vec::new(),
        }
    }
}

/// Copies and reports the result.
pub(crate) fn run(cx: &Cx, args: &CpArgs) -> CommandResult {
    let mut data = json!({
        "source": args.source.to_string_lossy(),
        "destination": args.destination.to_string_lossy(),
    });
    match copy(cx, args) {
        Ok(copied) => {
            let message = format!(
                "copied {} ({})",
                plural(copied.files as usize, "file", "files"),
                human_bytes(copied.bytes)
            );
            if args.json {
                data["files"] = copied.files.into();
                data["bytes"] = copied.bytes.into();
                data["skipped"] = render::refused_json(&copied.skipped);
                render::print(render::envelope(true, &message, &data))?;
            } else {
                for refusal in &copied.skipped {
                    cx.talk.warning(format_args!(
                        "{}: not copied, {}",
                        render::escape(&refusal.path),
                        refusal.reason
                    ));
                }
                cx.talk.note(message);
            }
            Ok(0)
        }
        Err(error) => render::answer_failure(Err(error), args.json, || data),
    }
}

fn copy(cx: &Cx, args: &CpArgs) -> Result<CopyTotals, CommandError> {
    match (side(&args.source)?, side(&args.destination)?) {
        (CopySide::Here(from), CopySide::Inside(name, to)) => {
            let (name, sandbox) = connect(cx, &name)?;
            let from = cx.host.absolute(&from);
            let target = inside(&sandbox, &to)?;
            let copied = if to.starts_with(HOME) {
                make_parents(&sandbox, &from, &target)
                    .and_then(|()| copy_in(cx, args, &sandbox, &from, &target))
            } else {
                copy_in(cx, args, &sandbox, &from, &target)
            };
            copied.map_err(|error| named(error, &name))
        }
        (CopySide::Inside(name, from), CopySide::Here(to)) => {
            let (name, sandbox) = connect(cx, &name)?;
            let to = cx.host.absolute(&to);
            copy_out(cx, args, &sandbox, &from, &to).map_err(|error| named(error, &name))
        }
        (CopySide::Here(_), CopySide::Here(_)) => Err(CommandError::usage(
            "neither side is in a sandbox",
            "write one of them as NAME:PATH, as in `glovebox cp data.csv work:/tmp/data.csv`",
        )),
        (CopySide::Inside(..), CopySide::Inside(..)) => Err(CommandError::usage(
            "both sides are in sandboxes",
            "copy to this machine first, then into the other sandbox",
        )),
    }
}

/// Parses one side: `NAME:PATH` is in a sandbox; a path with a slash before its first colon is on
/// this machine, as for docker and scp.
fn side(typed: &OsStr) -> Result<CopySide, CommandError> {
    let bytes = typed.as_bytes();
    if bytes.is_empty() {
        return Err(CommandError::usage(
            "an empty path names nothing",
            "write PATH, or NAME:PATH for one in a sandbox",
        ));
    }
    let colon = bytes.iter().position(|&byte| byte == b':');
    let Some(at) = colon.filter(|&at| at > 0 && !bytes[..at].contains(&b'/')) else {
        return Ok(CopySide::Here(PathBuf::from(typed)));
    };
    let name = String::from_utf8_lossy(&bytes[..at]).into_owned();
    let path = match &bytes[at + 1..] {
        b"" => b".".as_slice(),
        path => path,
    };
    Ok(CopySide::Inside(
        name,
        OsString::from_vec(path.to_vec()).into(),
    ))
}

fn connect(cx: &Cx, name: &str) -> Result<(Name, Sandbox), CommandError> {
    let name = super::name(name)?;
    let sandbox = cx.user_registry()?.connect(&name)?;
    Ok((name, sandbox))
}

fn named(mut error: CommandError, name: &Name) -> CommandError {
    if error.kind == Kind::NotFound && error.fault.remedy.is_none() {
        error.fault.remedy =
            Some(format!("`glovebox exec {name} -- ls` shows what is there").into());
    }
    error
}

/// Resolves a path in a sandbox, which may not contain `..`. `~` is the home of commands there; any
/// other relative path starts at the working directory of commands.
fn inside(sandbox: &Sandbox, typed: &Path) -> Result<PathBuf, CommandError> {
    if typed.components().any(|part| part == Component::ParentDir) {
        return Err(CommandError::usage(
            format!("`{}` goes up with `..`", typed.display()),
            "name the path in the sandbox from / or from its workspace",
        ));
    }
    if let Ok(below_home) = typed.strip_prefix(HOME) {
        return Ok(home_inside(sandbox)?
            .join(below_home)
            .components()
            .collect());
    }
    let start = match copied::start_dir(sandbox) {
        Some(dir) => PathBuf::from(OsString::from_vec(dir.into_vec())),
        None if sandbox.info().backend.has_layers() => PathBuf::from(WORKSPACE),
        None => PathBuf::new(),
    };
    // `join` keeps an absolute path; collecting the components drops `.` and double slashes.
    Ok(start.join(typed).components().collect())
}

/// Returns the home directory of commands in the sandbox, as a shell there expands `~`. The guest
/// is asked with every backend: only it knows the home of a login on another machine.
fn home_inside(sandbox: &Sandbox) -> Result<PathBuf, CommandError> {
    // TRUST: a path inside; it is sent back to the same guest only.
    let home = PathBuf::from(OsString::from_vec(sandbox.facts()?.home.into_vec()));
    if !home.is_absolute() {
        return Err(CommandError::usage(
            "commands in this sandbox have no home",
            "name the path in the sandbox from /",
        ));
    }
    Ok(home)
}

/// Creates the missing directories above `target`, after checking that `from` exists. A home inside
/// is empty at first, so the directories of a program's settings are missing.
fn make_parents(sandbox: &Sandbox, from: &Path, target: &Path) -> Result<(), CommandError> {
    fs::metadata(from)
        .map_err(|error| CommandError::io(format!("copy {}", from.display()), &error))?;
    let Some(parent) = target.parent() else {
        return Ok(());
    };
    sandbox.call(Request::Mkdir {
        path: path_bytes(parent),
        permissions: 0o755,
        make_parents: true,
    })?;
    Ok(())
}

/// Returns the kind of a path in the sandbox. None if it does not exist.
fn kind_inside(sandbox: &Sandbox, path: &Path) -> Result<Option<FileKind>, CommandError> {
    match sandbox.stat(&path_bytes(path), true) {
        Ok(stat) => Ok(Some(stat.kind)),
        Err(fault) if fault.code == Code::NotFound => Ok(None),
        Err(fault) => Err(fault.into()),
    }
}

/// Returns the path of the copy of `source`: inside an existing directory, or exactly `to`.
fn target(to: &Path, is_directory: bool, source: &Path, is_contents: bool) -> PathBuf {
    match source.file_name() {
        Some(name) if is_directory && !is_contents => to.join(name),
        _ => to.to_owned(),
    }
}

/// Returns true if the user typed `DIR/.`, the content of a directory without the directory itself.
fn is_contents(typed: &OsStr) -> bool {
    let typed = typed.as_bytes();
    let path = typed.rsplit(|&byte| byte == b':').next().unwrap_or(typed);
    path == b"." || path.ends_with(b"/.")
}

fn odd(path: &Path, why: &str) -> CommandError {
    Fault::failed(
        Code::InvalidArgument,
        format!("cannot copy {}: {why}", path.display()),
    )
    .into()
}

fn copy_in(
    cx: &Cx,
    args: &CpArgs,
    sandbox: &Sandbox,
    from: &Path,
    to: &Path,
) -> Result<CopyTotals, CommandError> {
    let open = |error: std::io::Error| CommandError::io(format!("copy {}", from.display()), &error);
    let found = fs::metadata(from).map_err(open)?;
    let there = kind_inside(sandbox, to)?;
    let is_directory = there == Some(FileKind::Directory);
    let to = target(to, is_directory, from, is_contents(&args.source));
    if found.is_file() {
        let bytes = single_file::send(sandbox, from, &to)?;
        return Ok(CopyTotals::of_file(bytes));
    }
    if !found.is_dir() {
        return Err(odd(from, "it is neither a directory nor a file"));
    }
    match kind_inside(sandbox, &to)? {
        Some(FileKind::Directory) => {}
        Some(_) => return Err(odd(from, &format!("{} is no directory", to.display()))),
        None => {
            sandbox.call(Request::Mkdir {
                path: path_bytes(&to),
                permissions: found.mode() & PERMISSIONS,
                make_parents: false,
            })?;
        }
    }
    let project = from.canonicalize().map_err(open)?;
    let signals = Signals::take_over()?;
    let mut meter = Meter::new(cx.talk, args.json, &signals);
    let spool = Spool::new(sandbox.dir())?;
    let root = path_bytes(&to);
    let place = SandboxRoot {
        sandbox,
        root: &root,
        packing: copied::packing(sandbox),
    };
    let recorded = PushRecords {
        manifest: &spool.0.join("manifest"),
        index: &spool.0.join("index"),
        spool_dir: &spool.0,
    };
    let pushed = copy::push(
        &place,
        &project,
        &|_, _| false,
        &recorded,
        PushOptions {
            overwrite: true,
            ..PushOptions::default()
        },
        &mut |progress| meter.tick(progress),
    )?;
    Ok(CopyTotals {
        files: pushed.files,
        bytes: pushed.bytes,
        skipped: pushed.skipped,
    })
}

/// Private directory for lists, removed when dropped.
struct Spool(PathBuf);

impl Spool {
    fn new(dir: &Path) -> Result<Self, CommandError> {
        let path = dir.join(Name::random("cp").as_str());
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| CommandError::io(format!("make {}", path.display()), &error))?;
        Ok(Self(path))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // A remainder is removed with the sandbox.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy_out(
    cx: &Cx,
    args: &CpArgs,
    sandbox: &Sandbox,
    typed: &Path,
    to: &Path,
) -> Result<CopyTotals, CommandError> {
    let from = inside(sandbox, typed)?;
    let stat = sandbox.stat(&path_bytes(&from), true)?;
    let to = target(to, to.is_dir(), &from, is_contents(&args.source));
    match stat.kind {
        FileKind::File => {
            let bytes = single_file::fetch(sandbox, &from, stat.permissions, &to)?;
            Ok(CopyTotals::of_file(bytes))
        }
        FileKind::Directory => fetch_directory(cx, args, sandbox, &from, &to),
        _ => Err(odd(&from, "it is neither a directory nor a file")),
    }
}

fn fetch_directory(
    cx: &Cx,
    args: &CpArgs,
    sandbox: &Sandbox,
    from: &Path,
    to: &Path,
) -> Result<CopyTotals, CommandError> {
    let signals = Signals::take_over()?;
    let mut meter = Meter::new(cx.talk, args.json, &signals);
    let asked = ChangesRequest {
        name: sandbox.info().name.as_str(),
        exclude: &[],
        include: &[],
        named: &[],
        takes_ignored: true,
        recovers_project: false,
    };
    let taken = sync::collect_outside(cx, &asked, from, &mut |progress| meter.tick(progress))?;
    meter.clear();
    sync::tell_unheld(cx.talk, taken.unheld());
    match DirBuilder::new().mode(PERMISSIONS).create(to) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(CommandError::io(format!("make {}", to.display()), &error));
        }
        _ => {}
    }
    let to = to
        .canonicalize()
        .map_err(|error| CommandError::io(format!("open {}", to.display()), &error))?;
    let set = &taken.collected.set;
    let sizes: Vec<u64> = set.changes.iter().filter_map(size).collect();
    let skipped = set.refused.clone();
    let goal = ApplyTarget::with_conflicts(&to, Resolution::Theirs);
    let goal = goal.telling(sandbox.state_dir(), None);
    let agree = &mut |_: &apply::Review<'_>| Ok::<_, CommandError>(ReviewAnswer::Yes);
    let watch = &mut |progress| meter.tick(progress);
    match apply::apply(taken, goal, &supervisor()?, watch, agree)? {
        ApplyOutcome::Done(_) | ApplyOutcome::Part(_) => Ok(CopyTotals {
            files: sizes.len() as u64,
            bytes: sizes.iter().sum(),
            skipped,
        }),
        ApplyOutcome::Declined(_) => Err(CommandError::interrupted()),
    }
}

/// Returns the size of the file that a change creates or replaces, in bytes. None for any other
/// change.
fn size(change: &Change) -> Option<u64> {
    match change.to()? {
        Node::File { size, .. } => Some(*size),
        Node::Link { .. } | Node::Dir => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_told_apart_by_the_first_colon() {
        let here = |path: &str| CopySide::Here(path.into());
        let inside = |name: &str, path: &str| CopySide::Inside(name.to_owned(), path.into());
        for (typed, want) in [
            ("a.txt", here("a.txt")),
            ("./a:b", here("./a:b")),
            ("/tmp/a:b", here("/tmp/a:b")),
            (":x", here(":x")),
            ("work:/tmp/a:b", inside("work", "/tmp/a:b")),
            ("work:", inside("work", ".")),
        ] {
            assert_eq!(side(OsStr::new(typed)).unwrap(), want, "{typed}");
        }
        assert!(side(OsStr::new("")).is_err());
    }

    #[test]
    fn contents_are_asked_for_with_a_dot() {
        for typed in ["dir/.", ".", "work:dir/.", "work:."] {
            assert!(is_contents(OsStr::new(typed)), "{typed}");
        }
        for typed in ["dir", "dir/", "a.", "work:", "work:x.y"] {
            assert!(!is_contents(OsStr::new(typed)), "{typed}");
        }
    }
}
