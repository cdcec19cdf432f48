//! Limits on namespaces that commands make (`--nested`).

use super::PlanError;
use crate::bounds::NESTED_NAMESPACES;
use crate::facts::HostFacts;
use glovebox_spec::{Isolation, ProcMode};
use serde::{Deserialize, Serialize};

/// Limits on namespaces that commands make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NestedNamespaces {
    /// Maximum number of namespaces of each kind except control groups.
    pub namespaces: u64,
    /// Maximum number of control-group namespaces.
    pub cgroup_namespaces: u64,
}

impl NestedNamespaces {
    pub(super) fn of(spec: &Isolation, facts: &HostFacts) -> Result<Option<Self>, PlanError> {
        if !spec.is_nested {
            return Ok(None);
        }
        if spec.proc != ProcMode::Masked {
            return Err(PlanError::NestedWithoutProc);
        }
        Ok(Some(Self {
            namespaces: NESTED_NAMESPACES,
            // A process in such a namespace can mount the control groups, where file permissions
            // alone decide who may write. So there is none if those would let commands write.
            cgroup_namespaces: if facts.has_writable_groups {
                0
            } else {
                NESTED_NAMESPACES
            },
        }))
    }
}
