//! Thread that makes changes applied to a project visible in the sandboxes of this process.

use super::{
    AppliedRecord, DIR, MAX_NOTED_PATHS, MAX_NOTES, NOTES, ProjectChange, read_changes,
    read_records,
};
use crate::state::sandbox_dir::write_json;
use crate::watch::WatchedSandbox;
use glovebox_jail::refresh::{PathState, refresh};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Interval of checks if inotify is unavailable.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum time to refresh one sandbox.
const REFRESH_WAIT: Duration = Duration::from_secs(10);
/// First and longest pause before files that are still old are checked again.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Sandbox whose workspace is an overlay over a project.
#[derive(Debug)]
pub(crate) struct FollowedSandbox {
    /// Processes of the sandbox.
    pub(crate) watched: Weak<WatchedSandbox>,
    /// Guest program.
    pub(crate) program: OwnedFd,
    /// State directory.
    pub(crate) state_dir: PathBuf,
    /// Directory of the sandbox.
    pub(crate) dir: PathBuf,
    /// Name of the sandbox.
    pub(crate) name: String,
    /// Directory of the project.
    pub(crate) project: PathBuf,
    /// Mount points of the overlays over the project, the workspace first.
    pub(crate) overlays: Vec<PathBuf>,
    /// Paths of the project that the sandbox does not see, or sees with other content.
    pub(crate) hidden: Vec<PathBuf>,
    /// Writable layer of the workspace. `None` if it is in memory.
    pub(crate) upper: Option<PathBuf>,
}

/// Makes changes applied to the project visible in a sandbox from now on, until it is dropped. If
/// that is impossible, the sandbox sees only changes to files that it has not looked up before.
pub(crate) fn follow(sandbox: FollowedSandbox) {
    let Some(follower) = follower() else { return };
    // The watch begins before the last record is read, so no later record is missed.
    let dir = sandbox.state_dir.join(DIR);
    let _ = DirBuilder::new().mode(0o700).create(&dir);
    if let Some(events) = &follower.events {
        let _ = inotify::add_watch(events, &dir, WatchFlags::MOVED_TO);
    }
    let last = read_records(&sandbox.state_dir)
        .last()
        .map(|record| record.number);
    lock(&follower.entries).push(Entry {
        sandbox,
        seen: last.unwrap_or(0),
        old: Vec::new(),
        retry: None,
    });
    follower.thread.unpark();
}

/// A sandbox, and the records that it has seen.
#[derive(Debug)]
struct Entry {
    sandbox: FollowedSandbox,
    /// Number of the last record that was seen.
    seen: u64,
    /// Paths that were still old inside at the last check.
    old: Vec<String>,
    /// Time of the next check of these paths, and the pause after it. `None` if there are none.
    retry: Option<(Instant, Duration)>,
}

#[derive(Debug)]
struct Follower {
    entries: Arc<Mutex<Vec<Entry>>>,
    events: Option<Arc<OwnedFd>>,
    thread: Thread,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn follower() -> Option<&'static Follower> {
    static FOLLOWER: OnceLock<Option<Follower>> = OnceLock::new();
    let made = FOLLOWER.get_or_init(|| {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let events = events.ok().map(Arc::new);
        let entries = Arc::new(Mutex::new(Vec::new()));
        let (theirs, heard) = (Arc::clone(&entries), events.clone());
        let builder = thread::Builder::new()
            .name("project".to_owned())
            .stack_size(256 << 10);
        let thread = builder.spawn(move || run(&theirs, heard.as_deref())).ok()?;
        Some(Follower {
            entries,
            events,
            thread: thread.thread().clone(),
        })
    });
    made.as_ref()
}

fn run(entries: &Mutex<Vec<Entry>>, events: Option<&OwnedFd>) {
    loop {
        let next = lock(entries)
            .iter()
            .filter_map(|entry| entry.retry)
            .map(|(at, _)| at)
            .min();
        let wait = next.map(|at| at.saturating_duration_since(Instant::now()));
        match events {
            Some(events) => wait_for_events(events, wait),
            None if lock(entries).is_empty() => thread::park(),
            None => thread::sleep(wait.map_or(LOOK, |wait| wait.min(LOOK))),
        }
        // Taken out, because a start that adds an entry must not wait for a refresh.
        let mut all = std::mem::take(&mut *lock(entries));
        all.retain(|entry| entry.sandbox.watched.strong_count() > 0);
        for entry in &mut all {
            entry.look();
        }
        lock(entries).append(&mut all);
    }
}

/// Waits until a record was written, or for `wait`.
fn wait_for_events(events: &OwnedFd, wait: Option<Duration>) {
    let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
    let mut fds = [PollFd::new(events, PollFlags::IN)];
    if poll(&mut fds, wait.as_ref()) == Ok(0) {
        return;
    }
    let mut bytes = [0_u8; 4096];
    while rustix::io::read(events, &mut bytes).is_ok_and(|length| length > 0) {}
}

