//! Sender of a push: decides about every path, reads the project's files, and sends them.

use super::difference::{Step, Steps};
use super::digest::{Answers, ReadDigest};
use super::entry::{Row, SeenEntry, SeenKind};
use super::manifest::{FileSide, Line, LineKind, Sameness};
use super::near::OpenProject;
use super::push::{PushOptions, PushTotals};
use super::receipt::{PendingDecision, ReceiptDecision};
use super::remember::{HashedFile, index_signature, refreshed, settled};
use super::walk::signature;
use crate::base;
use crate::beneath::{Anchor, io};
use crate::{RefusalReason, RefusedPath, RelPath};
use glovebox_proto::tree::{Packer, Packing, PutItem, Signature};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Input;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

/// Number of bytes sent at a time.
const SEND_BYTES: usize = 64 << 10;
/// Number of unchanged files that are handed over at a time.
const SAME_BATCH: usize = 64;
/// Maximum number of paths that are listed by name.
const MAX_LISTED: usize = 1000;

/// Progress of a push, shared with another thread.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) files: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// A directory whose deletion or replacement waits until everything in it has been decided.
#[derive(Debug)]
struct DeferredDirectory {
    path: RelPath,
    /// Entry that replaces the directory; `None` deletes it.
    host: Option<SeenEntry>,
    /// True if the directory has content of the sandbox that stays.
    is_kept: bool,
}

/// Decision about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Do nothing and record nothing: the path is the sandbox's own, or neither side has it.
    Ignore,
    /// Keep the sandbox's version: the project has not changed it.
    Keep,
    /// Record the path: both sides have the same version.
    Adopt,
    Put,
    Delete,
    Conflict,
}

pub(super) struct Sender<'a> {
    anchor: &'a Anchor,
    files: OpenProject<'a>,
    options: PushOptions,
    told: Answers,
    input: Input,
    decided: SyncSender<ReceiptDecision>,
    /// Unchanged files that have not been handed over.
    same: Vec<Line>,
    sums: &'a Sums,
    packer: Packer,
    out: Vec<u8>,
    buffer: Vec<u8>,
    deferred: Vec<DeferredDirectory>,
    /// Nested directories of the project that the sandbox has deleted.
    missing: Vec<RelPath>,
    /// Directory of the project at whose path the sandbox has something else.
    blocked: Option<RelPath>,
    pushed: PushTotals,
}

impl<'a> Sender<'a> {
    pub(super) fn new(
        anchor: &'a Anchor,
        options: PushOptions,
        told: Answers,
        input: Input,
        decided: SyncSender<ReceiptDecision>,
        sums: &'a Sums,
        packing: Packing,
    ) -> Result<Self, Fault> {
        Ok(Self {
            anchor,
            files: OpenProject::new(anchor),
            options,
            told,
            input,
            decided,
            same: Vec::new(),
            sums,
            packer: Packer::new(packing)?,
            out: Vec::new(),
            buffer: Vec::new(),
            deferred: Vec::new(),
            missing: Vec::new(),
            blocked: None,
            pushed: PushTotals::default(),
        })
    }

    /// Takes all steps. Cancels the request on failure.
    pub(super) fn run(mut self, steps: &mut dyn Steps) -> Result<PushTotals, Fault> {
        let result = self.run_steps(steps);
        if result.is_err() {
            let _ = self.input.cancel();
        }
        result.map(|()| self.pushed)
    }

    fn run_steps(&mut self, steps: &mut dyn Steps) -> Result<(), Fault> {
        while let Some(step) = steps.next_step()? {
            match step {
                Step::Same(line) => self.same(line)?,
                Step::Row(row) => self.row(*row)?,
            }
        }
        self.leave(None)?;
        self.hand_over_same()?;
        self.flush(true)?;
        self.input.finish()
    }

