//! Changes of a remote copy, fetched at intervals while a command works in it, in case its machine
//! is lost.

use super::SandboxChanges;
use super::copied::{self, CopyOrigin};
use super::copied_git;
use super::kept_dir::KeptDir;
use crate::Error;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Sandbox;
use glovebox_workspace::{Filter, RefusalReason, Watch, write_layer};
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// Interval between two fetches.
const INTERVAL: Duration = Duration::from_secs(30);
/// Directory below the sandbox's for the last complete fetch.
const KEPT: KeptDir = KeptDir("synced");
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
    let new = KEPT
        .begin(dir)
        .map_err(|error| failed("make a directory in", dir, &error))?;
    write_layer(&changes.collected, &new)?;
    // Before the files are put in place: files without the commits that they came from would look
    // complete.
    let mut refused = changes.collected.set.refused.iter();
    if refused.any(|path| path.reason == RefusalReason::Git) {
        copied_git::fetch(sandbox, &origin)?;
    }
    let finished = KEPT.finish(dir);
    Ok(finished.map_err(|error| failed("replace the last fetch in", dir, &error))?)
}

/// Turns the last fetch into the layer of a lost sandbox, so that it can be parked. Returns the
/// time of the fetch; `None` if there is none.
///
/// # Errors
/// The layer cannot be written.
pub fn keep_last(sandbox: &Sandbox) -> Result<Option<SystemTime>, Error> {
    let dir = sandbox.dir().to_owned();
    let Some(kept) = KEPT.find(&dir) else {
        return Ok(None);
    };
    let Some(origin) = CopyOrigin::read(&dir) else {
        return Ok(None);
    };
    let fetched = age_of(&kept)?;
    let layer = copied::make_layer(sandbox, &origin)?;
    // rename(2) replaces an empty directory.
    fs::rename(&kept, &layer).map_err(|error| failed("put in place", &layer, &error))?;
    copied::forget(&dir)?;
    Ok(Some(fetched))
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
    let (Some(kept), Some(origin)) = (KEPT.find(dir), CopyOrigin::read(dir)) else {
        return Ok(None);
    };
    let fetched = age_of(&kept)?;
    let changes = copied::from_fetched(dir, kept, origin, filter, watch)?;
    Ok(Some((changes, fetched)))
}

fn failed(what: &str, place: &Path, error: &io::Error) -> Fault {
    Fault::failed(
        Code::Io,
        format!("cannot {what} {}: {error}", place.display()),
    )
}
