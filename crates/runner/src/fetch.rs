//! `fetch` of tools: the program inside sends requests, and this process makes them under the
//! operator's policy and within a budget for each call. The process of the tool has no network,
//! independent of the hosts that are granted.

use crate::call::ToolRequest;
use crate::grant::{CALL_BUDGET, HostGrant, RefusedHost};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use glovebox_egress::{
    FetchAccount, FetchAnswer, FetchCaller, FetchClient, FetchError, FetchGroup, FetchReply,
    FetchRequest, FetchSession, Fetcher, Policy, Redirects, SystemResolver, TrafficNews,
};
use glovebox_js::tool_call::frame;
use glovebox_js::tool_fetch as wire;
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Input;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// Maximum number of simultaneous requests of all calls. Each may hold a response in memory.
const MAX_PARALLEL: usize = 32;
/// Maximum number of simultaneous requests of one tenant, so that a tenant with slow servers cannot
/// block others.
const MAX_PARALLEL_OF_TENANT: usize = 8;
/// Maximum number of accounts with unreported or recently reported decisions.
const MAX_ACCOUNTS: usize = 10_000;
/// Maximum size of a frame with a request, in bytes: body in base64, URL and headers.
pub(crate) const MAX_REQUEST_FRAME_BYTES: usize = 8 << 20;
/// Maximum number of refused hosts that are reported for one call.
const MAX_REFUSED: usize = 16;

const _: () = assert!(CALL_BUDGET.sent_bytes / 3 * 4 + (1 << 20) < MAX_REQUEST_FRAME_BYTES);
const _: () = assert!(CALL_BUDGET.answer_bytes / 3 * 4 + (2 << 20) < wire::MAX_REPLY_BYTES);

/// Key of an account: the calls of one tool for one tenant in one session are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ToolCaller {
    /// Tenant of the calls.
    pub tenant: String,
    /// Session of the calls. `None` for single calls.
    pub session: Option<String>,
    /// Name of the tool.
    pub tool: String,
}

impl ToolCaller {
    pub(crate) fn of(request: &ToolRequest<'_>) -> Self {
        Self {
            tenant: request.tenant.to_owned(),
            session: request.session.map(str::to_owned),
            tool: request.tool.to_owned(),
        }
    }
}

/// Message of the program inside about a request.
#[derive(Debug)]
pub(crate) enum FetchMessage {
    Begin(wire::FetchCall),
    Abort(u32),
}

/// Makes the requests of all calls.
#[derive(Debug)]
pub(crate) struct ToolFetcher {
    grant: Arc<HostGrant>,
    fetcher: Fetcher,
    /// Client without hosts, from which the tools' clients are derived.
    client: FetchClient,
    /// Groups of the tenants that have requests at present.
    tenants: Mutex<HashMap<String, Weak<FetchGroup>>>,
    /// Accounts with decisions that must be reported or remembered.
    accounts: Mutex<HashMap<ToolCaller, Arc<FetchAccount>>>,
}

impl ToolFetcher {
    /// Starts the fetcher. `None` if no host is granted to any tool.
    ///
    /// # Errors
    /// A [`Fault`] if the certificates cannot be read or the thread cannot be created.
    pub(crate) fn start(grant: &Arc<HostGrant>) -> Result<Option<Self>, Fault> {
        if grant.is_empty() {
            return Ok(None);
        }
        let resolver = Arc::new(SystemResolver);
        let client = FetchClient::new(Policy::default(), resolver, grant.authorities())
            .map_err(|error| Fault::failed(Code::InvalidArgument, error.to_string()))?;
        let fetcher = Fetcher::start(MAX_PARALLEL).map_err(|error| {
            Fault::failed(
                Code::Unavailable,
                format!("no thread for requests: {error}"),
            )
        })?;
        Ok(Some(Self {
            grant: Arc::clone(grant),
            fetcher,
            client,
            tenants: Mutex::default(),
            accounts: Mutex::default(),
        }))
    }

