//! `fetch` of tools: the program inside asks, and the request is made out here, by the operator's policy and within a
//! budget for each call. The process of the tool has no network, whatever it is granted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use glovebox_js::tool_call::frame;
use glovebox_js::tool_fetch as wire;
use glovebox_proto::{Code, Denial, EgressReason, Fault, Remedy};
use glovebox_sandbox::Input;
use glovebox_sandbox::egress::{
    FetchAccount, FetchAnswer, FetchBudget, FetchClient, FetchError, FetchGroup, FetchReply,
    FetchRequest, FetchSession, Fetcher, Policy, Redirects, SystemResolver, TrafficNews,
};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// What one call may ask for.
pub const CALL_BUDGET: FetchBudget = FetchBudget {
    requests: 100,
    parallel: 6,
    sent_bytes: 4 << 20,
    answer_bytes: 4 << 20,
    received_bytes: 32 << 20,
};
/// Requests of all calls at a time: each may hold an answer.
const MAX_PARALLEL: usize = 32;
/// The same of all calls of one tenant: whose servers are slow leaves others most of the places.
const MAX_PARALLEL_OF_TENANT: usize = 8;
/// Tenants without calls about whom something is to be told, where nobody asks.
const MAX_ACCOUNTS: usize = 10_000;
/// What one frame with a request may have: its body in base64, its address and its headers.
pub(crate) const MAX_REQUEST_FRAME_BYTES: usize = 8 << 20;
/// Refusals of one call that are told.
const MAX_REFUSED: usize = 16;

const _: () = assert!(CALL_BUDGET.sent_bytes / 3 * 4 + (1 << 20) < MAX_REQUEST_FRAME_BYTES);
const _: () = assert!(CALL_BUDGET.answer_bytes / 3 * 4 + (2 << 20) < wire::MAX_REPLY_BYTES);

/// Hosts that tools may reach with `fetch`. An operator grants them; a bundle cannot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostGrant {
    /// Which.
    pub policy: Policy,
    /// Certificates (PEM) that are believed there besides those of this machine.
    pub authorities: Vec<u8>,
}

/// A host that a tool asked for and may not reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedHost {
    /// The host, in its one spelling.
    pub host: String,
    /// The port; none where only the name was looked up.
    pub port: Option<u16>,
    /// Why not.
    pub reason: EgressReason,
}

impl RefusedHost {
    /// What the operator can do to open it.
    pub fn remedy(&self) -> Remedy {
        let denial = Denial::Egress {
            host: self.host.clone(),
            port: self.port,
            reason: self.reason,
            attempts: 1,
            is_shared: false,
        };
        denial.remedy()
    }
}

/// What the program inside asked for.
#[derive(Debug)]
pub(crate) enum FetchMessage {
    Begin(wire::FetchCall),
    Abort(u32),
}

/// Makes the requests of all calls.
#[derive(Debug)]
pub(crate) struct ToolFetcher {
    fetcher: Fetcher,
    /// Of tenants whose calls have asked for requests; of others nothing is kept.
    tenants: Mutex<HashMap<String, Weak<FetchGroup>>>,
    /// Of tenants about whom something is to be told.
    accounts: Mutex<HashMap<String, Arc<FetchAccount>>>,
}

impl ToolFetcher {
    /// Starts one, where any host is granted.
    ///
    /// # Errors
    /// When the certificates cannot be read, or there is no thread.
    pub(crate) fn start(grant: &HostGrant) -> Result<Option<Self>, Fault> {
        if grant.policy.allowed().is_empty() {
            return Ok(None);
        }
        let client = FetchClient::new(
            grant.policy.clone(),
            Arc::new(SystemResolver),
            &grant.authorities,
        )
        .map_err(|error| Fault::failed(Code::InvalidArgument, error.to_string()))?;
        let fetcher = Fetcher::start(client, MAX_PARALLEL).map_err(|error| {
            Fault::failed(
                Code::Unavailable,
                format!("no thread for requests: {error}"),
            )
        })?;
        Ok(Some(Self {
            fetcher,
            tenants: Mutex::default(),
            accounts: Mutex::default(),
        }))
    }

    /// What the requests of each tenant came to since this was asked for last.
    pub(crate) fn take_news(&self) -> Vec<(String, TrafficNews)> {
        let mut accounts = lock(&self.accounts);
        let told = accounts
            .iter()
            .map(|(tenant, account)| (tenant.clone(), account.take_news()));
        let news = told.collect();
        accounts.retain(|_, account| Arc::strong_count(account) > 1 || !account.is_told());
        news
    }

