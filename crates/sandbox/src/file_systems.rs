//! Probes of what the file systems of a project and of the state directory support for native
//! sandboxes.
//!
//! Each probe is a process that takes some milliseconds. The most common file systems are therefore
//! known in advance, and the result for others is remembered while this process lives.

use crate::image::GuestImage;
use crate::mounts::read_mount_type;
use crate::state::layout::Layout;
use glovebox_jail::probe::{LOWER_LAYER, LayerObstacle, Outcome, Probe, is_inside_sandbox};
use glovebox_proto::{Code, Fault, Remedy};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

/// File systems that can be any layer (`statfs(2)`), with the first kernel version of each.
const KNOWN: [(u64, (u32, u32)); 4] = [
    (0xef53, (5, 15)),      // ext4
    (0x5846_5342, (5, 15)), // XFS
    (0x9123_683e, (5, 15)), // btrfs
    (0x0102_1994, (6, 6)),  // tmpfs
];
/// First kernel in which layers in memory keep the attributes of overlays.
const MEMORY_LAYERS: (u32, u32) = (6, 6);

/// Reason for which a project must be copied into native sandboxes of this caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyReason {
    /// Its file system cannot map file owners to those of a sandbox, which a sandbox of root needs.
    Owners,
    /// The kernel cannot mount an overlay over its file system.
    Overlay,
}

/// Returns the reason for which `project` must be copied. `None` if it can be mounted.
pub fn find_copy_reason(project: &Path, state_dir: &Path) -> Option<CopyReason> {
    if is_known(project) {
        return None;
    }
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let is_foreign =
        |meta: std::fs::Metadata| (meta.uid(), meta.gid()) != (uid.as_raw(), gid.as_raw());
    // If the file system is mounted for other ids than the caller's, its files have an owner that a
    // sandbox without an id range cannot keep.
    if !uid.is_root() && std::fs::metadata(project).is_ok_and(is_foreign) {
        return Some(CopyReason::Owners);
    }
    let outcome = try_cached(LOWER_LAYER, project, state_dir)?;
    LayerObstacle::judge(&outcome).map(|obstacle| match obstacle {
        LayerObstacle::Owners => CopyReason::Owners,
        LayerObstacle::Overlay => CopyReason::Overlay,
    })
}

/// Returns true if sandboxes cannot have their layers in `state_dir` but can have them in memory.
/// Creates the directory if it is missing.
///
/// # Errors
/// The errors of opening the registry there.
pub fn needs_memory_layers(state_dir: &Path) -> Result<bool, Fault> {
    let there = state_dir.ancestors().find(|path| path.exists());
    if there.is_none_or(is_known) || kernel_version() < MEMORY_LAYERS {
        return Ok(false);
    }
    Layout::open(state_dir)?;
    let outcome = try_cached(Probe::Overlay.id(), state_dir, state_dir);
    // A failure in any other step would occur in memory too.
    const OF_LAYERS: [&str; 5] = ["state-dir", "overlay", "copy-up", "whiteout", "opaque"];
    Ok(matches!(outcome, Some(Outcome::Failed { step, .. }) if OF_LAYERS.contains(&step.as_str())))
}

/// Returns the usual name of the file system that contains `path`.
pub fn name_file_system(path: &Path) -> String {
    let kind = read_mount_type(path);
    match kind.split_once('.') {
        Some(("fuse", program)) => format!("FUSE ({program})"),
        _ if kind == "fuse" || kind == "fuseblk" => "FUSE".to_owned(),
        _ if kind.is_empty() => "a file system".to_owned(),
        _ => kind,
    }
}

/// Adds the file system of the state directory to a fault that it may have caused.
pub(crate) fn name_state(fault: Fault, state_dir: &Path) -> Fault {
    let is_of_files = matches!(
        fault.code,
        Code::Io | Code::PermissionDenied | Code::Unavailable
    );
    let there = state_dir.ancestors().find(|path| path.exists());
    if !is_of_files || there.is_none_or(is_known) || is_inside_sandbox(Path::new("/")) {
        return fault;
    }
    let advice = format!(
        "the state directory {} lies on {}, which may be the cause: set GLOVEBOX_STATE to a directory on ext4, xfs or btrfs",
        state_dir.display(),
        name_file_system(state_dir)
    );
    let remedy = match fault.remedy.clone() {
        Some(remedy) => remedy.then("; ").then(advice),
        None => Remedy::advice([advice.into()]),
    };
    fault.remedy(remedy)
}

fn is_known(path: &Path) -> bool {
    let Ok(found) = rustix::fs::statfs(path) else {
        return false;
    };
    let kind = found.f_type as u64 & 0xffff_ffff;
    KNOWN
        .iter()
        .any(|(known, since)| *known == kind && kernel_version() >= *since)
}

/// Returns the major and minor version of the running kernel.
fn kernel_version() -> (u32, u32) {
    static VERSION: LazyLock<(u32, u32)> = LazyLock::new(|| {
        let name = rustix::system::uname();
        let release = name.release().to_string_lossy();
        let mut numbers = release
            .split(|c: char| !c.is_ascii_digit())
            .map(|digits| digits.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    });
    *VERSION
}

/// Results of probes, by the probe's name and the device number of the file system.
type Outcomes = HashMap<(&'static str, u64), Outcome>;

/// Runs `probe` with `dir` in a process of its own, once for each file system. `None` if the
/// process cannot be run; then the start of a sandbox reports the reason.
fn try_cached(probe: &'static str, dir: &Path, state_dir: &Path) -> Option<Outcome> {
    static OUTCOMES: LazyLock<Mutex<Outcomes>> = LazyLock::new(Mutex::default);
    let key = (probe, std::fs::metadata(dir).ok()?.dev());
    // Held during the probe, so that threads that start together run it once.
    let mut outcomes = OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(outcome) = outcomes.get(&key) {
        return Some(outcome.clone());
    }
    let image = GuestImage::shared(&state_dir.join("base")).ok()?;
    let output = Command::new(image.path())
        .args(["probe", &format!("{probe}:.")])
        .current_dir(dir)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let outcome = Outcome::parse(&String::from_utf8_lossy(&output.stdout));
    outcomes.insert(key, outcome.clone());
    Some(outcome)
}
