//! The step of a pull that changes the user's files, in a process of its own.
//!
//! `glovebox __commit DIR` leads a session of its own, so neither Ctrl-C nor the end of the terminal nor the death of
//! the process that started it stops it half way. Should it be killed all the same, the process that started it
//! finishes or undoes what it began, and if that has died too, the next pull to the same place does.

use super::apply::ApplyTarget;
use crate::Error;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Supervisor;
use glovebox_workspace::apply::{Destination, Recovery, StagedChanges};
use glovebox_workspace::{Stage, SyncError};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};

/// Commits in a process of its own and waits for it. The destination stays locked meanwhile. That process also tells
/// other sandboxes of the project, as `goal` says: it outlives this one.
pub(super) fn commit(
    supervisor: &Supervisor,
    destination: &Destination,
    staged: StagedChanges,
    goal: ApplyTarget<'_>,
) -> Result<(), Error> {
    let mut command = Command::new(&supervisor.exe);
    command.arg("__commit").arg(staged.path());
    if let Some(told) = goal.told {
        command.arg("--state").arg(told.state_dir);
        if let Some(by) = told.by {
            command.arg("--by").arg(by.as_str());
        }
    }
    command
        // A group of its own from the first moment: Ctrl-C is not for it.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let child = command
        .spawn()
        .map_err(|error| Error::io("start the process that applies the changes", &error))?;
    // From here on the staging directory is its own.
    staged.hand_over();
    let output = child
        .wait_with_output()
        .map_err(|error| Error::io("wait for the changes to be applied", &error))?;
    if output.status.success() {
        return Ok(());
    }
    let Ok(fault) = serde_json::from_slice::<Fault>(&output.stdout) else {
        return recover(destination, goal, output.status);
    };
    Err(SyncError::pull(Stage::Apply, fault).into())
}

/// Finishes or undoes what a committing process began that was ended before it could say how it went. The destination
/// is still locked, so nobody has seen to it yet.
fn recover(
    destination: &Destination,
    goal: ApplyTarget<'_>,
    status: ExitStatus,
) -> Result<(), Error> {
    match destination.recover(&mut || goal.tell_recovered())? {
        Recovery::Finished => Ok(()),
        Recovery::Undone | Recovery::Nothing => {
            let message = format!(
                "the process that applies the changes was ended ({status}); {} is as it was before",
                goal.to.display()
            );
            let fault = Fault::failed(Code::Io, message)
                .remedy("try again")
                .retryable();
            Err(SyncError::pull(Stage::Apply, fault).into())
        }
    }
}
