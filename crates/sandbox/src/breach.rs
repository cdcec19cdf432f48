//! Why a sandbox was ended by one of its limits.

use glovebox_proto::{Code, Fault, Limit, Remedy};

/// A limit that has ended a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitBreach {
    /// A clause that follows "because".
    pub reason: String,
    /// What to do about it, where something can be done.
    pub remedy: Option<Remedy>,
}

impl LimitBreach {
    /// The sandbox has passed a limit. `reason` follows "because".
    pub(crate) fn of(limit: Limit, reason: String) -> Self {
        Self {
            reason,
            remedy: Some(Remedy::RaiseLimit(limit)),
        }
    }

    /// It cannot be told whether the sandbox keeps within a limit. `why` follows "because".
    pub(crate) fn unseen(limit: Limit, why: &str) -> Self {
        let remedy = [
            "run glovebox as root, which sees everything, or lift the limit with ".into(),
            limit.setting().of("none"),
        ];
        Self {
            reason: format!(
                "its {} limit cannot be checked, because {why}",
                limit.word()
            ),
            remedy: Some(remedy.into()),
        }
    }

    /// The sandbox has passed a limit that nobody can raise. `reason` follows "because".
    pub(crate) const fn fixed(reason: String) -> Self {
        Self {
            reason,
            remedy: None,
        }
    }

    /// Its time is over.
    pub(crate) fn wall_clock(wall_ms: u64) -> Self {
        let seconds = wall_ms as f64 / 1000.0;
        Self::fixed(format!("its wall-clock limit of {seconds} s passed"))
    }

    /// Nobody has used it for the time of its lease.
    pub(crate) fn lease() -> Self {
        Self::fixed("its lease passed".to_owned())
    }

    /// The failure of whatever still waits for an answer of the sandbox.
    pub(crate) fn into_fault(self) -> Fault {
        let mut fault = Fault::lost(
            Code::LinkLost,
            format!("the sandbox was ended because {}", self.reason),
        );
        fault.remedy = self.remedy;
        fault
    }
}
