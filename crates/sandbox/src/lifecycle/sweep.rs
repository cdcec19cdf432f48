//! Sweep of the remains of dead owners, which are found by locks that no process holds.
//!
//! The work in a named sandbox's layers is kept: the sandbox is listed as `lost` until a user
//! starts or kills it. Everything else of a dead owner is removed.

use crate::lifecycle::parking::{self, ParkingNews};
use crate::process::forced_end;
use crate::process::{self, ProcessRef};
use crate::state::layout::{Layout, open_dir};
use crate::state::sandbox_dir::is_kept;
use crate::state::sandbox_dir::{SandboxDir, SandboxDirState, read_status};
use crate::state::trash;
use crate::{Name, backend, cache, checkpoint, control, fault};
use glovebox_jail::project_quota;
use glovebox_proto::Fault;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Remains of a dead owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    /// Kind: `sandbox`, `process`, `cgroup`, `cache`, `trash` or `staging`.
    pub kind: String,
    /// Path.
    pub path: String,
    /// Description for people, one sentence.
    pub detail: String,
}

/// Age below which entries in `staging/` and `trash/` count as work in progress of another process.
const IN_PROGRESS: Duration = Duration::from_mins(1);
/// Time for a sandbox to end by itself after its owner died.
const LEAVE_WAIT: Duration = Duration::from_millis(500);

/// Result of a walk over the state directory.
#[derive(Debug, Default)]
pub(crate) struct SweepReport {
    /// Remains of dead owners.
    pub(crate) orphans: Vec<Orphan>,
    /// Slots of sandboxes that may be resumed.
    pub(crate) kept_slots: Vec<u32>,
    /// Changes that were parked or dropped.
    pub(crate) parking_news: Vec<ParkingNews>,
}

/// Finds the remains without changing anything.
pub(crate) fn orphans(layout: &Layout) -> Result<SweepReport, Fault> {
    walk(layout, false)
}

/// Removes the remains, as far as possible, and returns those that were removed.
pub(crate) fn sweep(layout: &Layout) -> Result<SweepReport, Fault> {
    walk(layout, true)
}

fn walk(layout: &Layout, is_removing: bool) -> Result<SweepReport, Fault> {
    let mut swept = SweepReport::default();
    let found = &mut swept.orphans;
    for (name, path) in children(&layout.sandboxes())? {
        let Ok(name) = Name::parse(&name) else {
            continue;
        };
        // The next sweep examines a directory that cannot be examined now.
        let Ok(SandboxDirState::Free(sandbox_dir)) = SandboxDir::find_at(&path, &name) else {
            continue;
        };
        if let Some(process) = leftover(&path) {
            found.push(orphan(
                "process",
                &path,
                format!("process {} outlived its owner", process.pid),
            ));
            if is_removing && end(&path, process).is_err() {
                // Its processes still run, so its files and ids must not be used again.
                let slot = read_status(&path).ok().and_then(|status| status.slot);
                swept.kept_slots.extend(slot);
                continue;
            }
        }
        if is_removing && parking::parked(&path).is_some_and(|parked| parking::is_expired(&parked))
        {
            // The next sweep tries again if this fails.
            if remove_dead(layout, sandbox_dir).is_ok() {
                swept.parking_news.push(ParkingNews::Expired(name.clone()));
            }
            continue;
        }
        if parking::is_to_be_parked(&sandbox_dir) {
            let reason = "the process that owned it died";
            if is_removing && parking::park(&sandbox_dir, reason, None).is_ok() {
                swept.parking_news.push(ParkingNews::Found(name.clone()));
            } else {
                // The status could not be written, for example because the disk is full. The work
                // is kept.
                continue;
            }
        }
        if is_kept(&sandbox_dir) {
            swept
                .kept_slots
                .extend(read_status(&path).ok().and_then(|status| status.slot));
            if is_removing {
                // If this fails, the next kill or start of the sandbox tries again.
                let _ = backend::sweep(&path);
                // Fails if there is no socket, which is the aim.
                let _ = fs::remove_file(path.join("socket"));
                let _ = fs::remove_file(path.join(control::CONTROL));
            }
            continue;
        }
        let detail = format!("the owner of sandbox `{name}` died");
        if !is_removing || remove_dead(layout, sandbox_dir).is_ok() {
            found.push(orphan("sandbox", &path, detail));
        }
    }
    for (kind, room) in [("staging", layout.staging()), ("trash", layout.trash())] {
        for (_, path) in children(&room)? {
            if !is_old(&path) {
                continue;
            }
            let removed = || -> Result<(), Fault> {
                let Some(place) = trash::discard(layout, &path)? else {
                    return Ok(());
                };
                trash::remove(layout, &place)
            };
            if !is_removing || removed().is_ok() {
                found.push(orphan(
                    kind,
                    &path,
                    "its removal was interrupted".to_owned(),
                ));
            }
        }
    }
    for path in cache::sweep(layout, is_removing) {
        found.push(orphan(
            "cache",
            &path,
            "what a sandbox that died was about to keep".to_owned(),
        ));
    }
    if is_removing {
        // A process that died after removing a sandbox's files left their quota behind.
        if let Ok(trash) = open_dir(&layout.trash()) {
            project_quota::reclaim(trash.as_fd());
        }
        // The next sweep tries again if this fails.
        let _ = checkpoint::store::collect_garbage(layout);
        backend::sweep_base(layout);
        swept
            .parking_news
            .extend(parking::drop_excess(layout, None));
    }
    Ok(swept)
}

/// Ends and removes the sandbox of a dead owner.
pub(crate) fn remove_dead(layout: &Layout, sandbox_dir: SandboxDir) -> Result<(), Fault> {
    if let Some(process) = leftover(&sandbox_dir.path) {
        end(&sandbox_dir.path, process)?;
    }
    backend::sweep(&sandbox_dir.path)?;
    sandbox_dir.discard(layout)
}

/// Returns the first process of the sandbox if it outlived its owner.
fn leftover(dir: &Path) -> Option<ProcessRef> {
    let process = read_status(dir).ok()?.process?;
    process.open().map(|_| process)
}

/// Ends the first process of the sandbox in `dir`, and with it all others.
fn end(dir: &Path, process: ProcessRef) -> Result<(), Fault> {
    let Some(pidfd) = process.open() else {
        return Ok(());
    };
    // The end of its link makes the guest end by itself, so give it a moment.
    if process::wait_gone(&pidfd, LEAVE_WAIT) {
        return Ok(());
    }
    forced_end::end_all(&pidfd, Some(process), &|| backend::kill_left_group(dir))
}

fn orphan(kind: &str, path: &Path, detail: String) -> Orphan {
    Orphan {
        kind: kind.to_owned(),
        path: path.display().to_string(),
        detail,
    }
}

fn children(dir: &Path) -> Result<Vec<(String, PathBuf)>, Fault> {
    let entries = fs::read_dir(dir).map_err(|error| fault::io("list", dir, error))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect())
}

fn is_old(path: &Path) -> bool {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return false;
    };
    let changed = UNIX_EPOCH + Duration::from_secs(meta.ctime().max(0) as u64);
    SystemTime::now()
        .duration_since(changed)
        .is_ok_and(|age| age >= IN_PROGRESS)
}
