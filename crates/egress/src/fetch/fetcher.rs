//! Requests for callers that block: a thread makes them, and what comes of each is sent to its caller. Each caller has a
//! budget, callers that belong together have so many places, and so have all of them.

use crate::fetch::account::FetchAccount;
use crate::fetch::client::{AnswerBounds, FetchAnswer, FetchClient};
use crate::fetch::error::FetchError;
use crate::fetch::request::FetchRequest;
use crate::record::traffic::Direction;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout_at;

/// What one caller may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchBudget {
    /// Requests, with those that answers lead to.
    pub requests: u32,
    /// Requests at a time; others wait.
    pub parallel: usize,
    /// Bodies of all requests, in bytes.
    pub sent_bytes: usize,
    /// The body of one answer, in bytes.
    pub answer_bytes: usize,
    /// Bodies of all answers, in bytes, with those of answers that lead elsewhere or do not arrive whole.
    pub received_bytes: usize,
}

/// What came of a request. It holds a place until it is dropped, so that answers that nobody takes are few.
#[derive(Debug)]
pub struct FetchReply {
    /// The request, as its caller named it.
    pub id: u32,
    /// Its answer.
    pub outcome: Result<FetchAnswer, FetchError>,
    _places: Option<Places>,
}

#[derive(Debug)]
struct Places {
    _own: OwnedSemaphorePermit,
    _group: OwnedSemaphorePermit,
    _common: OwnedSemaphorePermit,
}

/// Callers that belong together, with so many places for the requests of all of them.
#[derive(Debug)]
pub struct FetchGroup {
    places: Arc<Semaphore>,
}

impl FetchGroup {
    /// One whose callers have at most `max_parallel` requests at a time, together; others wait.
    pub fn new(max_parallel: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(max_parallel)),
        }
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct FetchCaller<'a> {
    /// Makes its requests, to the hosts that it may reach.
    pub client: &'a FetchClient,
    /// With whom it shares places.
    pub group: &'a FetchGroup,
    /// Where what becomes of its requests is counted.
    pub account: &'a Arc<FetchAccount>,
}

