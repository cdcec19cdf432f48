//! What callers learn about the network of a running sandbox that reaches listed hosts only, and how they open more.

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

/// Most pages of news that are taken at once: more than there are of what a supervisor keeps at a time, which is about 100
/// decisions for each of four kinds of verdict. A program that asks for hosts as fast as they are told holds up nobody.
const MAX_NEWS_PAGES: usize = 32;

impl Registry {
    /// Decisions about connections and look-ups that came after the one with this number, oldest first; 0 stands
    /// before all. Older ones than the latest 2000 are forgotten.
    ///
    /// # Errors
    /// `unsupported` for a sandbox with another network; `sandbox-not-running`; `sandbox-not-found`.
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

    /// Decisions that were made and connections that ended after this change, in that order; 0 stands before all. While
    /// there are none this waits, at most so long and never longer than ten seconds.
    ///
    /// # Errors
    /// As [`Self::network_log`]; `link-lost` when the sandbox ends meanwhile.
    pub fn network_changes(
        &self,
        name: &Name,
        after: u64,
        wait: Duration,
    ) -> Result<Vec<LogEntry>, Fault> {
        let wait_ms = wait.as_millis() as u64;
        self.ask_network(name, NetworkOrder::LogChanges { after, wait_ms })
    }

    /// The rules in force.
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

    /// What was carried to and from listed hosts; `None` for a sandbox with another network, for one that is not
    /// running, and for one that belongs to a command.
    ///
    /// # Errors
    /// `sandbox-not-found`; whatever keeps its supervisor from answering.
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

    /// What was decided and carried since this was asked for last, for one who keeps accounts of it: the news are told
    /// once. `is_last` says that nobody asks again. What came before the supervisor
    /// answered no more is given back, with `has_more`.
    ///
    /// # Errors
    /// As [`Self::network_log`].
    pub fn take_network_news(&self, name: &Name, is_last: bool) -> Result<TrafficNews, Fault> {
        take_pages(|| self.ask_network(name, NetworkOrder::News { is_last }))
    }

    /// Opens hosts (rules and names of presets) of a running sandbox, for so long or as long as it runs. Gives back
    /// the rules in force that came of it.
    ///
    /// # Errors
    /// `invalid-argument` for what is no rule or cannot be opened while a sandbox runs; otherwise as
    /// [`Self::network_log`].
    pub fn allow_hosts(
        &self,
        name: &Name,
        words: &[String],
        lifetime: Option<Duration>,
    ) -> Result<Vec<RuleInForce>, Fault> {
        self.ask_network(name, NetworkOrder::allow(words, lifetime)?)
    }

    /// Changes limits of a running sandbox, until it stops. Gives back what it has carried, with the limits there are
    /// then.
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

    /// Says what becomes of a connection to a host, and makes one from this machine if it is allowed.
    ///
    /// # Errors
    /// As [`Self::network_log`].
    pub fn probe_host(&self, name: &Name, host: &Host, port: u16) -> Result<Probe, Fault> {
        let host = host.to_string();
        self.ask_network(name, NetworkOrder::Probe { host, port })
    }

    /// The ports that commands of `sandbox`, which has this name, listen on: without those at which its way out to
    /// listed hosts is.
    ///
    /// # Errors
    /// `link-lost` for a sandbox that has ended.
    pub fn ports_of_commands(
        &self,
        name: &Name,
        sandbox: &Sandbox,
    ) -> Result<Vec<ListeningPort>, Fault> {
        let mut ports = sandbox.ports()?;
        // A sandbox with another network has no rules.
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

    /// The directory of a running sandbox that reaches listed hosts only.
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

/// News from as many pages as there are, up to [`MAX_NEWS_PAGES`].
fn take_pages(mut ask: impl FnMut() -> Result<TrafficNews, Fault>) -> Result<TrafficNews, Fault> {
    let mut news = ask()?;
    for _ in 1..MAX_NEWS_PAGES {
        if !news.has_more {
            break;
        }
        // What has come is told to nobody else: it is kept when the rest cannot be had.
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

    /// The page with this number, from 1 on.
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
