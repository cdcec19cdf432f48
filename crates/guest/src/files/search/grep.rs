//! Finds lines by pattern, in the newest files first, or in the log of a job.

use super::{Bounds, OpenDirectory, Scope, bad_pattern, mtime_ns, open_file, own, regular};
use crate::log::LogText;
use glovebox_proto::limits::{AROUND_MATCH_BYTES, MAX_LINE_BYTES, MAX_WHOLE_LINE_BYTES};
use glovebox_proto::{Case, Code, Fault, FileHits, Grep, GrepMode, GrepReport, Line, Reply};
use grep_matcher::Matcher as _;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish,
    SinkMatch,
};
use ignore::DirEntry;
use ignore::overrides::OverrideBuilder;
use ignore::types::TypesBuilder;
use rustix::fs::{CWD, FileType};
use serde_bytes::ByteBuf;
use std::cmp::Reverse;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Maximum size of a searched line, or of a searched file with [`Grep::is_multiline`], in bytes.
const MAX_SEARCHED_BYTES: usize = 32 << 20;
/// Bytes of lines kept during a search; beyond them the lines of the oldest files are dropped.
const MAX_KEPT_BYTES: usize = 2 << 20;
/// Maximum number of files kept during a search.
const MAX_KEPT_FILES: usize = 100_000;
/// Bytes read ahead of a file before the searcher asks for them.
const AHEAD_BYTES: usize = 16 << 10;
/// Maximum memory of a compiled pattern, in bytes.
const MAX_PATTERN_MEMORY: usize = 16 << 20;

/// Finds lines in the files below `root`, or in `root` if it is a file. Blocks until the search
/// ends, is cancelled or reaches its deadline.
pub(crate) fn grep(root: &[u8], wanted: &Grep, cancel: &AtomicBool) -> Result<Reply, Fault> {
    let bounds = Bounds::new(wanted.deadline_ms, cancel);
    let matcher = matcher(wanted)?;
    let scope = scope(root, wanted)?;
    let kind = FileType::from_raw_mode(scope.check()?.st_mode);
    let hits = GrepHits::new(wanted);
    let mut walked_unreadable = 0;
    let mut was_stopped = false;
    match kind {
        FileType::Directory => {
            let walked = scope.walk(&bounds, || {
                let mut search = hits.start(&matcher, BinaryDetection::quit(0));
                let mut near = OpenDirectory::default();
                let (scope, bounds) = (&scope, &bounds);
                move |entry: &DirEntry| {
                    let path = entry.path();
                    search.file(bounds, near.open(path), || scope.relative(path));
                }
            });
            walked_unreadable = walked.unreadable;
            was_stopped = walked.was_stopped;
        }
        FileType::RegularFile => {
            let file = open_file(CWD, root).filter(|file| own::refuse(file).is_ok());
            hits.start(&matcher, BinaryDetection::quit(0))
                .file(&bounds, file, Vec::new);
        }
        _ => {
            return Err(Fault::failed(
                Code::SpecialFile,
                format!(
                    "{} is neither a directory nor a regular file",
                    super::shown(root)
                ),
            ));
        }
    }
    hits.reply(&bounds, walked_unreadable, was_stopped)
}

/// Finds lines in the log of a job. A NUL byte does not make a log binary: commands write any
/// bytes.
pub(crate) fn grep_log(log: LogText, wanted: &Grep, cancel: &AtomicBool) -> Result<Reply, Fault> {
    let bounds = Bounds::new(wanted.deadline_ms, cancel);
    let matcher = matcher(wanted)?;
    let hits = GrepHits::new(wanted);
    hits.start(&matcher, BinaryDetection::none())
        .log(&bounds, log);
    hits.reply(&bounds, 0, false)
}

fn matcher(wanted: &Grep) -> Result<RegexMatcher, Fault> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .case_insensitive(wanted.case == Case::Insensitive)
        .multi_line(true)
        .dot_matches_new_line(wanted.is_multiline)
        .fixed_strings(wanted.is_literal)
        .size_limit(MAX_PATTERN_MEMORY)
        .dfa_size_limit(MAX_PATTERN_MEMORY);
    if !wanted.is_multiline {
        builder.line_terminator(Some(b'\n'));
    }
    builder
        .build(&wanted.pattern)
        .map_err(|error| bad_pattern("pattern", &error))
}

