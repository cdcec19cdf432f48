//! Files of a git directory that a seed contains: a closed list, read consistently and written
//! anew.

use super::refs::{References, is_object_name, is_reference_name};
use super::settings::{self, Settings};
use super::skipped;
use super::source::{
    Problem, Source, as_path, child_files, entries, join, read, read_optional, read_tail,
};
use super::target::{Target, times_of};
use crate::beneath::Anchor;
use crate::git::{GitHistory, index};
use glovebox_spec::Grant;
use glovebox_spec::seed::{HELD_INSIDE, LIVE_OBJECTS_INSIDE};
use rustix::fs::{FileType, Stat};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Files of one working tree.
const OF_WORKTREE: [&[u8]; 11] = [
    b"ORIG_HEAD",
    b"FETCH_HEAD",
    b"MERGE_HEAD",
    b"MERGE_MSG",
    b"MERGE_MODE",
    b"SQUASH_MSG",
    b"AUTO_MERGE",
    b"CHERRY_PICK_HEAD",
    b"REVERT_HEAD",
    b"REBASE_HEAD",
    b"COMMIT_EDITMSG",
];
/// Prefix of the names of further files of one working tree.
const BISECT: &[u8] = b"BISECT_";
/// Files shared by all working trees.
const COMMON: [&[u8]; 5] = [
    b"description",
    b"shallow",
    b"info/exclude",
    b"info/attributes",
    b"info/grafts",
];
/// Directories that are copied completely: of one working tree, and shared by all.
const TREES_OF_WORKTREE: [&[u8]; 3] = [b"rebase-merge", b"rebase-apply", b"sequencer"];
const COMMON_TREES: [&[u8]; 2] = [b"rr-cache", b"git-crypt"];
/// Maximum number and total size, in bytes, of the files in these directories.
const MAX_TREE_FILES: usize = 10_000;
const MAX_TREE_BYTES: u64 = 64 << 20;
/// Maximum depth of these directories.
const MAX_TREE_DEPTH: usize = 32;
/// Maximum size of a single file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum size of the end of a log that is copied, in bytes.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// Maximum length of a line of a log that is recorded, in bytes.
const MAX_LINE_BYTES: usize = 4 << 10;
/// Maximum size of `objects/info/alternates` in bytes, and maximum number of its lines.
const MAX_ALTERNATES_BYTES: u64 = 256 << 10;
const MAX_ALTERNATES: usize = 64;
/// Directories that are created even if they are empty. `reftable` has a file in place of one of
/// them.
const DIRS: [&str; 7] = [
    "hooks",
    "info",
    "logs",
    "objects/info",
    "objects/pack",
    "refs",
    "refs/tags",
];
/// Number of attempts to read a repository that changes meanwhile.
const TURNS: usize = 3;

/// Facts about a git directory inside.
pub(super) struct Inside<'a> {
    /// Paths of the host that the sandbox sees.
    pub(super) grants: &'a [Grant],
    /// Paths of its working tree that are hidden inside.
    pub(super) hidden: BTreeSet<PathBuf>,
    /// Number of its directory of held objects.
    pub(super) held: usize,
    /// True if its live objects are visible.
    pub(super) is_live: bool,
    /// True if it belongs to a submodule, whose configuration names the working tree.
    pub(super) is_module: bool,
}

/// State of `HEAD` when the seed was made.
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) commit: Option<String>,
    pub(super) branch: Option<String>,
    pub(super) last_log_line: Option<String>,
}

/// A file of the seed.
pub(super) struct PartFile {
    name: Vec<u8>,
    content: Vec<u8>,
    mode: u32,
    /// Attributes of the host's file whose times are preserved; `None` if the time does not matter.
    stat: Option<Stat>,
}

/// Files of a git directory, with the state of its `HEAD`.
pub(super) type ReadParts = (Vec<PartFile>, Head);

/// Attributes that every commit changes, compared before and after reading.
type Moment = Vec<Option<(u64, i64, i64, u64, i64, u64)>>;

