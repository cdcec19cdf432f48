//! Parked changes: changes of a command's sandbox that the user has neither applied nor discarded.
//!
//! A parked sandbox has ended. Its layers stay under its name, like those of a stopped named
//! sandbox, so every operation on such layers works on parked ones. They are kept for a day. At
//! most [`MAX_PARKED`] sandboxes with together at most [`MAX_PARKED_BYTES`] are kept, and the
//! oldest are dropped first. Sweeps drop expired ones.

use crate::lifecycle::sweep;
use crate::state::layout::Layout;
use crate::state::layout::{LAYERS, WORKSPACE_UPPER};
use crate::state::sandbox_dir::{SandboxDir, SandboxDirState, read_spec, read_status};
use crate::state::status::{ParkedChanges, SandboxState, Status};
use crate::{Name, checkpoint, fault};
use glovebox_jail::usage::{TreeUsage, measure};
use glovebox_proto::Fault;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time for which parked changes are kept.
pub(crate) const KEPT_FOR: Duration = Duration::from_hours(24);
/// Maximum number of parked sandboxes.
pub(crate) const MAX_PARKED: usize = 20;
/// Maximum total size of their layers, in bytes. The newest is kept whatever its size.
pub(crate) const MAX_PARKED_BYTES: u64 = 20 << 30;

/// Change in the set of parked sandboxes that no user requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParkingNews {
    /// Changes were parked because the process that owned the sandbox died.
    Found(Name),
    /// Changes were dropped because they had been kept for a day.
    Expired(Name),
    /// Changes were dropped to make room for newer ones.
    Displaced(Name),
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// Returns the facts about parked changes in `status.json`. `None` if the sandbox is not parked.
pub(crate) fn parked(dir: &Path) -> Option<ParkedChanges> {
    let status = read_status(dir).ok()?;
    status
        .parked
        .filter(|_| status.state == SandboxState::Parked)
}

/// Returns true if the changes have been kept for [`KEPT_FOR`].
pub(crate) fn is_expired(parked: &ParkedChanges) -> bool {
    let age_ms = now_ms().saturating_sub(parked.unix_ms);
    u128::from(age_ms) >= KEPT_FOR.as_millis()
}

/// Records that a sandbox is parked. Precondition: its processes have ended.
pub(crate) fn park(
    sandbox_dir: &SandboxDir,
    reason: &str,
    changes: Option<u64>,
) -> Result<(), Fault> {
    let status = read_status(&sandbox_dir.path)?;
    let bytes = checkpoint::uppers(&sandbox_dir.path)
        .iter()
        .map(|layer| match measure(layer, u64::MAX) {
            TreeUsage::Whole { bytes, .. } => bytes,
            // A command has denied its owner access to a directory, so the limit stands for the
            // size.
            _ => read_spec(&sandbox_dir.path)
                .ok()
                .and_then(|spec| spec.jail.limits.disk_bytes)
                .unwrap_or_default(),
        })
        .fold(0, u64::saturating_add);
    sandbox_dir.write_status(&Status {
        state: SandboxState::Parked,
        is_supervised: true,
        process: None,
        reason: Some(reason.to_owned()),
        parked: Some(ParkedChanges {
            unix_ms: now_ms(),
            bytes,
            changes,
        }),
        ..status
    })
}