fn scope<'a>(root: &'a [u8], wanted: &Grep) -> Result<Scope<'a>, Fault> {
    let mut only = OverrideBuilder::new(Path::new(OsStr::from_bytes(root)));
    for glob in &wanted.globs {
        only.add(glob)
            .map_err(|error| bad_pattern(&format!("file pattern `{glob}`"), &error))?;
    }
    let types = if wanted.types.is_empty() {
        None
    } else {
        let mut types = TypesBuilder::new();
        types.add_defaults();
        for name in &wanted.types {
            types.select(name);
        }
        Some(
            types
                .build()
                .map_err(|error| bad_pattern("list of file types", &error))?,
        )
    };
    Ok(Scope {
        root,
        use_ignore: wanted.use_ignore,
        only: only
            .build()
            .map_err(|error| bad_pattern("file pattern", &error))?,
        types,
    })
}

/// Hits found so far, shared by the threads of a search.
struct GrepHits<'a> {
    wanted: &'a Grep,
    kept: Mutex<KeptHits>,
    matches: AtomicU64,
    files: AtomicU64,
    binary: AtomicU64,
    unreadable: AtomicU64,
    was_stopped: AtomicBool,
}

/// Files with matches, and the bytes of their lines.
#[derive(Default)]
struct KeptHits {
    files: Vec<FileHits>,
    bytes: usize,
}

/// Search of one thread; its buffers are reused for all files.
struct Search<'a> {
    hits: &'a GrepHits<'a>,
    matcher: RegexMatcher,
    searcher: Searcher,
    ahead: Vec<u8>,
}

/// Reader that reads ahead. The searcher reads the first few bytes separately to detect the
/// encoding, which for a small file would be one system call of four.
struct ReadAhead<'a, R> {
    source: R,
    buffer: &'a mut [u8],
    rest: Range<usize>,
}

impl<R: Read> Read for ReadAhead<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            if out.len() >= self.buffer.len() {
                return self.source.read(out);
            }
            self.rest = 0..self.source.read(self.buffer)?;
        }
        let count = self.rest.len().min(out.len());
        out[..count].copy_from_slice(&self.buffer[self.rest.start..][..count]);
        self.rest.start += count;
        Ok(count)
    }
}

impl Search<'_> {
    /// Searches one file. `None` if it could not be opened.
    fn file(&mut self, bounds: &Bounds<'_>, file: Option<File>, name: impl FnOnce() -> Vec<u8>) {
        let hits = self.hits;
        let Some(file) = file else {
            hits.unreadable.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let found = self.look(bounds, &file);
        hits.add(found, || regular(&file).map(|stat| mtime_ns(&stat)), name);
    }

    fn log(&mut self, bounds: &Bounds<'_>, log: LogText) {
        let found = self.look(bounds, log);
        self.hits.add(found, || Some(0), Vec::new);
    }

    fn look<'a>(&mut self, bounds: &'a Bounds<'a>, source: impl Read) -> Collector<'a> {
        let hits = self.hits;
        let mut found = Collector {
            bounds,
            matcher: self.matcher.clone(),
            mode: hits.wanted.mode,
            most: hits.wanted.offset as usize + hits.wanted.max_hits as usize,
            matches: 0,
            lines: Vec::new(),
            is_binary: false,
            is_stopped: false,
        };
        let reader = ReadAhead {
            source,
            buffer: &mut self.ahead,
            rest: 0..0,
        };
        let searched = self
            .searcher
            .search_reader(&self.matcher, reader, &mut found);
        if searched.is_err() {
            hits.unreadable.fetch_add(1, Ordering::Relaxed);
        }
        found
    }
}