/// Copies a repository to the git directory at the path `inside` below `top`. The inner error is
/// the reason for which it cannot be copied.
pub(super) fn copy(
    source: &Source,
    target: &Target,
    top: &Path,
    inside: &Path,
    cx: &Inside<'_>,
) -> io::Result<Result<Head, Problem>> {
    let read = |head, branch: Option<&[u8]>| read_all(source, cx, head, branch);
    match read_at_one_moment(source, read) {
        Ok((files, head)) => {
            write(files, target, top, inside)?;
            Ok(Ok(head))
        }
        Err(problem) => Ok(Err(problem)),
    }
}

/// Writes files as the git directory at the path `inside` below `top`.
pub(super) fn write(
    files: Vec<PartFile>,
    target: &Target,
    top: &Path,
    inside: &Path,
) -> io::Result<()> {
    let place = &top.join(inside);
    for dir in DIRS {
        target.make_parents(top, &place.join(dir).join("x"))?;
    }
    for file in files {
        let path = place.join(as_path(&file.name));
        target.make_parents(place, &path)?;
        let written = target.write(&path, &file.content, file.mode)?;
        if let Some(stat) = &file.stat {
            // Git compares the time of the index with those of files to find entries that it must
            // inspect again.
            rustix::fs::futimens(&written, &times_of(stat))?;
        }
    }
    Ok(())
}

/// Calls `read_once` with the content of `HEAD` and the branch in it until nothing of the
/// repository changed meanwhile. The last attempt counts even if something changed.
pub(super) fn read_at_one_moment(
    source: &Source,
    read_once: impl Fn(Vec<u8>, Option<&[u8]>) -> Result<ReadParts, Problem>,
) -> Result<ReadParts, Problem> {
    for turn in 1.. {
        let (head_text, _) = read(&source.git_dir, b"HEAD", MAX_FILE_BYTES)?
            .ok_or_else(|| Problem::new(b"HEAD", "is missing"))?;
        let branch = branch_of(&head_text);
        let before = moment(source, branch.as_deref());
        let found = read_once(head_text, branch.as_deref())?;
        if turn >= TURNS || moment(source, branch.as_deref()) == before {
            return Ok(found);
        }
    }
    Err(Problem::new(b"HEAD", "changes all the time"))
}

/// Returns the reference that a `HEAD` names; `None` if it is detached.
fn branch_of(head: &[u8]) -> Option<Vec<u8>> {
    let name = head.strip_prefix(b"ref:")?.trim_ascii();
    is_reference_name(name).then(|| name.to_vec())
}

fn moment(source: &Source, branch: Option<&[u8]>) -> Moment {
    let look = |dir: &Anchor, name: &[u8]| {
        let stat = dir.stat(name).ok()?;
        Some((
            stat.st_ino,
            stat.st_size,
            stat.st_mtime,
            stat.st_mtime_nsec,
            stat.st_ctime,
            stat.st_ctime_nsec,
        ))
    };
    vec![
        look(&source.git_dir, b"HEAD"),
        branch.and_then(|name| look(&source.common, name)),
        look(&source.common, b"packed-refs"),
        look(&source.common, b"reftable/tables.list"),
        look(&source.git_dir, b"index"),
    ]
}

