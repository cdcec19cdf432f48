//! Changes of a remote copy, fetched at intervals while a command works in it, in case its machine
//! is lost.

use super::SandboxChanges;
use super::copied::{self, CopyOrigin};
use super::copied_git;
use crate::Error;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Sandbox;
use glovebox_workspace::{Filter, RefusalReason, Watch, write_layer};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// Interval between two fetches.
const INTERVAL: Duration = Duration::from_secs(30);
/// Directories below the sandbox's: the last complete fetch, one in progress, and one that is being
/// replaced.
const KEPT: &str = "synced";
const NEW: &str = "synced.new";
const OLD: &str = "synced.old";
const LOCK: &str = "synced.lock";

/// Fetcher of a copy's changes. Dropping it stops the fetches and waits for the one in progress to
/// end.
#[derive(Debug)]
pub struct KeptChanges {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    /// Lock that ensures that only one process fetches the changes of a sandbox.
    _lock: File,
}

#[derive(Debug, Default)]
struct Stop {
    is_wanted: Mutex<bool>,
    changed: Condvar,
}

impl KeptChanges {
    /// Starts fetching. `None` for a sandbox whose copy is not lost with its guest, or whose
    /// changes another process fetches already.
    pub fn begin(sandbox: &Arc<Sandbox>) -> Option<Self> {
        let backend = sandbox.info().backend;
        if !backend.capabilities().can_resume && !backend.keeps_copy_here() {
            return None;
        }
        CopyOrigin::read(sandbox.dir())?;
        let lock = File::create(sandbox.dir().join(LOCK)).ok()?;
        lock.try_lock().ok()?;
        let stop = Arc::new(Stop::default());
        let (sandbox, shared) = (Arc::clone(sandbox), Arc::clone(&stop));
        let work = move || {
            while !shared.wait(INTERVAL) {
                // A failed fetch leaves the previous one in place. A persistent error shows when
                // the changes are collected at the end.
                let _ = fetch(&sandbox, &shared);
            }
        };
        let thread = std::thread::Builder::new()
            .name("kept-changes".to_owned())
            .spawn(work)
            .ok()?;
        Some(Self {
            stop,
            thread: Some(thread),
            _lock: lock,
        })
    }
}

impl Drop for KeptChanges {
    fn drop(&mut self) {
        *self.stop.is_wanted() = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Stop {
    fn is_wanted(&self) -> MutexGuard<'_, bool> {
        self.is_wanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the stop is requested, for at most `time`. Returns true if it was.
    fn wait(&self, time: Duration) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.is_wanted(), time, |is_wanted| !*is_wanted);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn fetch(sandbox: &Sandbox, stop: &Stop) -> Result<(), Error> {
    let dir = sandbox.dir();
    let Some(origin) = CopyOrigin::read(dir) else {
        return Ok(());
    };
    let mut watch = |_| {
        if *stop.is_wanted() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let changes = copied::collect(sandbox, origin.clone(), &Filter::default(), &mut watch)?;
    let new = dir.join(NEW);
    remove(&new)?;
    DirBuilder::new()
        .mode(0o700)
        .create(&new)
        .map_err(|error| failed("make", &new, &error))?;
    write_layer(&changes.collected, &new)?;
    // Before the files are put in place: files without the commits that they came from would look
    // complete.
    let mut refused = changes.collected.set.refused.iter();
    if refused.any(|path| path.reason == RefusalReason::Git) {
        copied_git::fetch(sandbox, &origin)?;
    }
    let (kept, old) = (dir.join(KEPT), dir.join(OLD));
    remove(&old)?;
    // Renamed, not removed: a crash before the next rename leaves it for `find_last`.
    if kept.exists() {
        rename(&kept, &old)?;
    }
    rename(&new, &kept)?;
    Ok(remove(&old)?)
}

/// Turns the last fetch into the layer of a lost sandbox, so that it can be parked. Returns the
/// time of the fetch; `None` if there is none.
///
/// # Errors
/// The layer cannot be written.
pub fn keep_last(sandbox: &Sandbox) -> Result<Option<SystemTime>, Error> {
    let dir = sandbox.dir().to_owned();
    let Some(kept) = find_last(&dir) else {
        return Ok(None);
    };
    let Some(origin) = CopyOrigin::read(&dir) else {
        return Ok(None);
    };
    let fetched = age_of(&kept)?;
    let layer = copied::make_layer(sandbox, &origin)?;
    // rename(2) replaces an empty directory.
    rename(&kept, &layer)?;
    copied::forget(&dir)?;
    Ok(Some(fetched))
}

/// Returns the directory of the last complete fetch.
fn find_last(dir: &Path) -> Option<PathBuf> {
    let kept = [KEPT, OLD].map(|name| dir.join(name));
    kept.into_iter().find(|place| place.is_dir())
}

/// Returns the time at which a fetch was made.
fn age_of(kept: &Path) -> Result<SystemTime, Fault> {
    let meta = kept.metadata();
    meta.and_then(|meta| meta.modified())
        .map_err(|error| failed("inspect", kept, &error))
}

/// Collects the changes of an unreachable copy from the last fetch, and returns its time. `None` if
/// there is none.
///
/// # Errors
/// The fetched files cannot be read.
pub fn collect_last(
    dir: &Path,
    filter: &Filter,
    watch: &mut Watch<'_>,
) -> Result<Option<(SandboxChanges, SystemTime)>, Error> {
    let (Some(kept), Some(origin)) = (find_last(dir), CopyOrigin::read(dir)) else {
        return Ok(None);
    };
    let fetched = age_of(&kept)?;
    let changes = copied::from_fetched(dir, kept, origin, filter, watch)?;
    Ok(Some((changes, fetched)))
}

fn rename(from: &Path, to: &Path) -> Result<(), Fault> {
    fs::rename(from, to).map_err(|error| failed("put in place", to, &error))
}

fn remove(place: &Path) -> Result<(), Fault> {
    match fs::remove_dir_all(place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed("remove", place, &error))
        }
        _ => Ok(()),
    }
}

fn failed(what: &str, place: &Path, error: &io::Error) -> Fault {
    Fault::failed(
        Code::Io,
        format!("cannot {what} {}: {error}", place.display()),
    )
}