    /// Takes the decisions and traffic of each caller since the previous call. With `is_last`
    /// nothing is held back for a later call.
    pub(crate) fn take_news(&self, is_last: bool) -> Vec<(ToolCaller, TrafficNews)> {
        let mut accounts = lock(&self.accounts);
        let told = accounts
            .iter()
            .map(|(caller, account)| (caller.clone(), account.take_news(is_last)));
        let news = told.collect();
        accounts.retain(|_, account| Arc::strong_count(account) > 1 || !account.is_told());
        news
    }

    /// Returns the account of a caller, creating it if necessary.
    pub(crate) fn account_of(&self, caller: ToolCaller) -> Arc<FetchAccount> {
        let mut accounts = lock(&self.accounts);
        let is_open = |account: &Arc<FetchAccount>| Arc::strong_count(account) > 1;
        if accounts.len() >= MAX_ACCOUNTS {
            // Accounts that only remember recent reports go first: losing one repeats a report at
            // worst.
            accounts.retain(|_, account| is_open(account) || account.has_untold());
        }
        if accounts.len() >= MAX_ACCOUNTS {
            // The reports are not being taken, so that unreported decisions are dropped to bound
            // the memory.
            accounts.retain(|_, account| is_open(account));
        }
        Arc::clone(accounts.entry(caller).or_default())
    }

    /// Returns the fetcher for one call.
    pub(crate) fn of_call(&self, request: &ToolRequest<'_>) -> CallFetcher<'_> {
        CallFetcher {
            all: self,
            caller: ToolCaller::of(request),
        }
    }

    /// Returns the group of a tenant. It exists as long as one of the tenant's calls has requests.
    fn group_of(&self, tenant: &str) -> Arc<FetchGroup> {
        let mut tenants = lock(&self.tenants);
        if let Some(group) = tenants.get(tenant).and_then(Weak::upgrade) {
            return group;
        }
        tenants.retain(|_, group| group.strong_count() > 0);
        let group = Arc::new(FetchGroup::new(MAX_PARALLEL_OF_TENANT));
        tenants.insert(tenant.to_owned(), Arc::downgrade(&group));
        group
    }
}

/// Makes the requests of one call.
#[derive(Debug)]
pub(crate) struct CallFetcher<'a> {
    all: &'a ToolFetcher,
    caller: ToolCaller,
}

/// Returns the grant that is sent to the program inside.
pub(crate) const fn grant() -> wire::FetchGrant {
    wire::FetchGrant {
        requests: CALL_BUDGET.requests,
        sent_bytes: CALL_BUDGET.sent_bytes as u64,
    }
}

/// Requests of one call. Dropping it aborts them.
#[derive(Debug)]
pub(crate) struct CallFetches {
    session: FetchSession,
    /// Keeps the tenant's group alive.
    _group: Arc<FetchGroup>,
    refused: Arc<Mutex<Vec<RefusedHost>>>,
}

impl CallFetches {
    /// Opens the requests of a call, none of which continues after `until`. A separate thread
    /// writes responses to `input`, so that a tool which reads none delays nothing else. The thread
    /// ends with the tool's process.
    ///
    /// # Errors
    /// An I/O error if the thread cannot be created.
    pub(crate) fn open(
        fetcher: &CallFetcher<'_>,
        input: Input,
        until: Instant,
    ) -> std::io::Result<Self> {
        let CallFetcher { all, caller } = fetcher;
        let (send, replies) = channel();
        let refused = Arc::<Mutex<Vec<RefusedHost>>>::default();
        let passage = Passage {
            grant: Arc::clone(&all.grant),
            tool: caller.tool.clone(),
            input,
            refused: Arc::clone(&refused),
        };
        std::thread::Builder::new()
            .name("tool-fetch".to_owned())
            .spawn(move || passage.pass_on(&replies))?;
        let policy = Arc::clone(all.grant.policy_of(&caller.tool));
        let group = all.group_of(&caller.tenant);
        let asking = FetchCaller {
            client: &all.client.with_policy(policy),
            group: &group,
            account: &all.account_of(caller.clone()),
        };
        let session = all.fetcher.open(asking, CALL_BUDGET, until, send);
        Ok(Self {
            session,
            _group: group,
            refused,
        })
    }