/// Reads all files: references first, the index last. A commit in between then appears inside as
/// staged, which can be merged; in the other order, a commit inside would revert it.
fn read_all(
    source: &Source,
    cx: &Inside<'_>,
    head_text: Vec<u8>,
    branch: Option<&[u8]>,
) -> Result<ReadParts, Problem> {
    let (git_dir, common) = (&source.git_dir, &source.common);
    let mut files = Vec::new();
    let references = References::read(source)?;
    let settings = read(common, b"config", MAX_FILE_BYTES)?.map_or(Vec::new(), |(text, _)| text);
    let mut head = head_of(&references, &head_text, branch);
    push(&mut files, b"HEAD", head_text);
    push(&mut files, b"packed-refs", references.packed());
    for (name, text) in references.loose {
        push(&mut files, &name, text);
    }
    add_reftable(common, &mut files)?;
    for name in OF_WORKTREE {
        add(git_dir, name, &mut files)?;
    }
    for name in child_files(git_dir, b".") {
        if name.starts_with(BISECT) {
            add(git_dir, &name, &mut files)?;
        }
    }
    for name in COMMON {
        add(common, name, &mut files)?;
    }
    // With `extensions.worktreeConfig`, each working tree has its own.
    add(git_dir, b"info/sparse-checkout", &mut files)?;
    let mut room = TreeRoom {
        files: MAX_TREE_FILES,
        bytes: MAX_TREE_BYTES,
    };
    for tree in TREES_OF_WORKTREE {
        add_tree(git_dir, tree, 0, &mut room, &mut files)?;
    }
    for tree in COMMON_TREES {
        add_tree(common, tree, 0, &mut room, &mut files)?;
    }
    add_hooks(common, &mut files)?;
    let parsed = Settings::parse(&settings);
    add_logs(source, &parsed, branch, &mut files, &mut head);
    add_settings(source, &settings, cx.is_module, &mut files)?;
    push(
        &mut files,
        b"objects/info/alternates",
        alternates(common, cx)?,
    );
    add_index(git_dir, &cx.hidden, &mut files)?;
    Ok((files, head))
}

/// Returns the state of a `HEAD` with this content.
fn head_of(references: &References, head_text: &[u8], branch: Option<&[u8]>) -> Head {
    Head {
        commit: match branch {
            Some(name) => references.direct.get(name).cloned(),
            None => Some(head_text.trim_ascii().to_vec()).filter(|id| is_object_name(id)),
        }
        .and_then(|id| String::from_utf8(id).ok()),
        branch: branch
            .and_then(|name| name.strip_prefix(b"refs/heads/"))
            .map(|name| String::from_utf8_lossy(name).into_owned()),
        last_log_line: None,
    }
}

/// Reads the files of a repository for a copy on another machine, without objects.
pub(super) fn read_sent(
    source: &Source,
    cx: &Inside<'_>,
    history: GitHistory,
    head_text: Vec<u8>,
    branch: Option<&[u8]>,
) -> Result<ReadParts, Problem> {
    let (git_dir, common) = (&source.git_dir, &source.common);
    if read_part(common, b"reftable/tables.list", MAX_FILE_BYTES)?.is_some() {
        return Err(Problem::new(
            b"reftable",
            "is a store of references that cannot be sent",
        ));
    }
    let mut files = Vec::new();
    let mut references = References::read(source)?;
    let head = head_of(&references, &head_text, branch);
    // The objects of other references are not sent.
    references.direct.retain(|name, _| match history {
        GitHistory::Head => Some(name.as_slice()) == branch,
        GitHistory::Full => name.starts_with(b"refs/heads/") || name.starts_with(b"refs/tags/"),
    });
    let settings = read(common, b"config", MAX_FILE_BYTES)?.map_or(Vec::new(), |(text, _)| text);
    push(&mut files, b"HEAD", head_text);
    push(&mut files, b"packed-refs", references.packed());
    match (history, &head.commit) {
        (GitHistory::Head, Some(commit)) => {
            push(&mut files, b"shallow", format!("{commit}\n").into_bytes());
        }
        (GitHistory::Head, None) => {}
        (GitHistory::Full, _) => add(common, b"shallow", &mut files)?,
    }
    for name in [&b"description"[..], b"info/exclude", b"info/attributes"] {
        add(common, name, &mut files)?;
    }
    add(git_dir, b"info/sparse-checkout", &mut files)?;
    add_hooks(common, &mut files)?;
    add_settings(source, &settings, cx.is_module, &mut files)?;
    add_index(git_dir, &cx.hidden, &mut files)?;
    Ok((files, head))
}

/// Adds the configuration, combined with that of the working tree.
fn add_settings(
    source: &Source,
    settings: &[u8],
    keeps_worktree: bool,
    files: &mut Vec<PartFile>,
) -> Result<(), Problem> {
    let own = read_part(&source.git_dir, b"config.worktree", MAX_FILE_BYTES)?;
    let text = settings::for_seed(
        settings,
        own.as_ref().map(|(text, _)| text.as_slice()),
        &settings::SeedSettings {
            keeps_worktree,
            is_linked: source.is_linked,
        },
    );
    push(files, b"config", text);
    Ok(())
}

