//! A call in, a report out.

use crate::answer::Answer;
use crate::call::{CallFailure, CallReport, FailureKind, MAX_WALL, ToolRequest};
use crate::engine::{Engine, NodeView};
use crate::fetch::{self, CallFetches, HostGrant, RefusedHost};
use crate::node;
use crate::pool::{self, Pool};
use glovebox_js::tool_call::{CallLimits, MAX_CALL_BYTES, ToolCall, frame};
use glovebox_proto::{Channel, Class, Code, Exec, ExitReport, Fault, Reply, Request};
use glovebox_sandbox::egress::Fetcher;
use glovebox_sandbox::{Incoming, Registry, Sandbox, Stream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the program has to end by itself, with a reason, before it is killed.
const GRACE: Duration = Duration::from_millis(60);
/// What the guest may take to tell of an end that is due.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether a call is given up.
const LOOK: Duration = Duration::from_millis(50);
/// How long a call waits for others to end.
const QUEUE: Duration = Duration::from_secs(10);

/// What a runner may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerConfig {
    /// Calls at a time, over all tenants.
    pub max_parallel: usize,
    /// The same of [`Engine::Node`], each of which has a sandbox of its own.
    pub max_parallel_node: usize,
    /// Where Node is.
    pub node: NodeView,
    /// Hosts that tools may reach; none in what is usual.
    pub hosts: HostGrant,
}

impl Default for RunnerConfig {
    fn default() -> Self {
        Self {
            max_parallel: 64,
            max_parallel_node: 8,
            node: NodeView::default(),
            hosts: HostGrant::default(),
        }
    }
}

/// Runs calls. Share it by reference or `Arc` between threads.
#[derive(Debug)]
pub struct ToolRunner {
    pool: Arc<Pool>,
    gate: Gate,
    node_gate: Gate,
    node: NodeView,
    hosts: HostGrant,
    /// Makes the requests of tools, where any host is granted.
    fetcher: Option<Fetcher>,
}

impl ToolRunner {
    /// One whose sandboxes are in this registry.
    ///
    /// # Errors
    /// When hosts are granted and their certificates cannot be read.
    pub fn new(registry: Arc<Registry>, config: RunnerConfig) -> Result<Self, Fault> {
        Ok(Self {
            fetcher: fetch::start(&config.hosts)?,
            hosts: config.hosts,
            pool: Arc::new(Pool::new(registry)),
            gate: Gate::new(config.max_parallel),
            node_gate: Gate::new(config.max_parallel_node),
            node: config.node,
        })
    }

    /// Whether tools may reach any host.
    pub const fn can_fetch(&self) -> bool {
        self.fetcher.is_some()
    }

    /// Starts a sandbox ahead of the first call.
    ///
    /// # Errors
    /// Whatever keeps a sandbox from starting.
    pub fn prepare(&self) -> Result<(), Fault> {
        self.pool.prepare()
    }

    /// Makes one call. Setting `cancel` ends it.
    ///
    /// # Errors
    /// [`CallFailure`]: of the tool, of its limits, or of what runs it.
    pub fn call(
        &self,
        request: &ToolRequest<'_>,
        cancel: &AtomicBool,
    ) -> Result<CallReport, CallFailure> {
        let begin = Instant::now();
        let mut limits = request.limits;
        limits.wall_ms = limits.wall_ms.clamp(1, MAX_WALL.as_millis() as u64);
        let call = self.frame_of(request, limits)?;
        let ended = match request.engine {
            Engine::Quickjs => self.call_quickjs(request.tenant, &call, limits, cancel)?,
            Engine::Node => self.call_node(request, &call, limits, cancel)?,
        };
        let EndedCall {
            answer,
            end,
            taken,
            refused_hosts,
        } = ended;
        let judged = answer.judge(&end, taken);
        let (value, warnings, log) = judged.map_err(|failure| CallFailure {
            refused_hosts: refused_hosts.clone().into(),
            ..failure
        })?;
        Ok(CallReport {
            value,
            warnings,
            log,
            refused_hosts,
            wall: begin.elapsed(),
            cpu: Duration::from_micros(end.user_us + end.system_us),
            peak_memory_bytes: end.max_rss_kib.saturating_mul(1024),
        })
    }
}

