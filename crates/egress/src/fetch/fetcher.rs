//! Requests for blocking callers: a thread makes them and sends the result of each to its caller.
//!
//! The number of simultaneous requests is limited for each caller, for each group of callers, and
//! for all. Each caller has a budget.

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

/// Limits on the requests of one caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchBudget {
    /// Maximum number of requests, including those made for redirects.
    pub requests: u32,
    /// Maximum number of simultaneous requests; further ones wait.
    pub parallel: usize,
    /// Maximum size of the bodies of all requests, in bytes.
    pub sent_bytes: usize,
    /// Maximum size of the body of one response, in bytes.
    pub answer_bytes: usize,
    /// Maximum size of the bodies of all responses, in bytes, including those of redirects and of
    /// responses that were not received completely.
    pub received_bytes: usize,
}

/// Result of a request. Holds the request's permits until it is dropped, which bounds the number of
/// results that wait for their caller.
#[derive(Debug)]
pub struct FetchReply {
    /// Identifier that the caller gave the request.
    pub id: u32,
    /// Response or error.
    pub outcome: Result<FetchAnswer, FetchError>,
    _places: Option<Places>,
}

#[derive(Debug)]
struct Places {
    _own: OwnedSemaphorePermit,
    _group: OwnedSemaphorePermit,
    _common: OwnedSemaphorePermit,
}

/// Group of callers that share a limit of simultaneous requests.
#[derive(Debug)]
pub struct FetchGroup {
    places: Arc<Semaphore>,
}

impl FetchGroup {
    /// Creates a group whose callers have at most `max_parallel` simultaneous requests in total;
    /// further ones wait.
    pub fn new(max_parallel: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(max_parallel)),
        }
    }
}

/// Caller for which requests are made.
#[derive(Debug, Clone, Copy)]
pub struct FetchCaller<'a> {
    /// Client that makes the requests. Its policy decides which hosts the caller may reach.
    pub client: &'a FetchClient,
    /// Group whose limit of simultaneous requests applies.
    pub group: &'a FetchGroup,
    /// Account that decisions and bytes are recorded in.
    pub account: &'a Arc<FetchAccount>,
}

/// Thread that makes requests. Dropping it aborts all requests in progress and joins the thread.
#[derive(Debug)]
pub struct Fetcher {
    places: Arc<Semaphore>,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Fetcher {
    /// Starts the thread, which makes at most `max_parallel` requests at a time.
    ///
    /// # Errors
    /// An I/O error if the runtime or its thread cannot be created.
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
                // Resolves when the `Fetcher` drops the sender, which is the signal to end.
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

    /// Opens the session of one caller. No request continues after `until`. The results are sent to
    /// `replies`.
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

/// Budget that the requests of a caller have used.
#[derive(Debug, Default)]
struct Spent {
    requests: AtomicU32,
    received: AtomicUsize,
}

/// Requests of one caller. Dropping it aborts those in progress.
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
    /// Size of the bodies of all requests so far, in bytes.
    sent_bytes: usize,
    open: HashMap<u32, AbortHandle>,
}

impl FetchSession {
    /// Starts a request with the identifier `id` of the caller's choice. Does not block. Errors,
    /// including that of `request`, are sent to the caller as a [`FetchReply`].
    pub fn begin(&mut self, id: u32, request: Result<FetchRequest, FetchError>) {
        let refuse = |error| {
            // Sending fails only if the caller has dropped the receiver.
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
                // No semaphore is ever closed, so acquiring fails never. The common permit is
                // acquired last: a request that waits for its caller's or its group's permit must
                // not block other callers.
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

    /// Aborts a request if it is in progress. No reply is sent for it then.
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
        // Every received byte counts, including those of redirects, of bodies that are too long and
        // of responses that break off.
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
