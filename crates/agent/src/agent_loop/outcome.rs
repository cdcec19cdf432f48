//! How a run ends: the word for it, and the loop's way out.

use crate::{Ending, StopReason};
use glovebox_proto::{Fault, Remedy};

/// How a run ended, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// How.
    pub ending: Ending,
    /// The model's last words when it is done; otherwise why it ended.
    pub message: String,
    /// What went wrong, when something did.
    pub fault: Option<Fault>,
    /// What to do about it, when nothing went wrong and it ended all the same.
    pub remedy: Option<Remedy>,
}

/// Why the loop leaves before the model is done.
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

    /// A limit of the run was reached.
    pub(super) fn at_limit(message: String, remedy: Remedy) -> Self {
        let Self(verdict) = Self::because(Ending::StoppedByLimit, message);
        Self(RunOutcome {
            remedy: Some(remedy),
            ..verdict
        })
    }
}

/// An answer without calls: done, unless the provider cut it.
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
