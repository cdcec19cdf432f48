//! Sessions of all clients. Each client has one, which is opened on first use. A separate thread
//! closes them, because closing blocks and clients disconnect at any time.

use super::{Session, SessionFactory};
use glovebox_proto::{Code, Fault};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

/// Pool that opens a bounded number of sessions.
#[derive(Debug)]
pub(super) struct SessionPool {
    factory: Arc<dyn SessionFactory>,
    slots: Arc<Semaphore>,
    back: Sender<ReturnedSession>,
}

/// Session whose client is gone, and its slot, which is held until the session is closed.
#[derive(Debug)]
struct ReturnedSession {
    _session: Arc<dyn Session>,
    _slot: OwnedSemaphorePermit,
}

/// Handle that waits until every session is closed.
#[derive(Debug)]
pub struct Closing {
    done: Receiver<()>,
    _thread: JoinHandle<()>,
}

/// Slot of one client, and its session once it is open.
#[derive(Debug)]
pub(super) struct SessionLease {
    pool: Arc<SessionPool>,
    session: OnceCell<(Arc<dyn Session>, OwnedSemaphorePermit)>,
}

impl SessionPool {
    /// Creates a pool with at most `max_sessions` open sessions.
    ///
    /// # Errors
    /// `busy` if no thread can be started.
    pub(super) fn new(
        factory: Arc<dyn SessionFactory>,
        max_sessions: usize,
    ) -> Result<(Arc<Self>, Closing), Fault> {
        let (back, returned) = mpsc::channel::<ReturnedSession>();
        let (tell, done) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("session-pool".to_owned())
            .spawn(move || {
                for session in returned {
                    drop(session);
                }
                // Fails if [`Closing`] was dropped because its wait was over.
                let _ = tell.send(());
            })
            .map_err(|error| {
                Fault::failed(Code::Busy, format!("cannot start a thread: {error}"))
            })?;
        let pool = Arc::new(Self {
            factory,
            slots: Arc::new(Semaphore::new(max_sessions)),
            back,
        });
        let closing = Closing {
            done,
            _thread: thread,
        };
        Ok((pool, closing))
    }

    pub(super) fn factory(&self) -> &dyn SessionFactory {
        &*self.factory
    }

    /// Returns the number of sessions that can still be opened.
    pub(super) fn free(&self) -> usize {
        self.slots.available_permits()
    }
}

impl Closing {
    /// Waits until every session is closed. Returns false if that takes longer than `wait`.
    pub fn wait(self, wait: Duration) -> bool {
        self.done.recv_timeout(wait).is_ok()
    }
}

impl SessionLease {
    pub(super) fn new(pool: Arc<SessionPool>) -> Self {
        Self {
            pool,
            session: OnceCell::new(),
        }
    }

    /// Returns the session. Opens it on the first call, for the client of this name.
    ///
    /// # Errors
    /// `too-many-sandboxes` if all slots are taken, and the factory's fault.
    pub(super) async fn session(&self, client: Option<String>) -> Result<Arc<dyn Session>, Fault> {
        let take = || async {
            let slots = Arc::clone(&self.pool.slots);
            // The slot comes first: otherwise more sessions could be opening than may be open.
            let slot = slots.try_acquire_owned().map_err(|_| {
                let fault = Fault::refused(Code::TooManySandboxes, "too many clients are here");
                fault.remedy("try again when another has left").retryable()
            })?;
            let factory = Arc::clone(&self.pool.factory);
            let opened =
                tokio::task::spawn_blocking(move || factory.open_session(client.as_deref())).await;
            let session = opened
                .unwrap_or_else(|error| Err(Fault::failed(Code::Internal, error.to_string())))?;
            Ok::<_, Fault>((Arc::from(session), slot))
        };
        let (session, _) = self.session.get_or_try_init(take).await?;
        Ok(Arc::clone(session))
    }
}

impl Drop for SessionLease {
    fn drop(&mut self) {
        if let Some((session, slot)) = self.session.take() {
            // Fails if the thread has ended. The session is then dropped here.
            let _ = self.pool.back.send(ReturnedSession {
                _session: session,
                _slot: slot,
            });
        }
    }
}