    fn account_of(&self, tenant: &str) -> Arc<FetchAccount> {
        let mut accounts = lock(&self.accounts);
        if accounts.len() >= MAX_ACCOUNTS {
            accounts.retain(|_, account| Arc::strong_count(account) > 1);
        }
        Arc::clone(accounts.entry(tenant.to_owned()).or_default())
    }

    /// The same for calls of one tenant.
    pub(crate) const fn of_tenant<'a>(&'a self, tenant: &'a str) -> TenantFetcher<'a> {
        TenantFetcher { all: self, tenant }
    }
}

/// Makes the requests of the calls of one tenant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TenantFetcher<'a> {
    all: &'a ToolFetcher,
    tenant: &'a str,
}

impl TenantFetcher<'_> {
    /// What the tenant's calls share, while any of them has requests.
    fn group(&self) -> Arc<FetchGroup> {
        let mut tenants = lock(&self.all.tenants);
        if let Some(group) = tenants.get(self.tenant).and_then(Weak::upgrade) {
            return group;
        }
        tenants.retain(|_, group| group.strong_count() > 0);
        let group = Arc::new(FetchGroup::new(
            MAX_PARALLEL_OF_TENANT,
            self.all.account_of(self.tenant),
        ));
        tenants.insert(self.tenant.to_owned(), Arc::downgrade(&group));
        group
    }
}

/// What the program inside is told of a grant.
pub(crate) const fn grant() -> wire::FetchGrant {
    wire::FetchGrant {
        requests: CALL_BUDGET.requests,
        sent_bytes: CALL_BUDGET.sent_bytes as u64,
    }
}

/// The requests of one call. Dropping it gives them up.
#[derive(Debug)]
pub(crate) struct CallFetches {
    session: FetchSession,
    /// Kept for as long as the tenant has requests.
    _group: Arc<FetchGroup>,
    refused: Arc<Mutex<Vec<RefusedHost>>>,
}

impl CallFetches {
    /// Answers go to `input`, from a thread of their own: a tool that reads none holds nobody else up. The thread ends
    /// with the tool's process.
    ///
    /// # Errors
    /// When there is no thread.
    pub(crate) fn open(
        fetcher: &TenantFetcher<'_>,
        input: Input,
        until: Instant,
    ) -> std::io::Result<Self> {
        let (send, replies) = channel();
        let refused = Arc::<Mutex<Vec<RefusedHost>>>::default();
        let seen = Arc::clone(&refused);
        std::thread::Builder::new()
            .name("tool-fetch".to_owned())
            .spawn(move || pass_on(&replies, &input, &seen))?;
        let group = fetcher.group();
        let session = fetcher.all.fetcher.open(CALL_BUDGET, &group, until, send);
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

    /// The hosts that were refused so far.
    pub(crate) fn refused(&self) -> Vec<RefusedHost> {
        lock(&self.refused).clone()
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes answers into the program's input as they come.
fn pass_on(replies: &Receiver<FetchReply>, input: &Input, refused: &Mutex<Vec<RefusedHost>>) {
    for reply in replies {
        if let Err(FetchError::Refused { host, port, reason }) = &reply.outcome {
            let one = RefusedHost {
                host: host.to_string(),
                port: Some(*port),
                reason: *reason,
            };
            let mut refused = lock(refused);
            if refused.len() < MAX_REFUSED && !refused.contains(&one) {
                refused.push(one);
            }
        }
        // Its place is free again once the answer is in the hands of the tool's sandbox.
        if input.send(&frame_of(&reply)).is_err() {
            return;
        }
    }
}

// TRUST: the program runs a stranger's code; of what it asks for nothing is believed.
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

fn frame_of(reply: &FetchReply) -> Vec<u8> {
    let outcome = match &reply.outcome {
        Ok(answer) => wire::FetchOutcome::Answer(answer_of(answer)),
        Err(error) => wire::FetchOutcome::Failure(failure_of(error)),
    };
    let reply = wire::FetchReply {
        id: reply.id,
        outcome,
    };
    // It has string keys and no numbers that JSON has not.
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

fn failure_of(error: &FetchError) -> wire::FetchFailure {
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
        message: error.to_string(),
        host,
        port,
        reason: match error {
            FetchError::Refused { reason, .. } => reason.word().to_owned(),
            _ => String::new(),
        },
    }
}