/// A thread that makes requests. Dropping it gives up those that are being made.
#[derive(Debug)]
pub struct Fetcher {
    places: Arc<Semaphore>,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Fetcher {
    /// Starts one that makes at most `max_parallel` requests at a time.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn start(max_parallel: usize) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .thread_name("fetch-look-up")
            .max_blocking_threads(8)
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("fetch".to_owned())
            .spawn(move || {
                // Its sender is dropped or used: either way it is over.
                let _ = runtime.block_on(stopped);
                runtime.shutdown_background();
            })?;
        Ok(Self {
            places: Arc::new(Semaphore::new(max_parallel)),
            runtime: handle,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The requests of one caller, none of which goes on after `until`. What comes of them is sent to `replies`.
    pub fn open(
        &self,
        caller: FetchCaller<'_>,
        budget: FetchBudget,
        until: Instant,
        replies: Sender<FetchReply>,
    ) -> FetchSession {
        FetchSession {
            client: caller.client.clone(),
            runtime: self.runtime.clone(),
            common: Arc::clone(&self.places),
            group: Arc::clone(&caller.group.places),
            account: Arc::clone(caller.account),
            own: Arc::new(Semaphore::new(budget.parallel)),
            spent: Arc::new(Spent::default()),
            budget,
            until,
            replies,
            sent_bytes: 0,
            open: HashMap::new(),
        }
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the requests of a caller have used.
#[derive(Debug, Default)]
struct Spent {
    requests: AtomicU32,
    received: AtomicUsize,
}

/// The requests of one caller. Dropping it gives them up.
#[derive(Debug)]
pub struct FetchSession {
    client: FetchClient,
    runtime: Handle,
    common: Arc<Semaphore>,
    group: Arc<Semaphore>,
    account: Arc<FetchAccount>,
    own: Arc<Semaphore>,
    spent: Arc<Spent>,
    budget: FetchBudget,
    until: Instant,
    replies: Sender<FetchReply>,
    /// Bodies of its requests so far.
    sent_bytes: usize,
    open: HashMap<u32, AbortHandle>,
}

impl FetchSession {
    /// Begins a request that its caller calls `id`.
    pub fn begin(&mut self, id: u32, request: Result<FetchRequest, FetchError>) {
        let refuse = |error| {
            // A caller that listens no more has ended.
            let _ = self.replies.send(FetchReply {
                id,
                outcome: Err(error),
                _places: None,
            });
        };
        let request = match request {
            Ok(request) => request,
            Err(error) => return refuse(error),
        };
        let max = self.budget.sent_bytes;
        let sent = self.sent_bytes.saturating_add(request.body.len());
        if sent > max {
            let message =
                format!("the bodies of the requests of one call have at most {max} bytes together");
            return refuse(FetchError::Budget(message));
        }
        self.sent_bytes = sent;
        let work = Work {
            client: self.client.clone(),
            spent: Arc::clone(&self.spent),
            budget: self.budget,
            until: self.until,
            account: Arc::clone(&self.account),
        };
        let (own, group) = (Arc::clone(&self.own), Arc::clone(&self.group));
        let common = Arc::clone(&self.common);
        let (until, replies) = (self.until, self.replies.clone());
        let target = request.target();
        let task = self.runtime.spawn(async move {
            let places = async {
                // None is ever closed. Who waits for a place of the caller's or the group's takes up none of all.
                let own = own.acquire_owned().await.ok()?;
                let group = group.acquire_owned().await.ok()?;
                Some(Places {
                    _own: own,
                    _group: group,
                    _common: common.acquire_owned().await.ok()?,
                })
            };
            let places = timeout_at(until.into(), places).await.ok().flatten();
            let outcome = match (&places, target) {
                (Some(_), _) => work.carry_out(request).await,
                (None, Ok((host, port))) => Err(FetchError::TimedOut { host, port }),
                (None, Err(error)) => Err(error),
            };
            let _ = replies.send(FetchReply {
                id,
                outcome,
                _places: places,
            });
        });
        self.open.retain(|_, task| !task.is_finished());
        self.open.insert(id, task.abort_handle());
    }

    /// Gives a request up, if it is still being made: nothing is sent of it any more.
    pub fn abort(&mut self, id: u32) {
        if let Some(task) = self.open.remove(&id) {
            task.abort();
        }
    }
}

impl Drop for FetchSession {
    fn drop(&mut self) {
        for task in self.open.values() {
            task.abort();
        }
    }
}

struct Work {
    client: FetchClient,
    spent: Arc<Spent>,
    budget: FetchBudget,
    until: Instant,
    account: Arc<FetchAccount>,
}

impl Work {
    async fn carry_out(self, request: FetchRequest) -> Result<FetchAnswer, FetchError> {
        let Self {
            client,
            spent,
            budget,
            until,
            account,
        } = &self;
        let too_much = || {
            let max = budget.received_bytes;
            let message = format!("the answers to one call have at most {max} bytes together");
            FetchError::Budget(message)
        };
        let max = budget.requests;
        let allow = || {
            if spent.received.load(Ordering::Relaxed) > budget.received_bytes {
                return Err(too_much());
            }
            if spent.requests.fetch_add(1, Ordering::Relaxed) < max {
                return Ok(());
            }
            let message =
                format!("one call makes at most {max} requests, with those that answers lead to");
            Err(FetchError::Budget(message))
        };
        // Whatever arrives counts: also what leads elsewhere, is too long or breaks off.
        let count = |bytes: usize| {
            account.bytes().add(Direction::Received, bytes as u64);
            let before = spent.received.fetch_add(bytes, Ordering::Relaxed);
            if before + bytes <= budget.received_bytes {
                return Ok(());
            }
            Err(too_much())
        };
        let bounds = AnswerBounds {
            max_bytes: budget.answer_bytes,
            until: *until,
            count: &count,
            sent: account.bytes(),
        };
        client.follow(request, &bounds, allow, account).await
    }
}

#[cfg(test)]
mod tests;
