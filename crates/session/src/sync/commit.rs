//! The step of a pull that changes the user's files, in a process of its own.
//!
//! `glovebox __commit DIR` leads a session of its own, so neither Ctrl-C nor the end of the terminal nor the death of
//! the process that started it stops it half way. Should it be killed all the same, the next pull to the same place
//! finishes or undoes what it began.

use super::apply::ToldSandboxes;
use crate::Error;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Supervisor;
use glovebox_workspace::apply::{Destination, StagedChanges};
use glovebox_workspace::{Stage, SyncError};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// Commits in a process of its own and waits for it. The destination stays locked meanwhile. That process also tells
/// other sandboxes of the project, as `told` says: it outlives this one.
pub(super) fn commit(
    supervisor: &Supervisor,
    destination: Destination,
    staged: StagedChanges,
    told: Option<ToldSandboxes<'_>>,
) -> Result<(), Error> {
    let mut command = Command::new(&supervisor.exe);
    command.arg("__commit").arg(staged.path());
    if let Some(told) = told {
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
    let dir = staged.hand_over();
    let output = child
        .wait_with_output()
        .map_err(|error| Error::io("wait for the changes to be applied", &error))?;
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
    Err(SyncError::pull(Stage::Apply, fault).into())
}
