//! Limits that the kernel does not hold are watched: one thread per process looks at all native
//! sandboxes in turn and ends one that is over.
//!
//! What it reads belongs to a hostile party: directory trees are walked by descriptor, never
//! through links, with a bound on depth and entries.

use glovebox_jail::cgroup::Cgroup;
use glovebox_jail::launch::Init;
use glovebox_jail::plan::{Frozen, Place};
use glovebox_jail::spec::{Layers, Limits, Spec};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Shortest time between two looks at the same sandbox.
const TICK: Duration = Duration::from_millis(200);
/// A look may take one part in this many of the time until the next.
const DUTY: u32 = 20;

/// One sandbox under watch.
#[derive(Debug)]
pub(crate) struct Watched {
    /// Its first process.
    pub(crate) init: Init,
    limits: Limits,
    /// Where its layers are on disk; `None` when they are in memory.
    layers: Option<PathBuf>,
    /// What checkpoints froze counts as well.
    frozen: Mutex<Settled>,
    group: Mutex<Option<Cgroup>>,
    breach: Mutex<Option<String>>,
}

/// Layers that never change, and how large they are once that was looked at.
#[derive(Debug, Default)]
struct Settled {
    paths: Vec<PathBuf>,
    bytes: Option<u64>,
}

impl Settled {
    fn new(frozen: Vec<Frozen>) -> Self {
        let paths = frozen
            .into_iter()
            .flat_map(|layer| layer.root.into_iter().chain(layer.workspace))
            .collect();
        Self { paths, bytes: None }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    /// Takes what was started under its wing.
    pub(crate) fn new(init: Init, spec: &Spec, place: &Place, group: Option<Cgroup>) -> Self {
        Self {
            frozen: Mutex::new(Settled::new(place.frozen.clone())),
            init,
            limits: spec.limits.clone(),
            layers: (spec.layers == Layers::Disk).then(|| place.layers.clone()),
            group: Mutex::new(group),
            breach: Mutex::new(None),
        }
    }

    /// Other layers are below the writable ones now.
    pub(crate) fn set_frozen(&self, frozen: Vec<Frozen>) {
        *lock(&self.frozen) = Settled::new(frozen);
    }

    /// Times the kernel ended one of its processes for want of memory.
    pub(crate) fn oom_kills(&self) -> u64 {
        lock(&self.group).as_ref().map_or(0, Cgroup::oom_kills)
    }

    /// Why it was ended, if the watch ended it.
    pub(crate) fn breach(&self) -> Option<String> {
        lock(&self.breach).clone()
    }

    /// Gives up the control group, to be removed.
    pub(crate) fn take_cgroup(&self) -> Option<Cgroup> {
        lock(&self.group).take()
    }

    fn is_memory_watched(&self) -> bool {
        self.limits.memory_bytes.is_some()
            && !lock(&self.group).as_ref().is_some_and(|group| {
                group.applied().memory == glovebox_jail::cgroup::LimitState::Enforced
            })
    }

    fn needs_watching(&self) -> bool {
        (self.limits.disk_bytes.is_some() && self.layers.is_some()) || self.is_memory_watched()
    }

    fn frozen_bytes(&self) -> u64 {
        let paths = {
            let frozen = lock(&self.frozen);
            match frozen.bytes {
                Some(bytes) => return bytes,
                None => frozen.paths.clone(),
            }
        };
        let sizes = paths.iter().map(|path| match disk_usage(path, u64::MAX) {
            Usage::Bytes(bytes) => bytes,
            // It passed these bounds when it was written.
            Usage::Over | Usage::TooManyEntries | Usage::TooDeep => u64::MAX,
        });
        let bytes = sizes.fold(0, u64::saturating_add);
        let mut frozen = lock(&self.frozen);
        // Walked without the lock: what was exchanged meanwhile is counted next time.
        if frozen.paths == paths {
            frozen.bytes = Some(bytes);
        }
        bytes
    }

    /// One look. Says what was exceeded.
    fn exceeded(&self) -> Option<String> {
        if let (Some(max), Some(layers)) = (self.limits.disk_bytes, &self.layers) {
            match disk_usage(layers, max.saturating_sub(self.frozen_bytes())) {
                Usage::Bytes(_) => {}
                Usage::Over => {
                    return Some(format!("it wrote more than its disk limit of {max} bytes"));
                }
                Usage::TooManyEntries => {
                    return Some(format!("it made more than {MAX_ENTRIES} files"));
                }
                Usage::TooDeep => {
                    return Some(format!("it nested directories more than {MAX_DEPTH} deep"));
                }
            }
        }
        if let Some(max) = self.limits.memory_bytes
            && self.is_memory_watched()
            && resident_bytes(self.init.pid) > max
        {
            return Some(format!("it used more than its memory limit of {max} bytes"));
        }
        None
    }
}

/// What to do about a breach, if it was one of a limit that is watched here.
pub(crate) fn remedy(breach: &str) -> Option<String> {
    ["disk", "memory"]
        .into_iter()
        .find(|limit| breach.contains(&format!("{limit} limit")))
        .map(|limit| format!("raise the limit with `--{limit}`, or `{limit}` in glovebox.toml"))
}

/// Puts a sandbox under watch until it is dropped, if one of its limits needs that.
pub(crate) fn add(watched: &Arc<Watched>) {
    if !watched.needs_watching() {
        return;
    }
    let roster = roster();
    lock(&roster.entries).push(Entry {
        sandbox: Arc::downgrade(watched),
        next: Instant::now() + TICK,
    });
    roster.thread.unpark();
}

#[derive(Debug)]
struct Entry {
    sandbox: Weak<Watched>,
    next: Instant,
}

#[derive(Debug)]
struct Roster {
    entries: Arc<Mutex<Vec<Entry>>>,
    thread: Thread,
}

fn roster() -> &'static Roster {
    static ROSTER: OnceLock<Roster> = OnceLock::new();
    ROSTER.get_or_init(|| {
        let entries = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&entries);
        let builder = thread::Builder::new()
            .name("limits".to_owned())
            .stack_size(128 << 10);
        // Without the thread there is nobody to hold the limits; `thread::park` below would never
        // be reached, so the current thread stands in and the report's word would be untrue.
        let thread = match builder.spawn(move || watch(&seen)) {
            Ok(handle) => handle.thread().clone(),
            Err(_) => thread::current(),
        };
        Roster { entries, thread }
    })
}

