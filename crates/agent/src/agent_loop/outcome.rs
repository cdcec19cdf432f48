//! Outcome of a run, and the error type with which the loop ends early.

use crate::{Ending, StopReason};
use glovebox_proto::{Fault, Remedy};

/// Outcome of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// Kind of ending.
    pub ending: Ending,
    /// Last text of the model if the run is completed; otherwise the reason for the ending.
    pub message: String,
    /// Failure that ended the run; `None` if it ended without one.
    pub fault: Option<Fault>,
    /// Hint for the user if the run ended early without a failure, such as the limit to raise.
    pub remedy: Option<Remedy>,
}

/// Error with which the loop ends before the model is done.
pub(super) struct EarlyEnd(pub(super) RunOutcome);

impl From<Fault> for EarlyEnd {
    fn from(fault: Fault) -> Self {
        Self(RunOutcome {
            ending: Ending::Failed,
            message: fault.message.clone(),
            fault: Some(fault),
            remedy: None,
        })
    }
}

impl EarlyEnd {
    pub(super) fn because(ending: Ending, message: impl Into<String>) -> Self {
        Self(RunOutcome {
            ending,
            message: message.into(),
            fault: None,
            remedy: None,
        })
    }

    /// Ends the run because one of its limits was reached.
    pub(super) fn at_limit(message: String, remedy: Remedy) -> Self {
        let Self(verdict) = Self::because(Ending::StoppedByLimit, message);
        Self(RunOutcome {
            remedy: Some(remedy),
            ..verdict
        })
    }
}

/// Converts an answer without calls into an outcome.
///
/// # Errors
/// If the answer was cut at the output limit, filtered by the provider, or empty.
pub(super) fn finished(said: &str, stop: &StopReason) -> Result<RunOutcome, EarlyEnd> {
    match stop {
        StopReason::Length => Err(EarlyEnd::because(
            Ending::StoppedByLimit,
            "the model's answers were cut for their length, again and again",
        )),
        StopReason::Filtered => Err(EarlyEnd::because(
            Ending::Failed,
            "the provider did not let the model answer (its filter refused)",
        )),
        StopReason::Done | StopReason::Other(_) if said.trim().is_empty() => Err(
            EarlyEnd::because(Ending::Failed, "the model said nothing and called nothing"),
        ),
        StopReason::Done | StopReason::Other(_) => Ok(RunOutcome {
            ending: Ending::Completed,
            message: said.to_owned(),
            fault: None,
            remedy: None,
        }),
    }
}
