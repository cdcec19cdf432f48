//! Step of a pull that changes the user's files, in a separate process.
//!
//! `glovebox __commit DIR` leads a session of its own, so that neither Ctrl-C nor the end of the
//! terminal or of its parent stops it half-way. If it is killed nevertheless, its parent finishes
//! or undoes the commit; if the parent has died too, the next pull to the same directory does.

use super::apply::ApplyTarget;
use crate::Error;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Supervisor;
use glovebox_workspace::apply::{Destination, Recovery, StagedChanges};
use glovebox_workspace::{Stage, SyncError};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};

/// Commits in a separate process and waits for it. The destination stays locked meanwhile. That
/// process also informs other sandboxes of the project, because it may outlive this one.
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
        // A process group of its own from the start, so that Ctrl-C never reaches it.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let child = command
        .spawn()
        .map_err(|error| Error::io("start the process that applies the changes", &error))?;
    // From here on the staging directory belongs to that process.
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

/// Finishes or undoes the commit of a process that ended before it reported a result. The
/// destination is still locked, so no other process has recovered it.
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
