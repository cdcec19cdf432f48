//! Pushes a project into a sandbox, sending differences only.
//!
//! Three sorted lists are compared: the project, the sandbox, and the state of both after the last
//! push. The sandbox's own work is never overwritten: a path that both sides changed is left alone
//! and reported, unless the caller decides that the project wins. Only paths that an earlier push
//! brought are ever deleted.

use super::difference::{Comparison, Difference, DifferenceSink as _, Steps, doubtful};
use super::entry::Rows;
use super::manifest::{FileSide, Lines, Writer};
use super::receipt::{ReceiptDecision, Receipts, receive};
use super::remember::index_entry;
use super::scan;
use super::send::{Sender, Sums};
use super::spool::{Reader, Spool, SpooledList};
use super::walk::{HiddenCount, HiddenPredicate, WalkProgress, walk, walk_along};
use super::{SandboxRoot, digest};
use crate::base;
use crate::beneath::{Anchor, io};
use crate::progress::{Progress, Watch, report};
use crate::threads;
use crate::{RefusedPath, RelPath, Stage, SyncError};
use glovebox_proto::{Code, Fault, Request};
use serde::Serialize;
use serde_bytes::ByteBuf;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Maximum number of entries of a sandbox's directory that a push lists.
const MAX_ENTRIES: u64 = 4_000_000;
/// Maximum depth of a path that a push lists, in components.
const MAX_DEPTH: usize = 512;
/// Maximum number of decisions between the sender and the manifest. A batch of unchanged files
/// counts as one.
const MAX_DECIDED: usize = 1024;
/// Maximum number of receipts between the receiver and the manifest.
const MAX_RECEIPTS: usize = 4096;
/// Maximum number of batches of paths between the walk and the sender.
const MAX_BATCHES: usize = 16;
/// Time between reports of progress.
const REPORT_EVERY: Duration = Duration::from_millis(50);

/// Files in which a push records the state for later pushes and collections.
#[derive(Debug, Clone, Copy)]
pub struct PushRecords<'a> {
    /// Path of the manifest: the state of both sides after the push.
    pub manifest: &'a Path,
    /// Path of the base index (see [`crate::base`]): the state of the project.
    pub index: &'a Path,
    /// Private directory for temporary lists.
    pub spool_dir: &'a Path,
}

/// Options of a push.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PushOptions {
    /// True if the project's version replaces the sandbox's where both changed.
    pub overwrite: bool,
    /// True if the caller knows that the sandbox's directory is empty.
    pub is_new: bool,
}

/// Results of a push.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PushTotals {
    /// Number of files sent. Each was checked against its digest on arrival.
    pub files: u64,
    /// Total size of their contents, in bytes.
    pub bytes: u64,
    /// Number of directories and links created.
    pub made: u64,
    /// Number of paths deleted.
    pub deleted: u64,
    /// Number of paths that needed no change.
    pub unchanged: u64,
    /// Number of paths hidden from the sandbox; a directory counts once with everything in it.
    pub hidden: u64,
    /// The first of the hidden paths.
    pub hidden_paths: Vec<RelPath>,
    /// Paths that cannot be pushed, with reasons.
    pub skipped: Vec<RefusedPath>,
    /// Paths that both sides changed; the sandbox's version stays.
    pub conflicts: Vec<RelPath>,
    /// `.git` paths of the repositories that are not sent, with reasons.
    pub unsent_git: Vec<(PathBuf, String)>,
}

/// Pushes a project into a sandbox's directory.
///
/// # Errors
/// [`Code::Cancelled`] if `watch` stops the operation; any error of reading the project; faults of
/// the guest, which name the path. Files that were sent before are complete and stay; the next push
/// finds them.
pub fn push(
    place: &SandboxRoot<'_>,
    project: &Path,
    is_hidden: &HiddenPredicate<'_>,
    recorded: &PushRecords<'_>,
    options: PushOptions,
    watch: &mut Watch<'_>,
) -> Result<PushTotals, SyncError> {
    let collect = |fault| SyncError::push(Stage::Collect, fault);
    let pushed_unix_ns = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos());
    let anchor = Anchor::open(project).map_err(collect)?;
    let job = Job {
        place,
        anchor: &anchor,
        recorded,
        options,
        pushed_unix_ns,
    };
    if job.is_first(watch).map_err(collect)? {
        return job.run_along(is_hidden, watch);
    }
    let looked = look(place, &anchor, is_hidden, recorded, watch).map_err(collect)?;
    let (host, inside) = (&looked.host, &looked.inside);
    let told =
        doubtful(host.read(), inside.read(), recorded.spool_dir).and_then(|(wanted, count)| {
            digest::ask(place, &wanted, count, recorded.spool_dir, &mut |paths| {
                report(watch, Progress::Collecting { paths, bytes: 0 })
            })
        });
    let told = told.map_err(collect)?;

    let transfer = |fault| SyncError::push(Stage::Transfer, fault);
    let differences = Rows {
        base: Lines::open(recorded.manifest).map_err(collect)?,
        host: host.read(),
        inside: inside.read(),
    };
    let mut pushed = job.run(differences, told, watch).map_err(transfer)?;
    let SideLists {
        hidden, refused, ..
    } = looked;
    pushed.hidden = hidden.count;
    pushed.hidden_paths = hidden.paths;
    pushed.skipped.extend(refused);
    Ok(pushed)
}