impl<'a> GrepHits<'a> {
    fn new(wanted: &'a Grep) -> Self {
        Self {
            wanted,
            kept: Mutex::default(),
            matches: AtomicU64::new(0),
            files: AtomicU64::new(0),
            binary: AtomicU64::new(0),
            unreadable: AtomicU64::new(0),
            was_stopped: AtomicBool::new(false),
        }
    }

    fn start(&self, matcher: &RegexMatcher, binary: BinaryDetection) -> Search<'_> {
        let wants_lines = self.wanted.mode == GrepMode::Lines;
        let searcher = SearcherBuilder::new()
            .binary_detection(binary)
            .memory_map(MmapChoice::never())
            .heap_limit(Some(MAX_SEARCHED_BYTES))
            .line_number(true)
            .multi_line(self.wanted.is_multiline)
            .before_context(if wants_lines {
                self.wanted.before.into()
            } else {
                0
            })
            .after_context(if wants_lines {
                self.wanted.after.into()
            } else {
                0
            })
            .build();
        Search {
            hits: self,
            matcher: matcher.clone(),
            searcher,
            ahead: vec![0; AHEAD_BYTES],
        }
    }

    /// Adds the hits of one file. `mtime_ns` returns `None` if the file is not a regular file.
    fn add(
        &self,
        found: Collector<'_>,
        mtime_ns: impl FnOnce() -> Option<i128>,
        name: impl FnOnce() -> Vec<u8>,
    ) {
        if found.is_stopped {
            self.was_stopped.store(true, Ordering::Relaxed);
        }
        if found.is_binary {
            self.binary.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if found.matches == 0 {
            return;
        }
        let Some(mtime_ns) = mtime_ns() else {
            self.unreadable.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.files.fetch_add(1, Ordering::Relaxed);
        self.matches.fetch_add(found.matches, Ordering::Relaxed);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += weight(&found.lines);
        kept.files.push(FileHits {
            path: ByteBuf::from(name()),
            mtime_ns,
            matches: found.matches,
            lines: found.lines,
        });
        if kept.bytes > MAX_KEPT_BYTES || kept.files.len() > MAX_KEPT_FILES {
            kept.forget_oldest();
        }
    }

    fn reply(
        self,
        bounds: &Bounds<'_>,
        walked_unreadable: u64,
        was_stopped: bool,
    ) -> Result<Reply, Fault> {
        let end = bounds.end(was_stopped || self.was_stopped.load(Ordering::Relaxed))?;
        let mut grepped = self.answer();
        grepped.unreadable += walked_unreadable;
        grepped.end = end;
        Ok(Reply::Grepped(grepped))
    }

    fn answer(self) -> GrepReport {
        let mut files = self
            .kept
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .files;
        sort(&mut files);
        let (mut skip, mut left) = (self.wanted.offset as usize, self.wanted.max_hits as usize);
        if self.wanted.mode == GrepMode::Lines {
            for file in &mut files {
                file.lines = page(std::mem::take(&mut file.lines), &mut skip, &mut left);
            }
            files.retain(|file| !file.lines.is_empty());
        } else {
            files = files.into_iter().skip(skip).take(left).collect();
        }
        GrepReport {
            files,
            total_files: self.files.into_inner(),
            total_matches: self.matches.into_inner(),
            binary: self.binary.into_inner(),
            unreadable: self.unreadable.into_inner(),
            end: glovebox_proto::SearchEnd::Complete,
        }
    }
}

/// Sorts newest first, then by path.
fn sort(files: &mut [FileHits]) {
    files.sort_by(|a, b| (Reverse(a.mtime_ns), &a.path).cmp(&(Reverse(b.mtime_ns), &b.path)));
}

fn weight(lines: &[Line]) -> usize {
    lines.iter().map(|line| line.text.len() + 32).sum()
}

/// Returns the requested page of a file's lines. Matches are counted; context lines come with them.
fn page(lines: Vec<Line>, skip: &mut usize, left: &mut usize) -> Vec<Line> {
    let mut shown = Vec::new();
    let mut pending: Vec<Line> = Vec::new();
    for line in lines {
        if !line.is_match {
            pending.push(line);
            continue;
        }
        if *skip > 0 {
            *skip -= 1;
            pending.clear();
            continue;
        }
        if *left == 0 {
            // The lines before this match may be context after the last match of the page.
            break;
        }
        *left -= 1;
        shown.append(&mut pending);
        shown.push(line);
    }
    if !shown.is_empty() {
        shown.append(&mut pending);
    }
    shown
}

impl KeptHits {
    /// Drops the older half.
    fn forget_oldest(&mut self) {
        sort(&mut self.files);
        while self.bytes > MAX_KEPT_BYTES / 2 || self.files.len() > MAX_KEPT_FILES / 2 {
            // The newest file stays at any size: the requested number of hits bounds it.
            if self.files.len() <= 1 {
                break;
            }
            if let Some(file) = self.files.pop() {
                self.bytes -= weight(&file.lines);
            }
        }
    }
}

/// Sink that collects the hits of one file.
struct Collector<'a> {
    bounds: &'a Bounds<'a>,
    matcher: RegexMatcher,
    mode: GrepMode,
    most: usize,
    matches: u64,
    lines: Vec<Line>,
    is_binary: bool,
    is_stopped: bool,
}

