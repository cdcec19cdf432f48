//! Runs tool calls and returns their reports.

use crate::call::{CallFailure, CallReport, FailureKind, MAX_WALL, ToolRequest};
use crate::engine::{Engine, NodeView};
use crate::fetch::{self, ToolCaller, ToolFetcher};
use crate::gate::Gate;
use crate::grant::HostGrant;
use crate::node;
use crate::pool::{self, Pool};
use crate::process::{EndedCall, Process, deadline, run, unavailable};
use glovebox_egress::TrafficNews;
use glovebox_js::tool_call::{CallLimits, MAX_CALL_BYTES, ToolCall, frame};
use glovebox_proto::Fault;
use glovebox_sandbox::{Registry, Sandbox};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Configuration of a runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerConfig {
    /// Maximum number of simultaneous calls over all tenants.
    pub max_parallel: usize,
    /// Maximum number of simultaneous calls of one tenant.
    pub max_parallel_of_tenant: usize,
    /// Maximum number of simultaneous calls with [`Engine::Node`]. Each has a sandbox of its own.
    pub max_parallel_node: usize,
    /// Maximum number of simultaneous calls of one tenant with [`Engine::Node`].
    pub max_parallel_node_of_tenant: usize,
    /// Location of Node.
    pub node: NodeView,
    /// Hosts that tools may reach; none by default.
    pub hosts: HostGrant,
}

impl Default for RunnerConfig {
    fn default() -> Self {
        Self {
            max_parallel: 64,
            max_parallel_of_tenant: 64,
            max_parallel_node: 8,
            max_parallel_node_of_tenant: 8,
            node: NodeView::default(),
            hosts: HostGrant::default(),
        }
    }
}

/// Runs tool calls. It can be shared between threads.
#[derive(Debug)]
pub struct ToolRunner {
    pool: Arc<Pool>,
    gate: Gate,
    node_gate: Gate,
    node: NodeView,
    hosts: Arc<HostGrant>,
    /// Makes the requests of tools. `None` if no host is granted.
    fetcher: Option<ToolFetcher>,
}

impl ToolRunner {
    /// Creates a runner whose sandboxes belong to `registry`.
    ///
    /// # Errors
    /// A [`Fault`] if hosts are granted, and their certificates cannot be read or the thread for
    /// requests cannot be created.
    pub fn new(registry: Arc<Registry>, config: RunnerConfig) -> Result<Self, Fault> {
        let hosts = Arc::new(config.hosts);
        Ok(Self {
            fetcher: ToolFetcher::start(&hosts)?,
            hosts,
            pool: Arc::new(Pool::new(registry)),
            gate: Gate::new(config.max_parallel, config.max_parallel_of_tenant),
            node_gate: Gate::new(config.max_parallel_node, config.max_parallel_node_of_tenant),
            node: config.node,
        })
    }

    /// Returns true if a host is granted to any tool.
    pub const fn can_fetch(&self) -> bool {
        self.fetcher.is_some()
    }

    /// Starts a sandbox ahead of the first call.
    ///
    /// # Errors
    /// The [`Fault`] of creating the sandbox.
    pub fn prepare(&self) -> Result<(), Fault> {
        self.pool.prepare()
    }

    /// Makes one call and blocks until it ends. Setting `cancel` ends it early.
    ///
    /// # Errors
    /// [`CallFailure`] of the tool, of its limits, or of the sandbox.
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
            Engine::Quickjs => self.call_quickjs(request, &call, limits, cancel)?,
            Engine::Node => self.call_node(request, &call, limits, cancel)?,
        };
        let EndedCall {
            answer,
            end,
            taken,
            refused_hosts,
        } = ended;
        let judged = answer.judge(end.as_ref(), taken);
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
            cpu: end.as_ref().map_or(Duration::ZERO, |end| {
                Duration::from_micros(end.user_us + end.system_us)
            }),
            peak_memory_bytes: end.map_or(0, |end| end.max_rss_kib.saturating_mul(1024)),
        })
    }
}

impl ToolRunner {
    /// Takes the network decisions and traffic of calls with both engines since the previous call.
    /// A decision equal to one reported within the last ten minutes is held back for a later call.
    /// With `is_last` nothing is held back.
    pub fn take_network_news(&self, is_last: bool) -> Vec<(ToolCaller, TrafficNews)> {
        let fetcher = self.fetcher.as_ref();
        fetcher.map_or_else(Vec::new, |fetcher| fetcher.take_news(is_last))
    }

    /// Runs a call as a process in the tenant's sandbox.
    fn call_quickjs(
        &self,
        request: &ToolRequest<'_>,
        call: &[u8],
        limits: CallLimits,
        cancel: &AtomicBool,
    ) -> Result<EndedCall, CallFailure> {
        let tenant = request.tenant;
        let _turn = self.gate.enter(tenant, cancel)?;
        let sandbox = self.pool.sandbox(tenant);
        let sandbox = sandbox.map_err(|fault| unavailable(&fault))?;
        let process = pool::process(deadline(limits));
        let process = Process {
            sandbox: &sandbox,
            exec: process,
            fetcher: self.fetcher.as_ref().map(|all| all.of_call(request)),
        };
        run(process, call, limits, cancel).map_err(|lost| {
            if lost.is_sandbox_lost {
                self.pool.discard(tenant, &sandbox);
            }
            *lost.failure
        })
    }

    /// Runs a call as a process in a sandbox of its own.
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
        // The turn is taken before the sandbox is created, so that waiting calls hold none.
        let _turn = self.node_gate.enter(request.tenant, cancel)?;
        let account = self.fetcher.as_ref();
        let account = account.map(|all| all.account_of(ToolCaller::of(request)));
        let policy = account.as_ref().map(|_| self.hosts.policy_of(request.tool));
        let policy = policy.map(AsRef::as_ref);
        let sandbox = node::sandbox(self.pool.registry(), &self.node, policy, limits);
        let sandbox = sandbox.map_err(|fault| unavailable(&fault))?;
        let ended = self.run_node(&sandbox, request, call, limits, cancel);
        let traffic = sandbox.network_control();
        // The sandbox's proxy decides and counts until it has ended, so it must end before its
        // counts are taken.
        drop(sandbox);
        if let (Some(account), Some(traffic)) = (account, traffic) {
            account.absorb(&traffic.take_news(usize::MAX, true));
        }
        ended
    }

    fn run_node(
        &self,
        sandbox: &Sandbox,
        request: &ToolRequest<'_>,
        call: &[u8],
        limits: CallLimits,
        cancel: &AtomicBool,
    ) -> Result<EndedCall, CallFailure> {
        let process = Process {
            sandbox,
            exec: node::process(&self.node, limits, deadline(limits)),
            // The sandbox has its own network with the same hosts.
            fetcher: None,
        };
        let mut ended = run(process, call, limits, cancel).map_err(|lost| *lost.failure)?;
        if let Some(end) = &ended.end {
            if let Some(message) = node::missing(end).filter(|_| ended.answer.is_silent()) {
                return Err(CallFailure::new(FailureKind::Unavailable, message));
            }
            ended.refused_hosts = node::refused_hosts(sandbox, end, &self.hosts, request.tool);
        }
        Ok(ended)
    }

    /// Encodes the call as a frame.
    ///
    /// # Errors
    /// [`FailureKind::TooLarge`] if the frame exceeds the size that the program accepts.
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