impl ToolRunner {
    /// A process in the tenant's sandbox.
    fn call_quickjs(
        &self,
        tenant: &str,
        call: &[u8],
        limits: CallLimits,
        cancel: &AtomicBool,
    ) -> Result<EndedCall, CallFailure> {
        let _turn = self.gate.enter(cancel)?;
        let sandbox = self.pool.sandbox(tenant);
        let sandbox = sandbox.map_err(|fault| unavailable(&fault))?;
        let process = pool::process(deadline(limits));
        let process = Process {
            sandbox: &sandbox,
            exec: process,
            fetcher: self.fetcher.as_ref(),
        };
        run(process, call, limits, cancel).map_err(|lost| {
            if lost.is_sandbox_lost {
                self.pool.discard(tenant, &sandbox);
            }
            *lost.failure
        })
    }

    /// A process in a sandbox of its own.
    fn call_node(
        &self,
        request: &ToolRequest<'_>,
        call: &[u8],
        limits: CallLimits,
        cancel: &AtomicBool,
    ) -> Result<EndedCall, CallFailure> {
        if request.fixed.is_some() {
            let message = "the engine `node` has no fixed clock; use the engine `quickjs`";
            return Err(CallFailure::new(FailureKind::Unavailable, message));
        }
        let _turn = self.node_gate.enter(cancel)?;
        let sandbox = node::sandbox(self.pool.registry(), &self.node, &self.hosts, limits);
        let sandbox = sandbox.map_err(|fault| unavailable(&fault))?;
        let process = Process {
            sandbox: &sandbox,
            exec: node::process(&self.node, limits, deadline(limits)),
            // It has a network of its own, with the same hosts in it.
            fetcher: None,
        };
        let mut ended = run(process, call, limits, cancel).map_err(|lost| *lost.failure)?;
        if let Some(message) = node::missing(&ended.end).filter(|_| ended.answer.is_silent()) {
            return Err(CallFailure::new(FailureKind::Unavailable, message));
        }
        ended.refused_hosts = node::refused_hosts(&sandbox, &ended.end);
        Ok(ended)
    }

    /// The frame of a call, which has a size that the program takes.
    fn frame_of(
        &self,
        request: &ToolRequest<'_>,
        limits: CallLimits,
    ) -> Result<Vec<u8>, CallFailure> {
        let call = ToolCall {
            code: request.code.to_owned(),
            input: request.input.to_string(),
            context: request.context.to_string(),
            call_id: request.call_id.to_owned(),
            limits,
            fixed: request.fixed,
            fetch: self.can_fetch().then(fetch::grant),
        };
        let json = serde_json::to_vec(&call)
            .map_err(|error| CallFailure::new(FailureKind::TooLarge, error.to_string()))?;
        if json.len() > MAX_CALL_BYTES {
            return Err(CallFailure::new(
                FailureKind::TooLarge,
                format!(
                    "the tool and its input have {} bytes, more than {MAX_CALL_BYTES}",
                    json.len()
                ),
            ));
        }
        Ok(frame(&json))
    }
}

impl Drop for ToolRunner {
    fn drop(&mut self) {
        self.pool.settle();
    }
}

/// What a process said, how it ended, and how long it took.
struct EndedCall {
    answer: Answer,
    end: ExitReport,
    taken: Duration,
    refused_hosts: Vec<RefusedHost>,
}

/// The process of one call.
struct Process<'a> {
    sandbox: &'a Sandbox,
    exec: Exec,
    /// Makes its requests, where it may ask for any.
    fetcher: Option<&'a Fetcher>,
}

/// When the process of a call is killed.
fn deadline(limits: CallLimits) -> Duration {
    Duration::from_millis(limits.wall_ms) + GRACE
}

/// A call of which nothing more is known.
struct LostCall {
    failure: Box<CallFailure>,
    /// Whether its sandbox should not be used again.
    is_sandbox_lost: bool,
}

