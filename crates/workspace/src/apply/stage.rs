//! Staging: copies the contents that a commit needs next to their targets, checks them and writes
//! the journal.

use super::abilities::{require_distinct, require_space, try_out};
use super::journal::{Journal, Staging};
use super::operation::Operation;
use super::{Destination, attributes};
use crate::base::{Kind, Signature};
use crate::beneath::{digest, io, stat_at, write_sparse};
use crate::progress::{Progress, Watch, report};
use crate::{
    AppliedChange, CollectedChanges, Digest, Effect, Node, Plan, RefusalReason, RefusedPath,
    RelPath, Stage, Step, SyncError,
};
use glovebox_proto::{Code, Fault};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// Mode bit of a directory whose group new entries inherit.
const SETGID: u32 = 0o2000;
/// Maximum number of files that are synchronized one by one. For more, `syncfs(2)` is faster.
const SYNC_FILES: u64 = 64;
/// Number of threads that synchronize files.
const SYNC_THREADS: usize = 8;

/// A complete staging directory. Dropping it removes the directory.
#[derive(Debug)]
pub struct StagedChanges {
    /// `None` once it was handed over.
    staging: Option<Staging>,
    parent: OwnedFd,
    path: PathBuf,
    lost_groups: Vec<RelPath>,
    unheld: Vec<RefusedPath>,
}

impl StagedChanges {
    /// Links and modes that the file system of the destination cannot store. They are not applied;
    /// the content of a file is applied without its mode.
    pub fn unheld(&self) -> &[RefusedPath] {
        &self.unheld
    }

    /// Files whose group will differ from that of the files they replace, because the user is not a
    /// member of it.
    pub fn lost_groups(&self) -> &[RelPath] {
        &self.lost_groups
    }

    /// Returns the path of the staging directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory for a call of [`super::commit`] with the returned path, in this or
    /// another process.
    pub fn hand_over(mut self) -> PathBuf {
        self.staging = None;
        self.path.clone()
    }
}

impl Drop for StagedChanges {
    fn drop(&mut self) {
        if let Some(staging) = self.staging.take() {
            staging.remove(self.parent.as_fd(), None);
        }
    }
}

