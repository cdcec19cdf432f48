//! Renewal of the label that says until when a machine is wanted, for as long as its sandbox lives.

use glovebox_proto::{Code, Fault};
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, SystemTime};

/// Writes the label anew.
pub type Renew = Box<dyn Fn() -> Result<(), Fault> + Send + Sync>;

/// Times between renewals.
#[derive(Debug, Clone, Copy)]
pub struct RenewalTimes {
    /// From a renewal to the next one.
    pub every: Duration,
    /// From a look at the clock to the next one, and so from a failed renewal to another attempt.
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

/// A thread that renews. Dropping the value ends it.
pub struct Renewal {
    renew: Arc<Renew>,
    /// Closed by dropping it.
    _alive: Sender<()>,
}

impl Renewal {
    /// Starts the thread. The first renewal is after [`RenewalTimes::every`].
    ///
    /// # Errors
    /// `io` if no thread can be made.
    pub fn start(times: RenewalTimes, renew: Renew) -> Result<Self, Fault> {
        let renew = Arc::new(renew);
        let (alive, ended) = mpsc::channel();
        let renewing = Arc::clone(&renew);
        std::thread::Builder::new()
            .name("renewal".to_owned())
            .spawn(move || {
                // The clock of the day goes on while this machine sleeps, as the service's does.
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

    /// Renews without waiting for the time.
    ///
    /// # Errors
    /// What the service says.
    pub fn renew_now(&self) -> Result<(), Fault> {
        (self.renew)()
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewal").finish_non_exhaustive()
    }
}
