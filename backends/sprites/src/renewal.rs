//! Renewal of the label with the time until which a machine is needed, for as long as its sandbox
//! lives.

use glovebox_proto::{Code, Fault};
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, SystemTime};

/// Writes the label with a new time.
pub type Renew = Box<dyn Fn() -> Result<(), Fault> + Send + Sync>;

/// Times between renewals.
#[derive(Debug, Clone, Copy)]
pub struct RenewalTimes {
    /// Time from a renewal to the next.
    pub every: Duration,
    /// Interval between two checks of the clock, and so the pause after a failed renewal.
    pub look: Duration,
}

impl Default for RenewalTimes {
    fn default() -> Self {
        Self {
            every: Duration::from_hours(6),
            look: Duration::from_mins(10),
        }
    }
}

/// Thread that renews. Dropping the value ends it.
pub struct Renewal {
    renew: Arc<Renew>,
    /// Channel whose end stops the thread.
    _alive: Sender<()>,
}

impl Renewal {
    /// Starts the thread. The first renewal is after [`RenewalTimes::every`].
    ///
    /// # Errors
    /// `io` if no thread can be started.
    pub fn start(times: RenewalTimes, renew: Renew) -> Result<Self, Fault> {
        let renew = Arc::new(renew);
        let (alive, ended) = mpsc::channel();
        let renewing = Arc::clone(&renew);
        std::thread::Builder::new()
            .name("renewal".to_owned())
            .spawn(move || {
                // Use the wall clock: like the service's clock, and unlike a monotonic one, it
                // advances while this machine sleeps.
                let mut next = SystemTime::now() + times.every;
                while ended.recv_timeout(times.look) == Err(RecvTimeoutError::Timeout) {
                    if SystemTime::now() >= next && renewing().is_ok() {
                        next = SystemTime::now() + times.every;
                    }
                }
            })
            .map_err(|error| Fault::failed(Code::Io, format!("cannot start a thread: {error}")))?;
        Ok(Self {
            renew,
            _alive: alive,
        })
    }

    /// Renews at once.
    ///
    /// # Errors
    /// The failure of the request.
    pub fn renew_now(&self) -> Result<(), Fault> {
        (self.renew)()
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewal").finish_non_exhaustive()
    }
}