/// Differences of both sides from the last push.
struct SideLists {
    host: SpooledList<Difference>,
    inside: SpooledList<Difference>,
    hidden: HiddenCount,
    /// Names in the sandbox that are not valid.
    refused: Vec<RefusedPath>,
}

/// Lists both sides at the same time, and compares them with the manifest.
fn look(
    place: &SandboxRoot<'_>,
    anchor: &Anchor,
    is_hidden: &HiddenPredicate<'_>,
    recorded: &PushRecords<'_>,
    watch: &mut Watch<'_>,
) -> Result<SideLists, Fault> {
    let gauge = WalkProgress::default();
    let compare = |side| Comparison::new(recorded.manifest, side, recorded.spool_dir);
    let (mut on_host, mut on_inside) = (compare(FileSide::Host)?, compare(FileSide::Inside)?);
    std::thread::scope(|scope| {
        let gauge = &gauge;
        let walker = threads::start(scope, move || {
            let hidden = walk(anchor, is_hidden, gauge, &mut |seen| on_host.take(seen))?;
            Ok::<_, Fault>((on_host.finish()?, hidden))
        })?;
        let mut each = |inside: u64| {
            let paths = inside + gauge.paths.load(Ordering::Relaxed);
            report(watch, Progress::Collecting { paths, bytes: 0 })
        };
        let scanned = scan::scan(place, MAX_ENTRIES, MAX_DEPTH, &mut on_inside, &mut each);
        let mut watched = Ok(());
        while scanned.is_ok() && !walker.is_finished() && watched.is_ok() {
            std::thread::sleep(Duration::from_millis(1));
            watched = each(0);
        }
        if scanned.is_err() || watched.is_err() {
            gauge.is_stopped.store(true, Ordering::Relaxed);
        }
        let walked = threads::end(walker)?;
        let refused = scanned?.refused;
        watched?;
        let (host, hidden) = walked?;
        Ok(SideLists {
            host,
            inside: on_inside.finish()?,
            hidden,
            refused,
        })
    })
}

struct Job<'a> {
    place: &'a SandboxRoot<'a>,
    anchor: &'a Anchor,
    recorded: &'a PushRecords<'a>,
    options: PushOptions,
    pushed_unix_ns: u128,
}