impl Collector<'_> {
    /// Stores the first `most` of these lines.
    fn keep(&mut self, number: Option<u64>, bytes: &[u8], is_match: bool, most: usize) {
        let first = number.unwrap_or(0);
        let lines = bytes.split(|byte| *byte == b'\n').take(most);
        for (index, line) in lines.enumerate() {
            let found = if is_match && line.len() > MAX_WHOLE_LINE_BYTES {
                self.matcher.find(line).ok().flatten()
            } else {
                None
            };
            let range = match &found {
                Some(found) => around(line, found.start()..found.end()),
                None => 0..line.len().min(MAX_LINE_BYTES),
            };
            self.lines.push(Line {
                number: first + index as u64,
                is_match,
                is_cut: range.end < line.len(),
                start: range.start as u64,
                column: found.map_or(0, |found| found.start() as u64 + 1),
                text: ByteBuf::from(&line[range]),
            });
        }
    }

    /// Returns the number of further matching lines that may be part of the answer.
    fn room(&self) -> usize {
        if self.mode == GrepMode::Lines {
            self.most.saturating_sub(self.matches as usize)
        } else {
            0
        }
    }

    fn goes_on(&mut self) -> bool {
        self.is_stopped = self.bounds.is_over();
        !self.is_stopped
    }
}

/// Returns the range of a long line to show around a match, extended to whole UTF-8 characters.
fn around(line: &[u8], found: Range<usize>) -> Range<usize> {
    let is_inside = |at: &usize| line.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let end = found
        .end
        .min(found.start + MAX_LINE_BYTES - 2 * AROUND_MATCH_BYTES);
    let start = found.start.saturating_sub(AROUND_MATCH_BYTES);
    let end = line.len().min(end + AROUND_MATCH_BYTES);
    let start = (start..found.start).find(|at| !is_inside(at));
    let end = (found.start..=end).rev().find(|at| !is_inside(at));
    start.unwrap_or(found.start)..end.unwrap_or(found.end)
}

/// Returns `bytes` without a final line feed.
fn without_end(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\n").unwrap_or(bytes)
}

impl Sink for Collector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let (bytes, room) = (without_end(found.bytes()), self.room());
        // A match may span lines; lines are counted, as they are shown.
        self.matches += 1 + memchr::memchr_iter(b'\n', bytes).count() as u64;
        self.keep(found.line_number(), bytes, true, room);
        // Continue even if only names are wanted: a NUL byte further down makes the file binary.
        Ok(self.goes_on())
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        // Context after the last match of the page belongs to the page.
        if self.mode == GrepMode::Lines && self.matches as usize <= self.most {
            self.keep(
                context.line_number(),
                without_end(context.bytes()),
                false,
                1,
            );
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.is_binary = true;
        Ok(false)
    }

    fn finish(&mut self, _: &Searcher, _: &SinkFinish) -> io::Result<()> {
        Ok(())
    }
}
