//! Probes of what this machine supports for native sandboxes.

use crate::image::GuestImage;
use glovebox_jail::cgroup::{Controllers, DetectCx};
use glovebox_jail::probe::{self, Machine, ProbeCx};
use glovebox_jail::{inherited, process};
use glovebox_proto::Fault;
use glovebox_spec::finding::Finding;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};

/// Probes everything that native sandboxes need, each in a process of its own that runs the
/// embedded guest. `program` is the path of the calling program, for hints that name it.
///
/// # Errors
/// Fails if the guest cannot be unpacked.
pub fn examine_machine(state_dir: &Path, program: &Path) -> Result<Vec<Finding>, Fault> {
    let image = GuestImage::new()?;
    let run_child = |argument: &str| {
        let output = Command::new(image.path())
            .args(["probe", argument])
            .env_clear()
            .stdin(Stdio::null())
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    Ok(probe::run_all(&ProbeCx {
        run_child: &run_child,
        state_dir,
        program,
        root: Path::new("/"),
        controllers: &Controllers::detect(&DetectCx::default()),
    }))
}

/// Describes the kind of machine or container, and the calling user.
pub fn describe_machine(state_dir: &Path) -> String {
    let machine = Machine::read(Path::new("/"), state_dir, Path::new(""));
    let user = match machine.uid {
        0 => "root".to_owned(),
        uid => format!("user {uid}"),
    };
    format!("{}, {user}", machine.surroundings.describe())
}

/// Returns true inside a native sandbox.
pub fn is_inside_sandbox() -> bool {
    probe::is_inside_sandbox(Path::new("/"))
}

/// Stops this process by the default action of `signal`, even if the process handles it, and
/// returns when it continues. Returns at once if the kernel does not stop it, as in an orphaned
/// process group. With `is_group` the whole process group is stopped, and the first thread must
/// call.
///
/// # Errors
/// Fails if there is no such signal.
pub fn stop_caller(signal: Signal, is_group: bool) -> Result<(), Errno> {
    process::stop_caller(signal, is_group)
}

/// Returns the numbers of the descriptors from 3 on that this process was started with, and marks
/// them so that programs it starts do not inherit them. Must be called before any descriptor is
/// opened.
pub fn note_descriptors() -> Vec<i32> {
    inherited::note_descriptors()
}

/// Duplicates the descriptor of this number.
///
/// # Errors
/// Fails if no descriptor of this number is open.
pub fn duplicate_descriptor(number: i32) -> Result<OwnedFd, Errno> {
    inherited::duplicate_descriptor(number)
}
