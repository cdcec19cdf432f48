//! What commands may have of namespaces of their own (`--nested`).

use super::PlanError;
use crate::bounds::NESTED_NAMESPACES;
use crate::facts::HostFacts;
use glovebox_spec::{Isolation, ProcMode};
use serde::{Deserialize, Serialize};

/// Namespaces that commands make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NestedNamespaces {
    /// Most of each kind.
    pub namespaces: u64,
    /// Most of control groups.
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
            // In one of them control groups can be mounted, and file permissions decide who writes there.
            cgroup_namespaces: if facts.has_writable_groups {
                0
            } else {
                NESTED_NAMESPACES
            },
        }))
    }
}