impl Job<'_> {
    /// Returns true if nothing was ever pushed there and the directory is empty, so that no
    /// comparison is needed.
    fn is_first(&self, watch: &mut Watch<'_>) -> Result<bool, Fault> {
        let manifest = self.recorded.manifest;
        if manifest
            .try_exists()
            .map_err(|error| io("look at", manifest, error))?
        {
            return Ok(false);
        }
        if self.options.is_new {
            return Ok(true);
        }
        let mut each = |paths| report(watch, Progress::Collecting { paths, bytes: 0 });
        let mut nothing = Spool::unnamed(self.recorded.spool_dir)?;
        let told = scan::scan(self.place, MAX_ENTRIES, MAX_DEPTH, &mut nothing, &mut each)?;
        Ok(told.is_empty)
    }

    /// Sends a project while it is being walked.
    fn run_along(
        &self,
        is_hidden: &HiddenPredicate<'_>,
        watch: &mut Watch<'_>,
    ) -> Result<PushTotals, SyncError> {
        let gauge = WalkProgress::default();
        let (found_in, found) = sync_channel(MAX_BATCHES);
        let rows = Rows {
            base: Lines::none(),
            host: Reader::along(found),
            inside: Reader::empty(),
        };
        let ended = std::thread::scope(|scope| {
            let gauge = &gauge;
            let walker = threads::start(scope, move || {
                walk_along(self.anchor, is_hidden, gauge, &found_in)
            })?;
            let pushed = self.run(rows, digest::Answers::none(), watch);
            // The walk has ended, or the push has failed and its results are not needed.
            gauge.is_stopped.store(true, Ordering::Relaxed);
            Ok((pushed, threads::end(walker)?))
        });
        let transfer = |fault| SyncError::push(Stage::Transfer, fault);
        match ended.map_err(transfer)? {
            (Ok(mut pushed), Ok(hidden)) => {
                pushed.hidden = hidden.count;
                pushed.hidden_paths = hidden.paths;
                Ok(pushed)
            }
            (Err(fault), Err(own)) if fault == own && fault.code != Code::Cancelled => {
                Err(SyncError::push(Stage::Collect, fault))
            }
            (Err(fault), _) | (Ok(_), Err(fault)) => Err(transfer(fault)),
        }
    }

    /// Runs the transfer in three threads: one decides and sends, one receives the guest's
    /// receipts, and this one records the results.
    fn run(
        &self,
        mut steps: impl Steps + Send,
        told: digest::Answers,
        watch: &mut Watch<'_>,
    ) -> Result<PushTotals, Fault> {
        let manifest = Writer::create(self.recorded.manifest)?;
        let index = base::Writer::create(self.recorded.index, self.pushed_unix_ns)?;
        let stream = self.place.sandbox.open(Request::TreePut {
            path: ByteBuf::from(self.place.root),
        })?;
        let (decided_in, decided) = sync_channel::<ReceiptDecision>(MAX_DECIDED);
        let (receipts_in, receipts) = sync_channel(MAX_RECEIPTS);
        let input = stream.input();
        let sums = Sums::default();
        std::thread::scope(|scope| {
            let sums = &sums;
            let sender_input = input.clone();
            let sender = threads::start(scope, move || {
                let sender = Sender::new(
                    self.anchor,
                    self.options,
                    told,
                    sender_input,
                    decided_in,
                    sums,
                    self.place.packing,
                )?;
                sender.run(&mut steps)
            })?;
            let receiver = threads::start(scope, move || receive(stream, &receipts_in))?;
            let mut books = PushWriters {
                manifest,
                index,
                receipts: Receipts::new(receipts),
            };
            let kept = keep(&mut books, &decided, sums, watch);
            if kept.is_err() {
                // Cancelling the request ends the two other threads.
                let _ = input.cancel();
            }
            drop(decided);
            let PushWriters {
                manifest,
                index,
                mut receipts,
            } = books;
            let answered = if kept.is_ok() { receipts.end() } else { Ok(()) };
            drop(receipts);
            let sent = threads::end(sender)?;
            let told = threads::end(receiver)?;
            // The first cause counts. A failed read on the host makes the guest give up, not the
            // reverse.
            let is_echo = |fault: &Fault| matches!(fault.code, Code::Cancelled | Code::JobEnded);
            let pushed = match (sent, told.and(kept).and(answered)) {
                (Ok(pushed), Ok(())) => pushed,
                (Err(fault), Err(other)) if is_echo(&fault) => return Err(other),
                (Err(fault), _) | (Ok(_), Err(fault)) => return Err(fault),
            };
            // Both are renamed into place only now: after a failed push, the next one compares with
            // the former manifest again.
            manifest.finish()?;
            index.finish()?;
            Ok(pushed)
        })
    }
}

/// Files and receipts that the recording thread uses during a push.
struct PushWriters {
    manifest: Writer,
    index: base::Writer,
    receipts: Receipts,
}

/// Records decisions in order, each after the guest has confirmed it.
fn keep(
    books: &mut PushWriters,
    decided: &std::sync::mpsc::Receiver<ReceiptDecision>,
    sums: &Sums,
    watch: &mut Watch<'_>,
) -> Result<(), Fault> {
    let mut reported = Instant::now();
    loop {
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            report_sums(sums, watch)?;
        }
        let next = match decided.recv_timeout(REPORT_EVERY) {
            Ok(ReceiptDecision::One(next)) => *next,
            Ok(ReceiptDecision::Same(lines)) => {
                for line in lines {
                    if let Some(signature) = line.signature(FileSide::Host) {
                        let entry = index_entry(base::Kind::File, *signature);
                        books.index.put(&line.path, &entry)?;
                    }
                    books.manifest.push(line)?;
                }
                continue;
            }
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return report_sums(sums, watch),
        };
        let mut line = next.line;
        if next.awaits_receipt {
            let receipt = loop {
                match books.receipts.next(REPORT_EVERY)? {
                    Some(receipt) => break receipt,
                    None => report_sums(sums, watch)?,
                }
            };
            if let Some(line) = &mut line {
                receipt.complete(line)?;
            }
        }
        if let Some((path, signature)) = &next.index {
            books.index.put(path, signature)?;
        }
        if let Some(line) = line {
            books.manifest.push(line)?;
        }
    }
}

fn report_sums(sums: &Sums, watch: &mut Watch<'_>) -> Result<(), Fault> {
    let files = sums.files.load(Ordering::Relaxed);
    let bytes = sums.bytes.load(Ordering::Relaxed);
    let progress = Progress::Staging {
        files,
        total_files: files,
        bytes,
        total_bytes: bytes,
    };
    match watch(progress) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Fault::failed(Code::Cancelled, "it was cancelled")),
    }
}