fn watch(entries: &Mutex<Vec<Entry>>) {
    loop {
        let now = Instant::now();
        let due: Vec<Arc<Watched>> = {
            let mut entries = lock(entries);
            entries.retain(|entry| entry.sandbox.strong_count() > 0);
            entries
                .iter()
                .filter(|entry| entry.next <= now)
                .filter_map(|entry| entry.sandbox.upgrade())
                .collect()
        };
        for sandbox in due {
            let began = Instant::now();
            let exceeded = sandbox.exceeded();
            let next = Instant::now() + (began.elapsed() * DUTY).max(TICK);
            let is_over = exceeded.is_some();
            if let Some(reason) = exceeded {
                *lock(&sandbox.breach) = Some(reason);
                let _ = sandbox.init.kill();
            }
            let mut entries = lock(entries);
            if is_over {
                entries
                    .retain(|entry| !std::ptr::eq(entry.sandbox.as_ptr(), Arc::as_ptr(&sandbox)));
            } else if let Some(entry) = entries
                .iter_mut()
                .find(|entry| std::ptr::eq(entry.sandbox.as_ptr(), Arc::as_ptr(&sandbox)))
            {
                entry.next = next;
            }
        }
        let next = lock(entries).iter().map(|entry| entry.next).min();
        match next {
            Some(next) => thread::park_timeout(next.saturating_duration_since(Instant::now())),
            None => thread::park(),
        }
    }
}

