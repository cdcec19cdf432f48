//! How far a run may go, and the words that name what to raise.

use crate::Usage;
use std::time::Duration;

/// How far one run may go. What an earlier process of the same session used is counted, except time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Times the model is asked.
    pub max_turns: Option<u32>,
    /// Wall time.
    pub max_time: Option<Duration>,
    /// Tokens sent and received.
    pub max_tokens: Option<u64>,
    /// US dollars; needs a price.
    pub max_cost_usd: Option<f64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_turns: Some(100),
            max_time: Some(Duration::from_hours(1)),
            max_tokens: Some(5_000_000),
            max_cost_usd: None,
        }
    }
}

impl Limits {
    /// The sentence about the limit that is reached, if one is.
    pub(crate) fn reached(
        &self,
        turns: u32,
        usage: Usage,
        cost_usd: f64,
        elapsed: Duration,
    ) -> Option<String> {
        let said = |what: String, flag: &str| {
            Some(format!(
                "{what}; raise the limit with --{flag}, or in glovebox.toml with agent.{}",
                flag.replace('-', "_")
            ))
        };
        if let Some(max) = self.max_turns
            && turns >= max
        {
            return said(format!("the model was asked {max} times"), "max-turns");
        }
        if let Some(max) = self.max_time
            && elapsed >= max
        {
            return said(format!("{} s have passed", max.as_secs()), "max-time");
        }
        if let Some(max) = self.max_tokens
            && usage.total() >= max
        {
            return said(format!("{} tokens were used", usage.total()), "max-tokens");
        }
        if let Some(max) = self.max_cost_usd
            && cost_usd >= max
        {
            return said(format!("{cost_usd:.2} dollars were spent"), "max-cost");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_names_its_flag() {
        let usage = Usage {
            input: 900,
            output: 100,
            ..Usage::default()
        };
        let limits = Limits {
            max_turns: Some(3),
            max_time: Some(Duration::from_secs(5)),
            max_tokens: Some(1000),
            max_cost_usd: Some(1.0),
        };
        let none = Usage::default();
        let reached = |turns, usage, cost, secs| {
            limits.reached(turns, usage, cost, Duration::from_secs(secs))
        };
        assert_eq!(reached(2, none, 0.5, 4), None);
        assert!(reached(3, none, 0.0, 0).unwrap().contains("--max-turns"));
        assert!(reached(0, none, 0.0, 5).unwrap().contains("agent.max_time"));
        assert!(reached(0, usage, 0.0, 0).unwrap().contains("--max-tokens"));
        assert!(reached(0, none, 1.0, 0).unwrap().contains("--max-cost"));
    }
}
