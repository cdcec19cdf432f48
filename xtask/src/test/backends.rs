//! Backends that start on this machine, as the tested program reports them, and the suites that
//! need one of them.

use super::program::Program;
use crate::step::say;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Suites that start native sandboxes and cannot run without them.
const NATIVE_SUITES: [&str; 10] = [
    "agent",
    "conformance",
    "escape",
    "faults",
    "flow",
    "fuzzing",
    "lies",
    "mcp",
    "registry",
    "serve",
];
/// Suite and name prefix of tests that need only the confined backend.
const CONFINED_TESTS: (&str, &str) = ("flow", "confined::");

/// Backends that start on this machine.
#[derive(Debug)]
pub(super) struct StartableBackends {
    /// Reason why native sandboxes do not start. `None` if they do.
    native_refusal: Option<String>,
    has_confined: bool,
}

/// Part of a suite that can run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Runnable {
    /// Entire suite.
    Whole,
    /// Tests whose names have this prefix. The others are skipped, for this reason.
    Only(&'static str, String),
    /// No tests, for this reason.
    Nothing(String),
}

impl StartableBackends {
    /// Asks the program which backends start, and prints the result.
    pub(super) fn ask(binary: &Path) -> Result<Self> {
        let output = Command::new(binary)
            .args(["doctor", "--json"])
            .output()
            .with_context(|| format!("cannot run {}", binary.display()))?;
        let told: Value = serde_json::from_slice(&output.stdout)
            .context("`glovebox doctor --json` did not answer in JSON")?;
        let found = Self::read(&told);
        let native = match &found.native_refusal {
            None => "native works".to_owned(),
            Some(why) => format!("native does not work ({why})"),
        };
        let confined = if found.has_confined {
            "confined works"
        } else {
            "confined does not work"
        };
        say(&format!("sandboxes here: {native}; {confined}"));
        Ok(found)
    }

    fn read(told: &Value) -> Self {
        let backends = told.pointer("/data/backends").or(told.get("backends"));
        let backend = |name: &str| backends?.as_array()?.iter().find(|one| one["name"] == name);
        let works = |name: &str| backend(name).is_some_and(|one| one["works"] == true);
        let why = || backend("native").and_then(|one| one["why"].as_str());
        Self {
            native_refusal: (!works("native")).then(|| why().unwrap_or("unknown").to_owned()),
            has_confined: works("confined"),
        }
    }

    /// Returns true if native sandboxes start.
    pub(super) const fn has_native(&self) -> bool {
        self.native_refusal.is_none()
    }

    /// Returns the part of a program's tests that can run here.
    pub(super) fn runnable(&self, program: &Program) -> Runnable {
        match &self.native_refusal {
            Some(why) if program.is_suite => self.part_of_suite(&program.name, why),
            _ => Runnable::Whole,
        }
    }

    fn part_of_suite(&self, name: &str, why: &str) -> Runnable {
        let (suite, tests) = CONFINED_TESTS;
        if !NATIVE_SUITES.contains(&name) {
            Runnable::Whole
        } else if self.has_confined && name == suite {
            Runnable::Only(tests, why.to_owned())
        } else {
            Runnable::Nothing(why.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn suites_are_left_out_where_native_sandboxes_are_refused() {
        let told = |native: bool, confined: bool| {
            StartableBackends::read(&json!({"data": {"backends": [
                {"name": "native", "works": native, "why": "refused"},
                {"name": "confined", "works": confined},
            ]}}))
        };
        let here = told(true, true);
        assert_eq!(here.native_refusal, None);
        let container = told(false, true);
        let part = |suite| container.part_of_suite(suite, "refused");
        assert_eq!(part("architecture"), Runnable::Whole);
        assert_eq!(part("escape"), Runnable::Nothing("refused".to_owned()));
        assert_eq!(
            part("flow"),
            Runnable::Only("confined::", "refused".to_owned())
        );
        let neither = told(false, false).part_of_suite("flow", "refused");
        assert_eq!(neither, Runnable::Nothing("refused".to_owned()));
    }
}