impl Entry {
    /// Refreshes the sandbox if something was applied since, or if old files are due for a check.
    fn look(&mut self) {
        let mut records = read_records(&self.sandbox.state_dir);
        records.retain(|record| record.number > self.seen);
        if let Some(last) = records.last() {
            self.seen = last.number;
        }
        let project = &self.sandbox.project;
        let news: Vec<(AppliedRecord, Vec<String>)> = records
            .into_iter()
            .filter_map(|record| {
                let paths = record.paths_below(project)?;
                Some((record, paths))
            })
            .collect();
        let is_due = self.retry.is_some_and(|(at, _)| at <= Instant::now());
        if news.is_empty() && !is_due {
            return;
        }
        let Some(watched) = self.sandbox.watched.upgrade() else {
            return;
        };
        let paths = news.iter().flat_map(|(_, paths)| paths);
        let paths: BTreeSet<String> = paths.chain(&self.old).cloned().collect();
        let is_new = !news.is_empty();
        let old = self.sandbox.refresh(&watched, &paths);
        let pause = match self.retry {
            Some((_, pause)) if !is_new => (pause * 2).min(RETRY.1),
            _ => RETRY.0,
        };
        // A file that is held open becomes new after it is closed and the overlay refreshed again.
        // A sandbox that could not be refreshed, such as during an exchange of its layers, is tried
        // again.
        let is_open = old.as_ref().is_none_or(|old| !old.is_empty());
        self.retry = is_open.then(|| (Instant::now() + pause, pause));
        let had_old = !self.old.is_empty();
        self.old = old.unwrap_or_else(|| paths.into_iter().collect());
        if is_new || had_old {
            self.write_notes(news);
        }
    }

    /// Records the changes to the project, except those that the sandbox itself made.
    fn write_notes(&self, news: Vec<(AppliedRecord, Vec<String>)>) {
        let sandbox = &self.sandbox;
        let mut changes = read_changes(&sandbox.dir);
        for change in &mut changes {
            change.still_old.retain(|path| self.old.contains(path));
        }
        for (record, mut paths) in news {
            if record.by.as_deref() == Some(&sandbox.name) {
                continue;
            }
            let mut still_old = paths.clone();
            still_old.retain(|path| self.old.contains(path));
            still_old.truncate(MAX_NOTED_PATHS);
            let count = if record.to == sandbox.project {
                record.count
            } else {
                paths.len() as u64
            };
            paths.truncate(MAX_NOTED_PATHS);
            changes.push(ProjectChange {
                number: record.number,
                by: record.by,
                count,
                paths,
                still_old,
            });
        }
        let excess = changes.len().saturating_sub(MAX_NOTES);
        changes.drain(..excess);
        if !changes.is_empty() {
            // Without the record the sandbox is not told, but its files are new all the same.
            let _ = write_json(&sandbox.dir.join(NOTES), &changes);
        }
    }
}

impl FollowedSandbox {
    /// Refreshes the overlays and returns those of `paths` that are still old inside. `None` if the
    /// refresh failed.
    fn refresh(&self, watched: &WatchedSandbox, paths: &BTreeSet<String>) -> Option<Vec<String>> {
        let program = PathBuf::from(format!("/proc/self/fd/{}", self.program.as_raw_fd()));
        let paths: Vec<&Path> = paths.iter().map(Path::new).collect();
        let states = refresh(
            &program,
            &watched.init,
            &self.overlays,
            &paths,
            REFRESH_WAIT,
        )
        .ok()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let project = rustix::fs::open(&self.project, flags, Mode::empty()).ok()?;
        let Some(upper) = &self.upper else {
            // Layers in memory are not accessible from here, so it is unknown which files are the
            // sandbox's own.
            return Some(Vec::new());
        };
        let layers: Vec<PathBuf> = [upper.clone()]
            .into_iter()
            .chain(watched.frozen_layers())
            .collect();
        let is_old = |path: &Path, inside: PathState| {
            let outside = PathState::look(&project, path);
            inside != outside
                && ![inside, outside].contains(&PathState::Unknown)
                && !self.hidden.iter().any(|hidden| path.starts_with(hidden))
                && !layers.iter().any(|layer| covers(layer, path))
        };
        let both = paths.iter().zip(states);
        let old = both.filter(|(path, state)| is_old(path, *state));
        Some(
            old.filter_map(|(path, _)| path.to_str().map(str::to_owned))
                .collect(),
        )
    }
}

/// Returns true if a layer has an entry of its own at a path, or a non-directory above it.
// TRUST: the layer was written from inside; no link is followed and no file is read.
fn covers(layer: &Path, path: &Path) -> bool {
    let mut at = layer.to_owned();
    for part in path {
        at.push(part);
        match fs::symlink_metadata(&at) {
            Ok(meta) if meta.is_dir() && !is_opaque(&at) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
    true
}

fn is_opaque(dir: &Path) -> bool {
    let mut value = [0_u8; 1];
    ["user.overlay.opaque", "trusted.overlay.opaque"]
        .iter()
        .any(|name| rustix::fs::lgetxattr(dir, *name, &mut value).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_a_layer_has_is_the_sandboxes_own() {
        let temp = tempfile::tempdir().unwrap();
        let layer = temp.path();
        fs::create_dir_all(layer.join("d/e")).unwrap();
        fs::write(layer.join("d/e/f"), "").unwrap();
        symlink("/etc", layer.join("link")).unwrap();
        for (path, is_own) in [
            ("d/e/f", true),
            ("d/e/g", false),
            ("x", false),
            // A link in the layer of a sandbox is not followed.
            ("link/passwd", true),
        ] {
            assert_eq!(covers(layer, Path::new(path)), is_own, "{path}");
        }
    }
}