/// Most entries a sandbox's layers may have.
const MAX_ENTRIES: u64 = 2_000_000;
/// Deepest directory: each level costs the walk two descriptors while it is open.
const MAX_DEPTH: usize = 200;

#[derive(Debug, PartialEq, Eq)]
enum Usage {
    Bytes(u64),
    Over,
    TooManyEntries,
    TooDeep,
}

/// Adds up the blocks below `root` until `max` is exceeded.
// TRUST: the tree is written by the sandbox. It is walked by descriptor without following links,
// with an explicit stack, and stops at a fixed number of entries.
fn disk_usage(root: &Path, max: u64) -> Usage {
    let mut total = 0_u64;
    let mut entries = 0_u64;
    let open = |at: Option<&OwnedFd>, name: &std::ffi::CStr| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match at {
            Some(at) => rustix::fs::openat(at, name, flags, Mode::empty()),
            None => rustix::fs::openat(CWD, name, flags, Mode::empty()),
        }
    };
    let Ok(root) = std::ffi::CString::new(root.as_os_str().as_encoded_bytes()) else {
        return Usage::Bytes(0);
    };
    let Ok(top) = open(None, &root) else {
        return Usage::Bytes(0);
    };
    let Ok(reader) = Dir::read_from(&top) else {
        return Usage::Bytes(0);
    };
    let mut stack = vec![(top, reader)];
    loop {
        let depth = stack.len();
        let Some((dir, reader)) = stack.last_mut() else {
            break;
        };
        let Some(Ok(entry)) = reader.read() else {
            stack.pop();
            continue;
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        entries += 1;
        if entries > MAX_ENTRIES {
            return Usage::TooManyEntries;
        }
        let Ok(stat) = rustix::fs::statat(&*dir, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        // Blocks, not lengths: a sparse file costs what it costs. A hard link is counted once per
        // name, which errs on the safe side.
        total = total.saturating_add((stat.st_blocks as u64).saturating_mul(512));
        if total > max {
            return Usage::Over;
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            if depth >= MAX_DEPTH {
                return Usage::TooDeep;
            }
            if let Ok(child) = open(Some(dir), name)
                && let Ok(reader) = Dir::read_from(&child)
            {
                stack.push((child, reader));
            }
        }
    }
    Usage::Bytes(total)
}

/// Resident bytes of a process and all its descendants. Shared pages count once per process.
fn resident_bytes(init: i32) -> u64 {
    let page = rustix::param::page_size() as u64;
    let mut total = 0_u64;
    let mut pending = vec![init];
    let mut seen = 0;
    while let Some(pid) = pending.pop() {
        seen += 1;
        if seen > 65_536 {
            return u64::MAX;
        }
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
        if let Ok(statm) = read("statm") {
            let pages: u64 = statm
                .split(' ')
                .nth(1)
                .and_then(|field| field.parse().ok())
                .unwrap_or(0);
            total = total.saturating_add(pages.saturating_mul(page));
        }
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for thread in threads.flatten() {
            if let Ok(children) = fs::read_to_string(thread.path().join("children")) {
                pending.extend(
                    children
                        .split_ascii_whitespace()
                        .filter_map(|pid| pid.parse::<i32>().ok()),
                );
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_usage_counts_blocks_and_stops_at_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/f"), vec![1_u8; 100_000]).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("out")).unwrap();
        let sparse = fs::File::create(dir.path().join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        let Usage::Bytes(bytes) = disk_usage(dir.path(), 1 << 30) else {
            panic!("over")
        };
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
        assert_eq!(disk_usage(dir.path(), 50_000), Usage::Over);
    }

    #[test]
    fn resident_bytes_include_children() {
        let mut child = std::process::Command::new("sleep")
            .arg("5")
            .spawn()
            .unwrap();
        let own = resident_bytes(std::process::id() as i32);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(own > 1 << 20, "{own}");
    }
}