/// Returns true if the sandbox of a dead owner is to be parked: its spec asks for that, and it
/// changed the workspace. Precondition: its processes have ended.
pub(crate) fn is_to_be_parked(sandbox_dir: &SandboxDir) -> bool {
    let is_own = read_status(&sandbox_dir.path).is_ok_and(|status| !status.is_supervised);
    let is_wanted = read_spec(&sandbox_dir.path).is_ok_and(|spec| spec.parks_changes);
    if !is_own || !is_wanted || !sandbox_dir.has_layers() {
        return false;
    }
    match std::fs::read_dir(sandbox_dir.path.join(WORKSPACE_UPPER)) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// Drops the oldest parked sandboxes until the rest is within bounds. Keeps `newest` in any case.
pub(crate) fn drop_excess(layout: &Layout, newest: Option<&Name>) -> Vec<ParkingNews> {
    let Ok(entries) = std::fs::read_dir(layout.sandboxes()) else {
        return Vec::new();
    };
    let mut all: Vec<(Name, ParkedChanges)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = Name::parse(entry.file_name().to_str()?).ok()?;
            let parked = parked(&entry.path())?;
            Some((name, parked))
        })
        .collect();
    all.sort_by_key(|(name, parked)| (Some(name) != newest, std::cmp::Reverse(parked.unix_ms)));
    let mut bytes = 0_u64;
    let mut news = Vec::new();
    for (index, (name, parked)) in all.into_iter().enumerate() {
        bytes = bytes.saturating_add(parked.bytes);
        let fits = index < MAX_PARKED && bytes <= MAX_PARKED_BYTES;
        if fits || index == 0 {
            continue;
        }
        // A process that works on the changes holds the lock; the next sweep tries again.
        if let Ok(SandboxDirState::Free(sandbox_dir)) = SandboxDir::find(layout, &name)
            && sweep::remove_dead(layout, sandbox_dir).is_ok()
        {
            news.push(ParkingNews::Displaced(name));
        }
    }
    news
}

/// Copies the workspace's layer in memory, below the directory `layers`, to the place of layers on
/// disk, and records that in the spec. Changes outside the workspace are not copied.
pub(crate) fn save_memory_layers(sandbox_dir: &SandboxDir, layers: &OwnedFd) -> Result<(), Fault> {
    let mut spec = read_spec(&sandbox_dir.path)?;
    let place = sandbox_dir.path.join(LAYERS);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&place)
        .map_err(|error| fault::io("make", &place, error))?;
    let name = WORKSPACE_UPPER.rsplit('/').next().unwrap_or_default();
    let from = Path::new("/proc/self/fd")
        .join(layers.as_raw_fd().to_string())
        .join(name);
    checkpoint::copy_layer(&from, &place.join(name))?;
    spec.jail.layers = glovebox_spec::Layers::Disk;
    sandbox_dir.write_spec(&spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backend, SandboxSpec};

    fn make(layout: &Layout, name: &str, unix_ms: u64, bytes: u64) -> Name {
        let name = Name::parse(name).unwrap();
        let status = Status {
            state: SandboxState::Parked,
            parked: Some(ParkedChanges {
                unix_ms,
                bytes,
                changes: None,
            }),
            ..Status::starting(true)
        };
        let spec = SandboxSpec::new(Backend::HOST);
        let sandbox_dir = SandboxDir::make(layout, &name, &spec, Some(&status)).unwrap();
        crate::state::sandbox_dir::unlock(&sandbox_dir.unwrap().lock);
        name
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_bytes() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::open(&temp.path().join("state")).unwrap();
        let third = MAX_PARKED_BYTES / 3;
        let oldest = make(&layout, "a", 1, 5);
        let older = make(&layout, "b", 2, third + 3);
        make(&layout, "c", 3, third);
        make(&layout, "d", 4, third);
        let gone = [
            ParkingNews::Displaced(older),
            ParkingNews::Displaced(oldest),
        ];
        assert_eq!(drop_excess(&layout, None), gone);
        assert_eq!(drop_excess(&layout, None), []);
        // A parked sandbox that is too large by itself stays, because it is the newest.
        let large = make(&layout, "e", 5, MAX_PARKED_BYTES + 1);
        assert_eq!(drop_excess(&layout, Some(&large)).len(), 2);
        assert!(parked(&layout.sandbox("e")).is_some());
    }

    #[test]
    fn a_day_is_enough() {
        let at = |unix_ms| ParkedChanges {
            unix_ms,
            bytes: 0,
            changes: None,
        };
        let day_ms = KEPT_FOR.as_millis() as u64;
        assert!(is_expired(&at(now_ms() - day_ms)));
        assert!(!is_expired(&at(now_ms() - day_ms + 10_000)));
        // Nothing expires if the clock was set back.
        assert!(!is_expired(&at(now_ms() + day_ms)));
    }
}
