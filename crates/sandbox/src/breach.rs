//! Limits that were exceeded and for which a sandbox was ended.

use glovebox_proto::{Code, Fault, Limit, Remedy};

/// Limit for which a sandbox was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitBreach {
    /// Clause that follows "because".
    pub reason: String,
    /// Advice for the user. `None` if nothing can be done.
    pub remedy: Option<Remedy>,
}

impl LimitBreach {
    /// The sandbox exceeded a limit that the user can raise. `reason` follows "because".
    pub(crate) fn of(limit: Limit, reason: String) -> Self {
        Self {
            reason,
            remedy: Some(Remedy::RaiseLimit(limit)),
        }
    }

    /// Usage could not be compared with a limit. `why` follows "because".
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

    /// The sandbox exceeded a limit that cannot be raised. `reason` follows "because".
    pub(crate) const fn fixed(reason: String) -> Self {
        Self {
            reason,
            remedy: None,
        }
    }

    /// The wall-clock limit has passed.
    pub(crate) fn wall_clock(wall_ms: u64) -> Self {
        let seconds = wall_ms as f64 / 1000.0;
        Self::fixed(format!("its wall-clock limit of {seconds} s passed"))
    }

    /// No client was connected for the time of the lease.
    pub(crate) fn lease() -> Self {
        Self::fixed("its lease passed".to_owned())
    }

    /// Returns the fault of the requests that still wait for a reply of the sandbox.
    pub(crate) fn into_fault(self) -> Fault {
        let mut fault = Fault::lost(
            Code::LinkLost,
            format!("the sandbox was ended because {}", self.reason),
        );
        fault.remedy = self.remedy;
        fault
    }
}
