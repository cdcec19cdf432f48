//! Which walls of the sandbox a command met, told to the model and to programs.
//!
//! The model can lift none of them, so what would is worded as the user's to do. About a refused host the user is asked,
//! where somebody is there.

use crate::ToolOutcome;
use crate::call::Call;
use crate::policy::HostAnswer;
use glovebox_proto::{Denial, Exit, ExitReport};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Adds a line for each wall to the text of a command, and the records to its facts. About a command that ended well
/// nobody is asked: it may have done without.
pub(super) fn tell(call: &Call<'_>, report: &ExitReport, outcome: &mut ToolOutcome) {
    let has_failed = report.exit != Exit::Code(0) || report.timed_out;
    let denials = call.sandbox().denials(report);
    if denials.is_empty() {
        return;
    }
    let memory = if denials.contains(&Denial::Memory) {
        call.sandbox().memory_limit()
    } else {
        None
    };
    let mut records: Vec<Value> = Vec::new();
    for denial in &denials {
        let hosts = call.session.hosts();
        let hosts = hosts.filter(|_| has_failed && !call.is_given_up());
        let answer = hosts.and_then(|hosts| hosts.settle(call.sandbox(), denial));
        let told = line(denial, answer.as_ref(), memory);
        let _ = write!(outcome.text, "\n[{told}]");
        let mut record = json!({ "kind": denial.kind(), "what": denial.what(), "remedy": denial.remedy().to_string() });
        if let Some(answer) = &answer {
            record["answer"] = word(answer).into();
        }
        records.push(record);
    }
    outcome.facts.insert("denials".to_owned(), records.into());
}

/// A word for programs.
const fn word(answer: &HostAnswer) -> &'static str {
    match answer {
        HostAnswer::Opened => "opened",
        HostAnswer::Closed => "closed",
        HostAnswer::AdministratorOnly => "administrator_only",
        HostAnswer::Failed(_) => "failed",
    }
}

/// One wall in words. `memory` is the memory limit in bytes.
fn line(denial: &Denial, answer: Option<&HostAnswer>, memory: Option<u64>) -> String {
    let (mut what, remedy) = (denial.what(), denial.remedy());
    if let (Denial::Memory, Some(bytes)) = (denial, memory) {
        // Limits are set in such steps, but for odd ones.
        let limit = if bytes.is_multiple_of(1 << 20) {
            format!("{} MiB", bytes >> 20)
        } else {
            format!("{bytes} bytes")
        };
        what = format!("the memory limit of {limit} was reached");
    }
    match answer {
        Some(HostAnswer::Opened) => {
            return format!("{what}; the user has opened it now: run the command again");
        }
        Some(HostAnswer::Closed) => {
            return format!("{what}; the user was asked and keeps it closed: do without it");
        }
        Some(HostAnswer::AdministratorOnly) => {
            return format!("{what}; the administrator opens hosts: do without it");
        }
        Some(HostAnswer::Failed(why)) => {
            return format!("{what}; the user wants it open, and that failed: {why}");
        }
        None => {}
    }
    let is_the_models = match denial {
        Denial::ReadOnly { mount, .. } => mount != "/workspace",
        Denial::PortTaken { .. } => true,
        _ => false,
    };
    if is_the_models {
        return format!("{what}; {remedy}");
    }
    format!("{what}; only the user can change that: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_limit_is_told_with_its_size() {
        for (bytes, limit) in [(256 << 20, "256 MiB"), (1000, "1000 bytes")] {
            let told = line(&Denial::Memory, None, Some(bytes));
            let begin = format!("the memory limit of {limit} was reached; only the user");
            assert!(told.starts_with(&begin), "{told}");
        }
    }

    #[test]
    fn what_the_model_cannot_do_is_the_users_to_do() {
        let denial = Denial::Connection {
            attempts: 1,
            rule: None,
            is_shared: false,
        };
        assert_eq!(
            line(&denial, None, None),
            "the command tried to reach an address outside, and this sandbox has no network; only the user can \
             change that: `net = \"egress\"` with `allow = \"ADDRESS:PORT\"` opens an address"
        );
        let denial = Denial::ReadOnly {
            path: "/usr/x".to_owned(),
            mount: "/usr".to_owned(),
        };
        assert!(
            !line(&denial, None, None).contains("user"),
            "{}",
            line(&denial, None, None)
        );
    }
}
