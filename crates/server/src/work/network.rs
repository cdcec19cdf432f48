//! Network traffic of sandboxes with listed hosts and of tools of bundles. Traffic is counted in
//! metrics, and each decision is written to the audit log, with equal decisions combined.
//!
//! The supervisor of a sandbox keeps decisions until they are collected, even while no server runs.
//! They are collected every few seconds, when a client reads the metrics, and before the sandbox
//! ends; the same holds for sandboxes that a session made from its own. For tools of bundles the
//! tool runner keeps the decisions, with both engines.

use super::App;
use super::accounting::{Accounting, CallPlace};
use crate::store::{AuditEntry, EgressEntry};
use glovebox_egress::{DecisionSum, TrafficNews};
use glovebox_proto::{Code, Fault};
use glovebox_runner::{ToolCaller, is_tool_name};
use glovebox_sandbox::{Name, Registry, SandboxState};
use glovebox_session::bundle::PLACEMENT;
use glovebox_session::host::now_unix_ms;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval between collections.
const LOOK: Duration = Duration::from_secs(5);
/// Maximum number of calls remembered per sandbox or bundle tool.
const MAX_CALLS: usize = 64;
/// Maximum number of bundle tools whose calls are remembered.
const MAX_TOOLS: usize = 10_000;
/// Time after which a bundle tool's call counts as ended if its end was never reported.
const LONGEST_CALL: Duration = Duration::from_mins(10);
/// Maximum number of calls named in the audit entry of a decision.
const MAX_NAMED_CALLS: usize = 8;

/// Watched sandboxes, and recent calls of tools.
#[derive(Debug)]
pub(crate) struct NetworkWatch {
    registry: Arc<Registry>,
    sandboxes: Mutex<HashMap<String, WatchedSandbox>>,
    bundle_tools: Mutex<HashMap<ToolCaller, RecentCalls>>,
}

#[derive(Debug)]
struct WatchedSandbox {
    user: String,
    session: Option<String>,
    /// Sandbox from which this one was made. Its decisions are attributed to calls in that sandbox.
    parent: Option<String>,
    open_connections: u64,
    calls: RecentCalls,
}

/// The most recent calls, oldest first.
#[derive(Debug, Default)]
struct RecentCalls(VecDeque<CallSpan>);

/// Period in which a call ran.
#[derive(Debug)]
struct CallSpan {
    id: String,
    begun_unix_ms: u64,
    ended_unix_ms: Option<u64>,
}

impl RecentCalls {
    fn begin(&mut self, id: &str) {
        if self.0.len() >= MAX_CALLS {
            self.0.pop_front();
        }
        self.0.push_back(CallSpan {
            id: id.to_owned(),
            begun_unix_ms: now_unix_ms(),
            ended_unix_ms: None,
        });
    }

    fn end(&mut self, id: &str) {
        let mut calls = self.0.iter_mut().rev();
        // Two calls may have the same id: the latest one without an end is meant.
        if let Some(call) = calls.find(|call| call.id == id && call.ended_unix_ms.is_none()) {
            call.ended_unix_ms = Some(now_unix_ms());
        }
    }

    /// Returns the ids of the calls that ran while the decision was made.
    fn during(&self, decision: &DecisionSum) -> Vec<String> {
        let (first, last) = (decision.first_unix_ms, decision.last_unix_ms);
        let ran = self.0.iter().filter(|call| {
            call.begun_unix_ms <= last && call.ended_unix_ms.is_none_or(|ended| ended >= first)
        });
        ran.take(MAX_NAMED_CALLS)
            .map(|call| call.id.clone())
            .collect()
    }

    /// Returns true if a call has ended since `unix_ms` or may still be running.
    fn ran_since(&self, unix_ms: u64) -> bool {
        let latest = |call: &CallSpan| call.begun_unix_ms + LONGEST_CALL.as_millis() as u64;
        let mut calls = self.0.iter();
        calls.any(|call| call.ended_unix_ms.unwrap_or_else(|| latest(call)) >= unix_ms)
    }
}

