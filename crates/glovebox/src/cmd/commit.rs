//! The step of a pull that changes the user's files, in a process of its own.
//!
//! `glovebox __commit DIR` leads a session of its own, so neither Ctrl-C nor the end of the terminal
//! nor the death of the `pull` that started it stops it half way. Should it be killed all the same, the
//! next pull to the same place finishes or undoes what it began.

use super::run::supervisor;
use crate::args::CommitArgs;
use crate::exit::CommandError;
use crate::render;
use glovebox_proto::{Code, Fault};
use glovebox_workspace::apply::{self, Destination, Staged};
use glovebox_workspace::{Stage, SyncError};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Commits what lies in the staging directory. Whoever started it learns from standard output why it
/// failed.
pub(crate) fn run(args: &CommitArgs) -> u8 {
    // Fails only for a process that leads a session already.
    let _ = rustix::process::setsid();
    match apply::commit(&args.dir) {
        Ok(()) => 0,
        Err(error) => {
            // Nobody may be left to read it.
            let _ = render::print(serde_json::to_string(&error.fault).unwrap_or_default());
            1
        }
    }
}

/// Commits in a process of its own and waits for it. The destination stays locked meanwhile.
pub(crate) fn commit(destination: Destination, staged: Staged) -> Result<(), CommandError> {
    let failed = |fault| CommandError::from(SyncError::pull(Stage::Apply, fault));
    let mut command = Command::new(supervisor()?.exe);
    command
        .arg("__commit")
        .arg(staged.path())
        // A group of its own from the first moment: Ctrl-C is not for it.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let child = command
        .spawn()
        .map_err(|error| CommandError::io("start the process that applies the changes", &error))?;
    // From here on the staging directory is its own.
    let dir = staged.hand_over();
    let output = child
        .wait_with_output()
        .map_err(|error| CommandError::io("wait for the changes to be applied", &error))?;
    drop(destination);
    if output.status.success() {
        return Ok(());
    }
    let fault = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        Fault::failed(
            Code::Io,
            format!(
                "the process that applies the changes from {} was ended ({})",
                dir.display(),
                output.status
            ),
        )
        .remedy("the next pull to this place finishes or undoes what it began")
    });
    Err(failed(fault))
}