pub(super) fn stage(
    destination: &Destination,
    plan: &Plan,
    collected: &CollectedChanges,
    watch: &mut Watch<'_>,
) -> Result<StagedChanges, SyncError> {
    let failed = |fault| SyncError::pull(Stage::Apply, fault);
    let anchor = &destination.anchor;
    let contents = plan.steps.iter().filter_map(|step| match step {
        Step::Write {
            node: Node::File { size, .. },
            ..
        } => Some(*size),
        _ => None,
    });
    let (mut total_files, mut total_bytes) = (0_u64, 0_u64);
    for size in contents {
        total_files += 1;
        total_bytes = total_bytes.saturating_add(size);
    }
    require_space(anchor, total_files, total_bytes).map_err(failed)?;
    let parent = anchor
        .dir(b"")
        .map_err(|errno| failed(io("open", anchor.path(), errno)))?;
    let staging = Staging::make(anchor.as_fd(), anchor.path()).map_err(failed)?;
    let mut staged = StagedChanges {
        path: staging.path.clone(),
        staging: Some(staging),
        parent,
        lost_groups: Vec::new(),
        unheld: Vec::new(),
    };
    let Some(staging) = &staged.staging else {
        return Ok(staged);
    };
    let abilities = try_out(staging).map_err(failed)?;
    if abilities.folds_case {
        require_distinct(anchor, plan).map_err(failed)?;
    }
    let mut stager = Stager {
        destination,
        plan,
        collected,
        staging,
        watch,
        can_exchange: abilities.can_exchange,
        keeps_modes: abilities.keeps_modes,
        is_root: rustix::process::geteuid().is_root(),
        journal: Journal::default(),
        lost_groups: Vec::new(),
        unheld: Vec::new(),
        next_slot: 0,
        files: 0,
        bytes: 0,
        total_files,
        total_bytes,
        unsynced: Vec::new(),
    };
    for step in &plan.steps {
        stager.step(step)?;
    }
    for (path, content) in &plan.bases {
        stager.keep_base(path, content)?;
    }
    let (mut journal, unsynced) = (stager.journal, stager.unsynced);
    staged.lost_groups = stager.lost_groups;
    staged.unheld = stager.unheld;
    journal.base_index = destination
        .base
        .as_ref()
        .map(|base| base.index.clone().into_os_string().into_vec());
    // A file that was merged or taken in part differs from the sandbox's version, so it remains a
    // change of the host.
    let left: HashSet<&[u8]> = staged
        .unheld
        .iter()
        .map(|one| one.path.as_slice())
        .collect();
    let is_whole = |done: &&AppliedChange| {
        !done.is_merged && done.part.is_none() && !left.contains(done.path.as_bytes())
    };
    for done in plan.outcome.applied.iter().filter(is_whole) {
        journal.applied.push(done.path.clone());
        if let Effect::Renamed { source } = &done.effect {
            journal.applied.push(source.clone());
        }
    }
    let whole: HashSet<&RelPath> = journal.applied.iter().collect();
    for step in &plan.steps {
        if let Step::Write { path, node, .. } = step
            && let Node::File {
                digest: Some(digest),
                ..
            } = node
            && whole.contains(path)
        {
            journal.digests.push((path.clone(), *digest));
        }
    }
    for path in &plan.settled {
        if let Some(signature) = destination.seen.get(path) {
            journal.settled.push((path.clone(), *signature));
        }
    }
    let theirs = plan.outcome.conflicts.iter();
    journal.theirs = theirs
        .filter_map(|conflict| conflict.theirs.clone())
        .collect();
    // The contents must be on the disk before the journal: after a crash, a recovery must not find
    // a journal that names incomplete files.
    let synced = if total_files > SYNC_FILES {
        rustix::fs::syncfs(&staging.dir).map_err(std::io::Error::from)
    } else {
        sync(&unsynced)
    };
    synced.map_err(|error| failed(io("write", &staged.path, error)))?;
    staging.write_journal(&journal).map_err(failed)?;
    Ok(staged)
}

/// Waits until contents are on the disk. Calls in parallel let a file system combine them into one
/// wait.
fn sync(files: &[File]) -> std::io::Result<()> {
    let Some((first, rest)) = files.split_first() else {
        return Ok(());
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = rest
            .chunks(rest.len().div_ceil(SYNC_THREADS).max(1))
            .map(|chunk| {
                let work = || chunk.iter().try_for_each(File::sync_data);
                // If no thread can be started, this thread does the work afterwards.
                std::thread::Builder::new()
                    .spawn_scoped(scope, work)
                    .map_err(|_| work)
            })
            .collect();
        let mut result = first.sync_data();
        for other in others {
            let synced = match other {
                Ok(thread) => thread
                    .join()
                    .unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into())),
                Err(work) => work(),
            };
            result = result.and(synced);
        }
        result
    })
}

struct Stager<'a, 'w> {
    destination: &'a Destination,
    plan: &'a Plan,
    collected: &'a CollectedChanges,
    staging: &'a Staging,
    watch: &'a mut Watch<'w>,
    can_exchange: bool,
    keeps_modes: bool,
    is_root: bool,
    journal: Journal,
    /// Paths whose group this user may not set.
    lost_groups: Vec<RelPath>,
    /// Links and modes that the file system cannot store.
    unheld: Vec<RefusedPath>,
    next_slot: u32,
    files: u64,
    bytes: u64,
    total_files: u64,
    total_bytes: u64,
    /// Open files whose contents may not be on the disk yet.
    unsynced: Vec<File>,
}

