//! What this machine can do for native sandboxes, found out by doing it.

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

/// Tries everything that native sandboxes need, each in a process of its own that runs the embedded guest. `program`
/// is the file of the calling program, for remedies that name it.
///
/// # Errors
/// The guest cannot be unpacked.
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

/// Describes the kind of place this is, and the calling user.
pub fn describe_machine(state_dir: &Path) -> String {
    let machine = Machine::read(Path::new("/"), state_dir, Path::new(""));
    let user = match machine.uid {
        0 => "root".to_owned(),
        uid => format!("user {uid}"),
    };
    format!("{}, {user}", machine.surroundings.describe())
}

/// True if this is the inside of a native sandbox.
pub fn is_inside_sandbox() -> bool {
    probe::is_inside_sandbox(Path::new("/"))
}

/// Stops this process by the default action of `signal`, although it may handle that, and returns when it goes on; at
/// once where the kernel stops nothing, as in an orphaned process group. With `is_group` the whole process group is
/// stopped, and the first thread must call.
///
/// # Errors
/// No such signal.
pub fn stop_caller(signal: Signal, is_group: bool) -> Result<(), Errno> {
    process::stop_caller(signal, is_group)
}

/// Returns the numbers of the descriptors from 3 on that this process was started with, and has no program that it
/// starts inherit them. Must be called before anything is opened.
pub fn note_descriptors() -> Vec<i32> {
    inherited::note_descriptors()
}

/// Makes another descriptor of the open file that has this number in this process.
///
/// # Errors
/// Nothing is open under this number.
pub fn duplicate_descriptor(number: i32) -> Result<OwnedFd, Errno> {
    inherited::duplicate_descriptor(number)
}
