//! Wall-clock limit of a sandbox that this process owns: a small thread that ends it in time. A
//! supervisor needs no thread, because its loop has a deadline.

use crate::breach::LimitBreach;
use crate::fault;
use crate::handle::SandboxCore;
use glovebox_proto::Fault;
use std::sync::Weak;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Stack size of the thread, in bytes.
const STACK_BYTES: usize = 128 << 10;

/// Running timer. Dropping it cancels the timer without waiting for its thread, which would delay
/// the end of the sandbox.
#[derive(Debug)]
pub(crate) struct WallClockTimer {
    /// Dropping the sender ends the thread.
    _call_off: Sender<()>,
}

impl WallClockTimer {
    /// Ends the sandbox after `wall_ms`, unless the timer is dropped before.
    pub(crate) fn start(core: Weak<SandboxCore>, wall_ms: u64) -> Result<Self, Fault> {
        let (call_off, called_off) = channel();
        std::thread::Builder::new()
            .name("glovebox-wall".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let wait = called_off.recv_timeout(Duration::from_millis(wall_ms));
                if wait == Err(RecvTimeoutError::Timeout)
                    && let Some(core) = core.upgrade()
                {
                    core.end_for(LimitBreach::wall_clock(wall_ms));
                }
            })
            .map_err(|error| {
                fault::plain_io("cannot start the timer of the wall-clock limit", error)
            })?;
        Ok(Self {
            _call_off: call_off,
        })
    }
}
