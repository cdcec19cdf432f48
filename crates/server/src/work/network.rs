//! What sandboxes with listed hosts, and tools of bundles, send and receive, and whom they ask for: counted for metrics,
//! and each decision in the audit log, equal ones together.
//!
//! A sandbox's supervisor keeps what was not told yet, also while no server runs; it is asked every few seconds, when
//! somebody reads the metrics, and before the sandbox ends.

use super::App;
use crate::store::{AuditEntry, EgressEntry};
use glovebox_egress::DecisionSum;
use glovebox_proto::Code;
use glovebox_sandbox::Name;
use glovebox_session::host::now_unix_ms;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often sandboxes are asked.
const LOOK: Duration = Duration::from_secs(5);
/// Calls that are remembered of a sandbox.
const MAX_CALLS: usize = 64;
/// Calls that are named with a decision.
const MAX_NAMED_CALLS: usize = 8;

/// Sandboxes that are asked.
#[derive(Debug, Default)]
pub(crate) struct NetworkWatch {
    sandboxes: Mutex<HashMap<String, WatchedSandbox>>,
}

#[derive(Debug)]
struct WatchedSandbox {
    user: String,
    session: Option<String>,
    open_connections: u64,
    /// The latest, oldest first.
    calls: VecDeque<CallSpan>,
}

/// When a call ran.
#[derive(Debug)]
struct CallSpan {
    id: String,
    begun_unix_ms: u64,
    ended_unix_ms: Option<u64>,
}

impl WatchedSandbox {
    /// Calls that ran at some moment of this time.
    fn calls_during(&self, decision: &DecisionSum) -> Vec<String> {
        let (first, last) = (decision.first_unix_ms, decision.last_unix_ms);
        let ran = self.calls.iter().filter(|call| {
            call.begun_unix_ms <= last && call.ended_unix_ms.is_none_or(|ended| ended >= first)
        });
        ran.take(MAX_NAMED_CALLS)
            .map(|call| call.id.clone())
            .collect()
    }
}

impl NetworkWatch {
    fn sandboxes(&self) -> MutexGuard<'_, HashMap<String, WatchedSandbox>> {
        self.sandboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this sandbox is asked.
    pub(crate) fn watch(&self, name: &Name, user: &str, session: Option<&str>) {
        let mut sandboxes = self.sandboxes();
        let watched = sandboxes
            .entry(name.to_string())
            .or_insert_with(|| WatchedSandbox {
                user: user.to_owned(),
                session: None,
                open_connections: 0,
                calls: VecDeque::new(),
            });
        if let Some(session) = session {
            watched.session = Some(session.to_owned());
        }
    }

    pub(crate) fn call_began(&self, sandbox: &str, id: &str) {
        if let Some(watched) = self.sandboxes().get_mut(sandbox) {
            if watched.calls.len() >= MAX_CALLS {
                watched.calls.pop_front();
            }
            watched.calls.push_back(CallSpan {
                id: id.to_owned(),
                begun_unix_ms: now_unix_ms(),
                ended_unix_ms: None,
            });
        }
    }

    pub(crate) fn call_ended(&self, sandbox: &str, id: &str) {
        if let Some(watched) = self.sandboxes().get_mut(sandbox) {
            let mut calls = watched.calls.iter_mut().rev();
            if let Some(call) = calls.find(|call| call.id == id) {
                call.ended_unix_ms = Some(now_unix_ms());
            }
        }
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

impl App {
    /// Counts what a sandbox has done over the network since it was asked last. `is_last` says that it ends now.
    pub(crate) fn count_network(&self, name: &Name, is_last: bool) {
        let accounting = &self.accounting;
        let news = match self.config.registry.take_network_news(name, is_last) {
            Ok(news) => news,
            Err(fault) => {
                if !matches!(fault.code, Code::Busy | Code::TimedOut) {
                    // It has another network, or has ended: who comes back to it has it watched again.
                    accounting.network.sandboxes().remove(name.as_str());
                }
                return;
            }
        };
        accounting.metrics.egress(&news);
        let mut sandboxes = accounting.network.sandboxes();
        let Some(watched) = sandboxes.get_mut(name.as_str()) else {
            return;
        };
        watched.open_connections = news.open_connections;
        for decision in &news.decisions {
            let entry = EgressEntry::new(
                &watched.user,
                watched.session.as_deref(),
                Some(name.as_str()),
                watched.calls_during(decision),
                decision,
            );
            accounting.write_down(&AuditEntry::Egress(entry));
        }
    }

    /// The same for all that are watched, and for tools of bundles.
    pub(crate) fn count_networks(&self) {
        let names = self.accounting.network.names();
        for name in names.iter().filter_map(|name| Name::parse(name).ok()) {
            self.count_network(&name, false);
        }
        let mut open = self.accounting.network.open_connections();
        for (tenant, news) in self.bundles.runner.take_network_news() {
            self.metrics.egress(&news);
            open += news.open_connections;
            for decision in &news.decisions {
                let entry = EgressEntry::new(&tenant, None, None, Vec::new(), decision);
                self.accounting.write_down(&AuditEntry::Egress(entry));
            }
        }
        self.metrics.egress_connections_open(open);
    }

    /// Counts every few seconds, until the server ends.
    pub(crate) async fn watch_networks(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.end.cancelled() => return,
            }
            let app = Arc::clone(&self);
            // A panic in there is not this loop's end.
            let _ = tokio::task::spawn_blocking(move || app.count_networks()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_egress::EgressVerdict;

    #[test]
    fn a_decision_names_the_calls_that_ran_then() {
        let watch = NetworkWatch::default();
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
        assert_eq!(watched.calls.len(), MAX_CALLS);
        for (at, call) in watched.calls.iter_mut().enumerate() {
            call.begun_unix_ms = at as u64 * 10;
            call.ended_unix_ms = Some(at as u64 * 10 + 5);
        }
        watched.calls.back_mut().unwrap().ended_unix_ms = None;
        let during = |first_unix_ms, last_unix_ms| {
            watched.calls_during(&DecisionSum {
                host: None,
                port: None,
                rule: None,
                verdict: EgressVerdict::Allowed,
                count: 1,
                first_unix_ms,
                last_unix_ms,
            })
        };
        assert_eq!(during(12, 12), ["c4"]);
        assert_eq!(during(12, 21), ["c4", "c5"]);
        assert_eq!(during(16, 19), [""; 0]);
        assert_eq!(during(9999, 9999), [format!("c{}", MAX_CALLS + 2)]);
        assert_eq!(during(0, 9999).len(), MAX_NAMED_CALLS);
    }
}