    pub(crate) fn take(&mut self, asked: FetchMessage) {
        match asked {
            FetchMessage::Begin(call) => {
                let id = call.id;
                self.session.begin(id, request_of(&call));
            }
            FetchMessage::Abort(id) => self.session.abort(id),
        }
    }

    /// Returns the hosts that were refused so far.
    pub(crate) fn refused(&self) -> Vec<RefusedHost> {
        lock(&self.refused).clone()
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writer of responses to the program of one call.
struct Passage {
    grant: Arc<HostGrant>,
    tool: String,
    input: Input,
    /// Hosts that were refused so far.
    refused: Arc<Mutex<Vec<RefusedHost>>>,
}

impl Passage {
    /// Writes responses to the program's input as they arrive, until the call is over.
    fn pass_on(&self, replies: &Receiver<FetchReply>) {
        for reply in replies {
            let refused = self.refused_host(&reply);
            let frame = frame_of(&reply, refused.as_ref());
            if let Some(one) = refused {
                let mut refused = lock(&self.refused);
                if refused.len() < MAX_REFUSED && !refused.contains(&one) {
                    refused.push(one);
                }
            }
            // The permit of the request is freed when `reply` is dropped, after the response was
            // sent to the sandbox.
            if self.input.send(&frame).is_err() {
                return;
            }
        }
    }

    fn refused_host(&self, reply: &FetchReply) -> Option<RefusedHost> {
        let Err(FetchError::Refused { host, port, reason }) = &reply.outcome else {
            return None;
        };
        let (host, port) = (host.to_string(), Some(*port));
        Some(RefusedHost {
            remedy: self.grant.remedy(&self.tool, &host, port, *reason),
            host,
            port,
            reason: *reason,
        })
    }
}

// TRUST: the program runs untrusted code; every field of its request is validated.
fn request_of(call: &wire::FetchCall) -> Result<FetchRequest, FetchError> {
    let body = STANDARD
        .decode(&call.body)
        .map_err(|_| FetchError::Request("the body cannot be read".to_owned()))?;
    let redirects = match call.redirect {
        wire::RedirectMode::Follow => Redirects::Follow,
        wire::RedirectMode::Error => Redirects::Refuse,
        wire::RedirectMode::Manual => Redirects::Return,
    };
    FetchRequest::parse(&call.method, &call.url, &call.headers, body, redirects)
}

fn frame_of(reply: &FetchReply, refused: Option<&RefusedHost>) -> Vec<u8> {
    let outcome = match &reply.outcome {
        Ok(answer) => wire::FetchOutcome::Answer(answer_of(answer)),
        Err(error) => wire::FetchOutcome::Failure(failure_of(error, refused)),
    };
    let reply = wire::FetchReply {
        id: reply.id,
        outcome,
    };
    // Serialization cannot fail: all keys are strings and all numbers are integers.
    frame(&serde_json::to_vec(&reply).unwrap_or_default())
}

fn answer_of(answer: &FetchAnswer) -> wire::FetchAnswer {
    wire::FetchAnswer {
        status: answer.status,
        status_text: answer.status_text.clone(),
        url: answer.url.to_string(),
        is_redirected: answer.hops > 0,
        headers: answer.headers.clone(),
        body: STANDARD.encode(&answer.body),
    }
}

fn failure_of(error: &FetchError, refused: Option<&RefusedHost>) -> wire::FetchFailure {
    let code = match error {
        FetchError::Request(_) => "E_REQUEST",
        FetchError::Refused { .. } | FetchError::Failed { .. } | FetchError::Redirect { .. } => {
            "E_NETWORK"
        }
        FetchError::TimedOut { .. } => "E_TIMEOUT",
        FetchError::TooLarge { .. } | FetchError::Budget(_) => "E_LIMIT",
    };
    let (host, port) = error
        .host()
        .map_or_else(Default::default, |(host, port)| (host.to_string(), port));
    wire::FetchFailure {
        code: code.to_owned(),
        message: match refused {
            Some(refused) => format!("{error}; {}", refused.remedy),
            None => error.to_string(),
        },
        host,
        port,
        reason: match error {
            FetchError::Refused { reason, .. } => reason.word().to_owned(),
            _ => String::new(),
        },
    }
}
