//! Reports of isolation boundaries that a command met, for the model and for programs.
//!
//! The model can change none of them, so remedies are worded as the user's to apply. For a refused
//! host, the user is asked if the session has a channel for that.

use crate::ToolOutcome;
use crate::call::Call;
use crate::policy::HostAnswer;
use glovebox_proto::{Denial, Exit, ExitReport};
use glovebox_sandbox::limit_in_words;
use glovebox_spec::{LimitKind, Limits};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Appends a line for each denial to the outcome of a command, and adds records to its facts.
/// Blocks while the user is asked about a host. No question is put after a successful command,
/// which may not need the host.
pub(super) fn tell(call: &Call<'_>, report: &ExitReport, outcome: &mut ToolOutcome) {
    let has_failed = report.exit != Exit::Code(0) || report.timed_out;
    let denials = call.sandbox().denials(report);
    if denials.is_empty() {
        return;
    }
    let names_limit = denials.iter().any(|denial| limit_of(denial).is_some());
    let limits = names_limit.then(|| call.sandbox().limits()).flatten();
    let mut records: Vec<Value> = Vec::new();
    for denial in &denials {
        let hosts = call.session.hosts();
        let hosts = hosts.filter(|_| has_failed && !call.is_given_up());
        let answer = hosts.and_then(|hosts| hosts.settle(call.sandbox(), denial));
        let told = line(denial, answer.as_ref(), limits.as_ref());
        let _ = write!(outcome.text, "\n[{told}]");
        let mut record = json!({ "kind": denial.kind(), "what": what(denial, limits.as_ref()), "remedy": denial.remedy().to_string() });
        if let Some(answer) = &answer {
            record["answer"] = word(answer).into();
        }
        records.push(record);
    }
    outcome.facts.insert("denials".to_owned(), records.into());
}

/// Returns the word for programs.
const fn word(answer: &HostAnswer) -> &'static str {
    match answer {
        HostAnswer::Opened => "opened",
        HostAnswer::Closed => "closed",
        HostAnswer::AdministratorOnly => "administrator_only",
        HostAnswer::Failed(_) => "failed",
    }
}

/// Returns the kind of limit that was reached. `None` if the denial is not about a limit with a
/// value.
const fn limit_of(denial: &Denial) -> Option<LimitKind> {
    match denial {
        Denial::Memory => Some(LimitKind::Memory),
        Denial::Processes => Some(LimitKind::Pids),
        Denial::Disk => Some(LimitKind::Disk),
        _ => None,
    }
}

/// Describes the denial, with the value of the limit if it is known.
fn what(denial: &Denial, limits: Option<&Limits>) -> String {
    let value = |kind: LimitKind| Some((kind, kind.value(limits?)?));
    let Some((kind, value)) = limit_of(denial).and_then(value) else {
        return denial.what();
    };
    let value = limit_in_words(kind, value);
    match denial {
        Denial::Processes => format!("the limit of {value} processes and threads was reached"),
        Denial::Disk => format!("the disk limit of {value} was reached"),
        _ => format!("the memory limit of {value} was reached"),
    }
}

/// Describes the denial and its remedy, or the user's answer, in one line for the model.
fn line(denial: &Denial, answer: Option<&HostAnswer>, limits: Option<&Limits>) -> String {
    let (what, remedy) = (what(denial, limits), denial.remedy());
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
    fn limit_that_was_reached_is_told_with_its_value() {
        let limits = Limits {
            memory_bytes: Some(256 << 20),
            disk_bytes: Some(1000),
            pids: Some(64),
            ..Limits::default()
        };
        for (denial, told) in [
            (Denial::Memory, "the memory limit of 256 MiB was reached"),
            (Denial::Disk, "the disk limit of 1000 bytes was reached"),
            (
                Denial::Processes,
                "the limit of 64 processes and threads was reached",
            ),
        ] {
            let line = line(&denial, None, Some(&limits));
            assert!(
                line.starts_with(&format!("{told}; only the user")),
                "{line}"
            );
        }
        let line = line(&Denial::Disk, None, None);
        assert!(line.starts_with("the disk limit was reached;"), "{line}");
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
