//! Tests that take turns: a run omits half of the tests that would be repeated in nearly the same
//! way.
//!
//! This applies only in CI. The commit determines the turn of a run, so a run can be repeated, and
//! a few landings cover all tests. Tests of the user that runs them, and attempts to escape, are
//! never omitted.

use crate::step::{is_ci, output, root, say};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::process::Command;

/// Variable with the number of the turn, to repeat a run on another commit.
const TURN: &str = "GLOVEBOX_TEST_TURN";
/// Suites that an ordinary user runs completely at every turn.
const ALWAYS_WHOLE: [&str; 1] = ["escape"];
/// Emulated machines, by a part of the test's name. One starts at each turn.
const MACHINES: [&str; 2] = ["root_on_a_stock_kernel", "ordinary_users_on_a_stock_kernel"];

/// Turn of a run. Without a number it runs everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Turn(Option<u64>);

impl Turn {
    /// Returns the turn of the variable, or in CI that of the commit.
    pub(super) fn choose() -> Self {
        let said = std::env::var(TURN).ok();
        let said = said.and_then(|said| said.parse().ok());
        let turn = said.or_else(|| is_ci().then(commit_number).flatten());
        if let Some(turn) = turn {
            say(&format!(
                "Turn {turn}: half of what an ordinary user repeats, and one emulated machine. \
                 {TURN}={turn} repeats it, without CI or with --whole all of it runs."
            ));
        }
        Self(turn)
    }

    /// Returns arguments that skip the machines of other turns.
    pub(super) fn machine_args(self) -> Vec<String> {
        let Some(turn) = self.0 else {
            return Vec::new();
        };
        let count = MACHINES.len() as u64;
        let others = (0..count).zip(MACHINES);
        others
            .filter(|(number, _)| *number != turn % count)
            .flat_map(|(_, machine)| ["--skip".to_owned(), machine.to_owned()])
            .collect()
    }

    /// Returns true if an ordinary user runs a test at this turn.
    fn has(self, suite: &str, test: &str) -> bool {
        let Some(turn) = self.0 else {
            return true;
        };
        let mut hasher = DefaultHasher::new();
        (turn, suite, test).hash(&mut hasher);
        ALWAYS_WHOLE.contains(&suite) || hasher.finish().is_multiple_of(2)
    }

    /// Returns arguments that select the tests that an ordinary user runs at this turn. `list` is
    /// the suite's list of tests.
    pub(super) fn test_args(self, suite: &str, list: &str) -> Vec<String> {
        if self.0.is_none() || ALWAYS_WHOLE.contains(&suite) {
            return Vec::new();
        }
        let tests = list.lines().filter_map(|line| line.strip_suffix(": test"));
        let chosen = tests.filter(|test| self.has(suite, test));
        let mut args: Vec<String> = chosen.map(str::to_owned).collect();
        args.push("--exact".to_owned());
        args
    }
}

/// Reads the first digits of the commit as a number. `None` outside a repository.
fn commit_number() -> Option<u64> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--short=8", "HEAD"])
        .current_dir(root());
    u64::from_str_radix(output(&mut git).ok()?.trim().get(..8)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(count: usize) -> String {
        let lines = (0..count).map(|test| format!("a::{test}: test\n"));
        lines.collect::<Vec<String>>().concat()
    }

    #[test]
    fn turns_cover_every_test_and_each_runs_about_half() {
        let list = list(200);
        let mut seen = std::collections::BTreeSet::new();
        for turn in 0..16 {
            let chosen = Turn(Some(turn)).test_args("conformance", &list);
            assert!(
                (60..140).contains(&chosen.len()),
                "{turn}: {}",
                chosen.len()
            );
            seen.extend(chosen);
        }
        assert_eq!(seen.len(), 201, "all tests and `--exact`");
    }

    #[test]
    fn attempts_to_break_out_and_whole_runs_leave_nothing_out() {
        let list = list(4);
        assert!(Turn(Some(7)).test_args("escape", &list).is_empty());
        assert!(Turn(None).test_args("conformance", &list).is_empty());
        assert!(Turn(None).machine_args().is_empty());
    }

    #[test]
    fn turns_that_follow_each_other_start_other_machines() {
        let of = |turn| Turn(Some(turn)).machine_args();
        assert_ne!(of(1), of(2));
        assert_eq!(of(1), of(3));
        assert_eq!(of(1).len(), 2);
    }
}