/// Adds the index. Must be the last file that is read.
fn add_index(
    git_dir: &Anchor,
    hidden: &BTreeSet<PathBuf>,
    files: &mut Vec<PartFile>,
) -> Result<(), Problem> {
    for name in entries(git_dir, b".") {
        if name.0.starts_with(b"sharedindex.") && name.1 == FileType::RegularFile {
            add_with_time(git_dir, &name.0, files)?;
        }
    }
    add_with_time(git_dir, b"index", files)?;
    if let Some(index) = files.last_mut().filter(|file| file.name == b"index")
        && let Some(skipping) = skipped::skip_hidden(&index.content, hidden)
    {
        index.content = skipping;
    }
    Ok(())
}

fn push(files: &mut Vec<PartFile>, name: &[u8], content: Vec<u8>) {
    files.push(PartFile {
        name: name.to_vec(),
        content,
        mode: 0o644,
        stat: None,
    });
}

/// Reads a file that git can do without. `None` if it does not exist or is not a readable regular
/// file; fails only if it is too long.
fn read_part(
    dir: &Anchor,
    name: &[u8],
    max_bytes: u64,
) -> Result<Option<(Vec<u8>, Stat)>, Problem> {
    match read(dir, name, max_bytes) {
        Err(problem) if !problem.is_too_long() => Ok(None),
        found => found,
    }
}

fn add(dir: &Anchor, name: &[u8], files: &mut Vec<PartFile>) -> Result<(), Problem> {
    if let Some((content, _)) = read_part(dir, name, MAX_FILE_BYTES)? {
        push(files, name, content);
    }
    Ok(())
}

fn add_with_time(dir: &Anchor, name: &[u8], files: &mut Vec<PartFile>) -> Result<(), Problem> {
    if let Some((content, stat)) = read(dir, name, index::MAX_BYTES)? {
        files.push(PartFile {
            name: name.to_vec(),
            content,
            mode: 0o644,
            stat: Some(stat),
        });
    }
    Ok(())
}

/// Adds the tables of references of a repository with the `reftable` format.
fn add_reftable(common: &Anchor, files: &mut Vec<PartFile>) -> Result<(), Problem> {
    let Some((list, _)) = read_part(common, b"reftable/tables.list", MAX_FILE_BYTES)? else {
        return Ok(());
    };
    for name in list
        .split(|byte| *byte == b'\n')
        .filter(|name| !name.is_empty())
    {
        if name.contains(&b'/') {
            return Err(Problem::new(
                b"reftable/tables.list",
                "names another directory",
            ));
        }
        let path = join(b"reftable", name);
        let (content, _) = read(common, &path, index::MAX_BYTES)?
            .ok_or_else(|| Problem::new(&path, "is missing"))?;
        push(files, &path, content);
    }
    push(files, b"reftable/tables.list", list);
    // Repositories of this format have a file in place of the directory, which keeps git versions
    // without `reftable` from writing there.
    if let Some((content, _)) = read_optional(common, b"refs/heads", MAX_FILE_BYTES) {
        push(files, b"refs/heads", content);
    }
    Ok(())
}

/// Remaining number and size of files in the directories that are copied completely.
struct TreeRoom {
    files: usize,
    bytes: u64,
}

fn add_tree(
    dir: &Anchor,
    path: &[u8],
    depth: usize,
    room: &mut TreeRoom,
    files: &mut Vec<PartFile>,
) -> Result<(), Problem> {
    let too_large = || Problem::new(path, "holds too much");
    if depth > MAX_TREE_DEPTH {
        return Err(too_large());
    }
    for (name, kind) in entries(dir, path) {
        let child = join(path, &name);
        if kind == FileType::Directory {
            add_tree(dir, &child, depth + 1, room, files)?;
            continue;
        }
        let Some((content, stat)) = read_part(dir, &child, room.bytes)? else {
            continue;
        };
        room.files = room.files.checked_sub(1).ok_or_else(too_large)?;
        room.bytes = room.bytes.saturating_sub(content.len() as u64);
        files.push(PartFile {
            name: child,
            content,
            mode: stat.st_mode & 0o777,
            stat: None,
        });
    }
    Ok(())
}