    /// Handles a file that both sides have unchanged.
    fn same(&mut self, line: Line) -> Result<(), Fault> {
        self.leave(Some(&line.path))?;
        if self.is_blocked(&line.path) {
            let path = line.path.clone();
            return self.stay(&path, Some(line));
        }
        self.pushed.unchanged += 1;
        self.same.push(line);
        if self.same.len() < SAME_BATCH {
            return Ok(());
        }
        self.hand_over_same()
    }

    fn is_blocked(&self, path: &RelPath) -> bool {
        let blocked = self.blocked.as_ref();
        blocked.is_some_and(|blocked| path.starts_with(blocked))
    }

    fn row(&mut self, row: Row) -> Result<(), Fault> {
        let told = self.told.about(&row.path)?;
        self.leave(Some(&row.path))?;
        let Row {
            path,
            base,
            host,
            inside,
        } = row;
        if self.is_blocked(&path) {
            return self.stay(&path, base);
        }
        if let Some(host) = &host
            && !matches!(
                host.kind,
                SeenKind::File { .. } | SeenKind::Dir | SeenKind::Link { .. }
            )
        {
            self.skip(&path, RefusalReason::Special);
            return self.remember(&path, base, host);
        }
        let mut hashed = None;
        let verdict = self.decide(
            base.as_ref(),
            host.as_ref(),
            inside.as_ref(),
            told.as_ref(),
            &mut hashed,
        )?;
        self.carry_out(verdict, path, base, host, inside, told.as_ref(), hashed)
    }

    fn decide(
        &mut self,
        base: Option<&Line>,
        host: Option<&SeenEntry>,
        inside: Option<&SeenEntry>,
        told: Option<&ReadDigest>,
        hashed: &mut Option<HashedFile>,
    ) -> Result<Verdict, Fault> {
        let is_as_base = |line: &Line, seen: &SeenEntry| match line.compare(seen, FileSide::Inside)
        {
            Sameness::Yes => true,
            Sameness::No => false,
            Sameness::Perhaps => told.map(|told| (told.size, told.digest)) == line.digest(),
        };
        let Some(host) = host else {
            return Ok(match (base, inside) {
                (None, Some(_)) => {
                    self.keep_above();
                    Verdict::Ignore
                }
                (_, None) => Verdict::Ignore,
                (Some(line), Some(inside)) if is_as_base(line, inside) => Verdict::Delete,
                // A conflict even with `overwrite`: the project has no version to replace it.
                (Some(_), Some(_)) => Verdict::Conflict,
            });
        };
        if let Some(line) = base {
            let is_unchanged = match line.compare(host, FileSide::Host) {
                Sameness::Yes => true,
                Sameness::No => false,
                Sameness::Perhaps => {
                    *hashed = self.hash(host)?;
                    hashed.map(|hashed| (hashed.size, hashed.digest)) == line.digest()
                }
            };
            if is_unchanged {
                return Ok(Verdict::Keep);
            }
        }
        let contest = if self.options.overwrite {
            Verdict::Put
        } else {
            Verdict::Conflict
        };
        Ok(match (base, inside) {
            (None, None) => Verdict::Put,
            (Some(_), None) => contest,
            (Some(line), Some(inside)) if is_as_base(line, inside) => Verdict::Put,
            (_, Some(inside)) => {
                if self.is_same(host, inside, told, hashed)? {
                    Verdict::Adopt
                } else {
                    contest
                }
            }
        })
    }