impl Stager<'_, '_> {
    fn step(&mut self, step: &Step) -> Result<(), SyncError> {
        let operation = match step {
            Step::Keep { path, kept } => Operation::Move {
                path: path.clone(),
                to: kept.clone(),
                expected: self.seen(path)?,
            },
            Step::Remove { path } | Step::RemoveDir { path } => Operation::TakeOut {
                path: path.clone(),
                slot: self.slot(),
                expected: self.seen(path)?,
            },
            // In a setgid directory the kernel sets group and mode bit by itself.
            Step::MakeDir { path } => Operation::MakeDir {
                path: path.clone(),
                owner: self.is_root.then(|| self.owner_in_parent(path)),
            },
            Step::SetExecutable { path, .. } if !self.keeps_modes => {
                self.leave(path, RefusalReason::NoModes);
                return Ok(());
            }
            Step::SetExecutable {
                path,
                is_executable,
            } => {
                let expected = self.seen(path)?;
                Operation::SetMode {
                    path: path.clone(),
                    mode: mode_of(&expected).map_or(0o644, |mode| with_x(mode, *is_executable)),
                    expected,
                }
            }
            Step::Write {
                path,
                source,
                node,
                replaces,
            } => {
                let expected = if *replaces {
                    Some(self.seen(path)?)
                } else {
                    None
                };
                let Some((slot, made)) = self.write(path, source, node, expected.as_ref())? else {
                    self.leave(path, RefusalReason::NoLinks);
                    return Ok(());
                };
                match expected {
                    Some(expected) if self.can_exchange => Operation::Exchange {
                        path: path.clone(),
                        slot,
                        made,
                        expected,
                    },
                    // Without an exchange, the path does not exist for a moment between the two
                    // renames.
                    Some(expected) => {
                        let out = self.slot();
                        self.journal.operations.push(Operation::TakeOut {
                            path: path.clone(),
                            slot: out,
                            expected,
                        });
                        Operation::PutIn {
                            path: path.clone(),
                            slot,
                            made,
                        }
                    }
                    None => Operation::PutIn {
                        path: path.clone(),
                        slot,
                        made,
                    },
                }
            }
        };
        self.journal.operations.push(operation);
        Ok(())
    }

    /// Records a link or mode that the file system cannot store.
    fn leave(&mut self, path: &RelPath, reason: RefusalReason) {
        self.unheld.push(RefusedPath {
            path: path.as_bytes().to_vec(),
            reason,
        });
    }

    fn slot(&mut self) -> u32 {
        self.next_slot += 1;
        self.next_slot
    }

    fn seen(&self, path: &RelPath) -> Result<Signature, SyncError> {
        self.destination.seen.get(path).copied().ok_or_else(|| {
            let message = format!("the plan for `{path}` was made for another destination");
            SyncError::pull(Stage::Apply, Fault::failed(Code::InvalidArgument, message))
        })
    }

