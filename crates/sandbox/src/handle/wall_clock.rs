//! The wall-clock limit of a sandbox owned by this process: a small thread that ends it in time.
//! (A supervisor needs no thread for that, it has a loop.)

use crate::breach::LimitBreach;
use crate::fault;
use crate::handle::SandboxCore;
use glovebox_proto::Fault;
use std::sync::Weak;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Stack of the thread; it calls little.
const STACK_BYTES: usize = 128 << 10;

/// A running timer. Dropping it calls it off; nobody waits for its thread to notice, which takes longer
/// than the end of a sandbox can spare.
#[derive(Debug)]
pub(crate) struct WallClockTimer {
    /// Its end ends the thread.
    _call_off: Sender<()>,
}

impl WallClockTimer {
    /// Ends the sandbox `wall_ms` from now, unless called off before.
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