    /// Returns true if both sides have the same version now.
    fn is_same(
        &mut self,
        host: &SeenEntry,
        inside: &SeenEntry,
        told: Option<&ReadDigest>,
        hashed: &mut Option<HashedFile>,
    ) -> Result<bool, Fault> {
        Ok(match (&host.kind, &inside.kind) {
            (SeenKind::Dir, SeenKind::Dir) => true,
            (SeenKind::Link { target }, SeenKind::Link { target: theirs }) => target == theirs,
            (SeenKind::File { .. }, SeenKind::File { .. }) => {
                let Some(told) = told else { return Ok(false) };
                if host.signature.is_executable() != inside.signature.is_executable() {
                    return Ok(false);
                }
                if hashed.is_none() {
                    *hashed = self.hash(host)?;
                }
                hashed.is_some_and(|own| (own.size, own.digest) == (told.size, told.digest))
            }
            _ => false,
        })
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "everything that is known about one path, used up here"
    )]
    fn carry_out(
        &mut self,
        verdict: Verdict,
        path: RelPath,
        base: Option<Line>,
        host: Option<SeenEntry>,
        inside: Option<SeenEntry>,
        told: Option<&ReadDigest>,
        hashed: Option<HashedFile>,
    ) -> Result<(), Fault> {
        match (verdict, host) {
            (Verdict::Ignore, _) | (Verdict::Keep | Verdict::Adopt | Verdict::Put, None) => Ok(()),
            (Verdict::Conflict, _) => {
                let is_dir = inside.is_some_and(|seen| seen.is_dir());
                if !is_dir {
                    self.blocked = Some(path.clone());
                }
                self.conflict(&path, base)
            }
            (Verdict::Delete, _) => {
                self.pushed.deleted += 1;
                if inside.is_some_and(|seen| seen.is_dir()) {
                    self.deferred.push(DeferredDirectory {
                        path,
                        host: None,
                        is_kept: false,
                    });
                    return Ok(());
                }
                self.delete(&path)
            }
            (Verdict::Keep | Verdict::Adopt, Some(host)) => {
                if host.is_dir() {
                    match &inside {
                        None => self.missing.push(path.clone()),
                        Some(seen) if !seen.is_dir() => self.blocked = Some(path.clone()),
                        Some(_) => {}
                    }
                }
                self.pushed.unchanged += 1;
                let line = refreshed(path, base, &host, inside.as_ref(), told, hashed);
                self.queue(PendingDecision {
                    index: Some((line.path.clone(), index_signature(&host))),
                    line: Some(line),
                    awaits_receipt: false,
                })
            }
            (Verdict::Put, Some(host)) => {
                if inside.is_some_and(|seen| seen.is_dir()) && !host.is_dir() {
                    self.deferred.push(DeferredDirectory {
                        path,
                        host: Some(host),
                        is_kept: false,
                    });
                    return Ok(());
                }
                self.put(&host, base)
            }
        }
    }

    /// Reports a path that both sides changed. Nothing is sent, and the former state stays
    /// recorded.
    fn conflict(&mut self, path: &RelPath, base: Option<Line>) -> Result<(), Fault> {
        if self.pushed.conflicts.len() < MAX_LISTED {
            self.pushed.conflicts.push(path.clone());
        }
        self.stay(path, base)
    }

    /// Keeps the former state of a path, and records the project's version as changed.
    fn stay(&mut self, path: &RelPath, base: Option<Line>) -> Result<(), Fault> {
        // Lines must be sorted, so none is recorded below a directory that waits.
        let has_place = self.keep_above();
        self.queue(PendingDecision {
            line: base.filter(|_| has_place),
            index: has_place.then(|| (path.clone(), base::Signature::Absent)),
            awaits_receipt: false,
        })
    }

    /// Marks the waiting directories above as having content that stays. Returns true if there are
    /// none.
    fn keep_above(&mut self) -> bool {
        for deferred in &mut self.deferred {
            deferred.is_kept = true;
        }
        self.deferred.is_empty()
    }

    fn skip(&mut self, path: &RelPath, reason: RefusalReason) {
        if self.pushed.skipped.len() < MAX_LISTED {
            self.pushed.skipped.push(RefusedPath {
                path: path.as_bytes().to_vec(),
                reason,
            });
        }
    }

    /// Keeps the former state of a path that cannot be read now.
    fn remember(
        &mut self,
        path: &RelPath,
        base: Option<Line>,
        host: &SeenEntry,
    ) -> Result<(), Fault> {
        let has_place = self.keep_above();
        let index = (path.clone(), index_signature(host));
        self.queue(PendingDecision {
            line: base.filter(|_| has_place),
            index: has_place.then_some(index),
            awaits_receipt: false,
        })
    }

    /// Handles the waiting directories that do not contain `next`, because everything in them has
    /// been decided.
    fn leave(&mut self, next: Option<&RelPath>) -> Result<(), Fault> {
        let is_within = |dir: &RelPath| next.is_some_and(|next| next.starts_with(dir));
        while self.missing.last().is_some_and(|dir| !is_within(dir)) {
            self.missing.pop();
        }
        if self.blocked.as_ref().is_some_and(|dir| !is_within(dir)) {
            self.blocked = None;
        }
        while let Some(deferred) = self.deferred.pop_if(|deferred| !is_within(&deferred.path)) {
            match deferred.host {
                None if deferred.is_kept => self.pushed.deleted -= 1,
                None => self.delete(&deferred.path)?,
                Some(_) if deferred.is_kept => self.conflict(&deferred.path, None)?,
                Some(host) => self.put(&host, None)?,
            }
        }
        Ok(())
    }

    fn delete(&mut self, path: &RelPath) -> Result<(), Fault> {
        self.expect_receipt(None, None)?;
        let path = path.as_bytes();
        self.send(&PutItem::Delete { path })
    }

    fn expect_receipt(
        &mut self,
        line: Option<Line>,
        index: Option<(RelPath, base::Signature)>,
    ) -> Result<(), Fault> {
        self.queue(PendingDecision {
            line,
            index,
            awaits_receipt: true,
        })
    }

    /// Sends a path, after the directories above it that the sandbox has deleted.
    fn put(&mut self, host: &SeenEntry, base: Option<Line>) -> Result<(), Fault> {
        for dir in std::mem::take(&mut self.missing) {
            if host.path.starts_with(&dir) {
                self.expect_receipt(None, None)?;
                let path = dir.as_bytes();
                self.send(&PutItem::Dir { path })?;
            }
        }
        let index = Some((host.path.clone(), index_signature(host)));
        let path = host.path.as_bytes();
        let kind = match &host.kind {
            SeenKind::Dir => LineKind::Dir,
            SeenKind::Link { target } => LineKind::Link {
                target: target.clone(),
            },
            _ => return self.put_file(host, base),
        };
        let line = Line {
            path: host.path.clone(),
            kind: kind.clone(),
        };
        self.expect_receipt(Some(line), index)?;
        self.pushed.made += 1;
        match &kind {
            LineKind::Link { target } => self.send(&PutItem::Link { path, target }),
            _ => self.send(&PutItem::Dir { path }),
        }
    }

    fn put_file(&mut self, host: &SeenEntry, base: Option<Line>) -> Result<(), Fault> {
        let Some((mut file, before)) = self.open(host)? else {
            return self.remember(&host.path, base, host);
        };
        let is_executable = before.is_executable();
        self.send(&PutItem::File {
            path: host.path.as_bytes(),
            is_executable,
            mtime_ns: before.mtime_ns,
        })?;
        let mut hasher = blake3::Hasher::new();
        let mut size = 0_u64;
        loop {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(self.packer.chunk_room(), 0);
            let read = file.read(&mut buffer);
            let count = match read {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.unreadable(host, error)),
            };
            if count > 0 {
                let bytes = &buffer[..count];
                hasher.update(bytes);
                size += count as u64;
                self.sums.bytes.fetch_add(count as u64, Ordering::Relaxed);
                self.send(&PutItem::Chunk(bytes))?;
            }
            self.buffer = buffer;
            // A short read is the end of a regular file, unless the file is growing.
            if count == 0 || size == before.size {
                break;
            }
        }
        let digest = *hasher.finalize().as_bytes();
        let line = Line {
            path: host.path.clone(),
            kind: LineKind::File {
                size,
                is_executable,
                digest,
                host: settled(&file, before, size),
                inside: None,
            },
        };
        let index = Some((host.path.clone(), index_signature(host)));
        self.expect_receipt(Some(line), index)?;
        self.send(&PutItem::End { size, digest })?;
        self.pushed.files += 1;
        self.pushed.bytes += size;
        self.sums.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Opens a file of the project; `None` if it was removed or cannot be read.
    fn open(&mut self, host: &SeenEntry) -> Result<Option<(File, Signature)>, Fault> {
        // The walk found a regular file. If it was replaced since, these flags avoid blocking on a
        // FIFO and following a link.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = self
            .files
            .open(host.path.as_bytes(), flags)
            .and_then(|fd| Ok((rustix::fs::fstat(&fd)?, fd)));
        match opened {
            Ok((stat, fd)) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Ok(Some((File::from(fd), signature(&stat)))),
                FileType::Directory => Ok(None),
                _ => {
                    self.skip(&host.path, RefusalReason::Special);
                    Ok(None)
                }
            },
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ISDIR) => Ok(None),
            Err(Errno::NXIO) => {
                self.skip(&host.path, RefusalReason::Special);
                Ok(None)
            }
            Err(Errno::ACCESS | Errno::PERM) => {
                self.skip(&host.path, RefusalReason::Unreadable);
                Ok(None)
            }
            Err(errno) => Err(self.unreadable(host, errno)),
        }
    }

    fn unreadable(&self, host: &SeenEntry, error: impl Into<std::io::Error>) -> Fault {
        io("read", &self.anchor.path().join(host.path.as_path()), error)
    }

    /// Computes the digest of a file of the project; `None` if it cannot be opened.
    fn hash(&mut self, host: &SeenEntry) -> Result<Option<HashedFile>, Fault> {
        let Some((mut file, before)) = self.open(host)? else {
            return Ok(None);
        };
        let summed = crate::beneath::digest(&mut file, u64::MAX, &mut |_| Ok(()));
        let (digest, size) = summed.map_err(|error| self.unreadable(host, error))?;
        Ok(Some(HashedFile {
            size,
            digest,
            settled: settled(&file, before, size),
        }))
    }

    fn queue(&mut self, pending: PendingDecision) -> Result<(), Fault> {
        self.hand_over_same()?;
        self.hand_over(ReceiptDecision::One(Box::new(pending)))
    }

    fn hand_over_same(&mut self) -> Result<(), Fault> {
        if self.same.is_empty() {
            return Ok(());
        }
        let same = std::mem::replace(&mut self.same, Vec::with_capacity(SAME_BATCH));
        self.hand_over(ReceiptDecision::Same(same))
    }

    fn hand_over(&mut self, decided: ReceiptDecision) -> Result<(), Fault> {
        let gone = || Fault::failed(Code::Cancelled, "the push was given up");
        match self.decided.try_send(decided) {
            Ok(()) => Ok(()),
            Err(TrySendError::Disconnected(_)) => Err(gone()),
            Err(TrySendError::Full(decided)) => {
                // The recording thread may be waiting for receipts of items that are still in the
                // buffer. Without sending them first, both threads would wait forever.
                self.flush(true)?;
                self.decided.send(decided).map_err(|_| gone())
            }
        }
    }

    fn send(&mut self, item: &PutItem<'_>) -> Result<(), Fault> {
        self.packer.push(item, &mut self.out)?;
        self.flush(false)
    }

    fn flush(&mut self, all: bool) -> Result<(), Fault> {
        if all {
            self.packer.seal(&mut self.out)?;
        }
        if self.out.len() >= SEND_BYTES || (all && !self.out.is_empty()) {
            self.input.send(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }
}
