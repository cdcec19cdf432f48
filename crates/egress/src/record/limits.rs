//! Limits on the traffic of a sandbox, and changes of them while it runs.

use serde::{Deserialize, Serialize};

/// Limits on the traffic of a sandbox. `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficLimits {
    /// Maximum number of bytes, sent and received together.
    pub bytes: Option<u64>,
    /// Maximum number of simultaneous connections.
    pub connections: Option<u32>,
    /// Maximum rate in bytes per second, sent and received together, over all connections.
    pub bytes_per_second: Option<u64>,
}

/// Change of one limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitChange<T> {
    /// The limit stays as it is.
    #[default]
    Keep,
    /// The limit is removed.
    Remove,
    /// The limit is set to this value.
    Set(T),
}

/// Changes of all limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficLimitChanges {
    /// Change of [`TrafficLimits::bytes`]. Earlier traffic counts against the new limit.
    pub bytes: LimitChange<u64>,
    /// Change of [`TrafficLimits::connections`]. Open connections are not closed.
    pub connections: LimitChange<u32>,
    /// Change of [`TrafficLimits::bytes_per_second`].
    pub bytes_per_second: LimitChange<u64>,
}

impl TrafficLimits {
    pub(crate) fn change(&mut self, changes: TrafficLimitChanges) {
        changes.bytes.apply(&mut self.bytes);
        changes.connections.apply(&mut self.connections);
        changes.bytes_per_second.apply(&mut self.bytes_per_second);
    }
}

impl<T> LimitChange<T> {
    fn apply(self, limit: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Remove => *limit = None,
            Self::Set(value) => *limit = Some(value),
        }
    }
}