/// Adds the project's hooks. They run inside only.
fn add_hooks(common: &Anchor, files: &mut Vec<PartFile>) -> Result<(), Problem> {
    for name in child_files(common, b"hooks") {
        let path = join(b"hooks", &name);
        if name.ends_with(b".sample") {
            continue;
        }
        if let Some((content, stat)) = read_part(common, &path, MAX_FILE_BYTES)? {
            files.push(PartFile {
                name: path,
                content,
                mode: stat.st_mode & 0o777,
                stat: None,
            });
        }
    }
    Ok(())
}

/// Adds the ends of the logs of `HEAD`, the stashes, the branch that is checked out and its
/// upstream.
fn add_logs(
    source: &Source,
    settings: &Settings,
    branch: Option<&[u8]>,
    files: &mut Vec<PartFile>,
    head: &mut Head,
) {
    let mut add = |dir: &Anchor, name: &[u8]| {
        let path = join(b"logs", name);
        let (content, _) = read_tail(dir, &path, MAX_LOG_BYTES)?;
        push(files, &path, content.clone());
        Some(content)
    };
    if let Some(log) = add(&source.git_dir, b"HEAD") {
        let line = log.strip_suffix(b"\n").unwrap_or(&log);
        let line = line.rsplit(|byte| *byte == b'\n').next();
        let line = line.filter(|line| !line.is_empty());
        head.last_log_line = line.map(|line| {
            String::from_utf8_lossy(&line[..line.len().min(MAX_LINE_BYTES)]).into_owned()
        });
    }
    add(&source.common, b"refs/stash");
    if let Some(branch) = branch {
        add(&source.common, branch);
        let short = branch.strip_prefix(b"refs/heads/");
        let upstream = short.and_then(|short| settings.upstream(short));
        if let Some(upstream) = upstream.filter(|name| is_reference_name(name)) {
            add(&source.common, &upstream);
        }
    }
}

/// Returns the alternates of a seed, in this order: held objects, live objects, and the project's
/// alternates that are visible in the sandbox.
fn alternates(common: &Anchor, cx: &Inside<'_>) -> Result<Vec<u8>, Problem> {
    let mut text = format!("{HELD_INSIDE}/{}\n", cx.held).into_bytes();
    if cx.is_live {
        text.extend_from_slice(LIVE_OBJECTS_INSIDE.as_bytes());
        text.push(b'\n');
    }
    for path in listed_alternates(common)? {
        if let Some(shown) = shown_at(&path, cx.grants) {
            text.extend_from_slice(shown.as_os_str().as_bytes());
            text.push(b'\n');
        }
    }
    Ok(text)
}

/// Returns the alternates of a repository as absolute paths, with links resolved.
pub(super) fn listed_alternates(common: &Anchor) -> Result<Vec<PathBuf>, Problem> {
    let path = b"objects/info/alternates";
    let Some((text, _)) = read_part(common, path, MAX_ALTERNATES_BYTES)? else {
        return Ok(Vec::new());
    };
    let objects = common.path().join("objects");
    let lines = text.split(|byte| *byte == b'\n');
    let listed: Vec<PathBuf> = lines
        .filter(|line| !line.is_empty() && !line.starts_with(b"#"))
        .map(|line| objects.join(OsStr::from_bytes(line)))
        .map(|path| path.canonicalize().unwrap_or(path))
        .collect();
    if listed.len() > MAX_ALTERNATES {
        return Err(Problem::new(path, "names more than 64 directories"));
    }
    Ok(listed)
}

/// Returns the path at which a path of the host is visible inside; `None` if no grant covers it.
pub(super) fn shown_at(path: &Path, grants: &[Grant]) -> Option<PathBuf> {
    grants.iter().find_map(|grant| {
        let source = grant.source.canonicalize().ok()?;
        let rest = path.strip_prefix(source).ok()?;
        Some(grant.target.join(rest))
    })
}
