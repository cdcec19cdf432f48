//! Network of a running sandbox with an egress proxy: log, rules, statistics and new hosts.

use super::checkpoints::ask;
use super::connect::not_running;
use crate::control::Order;
use crate::control::network::{NetworkOrder, no_filtered_network, read};
use crate::state::sandbox_dir::{SandboxDir, SandboxDirState, read_spec, read_status};
use crate::{Name, Registry, Sandbox, fault};
use glovebox_egress::{
    Host, LogEntry, Probe, RuleInForce, TrafficLimitChanges, TrafficNews, TrafficStats,
};
use glovebox_proto::{Fault, ListeningPort};
use glovebox_spec::Net;
use glovebox_spec::PROXY;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum number of pages of news to take at once. A supervisor keeps about 100 decisions for each
/// of four kinds of verdict, which is fewer pages. The bound ends the loop if a program asks for
/// new hosts as fast as pages are read.
const MAX_NEWS_PAGES: usize = 32;

impl Registry {
    /// Returns the decisions about connections and look-ups with a number above `after`, oldest
    /// first; 0 returns all. Only the latest 2000 are kept.
    ///
    /// # Errors
    /// `unsupported` for a sandbox with another network; `sandbox-not-running`;
    /// `sandbox-not-found`.
    pub fn network_log(&self, name: &Name, after: u64) -> Result<Vec<LogEntry>, Fault> {
        let mut entries: Vec<LogEntry> = Vec::new();
        loop {
            let after = entries.last().map_or(after, |last| last.number);
            let page: Vec<LogEntry> = self.ask_network(name, NetworkOrder::Log { after })?;
            if page.is_empty() {
                return Ok(entries);
            }
            entries.extend(page);
        }
    }

    /// Returns the decisions and the ends of connections after change `after`, in that order; 0
    /// returns all. If there are none, waits for at most `wait` and at most ten seconds.
    ///
    /// # Errors
    /// As [`Self::network_log`]; `link-lost` if the sandbox ends meanwhile.
    pub fn network_changes(
        &self,
        name: &Name,
        after: u64,
        wait: Duration,
    ) -> Result<Vec<LogEntry>, Fault> {
        let wait_ms = wait.as_millis() as u64;
        self.ask_network(name, NetworkOrder::LogChanges { after, wait_ms })
    }

    /// Returns the rules in force.
    ///
    /// # Errors
    /// As [`Self::network_log`].
    pub fn network_rules(&self, name: &Name) -> Result<Vec<RuleInForce>, Fault> {
        let mut rules: Vec<RuleInForce> = Vec::new();
        loop {
            let skip = rules.len();
            let page: Vec<RuleInForce> = self.ask_network(name, NetworkOrder::Rules { skip })?;
            if page.is_empty() {
                return Ok(rules);
            }
            rules.extend(page);
        }
    }

    /// Returns the traffic that the egress proxy relayed. `None` for a sandbox with another
    /// network, for one that is not running, and for one that is not supervised.
    ///
    /// # Errors
    /// `sandbox-not-found`, and the errors of reaching its supervisor.
    pub fn network_stats(&self, name: &Name) -> Result<Option<TrafficStats>, Fault> {
        let dir = self.layout().sandbox(name.as_str());
        let is_supervised = read_status(&dir).is_ok_and(|status| status.is_supervised);
        if !is_supervised
            || read_spec(&dir)?.jail.net != Net::Egress
            || !matches!(
                SandboxDir::find(self.layout(), name)?,
                SandboxDirState::Held
            )
        {
            return Ok(None);
        }
        self.ask_network(name, NetworkOrder::Stats).map(Some)
    }

    /// Takes the decisions and traffic since the previous call, for the caller's accounts. Each is
    /// returned once. `is_last` says that no call follows. If the supervisor stops responding,
    /// returns the pages before, with `has_more` set.
    ///
    /// # Errors
    /// As [`Self::network_log`].
    pub fn take_network_news(&self, name: &Name, is_last: bool) -> Result<TrafficNews, Fault> {
        take_pages(|| self.ask_network(name, NetworkOrder::News { is_last }))
    }

    /// Opens hosts (rules and names of presets) of a running sandbox for `lifetime`, or until it
    /// ends. Returns the rules that were added.
    ///
    /// # Errors
    /// `invalid-argument` for a text that is not a rule or cannot be opened while a sandbox runs;
    /// otherwise as [`Self::network_log`].
    pub fn allow_hosts(
        &self,
        name: &Name,
        words: &[String],
        lifetime: Option<Duration>,
    ) -> Result<Vec<RuleInForce>, Fault> {
        self.ask_network(name, NetworkOrder::allow(words, lifetime)?)
    }

    /// Changes limits of a running sandbox's traffic until it stops. Returns its traffic so far,
    /// with the new limits.
    ///
    /// # Errors
    /// As [`Self::network_log`].
    pub fn limit_network(
        &self,
        name: &Name,
        changes: TrafficLimitChanges,
    ) -> Result<TrafficStats, Fault> {
        self.ask_network(name, NetworkOrder::Limit(changes))
    }