/// Runs the process of one call to its end.
fn run(
    process: Process<'_>,
    call: &[u8],
    limits: CallLimits,
    cancel: &AtomicBool,
) -> Result<EndedCall, LostCall> {
    let started = Instant::now();
    let due = started + deadline(limits);
    let mut answer = Answer::new(limits, process.fetcher.map(|_| fetch::grant()));
    let mut stream = process
        .sandbox
        .open(Request::Exec(process.exec))
        .map_err(|fault| lost(&fault))?;
    // One frame fits into what the guest takes without anybody reading, or the program reads it: it reads first.
    let sent = stream.send(call).and_then(|()| match process.fetcher {
        // Answers to its requests follow.
        Some(_) => Ok(()),
        None => stream.finish_input(),
    });
    if let Err(fault) = sent
        && fault.class == Class::Lost
    {
        return Err(lost(&fault));
    }
    let mut fetches: Option<CallFetches> = None;
    let mut is_cancelled = false;
    loop {
        if cancel.load(Ordering::Relaxed) && !is_cancelled {
            is_cancelled = true;
            // Nobody waits for what it has asked for either.
            fetches = None;
            let _ = stream.cancel();
        }
        if Instant::now() > due + PATIENCE {
            return Err(silent(&stream));
        }
        match stream.recv_for(LOOK) {
            Some(Incoming::Data {
                channel: Channel::Stdout,
                bytes,
                ..
            }) => {
                answer.take(&bytes);
                for asked in answer.take_asked() {
                    let Some(fetcher) = process.fetcher.filter(|_| !is_cancelled) else {
                        break;
                    };
                    let open = match &mut fetches {
                        Some(open) => open,
                        none => {
                            let opened = CallFetches::open(fetcher, stream.input(), due);
                            none.insert(opened.map_err(|error| no_thread(&error))?)
                        }
                    };
                    open.take(asked);
                }
            }
            // What the program itself complains about is no part of an answer.
            Some(Incoming::Data { .. }) | None => {}
            Some(Incoming::Reply(Err(fault))) if fault.class == Class::Lost => {
                return Err(lost(&fault));
            }
            Some(Incoming::Reply(_)) if is_cancelled => return Err(given_up()),
            Some(Incoming::Reply(Ok(Reply::Exited(end)))) => {
                return Ok(EndedCall {
                    answer,
                    end,
                    taken: started.elapsed(),
                    refused_hosts: fetches.map_or_else(Vec::new, |fetches| fetches.refused()),
                });
            }
            Some(Incoming::Reply(Ok(_))) => {
                return Err(lost(&Fault::lost(
                    Code::Protocol,
                    "the guest answered something else than the end of a call",
                )));
            }
            Some(Incoming::Reply(Err(fault))) => return Err(lost(&fault)),
        }
    }
}

fn no_thread(error: &std::io::Error) -> LostCall {
    LostCall {
        failure: Box::new(CallFailure::new(
            FailureKind::Unavailable,
            format!("no thread for the requests of the tool: {error}"),
        )),
        is_sandbox_lost: false,
    }
}

fn lost(fault: &Fault) -> LostCall {
    LostCall {
        is_sandbox_lost: fault.class == Class::Lost,
        failure: Box::new(unavailable(fault)),
    }
}

fn unavailable(fault: &Fault) -> CallFailure {
    CallFailure::new(
        FailureKind::Unavailable,
        format!("no sandbox for the tool: {}", fault.message),
    )
}

fn given_up() -> LostCall {
    LostCall {
        failure: Box::new(CallFailure::new(
            FailureKind::Cancelled,
            "the call was given up",
        )),
        is_sandbox_lost: false,
    }
}

fn silent(stream: &Stream) -> LostCall {
    let _ = stream.cancel();
    let message = "the time of the call is over and its sandbox does not answer; it is replaced";
    LostCall {
        failure: Box::new(CallFailure::new(FailureKind::Timeout, message)),
        is_sandbox_lost: true,
    }
}

/// How many calls may run.
#[derive(Debug)]
struct Gate {
    free: Mutex<usize>,
    changed: Condvar,
}

/// One of them.
struct Turn<'a>(&'a Gate);

impl Gate {
    const fn new(free: usize) -> Self {
        Self {
            free: Mutex::new(free),
            changed: Condvar::new(),
        }
    }

    fn enter(&self, cancel: &AtomicBool) -> Result<Turn<'_>, CallFailure> {
        let until = Instant::now() + QUEUE;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            if cancel.load(Ordering::Relaxed) {
                return Err(*given_up().failure);
            }
            if Instant::now() >= until {
                let message = "too many tools run at the same time; try again";
                return Err(CallFailure::new(FailureKind::Busy, message));
            }
            (free, _) = self
                .changed
                .wait_timeout(free, LOOK)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Ok(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.changed.notify_one();
    }
}
