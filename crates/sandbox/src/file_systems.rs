//! What the file systems of a project and of the state directory can do for native sandboxes, found out by trying.
//!
//! Each try is a process of some milliseconds, so the file systems that most projects lie on are known, and the answer
//! for another one is remembered while this process lives.

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

/// File systems that are layers of every kind (`statfs(2)`), and the kernel since which they are.
const KNOWN: [(u64, (u32, u32)); 4] = [
    (0xef53, (5, 15)),      // ext4
    (0x5846_5342, (5, 15)), // XFS
    (0x9123_683e, (5, 15)), // btrfs
    (0x0102_1994, (6, 6)),  // tmpfs
];
/// The kernel since which layers in memory keep what overlays note in them.
const MEMORY_LAYERS: (u32, u32) = (6, 6);

/// Reason why a project has to be copied into native sandboxes of this caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyReason {
    /// Its file system cannot show its files with the owners of a sandbox, which one of root needs.
    Owners,
    /// The kernel puts no overlay over its file system.
    Overlay,
}

/// Returns the reason why `project` has to be copied, if it cannot be shown as it is.
pub fn find_copy_reason(project: &Path, state_dir: &Path) -> Option<CopyReason> {
    if is_known(project) {
        return None;
    }
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let is_foreign =
        |meta: std::fs::Metadata| (meta.uid(), meta.gid()) != (uid.as_raw(), gid.as_raw());
    // Mounted for other ids than the caller's, its files have an owner that a sandbox without a range cannot keep.
    if !uid.is_root() && std::fs::metadata(project).is_ok_and(is_foreign) {
        return Some(CopyReason::Owners);
    }
    let outcome = try_cached(LOWER_LAYER, project, state_dir)?;
    LayerObstacle::judge(&outcome).map(|obstacle| match obstacle {
        LayerObstacle::Owners => CopyReason::Owners,
        LayerObstacle::Overlay => CopyReason::Overlay,
    })
}

/// Returns true if the layers of sandboxes cannot lie in `state_dir`, and can be in memory instead. The directory is
/// made if it is not there yet.
///
/// # Errors
/// As opening the registry there.
pub fn needs_memory_layers(state_dir: &Path) -> Result<bool, Fault> {
    let there = state_dir.ancestors().find(|path| path.exists());
    if there.is_none_or(is_known) || kernel_version() < MEMORY_LAYERS {
        return Ok(false);
    }
    Layout::open(state_dir)?;
    let outcome = try_cached(Probe::Overlay.id(), state_dir, state_dir);
    // What is refused for another reason fails in memory too.
    const OF_LAYERS: [&str; 5] = ["state-dir", "overlay", "copy-up", "whiteout", "opaque"];
    Ok(matches!(outcome, Some(Outcome::Failed { step, .. }) if OF_LAYERS.contains(&step.as_str())))
}

/// Returns the name of the file system that `path` lies on, as people call it.
pub fn name_file_system(path: &Path) -> String {
    let kind = read_mount_type(path);
    match kind.split_once('.') {
        Some(("fuse", program)) => format!("FUSE ({program})"),
        _ if kind == "fuse" || kind == "fuseblk" => "FUSE".to_owned(),
        _ if kind.is_empty() => "a file system".to_owned(),
        _ => kind,
    }
}

/// Names the file system of the state directory in a failure that it may have caused.
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

/// Major and minor version of the running kernel.
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

/// What was tried with the file system of a device number.
type Outcomes = HashMap<(&'static str, u64), Outcome>;

/// Tries `probe` with `dir` in a process of its own, once for each file system. `None` where the process cannot be run:
/// the start of a sandbox tells why.
fn try_cached(probe: &'static str, dir: &Path, state_dir: &Path) -> Option<Outcome> {
    static OUTCOMES: LazyLock<Mutex<Outcomes>> = LazyLock::new(Mutex::default);
    let key = (probe, std::fs::metadata(dir).ok()?.dev());
    // Held while trying, so that threads that start together try once.
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
