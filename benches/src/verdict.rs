//! Whether one promise or goal has been seen to hold.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Two runs of one bench on one machine differ by as much; `--check` fails only above it.
pub(crate) const NOISE: f64 = 0.05;

/// Whether a number has held yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Standing {
    /// It has held in a published measurement, and is to stay so.
    Promise,
    /// It has not held yet.
    Goal,
}

/// What a run found for one promise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// The bench that measures it.
    pub(crate) bench: String,
    /// What is measured.
    pub(crate) what: String,
    /// The bound in words.
    pub(crate) bound: String,
    /// Whether it has held yet.
    pub(crate) standing: Standing,
    /// What was found. `None` when it was not measured in this run.
    pub(crate) found: Option<f64>,
    /// What is allowed. `None` when the rival was not measured.
    pub(crate) allowed: Option<f64>,
    /// Unit of both.
    pub(crate) unit: String,
}

impl Verdict {
    /// Found divided by allowed: up to 1 holds.
    pub(crate) fn ratio(&self) -> Option<f64> {
        Some(self.found? / self.allowed?)
    }

    /// Whether it is a promise that this run has seen broken, by more than noise.
    pub(crate) fn is_broken(&self) -> bool {
        self.standing == Standing::Promise && self.ratio().is_some_and(|ratio| ratio > 1.0 + NOISE)
    }

    /// What the run says about it, in one word.
    pub(crate) fn word(&self) -> &'static str {
        match (self.ratio(), self.standing) {
            (None, _) => "unknown",
            (Some(ratio), _) if ratio <= 1.0 => "holds",
            (Some(_), Standing::Goal) => "goal",
            (Some(_), Standing::Promise) if self.is_broken() => "BROKEN",
            (Some(_), Standing::Promise) => "noise",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word();
        let ratio = self
            .ratio()
            .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let Self {
            bench, what, bound, ..
        } = self;
        write!(f, "{word:<8} {ratio:>6}  {bench}: {what}, {bound}")?;
        match (self.found, self.allowed) {
            (Some(found), Some(allowed)) => {
                let unit = &self.unit;
                write!(f, ": {found:.1} {unit}, allowed {allowed:.1}")
            }
            _ => f.write_str(": not measured in this run"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(standing: Standing, found: Option<f64>) -> Verdict {
        Verdict {
            bench: "start".to_owned(),
            what: "x".to_owned(),
            bound: "p50 <= 100 us".to_owned(),
            standing,
            found,
            allowed: Some(100.0),
            unit: "us".to_owned(),
        }
    }

    #[test]
    fn only_a_promise_above_noise_is_broken() {
        assert!(verdict(Standing::Promise, Some(106.0)).is_broken());
        assert!(!verdict(Standing::Promise, Some(104.0)).is_broken());
        assert!(!verdict(Standing::Goal, Some(300.0)).is_broken());
        assert!(!verdict(Standing::Promise, None).is_broken());
    }

    #[test]
    fn a_verdict_says_what_it_compares() {
        let shown = |verdict: Verdict| verdict.to_string();
        assert_eq!(
            shown(verdict(Standing::Promise, Some(150.0))),
            "BROKEN     1.50  start: x, p50 <= 100 us: 150.0 us, allowed 100.0"
        );
        assert_eq!(
            shown(verdict(Standing::Goal, Some(150.0))),
            "goal       1.50  start: x, p50 <= 100 us: 150.0 us, allowed 100.0"
        );
        assert_eq!(
            shown(verdict(Standing::Promise, None)),
            "unknown       -  start: x, p50 <= 100 us: not measured in this run"
        );
    }
}
