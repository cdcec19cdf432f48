//! Watch over the parent of a sandbox that ends with it.
//!
//! The supervisor holds a pidfd of the parent's supervisor. However that one ends (killed, stopped,
//! by its lease, by a crash), the kernel reports it, and nothing has to be recorded.

use crate::control::{self, ControlServer, Order};
use crate::lifecycle::termination;
use crate::state::layout::Layout;
use crate::state::sandbox_dir::read_status;
use crate::{Parent, SandboxSpec, fault};
use glovebox_proto::{Code, Fault};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Time after which an order that could not be given is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// Ends the sandbox of this control server with its parent, if its spec says so.
///
/// # Errors
/// `sandbox-not-running` if the parent has ended already.
pub(crate) fn watch_parent(
    layout: &Layout,
    spec: &SandboxSpec,
    control: &Arc<ControlServer>,
) -> Result<(), Fault> {
    let Some(parent) = spec.parent.as_ref().filter(|_| spec.is_bound()) else {
        return Ok(());
    };
    let owner = find(layout, parent)?;
    let control = Arc::clone(control);
    let reason = format!(
        "the sandbox `{}`, for which it was made, ended",
        parent.name
    );
    control::spawn(move || {
        wait_ended(&owner);
        let order = || Order::Stop {
            reason: reason.clone(),
        };
        // Fails while another change of its files is in progress. A lost link means that the
        // sandbox has ended by itself.
        while matches!(control.post(order()), Err(fault) if fault.code != Code::LinkLost) {
            std::thread::sleep(AGAIN);
        }
    })
    .map_err(|error| fault::plain_io("cannot start a thread", error))
}

/// Opens a pidfd of the process that owns the parent.
fn find(layout: &Layout, parent: &Parent) -> Result<OwnedFd, Fault> {
    let dir = layout.sandbox(parent.name.as_str());
    // Opened before the status is read: if another sandbox has taken the name since, its time of
    // creation differs.
    let owner = termination::supervisor(&dir);
    let is_it =
        read_status(&dir).is_ok_and(|status| status.created_unix_ms == parent.created_unix_ms);
    owner.filter(|_| is_it).ok_or_else(|| {
        Fault::lost(
            Code::SandboxNotRunning,
            format!(
                "the sandbox `{}`, for which another was to be made, has ended",
                parent.name
            ),
        )
    })
}

fn wait_ended(owner: &OwnedFd) {
    // Any result but an interruption means that the process has ended.
    while matches!(
        poll(&mut [PollFd::new(owner, PollFlags::IN)], None),
        Err(Errno::INTR)
    ) {}
}