    /// Decides about a connection to a host as the proxy would, and makes one from this machine if
    /// it is allowed.
    ///
    /// # Errors
    /// As [`Self::network_log`].
    pub fn probe_host(&self, name: &Name, host: &Host, port: u16) -> Result<Probe, Fault> {
        let host = host.to_string();
        self.ask_network(name, NetworkOrder::Probe { host, port })
    }

    /// Returns the ports that commands of `sandbox`, whose name is `name`, listen on, without the
    /// ports of the egress proxy.
    ///
    /// # Errors
    /// `link-lost` if the sandbox has ended.
    pub fn ports_of_commands(
        &self,
        name: &Name,
        sandbox: &Sandbox,
    ) -> Result<Vec<ListeningPort>, Fault> {
        let mut ports = sandbox.ports()?;
        // A sandbox with another network has no rules. That is an error here.
        let rules = self.network_rules(name).unwrap_or_default();
        let rules = rules.iter();
        let mut own: BTreeSet<u16> = rules
            .flat_map(|rule| rule.rule.opened_ports())
            .copied()
            .collect();
        if !own.is_empty() {
            own.insert(PROXY.port());
        }
        ports.retain(|port| !own.contains(&port.port));
        Ok(ports)
    }

    fn ask_network<T: DeserializeOwned>(
        &self,
        name: &Name,
        order: NetworkOrder,
    ) -> Result<T, Fault> {
        let dir = self.filtered(name)?;
        read(&ask(name, &dir, &Order::Network(order))?)
    }

    /// Returns the directory of a running sandbox with an egress proxy.
    fn filtered(&self, name: &Name) -> Result<PathBuf, Fault> {
        let dir = self.layout().sandbox(name.as_str());
        match SandboxDir::find(self.layout(), name)? {
            SandboxDirState::Absent => return Err(fault::not_found(name)),
            SandboxDirState::Free(_) => return Err(not_running(name, &dir)),
            SandboxDirState::Held => {}
        }
        match read_spec(&dir)?.jail.net {
            Net::Egress => Ok(dir),
            Net::None | Net::Host => Err(no_filtered_network()),
        }
    }
}

/// Takes news until there are none left, at most [`MAX_NEWS_PAGES`] pages.
fn take_pages(mut ask: impl FnMut() -> Result<TrafficNews, Fault>) -> Result<TrafficNews, Fault> {
    let mut news = ask()?;
    for _ in 1..MAX_NEWS_PAGES {
        if !news.has_more {
            break;
        }
        // The pages before are kept: the supervisor returns each page only once.
        let Ok(page) = ask() else {
            break;
        };
        news.add(page);
    }
    Ok(news)
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_egress::{DecisionSum, EgressVerdict};
    use glovebox_proto::Code;

    /// Returns the page of this number, from 1 on.
    fn page(number: usize, has_more: bool) -> TrafficNews {
        TrafficNews {
            sent_bytes: 1,
            allowed: 2,
            refused: [("unlisted".to_owned(), 3)].into(),
            open_connections: number as u64,
            decisions: vec![DecisionSum {
                host: Some(format!("n{number}.test")),
                port: Some(443),
                rule: None,
                verdict: EgressVerdict::Allowed,
                count: 1,
                first_unix_ms: 0,
                last_unix_ms: 0,
            }],
            has_more,
            ..TrafficNews::default()
        }
    }

    fn taken(last: usize, fails_at: usize) -> (Result<TrafficNews, Fault>, usize) {
        let mut asked = 0;
        let news = take_pages(|| {
            asked += 1;
            if asked == fails_at {
                return Err(Fault::lost(Code::LinkLost, "the supervisor has ended"));
            }
            Ok(page(asked, asked < last))
        });
        (news, asked)
    }

    #[test]
    fn pages_of_news_are_taken_to_the_last_one_and_added_up() {
        let (news, asked) = taken(3, usize::MAX);
        let news = news.unwrap();
        assert_eq!((asked, news.decisions.len(), news.has_more), (3, 3, false));
        assert_eq!(
            (news.sent_bytes, news.allowed, news.open_connections),
            (3, 6, 3)
        );
        assert_eq!(news.refused, [("unlisted".to_owned(), 9)].into());
    }

    #[test]
    fn news_without_end_are_taken_up_to_a_bound_and_the_rest_is_said_to_be_there() {
        let (news, asked) = taken(usize::MAX, usize::MAX);
        let news = news.unwrap();
        assert_eq!(
            (asked, news.decisions.len()),
            (MAX_NEWS_PAGES, MAX_NEWS_PAGES)
        );
        assert!(news.has_more);
        let (news, asked) = taken(MAX_NEWS_PAGES, usize::MAX);
        assert_eq!((asked, news.unwrap().has_more), (MAX_NEWS_PAGES, false));
    }

    #[test]
    fn news_that_have_come_are_kept_when_the_next_page_cannot_be_had() {
        let (news, asked) = taken(usize::MAX, 4);
        let news = news.unwrap();
        assert_eq!((asked, news.decisions.len(), news.has_more), (4, 3, true));
        assert_eq!(taken(usize::MAX, 1).0.unwrap_err().code, Code::LinkLost);
    }
}