impl NetworkWatch {
    /// Creates a watch of sandboxes in this registry.
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            sandboxes: Mutex::default(),
            bundle_tools: Mutex::default(),
        }
    }

    fn bundle_tools(&self) -> MutexGuard<'_, HashMap<ToolCaller, RecentCalls>> {
        self.bundle_tools
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn sandboxes(&self) -> MutexGuard<'_, HashMap<String, WatchedSandbox>> {
        self.sandboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts watching a sandbox. Sets its session if `session` is given.
    pub(crate) fn watch(&self, name: &Name, user: &str, session: Option<&str>) {
        let mut sandboxes = self.sandboxes();
        let watched = sandboxes
            .entry(name.to_string())
            .or_insert_with(|| WatchedSandbox {
                user: user.to_owned(),
                session: None,
                parent: None,
                open_connections: 0,
                calls: RecentCalls::default(),
            });
        if let Some(session) = session {
            watched.session = Some(session.to_owned());
        }
    }

    /// Starts watching a sandbox if its parent is watched.
    fn watch_child(&self, name: &Name) {
        let Ok(spec) = self.registry.spec(name) else {
            return;
        };
        let Some(parent) = spec.parent.map(|parent| parent.name.to_string()) else {
            return;
        };
        let mut sandboxes = self.sandboxes();
        let Some(of) = sandboxes.get(&parent) else {
            return;
        };
        let child = WatchedSandbox {
            user: of.user.clone(),
            session: of.session.clone(),
            parent: Some(parent),
            open_connections: 0,
            calls: RecentCalls::default(),
        };
        sandboxes.entry(name.to_string()).or_insert(child);
    }

    fn children_of(&self, parent: &str) -> Vec<Name> {
        let sandboxes = self.sandboxes();
        let children = sandboxes
            .iter()
            .filter(|(_, watched)| watched.parent.as_deref() == Some(parent));
        children
            .filter_map(|(name, _)| Name::parse(name).ok())
            .collect()
    }

    fn call_began(&self, sandbox: &str, id: &str) {
        if let Some(watched) = self.sandboxes().get_mut(sandbox) {
            watched.calls.begin(id);
        }
    }

    fn call_ended(&self, sandbox: &str, id: &str) {
        if let Some(watched) = self.sandboxes().get_mut(sandbox) {
            watched.calls.end(id);
        }
    }

    fn bundle_call_began(&self, caller: ToolCaller, id: &str) {
        let mut tools = self.bundle_tools();
        if tools.len() < MAX_TOOLS || tools.contains_key(&caller) {
            tools.entry(caller).or_default().begin(id);
        }
    }

    fn bundle_call_ended(&self, caller: &ToolCaller, id: &str) {
        if let Some(calls) = self.bundle_tools().get_mut(caller) {
            calls.end(id);
        }
    }

    /// Forgets calls of bundle tools whose decisions have all been collected. `asked_unix_ms` is
    /// the time just before `told` was collected.
    fn forget_bundle_calls(&self, told: &HashSet<&ToolCaller>, asked_unix_ms: u64) {
        self.bundle_tools()
            .retain(|caller, calls| told.contains(caller) || calls.ran_since(asked_unix_ms));
    }

    fn names(&self) -> Vec<String> {
        self.sandboxes().keys().cloned().collect()
    }

    fn open_connections(&self) -> u64 {
        let sandboxes = self.sandboxes();
        sandboxes
            .values()
            .map(|watched| watched.open_connections)
            .sum()
    }
}

/// Returns true if `asked` is the name or an alias of this tool.
fn is_tool(asked: &str, name: &str) -> bool {
    glovebox_tools::find(asked).is_ok_and(|tool| tool.name == name)
}

/// Returns the bundle tool of a call. None for calls of other tools.
fn bundle_tool(place: &CallPlace, tool: &str) -> Option<ToolCaller> {
    // TRUST: any other text is not the name of a tool and may be long, so it is not kept.
    (place.placement == PLACEMENT && is_tool_name(tool)).then(|| ToolCaller {
        tenant: place.user.clone(),
        session: place.session.clone(),
        tool: tool.to_owned(),
    })
}

impl Accounting {
    /// Begins to attribute decisions to a call. Collects the traffic of a sandbox that the call
    /// will remove.
    pub(super) fn watch_call(&self, place: &CallPlace, id: &str, tool: &str, arguments: &Value) {
        let network = &self.network;
        if let Some(caller) = bundle_tool(place, tool) {
            network.bundle_call_began(caller, id);
        }
        let Some(sandbox) = &place.sandbox else {
            return;
        };
        network.call_began(sandbox, id);
        if is_tool(tool, "SandboxKill") {
            // The supervisor loses what was not collected when the sandbox is removed.
            let named = arguments.get("name").or_else(|| arguments.get("sandbox"));
            let mut children = network.children_of(sandbox).into_iter();
            if let Some(child) = children.find(|child| named == Some(&child.as_str().into())) {
                self.count_sandbox(&child, true);
            }
        }
    }