    /// Copies one file or link into the staging directory. `None` for a link if the file system
    /// does not support them.
    fn write(
        &mut self,
        path: &RelPath,
        source: &RelPath,
        node: &Node,
        replaced: Option<&Signature>,
    ) -> Result<Option<(u32, Signature)>, SyncError> {
        let slot = self.slot();
        let name = slot.to_string();
        let cannot = |error: std::io::Error| {
            let at = self.destination.anchor.path().join(path.as_path());
            SyncError::pull(Stage::Apply, io("write", &at, error))
        };
        let new = &self.staging.new;
        match node {
            Node::Link { target } => {
                match rustix::fs::symlinkat(target.as_slice(), new, &name) {
                    Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP) => return Ok(None),
                    made => made.map_err(|errno| cannot(errno.into()))?,
                }
                let (uid, gid) = self.owner_of(path, replaced);
                match rustix::fs::chownat(new, &name, uid, gid, AtFlags::SYMLINK_NOFOLLOW) {
                    // The group of a link has no effect.
                    Err(_) if uid.is_none() => {}
                    given => given.map_err(|errno| cannot(errno.into()))?,
                }
            }
            Node::Dir => {}
            Node::File {
                size,
                is_executable,
                digest,
            } => {
                // The umask applies, as for any file that the user creates.
                let mode = if *is_executable { 0o777 } else { 0o666 };
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(new, &name, flags, Mode::from_raw_mode(mode))
                    .map_err(|errno| cannot(errno.into()))?;
                let file = File::from(fd);
                let owner = self.owner_of(path, replaced);
                let mut is_group_lost = false;
                let mut finish = |file: &File| -> std::io::Result<()> {
                    // The owner is set before the permissions, because a change of owner clears
                    // special bits.
                    let (uid, gid) = owner;
                    let has = rustix::fs::fstat(file)?;
                    let is_given = gid.is_none_or(|gid| gid.as_raw() == has.st_gid)
                        && uid.is_none_or(|uid| uid.as_raw() == has.st_uid);
                    // A file system without owners may refuse even a change to the current owner.
                    if !is_given && let Err(errno) = rustix::fs::fchown(file, uid, gid) {
                        if uid.is_some() {
                            return Err(errno.into());
                        }
                        // The user is not a member of the group, so the file gets another one.
                        is_group_lost = true;
                    }
                    if let Some(before) = replaced.and_then(mode_of) {
                        // An access control list changes the mode, so it is set before the mode.
                        attributes::keep(&self.destination.anchor, path, file);
                        let mode = with_x(before, *is_executable);
                        if self.keeps_modes {
                            rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
                        }
                    }
                    Ok(())
                };
                finish(&file).map_err(cannot)?;
                if !self.keeps_modes && *is_executable {
                    let has = rustix::fs::fstat(&file).map_err(|errno| cannot(errno.into()))?;
                    if has.st_mode & 0o100 == 0 {
                        self.leave(path, RefusalReason::NoModes);
                    }
                }
                if is_group_lost {
                    self.lost_groups.push(path.clone());
                }
                match self.plan.merged.get(path) {
                    Some(content) => {
                        (&file).write_all(content).map_err(cannot)?;
                        self.bytes += size;
                    }
                    None => self.copy(path, source, &file, *size, *digest)?,
                }
                if self.total_files <= SYNC_FILES {
                    self.unsynced.push(file);
                }
                self.files += 1;
                if self.files.is_multiple_of(32) || self.files == self.total_files {
                    self.report()?;
                }
            }
        }
        // The signature is read last, because writing the content and setting attributes change it.
        // An undo compares with it.
        let stat = stat_at(self.staging.new.as_fd(), name.as_bytes()).map_err(|errno| {
            SyncError::pull(Stage::Apply, io("inspect", &self.staging.path, errno))
        })?;
        Ok(Some((slot, Signature::from(&stat))))
    }

    /// Stores the content that becomes the base of a path after the commit.
    fn keep_base(&mut self, path: &RelPath, content: &[u8]) -> Result<(), SyncError> {
        let slot = self.slot();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::openat(&self.staging.new, slot.to_string(), flags, mode)
            .map_err(std::io::Error::from)
            .and_then(|fd| File::from(fd).write_all(content))
            .map_err(|error| {
                SyncError::pull(Stage::Apply, io("write", &self.staging.path, error))
            })?;
        self.journal.bases.push((path.clone(), slot));
        Ok(())
    }

    /// Copies a content and compares it with what was collected.
    // TRUST: a sandbox that still runs may have changed or extended the file since.
    fn copy(
        &mut self,
        path: &RelPath,
        source: &RelPath,
        file: &File,
        size: u64,
        expected: Option<Digest>,
    ) -> Result<(), SyncError> {
        let changed = || {
            SyncError::pull(
                Stage::Validate,
                Fault::failed(
                    Code::Busy,
                    format!("`{source}` changed in the sandbox while it was copied"),
                )
                .remedy("try again, when nothing runs in the sandbox")
                .retryable(),
            )
        };
        let mut content = self
            .collected
            .open(source)
            .map_err(|fault| SyncError::pull(Stage::Transfer, fault))?;
        let before = self.bytes;
        let mut done = 0_u64;
        let mut wrong = None;
        let (files, total_files, total_bytes) = (self.files, self.total_files, self.total_bytes);
        let watch = &mut *self.watch;
        let result = digest(&mut content, size, &mut |block| {
            if let Err(error) = write_sparse(file, done, block) {
                let at = self.destination.anchor.path().join(path.as_path());
                wrong = Some(SyncError::pull(Stage::Apply, io("write", &at, error)));
                return Err(std::io::ErrorKind::Other.into());
            }
            let earlier = done / (4 << 20);
            done += block.len() as u64;
            if done / (4 << 20) != earlier {
                let bytes = before + done;
                let progress = Progress::Staging {
                    files,
                    total_files,
                    bytes,
                    total_bytes,
                };
                if let Err(fault) = report(watch, progress) {
                    wrong = Some(SyncError::pull(Stage::Apply, fault));
                    return Err(std::io::ErrorKind::Other.into());
                }
            }
            Ok(())
        });
        match result {
            Ok((sum, read)) if read == size && Some(sum) == expected => {
                self.bytes += size;
                // A hole at the end does not extend the file by itself.
                file.set_len(size).map_err(|error| {
                    let at = self.destination.anchor.path().join(path.as_path());
                    SyncError::pull(Stage::Apply, io("write", &at, error))
                })
            }
            Ok(_) => Err(changed()),
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => Err(changed()),
            Err(error) => Err(wrong.unwrap_or_else(|| {
                let fault = io("read the sandbox's version of", source.as_path(), error);
                SyncError::pull(Stage::Transfer, fault)
            })),
        }
    }

    /// Returns owner and group of a staged file: those of the file it replaces, else those that the
    /// kernel would give it in its target directory. The owner is `None` unless this process is
    /// root.
    fn owner_of(&self, path: &RelPath, replaced: Option<&Signature>) -> (Option<Uid>, Option<Gid>) {
        let anchor = &self.destination.anchor;
        let replaced = replaced.and_then(|_| anchor.stat_within(path.as_bytes()).ok());
        let (uid, gid) = match replaced {
            Some(stat) => (stat.st_uid, stat.st_gid),
            None => self.owner_in_parent(path),
        };
        (
            self.is_root.then(|| Uid::from_raw(uid)),
            Some(Gid::from_raw(gid)),
        )
    }

    /// Returns the owner of the nearest existing directory above a path, and the group that new
    /// entries of it get. Root uses the directory's group, so that the files of a project have the
    /// same owners.
    fn owner_in_parent(&self, path: &RelPath) -> (u32, u32) {
        let anchor = &self.destination.anchor;
        let mut above = path.parent();
        let stat = loop {
            let Some(dir) = above else {
                break rustix::fs::fstat(anchor).ok();
            };
            match anchor.stat_within(dir.as_bytes()) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                    break Some(stat);
                }
                _ => above = dir.parent(),
            }
        };
        let own_gid = rustix::process::getegid().as_raw();
        match stat {
            Some(stat) if self.is_root || stat.st_mode & SETGID != 0 => (stat.st_uid, stat.st_gid),
            Some(stat) => (stat.st_uid, own_gid),
            None => (rustix::process::geteuid().as_raw(), own_gid),
        }
    }

    fn report(&mut self) -> Result<(), SyncError> {
        let progress = Progress::Staging {
            files: self.files,
            total_files: self.total_files,
            bytes: self.bytes,
            total_bytes: self.total_bytes,
        };
        report(self.watch, progress).map_err(|fault| SyncError::pull(Stage::Apply, fault))
    }
}

/// Returns the permission bits of a regular file, without special bits. `None` for other objects.
fn mode_of(signature: &Signature) -> Option<u32> {
    match signature {
        Signature::Present {
            kind: Kind::File,
            mode,
            ..
        } => Some(mode & 0o777),
        _ => None,
    }
}

/// Sets or clears execute permissions. Setting them gives execute permission to the owner and to
/// everyone with read permission; clearing removes all of them.
fn with_x(mode: u32, is_executable: bool) -> u32 {
    match (is_executable, mode & 0o100 != 0) {
        (true, false) => mode | ((mode & 0o444) >> 2) | 0o100,
        (false, true) => mode & !0o111,
        _ => mode,
    }
}
