//! Changes of a copy elsewhere, fetched now and then while a command works in it: what remains of them when its machine
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

/// Time between two fetches.
const INTERVAL: Duration = Duration::from_secs(30);
/// Directories in that of the sandbox: the last fetch that is whole, one in the making, and one that is replaced.
const KEPT: &str = "synced";
const NEW: &str = "synced.new";
const OLD: &str = "synced.old";
const LOCK: &str = "synced.lock";

/// Fetches the changes of a copy until it is dropped.
#[derive(Debug)]
pub struct KeptChanges {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    /// Held, so that one process at a time fetches the changes of a sandbox.
    _lock: File,
}

#[derive(Debug, Default)]
struct Stop {
    is_wanted: Mutex<bool>,
    changed: Condvar,
}

impl KeptChanges {
    /// Begins, for a sandbox whose copy may be lost with its guest and whose changes nobody fetches yet. `None` for others.
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
                // A fetch that fails leaves the one before; what failed is told at the end, by the last one.
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

    /// Waits until the end is wanted, at most for a time. Returns whether it is.
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
    // Before the files take their place: files without the commits that they came from would look whole.
    let mut refused = changes.collected.set.refused.iter();
    if refused.any(|path| path.reason == RefusalReason::Git) {
        copied_git::fetch(sandbox, &origin)?;
    }
    let (kept, old) = (dir.join(KEPT), dir.join(OLD));
    remove(&old)?;
    if kept.exists() {
        rename(&kept, &old)?;
    }
    rename(&new, &kept)?;
    Ok(remove(&old)?)
}

/// Makes the last fetch the layer of a sandbox that is lost, so that it can be parked. Returns when it was fetched;
/// `None` where nothing was.
///
/// # Errors
/// What could not be written.
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
    // An empty directory gives way.
    rename(&kept, &layer)?;
    copied::forget(&dir)?;
    Ok(Some(fetched))
}

/// Returns the directory with the last fetch that is whole.
fn find_last(dir: &Path) -> Option<PathBuf> {
    let kept = [KEPT, OLD].map(|name| dir.join(name));
    kept.into_iter().find(|place| place.is_dir())
}

/// Returns when a fetch was made.
fn age_of(kept: &Path) -> Result<SystemTime, Fault> {
    let meta = kept.metadata();
    meta.and_then(|meta| meta.modified())
        .map_err(|error| failed("inspect", kept, &error))
}

/// Collects the changes of a copy that cannot be reached as they were fetched last, and says when that was. `None`
/// where none were.
///
/// # Errors
/// What keeps them from being read.
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