    /// Ends the attribution of decisions to a call. Watches a sandbox that the call has made.
    pub(super) fn unwatch_call(
        &self,
        place: &CallPlace,
        id: &str,
        tool: &str,
        facts: Option<&Map<String, Value>>,
    ) {
        let network = &self.network;
        if let Some(caller) = bundle_tool(place, tool) {
            network.bundle_call_ended(&caller, id);
        }
        let Some(sandbox) = &place.sandbox else {
            return;
        };
        network.call_ended(sandbox, id);
        if is_tool(tool, "Spawn")
            && let Some(made) = facts.and_then(|facts| facts.get("sandbox")?.as_str())
            && let Ok(made) = Name::parse(made)
        {
            network.watch_child(&made);
        }
    }

    /// Counts the traffic of a sandbox, and of those made from it, since the last collection.
    /// With `is_last` nothing is held back for a later collection.
    pub(crate) fn count_network(&self, name: &Name, is_last: bool) {
        // Children first: their entries name calls of the parent, which `count_sandbox` may stop
        // watching.
        for child in self.network.children_of(name.as_str()) {
            self.count_sandbox(&child, is_last);
        }
        self.count_sandbox(name, is_last);
    }

    fn count_sandbox(&self, name: &Name, is_last: bool) {
        let network = &self.network;
        let news = match network.registry.take_network_news(name, is_last) {
            Ok(news) => news,
            Err(fault) => {
                if !matches!(fault.code, Code::Busy | Code::TimedOut) {
                    // The sandbox has ended or uses another network. It is watched again when it is
                    // next opened.
                    network.sandboxes().remove(name.as_str());
                }
                return;
            }
        };
        self.metrics.egress(&news);
        let mut sandboxes = network.sandboxes();
        if let Some(watched) = sandboxes.get_mut(name.as_str()) {
            watched.open_connections = news.open_connections;
        }
        let Some(watched) = sandboxes.get(name.as_str()) else {
            return;
        };
        let caller = match &watched.parent {
            Some(parent) => sandboxes.get(parent),
            None => Some(watched),
        };
        for decision in &news.decisions {
            let calls = caller.map(|caller| caller.calls.during(decision));
            let entry = EgressEntry {
                session: watched.session.as_deref(),
                sandbox: Some(name.as_str()),
                calls: calls.unwrap_or_default(),
                ..EgressEntry::new(&watched.user, decision)
            };
            self.write_down(&AuditEntry::Egress(entry));
        }
    }

    /// Counts the traffic of bundle tools since the last collection.
    fn count_bundle_tools(&self, news: &[(ToolCaller, TrafficNews)]) {
        for (caller, news) in news {
            self.metrics.egress(news);
            let tools = self.network.bundle_tools();
            let calls = tools.get(caller);
            for decision in &news.decisions {
                let calls = calls.map(|calls| calls.during(decision));
                let entry = EgressEntry {
                    session: caller.session.as_deref(),
                    tool: Some(&caller.tool),
                    calls: calls.unwrap_or_default(),
                    ..EgressEntry::new(&caller.tenant, decision)
                };
                self.write_down(&AuditEntry::Egress(entry));
            }
        }
    }
}

impl App {
    /// Counts the traffic of a sandbox, and of those made from it, since the last collection.
    /// With `is_last` nothing is held back for a later collection.
    pub(crate) fn count_network(&self, name: &Name, is_last: bool) {
        self.accounting.count_network(name, is_last);
    }

    /// Counts the traffic of all watched sandboxes and of bundle tools. `is_last` is true if the
    /// server ends: nothing of the bundle tools is held back then. Sandboxes continue without the
    /// server.
    pub(crate) fn count_networks(&self, is_last: bool) {
        let network = &self.accounting.network;
        let names = network.names();
        for name in names.iter().filter_map(|name| Name::parse(name).ok()) {
            self.accounting.count_sandbox(&name, false);
        }
        let mut open = network.open_connections();
        // Before the collection: a call that ends during it may have decisions that come with the
        // next.
        let asked_unix_ms = now_unix_ms();
        let news = self.bundles.runner.take_network_news(is_last);
        self.accounting.count_bundle_tools(&news);
        open += news
            .iter()
            .map(|(_, news)| news.open_connections)
            .sum::<u64>();
        let told = news.iter().map(|(caller, _)| caller).collect();
        network.forget_bundle_calls(&told, asked_unix_ms);
        self.metrics.egress_connections_open(open);
    }

    /// Watches the running sandboxes that were made from a watched one.
    pub(super) fn watch_children(&self) -> Result<(), Fault> {
        for entry in self.config.registry.list()? {
            if entry.state == SandboxState::Ready {
                self.accounting.network.watch_child(&entry.name);
            }
        }
        Ok(())
    }

