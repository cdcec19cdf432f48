//! A sandbox that was made on behalf of another one ends with it.
//!
//! Its supervisor holds a handle on the process of the other's. However that one ends (killed, stopped,
//! by its lease, with a crash), the kernel tells, and nothing has to be remembered anywhere.

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

/// How long an order that cannot be given now waits.
const AGAIN: Duration = Duration::from_millis(200);

/// Has the sandbox of this control server end with its parent, if it is to.
///
/// # Errors
/// `sandbox-not-running` when the parent has ended already.
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
        // Somebody may just be changing its files. Lost means that it has ended by itself.
        while matches!(control.post(order()), Err(fault) if fault.code != Code::LinkLost) {
            std::thread::sleep(AGAIN);
        }
    })
    .map_err(|error| fault::plain_io("cannot start a thread", error))
}

/// The process that owns the parent.
fn find(layout: &Layout, parent: &Parent) -> Result<OwnedFd, Fault> {
    let dir = layout.sandbox(parent.name.as_str());
    // Opened first: if another one has taken the name since, its time tells.
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
    // Anything but an interruption would be the end of the handle.
    while matches!(
        poll(&mut [PollFd::new(owner, PollFlags::IN)], None),
        Err(Errno::INTR)
    ) {}
}
