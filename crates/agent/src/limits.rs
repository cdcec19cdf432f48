//! Limits of a run, and hints that name the setting to raise.

use crate::Spending;
use glovebox_proto::{Remedy, Setting};
use std::time::Duration;

/// Limits of one run. Turns, tokens and cost of earlier processes of the same session count; time
/// does not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunLimits {
    /// Maximum number of times the model is asked.
    pub max_turns: Option<u32>,
    /// Maximum wall-clock time.
    pub max_time: Option<Duration>,
    /// Maximum number of tokens, sent and received.
    pub max_tokens: Option<u64>,
    /// True if the user set the token limit: an answer without token counts then ends the run. The
    /// default limit applies to the counted tokens only.
    pub needs_token_counts: bool,
    /// Maximum cost in US dollars. Requires a known price.
    pub max_cost_usd: Option<f64>,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            max_turns: Some(100),
            max_time: Some(Duration::from_hours(1)),
            max_tokens: Some(5_000_000),
            needs_token_counts: false,
            max_cost_usd: None,
        }
    }
}

impl RunLimits {
    /// Returns the limit that is reached, as a sentence and a hint; `None` if none is.
    pub(crate) fn reached(
        &self,
        turns: u32,
        spent: Spending,
        elapsed: Duration,
    ) -> Option<(String, Remedy)> {
        let said = |what: String, setting: Setting| {
            let key = setting.name().replace('-', "_");
            let remedy = [
                "raise the limit with ".into(),
                setting.into(),
                format!(", or in glovebox.toml with agent.{key}").into(),
            ];
            Some((what, remedy.into()))
        };
        if let Some(max) = self.max_turns
            && turns >= max
        {
            return said(
                format!("the model was asked {max} times"),
                Setting::MaxTurns,
            );
        }
        if let Some(max) = self.max_time
            && elapsed >= max
        {
            return said(format!("{} s have passed", max.as_secs()), Setting::MaxTime);
        }
        if let Some(max) = self.max_tokens
            && spent.counted_tokens().total() >= max
        {
            let tokens = spent.counted_tokens().total();
            let least = if spent.uncounted_answers() > 0 {
                "at least "
            } else {
                ""
            };
            return said(
                format!("{least}{tokens} tokens were used"),
                Setting::MaxTokens,
            );
        }
        if let Some(max) = self.max_cost_usd
            && spent.known_cost_usd() >= max
        {
            let dollars = spent.known_cost_usd();
            return said(format!("${dollars:.4} were spent"), Setting::MaxCost);
        }
        None
    }

    /// Returns a limit that cannot be enforced because spending is unknown, and a hint; `None` if
    /// there is none.
    pub(crate) fn unheld(&self, spent: Spending) -> Option<(Setting, Remedy)> {
        if self.max_cost_usd.is_some() && spent.cost_usd().is_none() {
            let remedy = [
                "go on without ".into(),
                Setting::MaxCost.into(),
                ": the model's server does not say how many tokens an answer had, or an earlier part of the session \
                 had no price"
                    .into(),
            ];
            return Some((Setting::MaxCost, remedy.into()));
        }
        if self.max_tokens.is_some() && self.needs_token_counts && spent.uncounted_answers() > 0 {
            let remedy = [
                "go on without ".into(),
                Setting::MaxTokens.into(),
                ", and limit the run with ".into(),
                Setting::MaxTurns.into(),
                " or ".into(),
                Setting::MaxTime.into(),
                ": the model's server does not say how many tokens an answer had".into(),
            ];
            return Some((Setting::MaxTokens, remedy.into()));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Usage;

    const LIMITS: RunLimits = RunLimits {
        max_turns: Some(3),
        max_time: Some(Duration::from_secs(5)),
        max_tokens: Some(1000),
        needs_token_counts: true,
        max_cost_usd: Some(1.0),
    };

    fn spent(tokens: u64, cost_usd: f64) -> Spending {
        let mut spent = Spending::default();
        let usage = Usage {
            input: tokens,
            ..Usage::default()
        };
        spent.add(Some(usage), Some(cost_usd));
        spent
    }

    #[test]
    fn every_limit_names_its_setting() {
        let reached = |turns, spent, secs| {
            let (what, remedy) = LIMITS.reached(turns, spent, Duration::from_secs(secs))?;
            Some(format!("{what}: {remedy}"))
        };
        let none = Spending::default();
        assert_eq!(reached(2, spent(900, 0.5), 4), None);
        assert!(reached(3, none, 0).unwrap().contains("agent.max_turns"));
        assert!(reached(0, none, 5).unwrap().contains("agent.max_time"));
        let tokens = reached(0, spent(1000, 0.0), 0).unwrap();
        assert!(tokens.starts_with("1000 tokens") && tokens.contains("agent.max_tokens"));
        assert!(
            reached(0, spent(0, 1.0), 0)
                .unwrap()
                .contains("agent.max_cost")
        );
    }

    #[test]
    fn a_limit_of_what_nobody_counts_is_named() {
        let unheld = |limits: RunLimits, spent| limits.unheld(spent).map(|(setting, _)| setting);
        let mut unknown = spent(10, 0.1);
        assert_eq!(unheld(LIMITS, unknown), None);
        unknown.add(None, None);
        assert_eq!(unheld(LIMITS, unknown), Some(Setting::MaxCost));
        let tokens = RunLimits {
            max_cost_usd: None,
            ..LIMITS
        };
        assert_eq!(unheld(tokens, unknown), Some(Setting::MaxTokens));
        // The usual limit of tokens ends no run on a server that does not count.
        assert_eq!(unheld(RunLimits::default(), unknown), None);
    }
}
