//! Bringing a project into a sandbox: what differs, and nothing else.
//!
//! Three sorted lists side by side: what the project has, what the sandbox has, and what both had
//! after the last push. The sandbox's own work is never overwritten: what it changed and the project
//! changed too is left alone and named, unless the caller says that the project wins. Only what an
//! earlier push brought is ever deleted.

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

/// Most entries of a sandbox's directory that a push looks at.
const MAX_ENTRIES: u64 = 4_000_000;
/// Deepest path that a push looks at, in components.
const MAX_DEPTH: usize = 512;
/// Decisions on their way from the sender to the manifest, of many files that are as they were as one.
const MAX_DECIDED: usize = 1024;
/// Receipts on their way there.
const MAX_RECEIPTS: usize = 4096;
/// Batches of paths on their way from the walk to the sender.
const MAX_BATCHES: usize = 16;
/// How often progress is reported.
const REPORT_EVERY: Duration = Duration::from_millis(50);

/// Where a push keeps what later ones and every collection start from.
#[derive(Debug, Clone, Copy)]
pub struct PushRecords<'a> {
    /// File for the manifest: what both sides had after the push.
    pub manifest: &'a Path,
    /// File for the base index (see [`crate::base`]): what the project looked like.
    pub index: &'a Path,
    /// A private directory for lists that are gone afterwards.
    pub spool_dir: &'a Path,
}

/// How a push treats what both sides changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PushOptions {
    /// The project's version replaces the sandbox's.
    pub overwrite: bool,
    /// The caller knows that nothing is there yet.
    pub is_new: bool,
}

/// What a push has done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PushTotals {
    /// Files sent; each was checked against its digest on arrival.
    pub files: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// Directories and links made.
    pub made: u64,
    /// Paths deleted.
    pub deleted: u64,
    /// Paths that were as they should be.
    pub unchanged: u64,
    /// Paths hidden from the sandbox, directories with all they hold as one.
    pub hidden: u64,
    /// The first of them.
    pub hidden_paths: Vec<RelPath>,
    /// What cannot be pushed, and why.
    pub skipped: Vec<RefusedPath>,
    /// What both sides changed: the sandbox's version stays.
    pub conflicts: Vec<RelPath>,
    /// Paths of the `.git` of repositories that are not sent, and why.
    pub unsent_git: Vec<(PathBuf, String)>,
}

/// Brings a project into a sandbox's directory.
///
/// # Errors
/// [`Code::Cancelled`] when `watch` says so; what reading the project fails with; the guest's own
/// faults, which name the path. Files that were sent before are whole and stay; the next push finds
/// them.
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

/// What both sides have that the last push has not left there.
struct SideLists {
    host: SpooledList<Difference>,
    inside: SpooledList<Difference>,
    hidden: HiddenCount,
    /// Names of the sandbox that cannot be used.
    refused: Vec<RefusedPath>,
}

/// Looks at both sides at once.
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
    /// Whether nothing was ever pushed there and nothing is there: then there is nothing to compare.
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
            // It has ended too, or nobody wants to hear more of it.
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

    /// Three threads: one decides and sends, one takes the guest's receipts, and this one writes down
    /// what became of it.
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
                // Whatever the others wait for ends with this.
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
            // The first cause counts: a reader that failed made the guest give up, not the reverse.
            let is_echo = |fault: &Fault| matches!(fault.code, Code::Cancelled | Code::JobEnded);
            let pushed = match (sent, told.and(kept).and(answered)) {
                (Ok(pushed), Ok(())) => pushed,
                (Err(fault), Err(other)) if is_echo(&fault) => return Err(other),
                (Err(fault), _) | (Ok(_), Err(fault)) => return Err(fault),
            };
            manifest.finish()?;
            index.finish()?;
            Ok(pushed)
        })
    }
}

/// What is written down while the push runs.
struct PushWriters {
    manifest: Writer,
    index: base::Writer,
    receipts: Receipts,
}

/// Writes down what was decided, in order, once the guest has said that it is so.
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