    /// Counts the traffic every few seconds, until the server ends.
    pub(crate) async fn watch_networks(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.end.cancelled() => return,
            }
            let app = Arc::clone(&self);
            // A panic in the collection must not end this loop.
            let _ = tokio::task::spawn_blocking(move || app.count_networks(false)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_egress::EgressVerdict;
    use glovebox_sandbox::RegistryConfig;

    fn watch() -> (tempfile::TempDir, NetworkWatch) {
        let state = tempfile::tempdir().unwrap();
        let registry = Registry::open(RegistryConfig {
            state_dir: state.path().join("state"),
            max_sandboxes: 1,
            seed_maker: None,
        });
        (state, NetworkWatch::new(Arc::new(registry.unwrap())))
    }

    fn decision(first_unix_ms: u64, last_unix_ms: u64) -> DecisionSum {
        DecisionSum {
            host: None,
            port: None,
            rule: None,
            verdict: EgressVerdict::Allowed,
            count: 1,
            first_unix_ms,
            last_unix_ms,
        }
    }

    #[test]
    fn a_decision_names_the_calls_that_ran_then() {
        let (_state, watch) = watch();
        let name = Name::parse("box-1").unwrap();
        watch.call_began("box-1", "unwatched");
        watch.watch(&name, "ann", None);
        watch.watch(&name, "ann", Some("s-1"));
        for number in 0..MAX_CALLS + 3 {
            watch.call_began("box-1", &format!("c{number}"));
        }
        let mut sandboxes = watch.sandboxes();
        let watched = sandboxes.get_mut("box-1").unwrap();
        assert_eq!(watched.session.as_deref(), Some("s-1"));
        assert_eq!(watched.calls.0.len(), MAX_CALLS);
        for (at, call) in watched.calls.0.iter_mut().enumerate() {
            call.begun_unix_ms = at as u64 * 10;
            call.ended_unix_ms = Some(at as u64 * 10 + 5);
        }
        watched.calls.0.back_mut().unwrap().ended_unix_ms = None;
        let during = |first, last| watched.calls.during(&decision(first, last));
        assert_eq!(during(12, 12), ["c4"]);
        assert_eq!(during(12, 21), ["c4", "c5"]);
        assert_eq!(during(16, 19), [""; 0]);
        assert_eq!(during(9999, 9999), [format!("c{}", MAX_CALLS + 2)]);
        assert_eq!(during(0, 9999).len(), MAX_NAMED_CALLS);
    }

    #[test]
    fn calls_of_tools_are_remembered_while_something_may_be_told_of_them() {
        let (_state, watch) = watch();
        let caller = |tool: &str| ToolCaller {
            tenant: "ann".to_owned(),
            session: None,
            tool: tool.to_owned(),
        };
        for tool in ["told", "open", "lost", "over"] {
            watch.bundle_call_began(caller(tool), "call-1");
        }
        // Two calls may have the same id.
        watch.bundle_call_began(caller("over"), "call-1");
        for tool in ["told", "over", "over"] {
            watch.bundle_call_ended(&caller(tool), "call-1");
        }
        let now = now_unix_ms();
        if let Some(calls) = watch.bundle_tools().get_mut(&caller("lost")) {
            calls.0[0].begun_unix_ms -= LONGEST_CALL.as_millis() as u64 + 1;
        }
        let told = caller("told");
        watch.forget_bundle_calls(&[&told].into(), now);
        assert_eq!(watch.bundle_tools().len(), 3, "it ended just now");
        watch.forget_bundle_calls(&[&told].into(), now + 1000);
        let tools = watch.bundle_tools();
        let mut left: Vec<&str> = tools.keys().map(|caller| caller.tool.as_str()).collect();
        left.sort_unstable();
        assert_eq!(left, ["open", "told"]);
        assert_eq!(tools[&told].during(&decision(0, now)), ["call-1"]);
        drop(tools);
        for number in 0..MAX_TOOLS + 5 {
            watch.bundle_call_began(caller(&format!("t{number}")), "call-1");
        }
        assert_eq!(watch.bundle_tools().len(), MAX_TOOLS);
    }

    #[test]
    fn only_calls_of_bundles_are_of_tools_and_only_under_names_that_tools_have() {
        let place = |placement| CallPlace {
            user: "ann".to_owned(),
            session: Some("s-1".to_owned()),
            sandbox: None,
            placement,
        };
        let found = bundle_tool(&place(PLACEMENT), "get").unwrap();
        assert_eq!((found.tenant.as_str(), found.tool.as_str()), ("ann", "get"));
        assert_eq!(found.session.as_deref(), Some("s-1"));
        assert_eq!(bundle_tool(&place("sandbox"), "get"), None);
        assert_eq!(bundle_tool(&place(PLACEMENT), &"x".repeat(65)), None);
    }
}
