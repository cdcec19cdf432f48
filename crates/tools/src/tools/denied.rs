//! Which walls of the sandbox a failed command met, told to the model and to programs.
//!
//! The model can lift none of them, so what would is worded as the user's to do.

use crate::Outcome;
use crate::call::Call;
use glovebox_proto::{Denial, ExitReport};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Adds a line for each wall to the text of a command that failed, and the records to its facts.
pub(super) fn tell(call: &Call<'_>, report: &ExitReport, outcome: &mut Outcome) {
    let denials = call.sandbox().denials(report);
    if denials.is_empty() {
        return;
    }
    for denial in &denials {
        let _ = write!(outcome.text, "\n[{}]", line(denial));
    }
    let records: Vec<Value> = denials
        .iter()
        .map(|denial| json!({ "kind": denial.kind(), "what": denial.what(), "remedy": denial.remedy().to_string() }))
        .collect();
    outcome.facts.insert("denials".to_owned(), records.into());
}

fn line(denial: &Denial) -> String {
    let (what, remedy) = (denial.what(), denial.remedy());
    if matches!(denial, Denial::ReadOnly { mount, .. } if mount != "/workspace") {
        return format!("{what}; {remedy}");
    }
    format!("{what}; only the user can change that: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_model_cannot_do_is_the_users_to_do() {
        let denial = Denial::Connection {
            attempts: 1,
            is_shared: false,
        };
        assert_eq!(
            line(&denial),
            "the command tried to reach an address outside, and this sandbox has no network; only the user can \
             change that: `net = \"host\"` gives it the network of this machine"
        );
        let denial = Denial::ReadOnly {
            path: "/usr/x".to_owned(),
            mount: "/usr".to_owned(),
        };
        assert!(!line(&denial).contains("user"), "{}", line(&denial));
    }
}
