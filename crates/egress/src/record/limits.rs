//! Limits on what a sandbox carries, and changes of them while it runs.

use serde::{Deserialize, Serialize};

/// How much a sandbox may carry; `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficLimits {
    /// Bytes, both ways together.
    pub bytes: Option<u64>,
    /// Connections at once.
    pub connections: Option<u32>,
    /// Bytes per second, both ways together and over all connections.
    pub bytes_per_second: Option<u64>,
}

/// What becomes of one limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitChange<T> {
    /// It stays.
    #[default]
    Keep,
    /// There is none from now on.
    Remove,
    /// It is this from now on.
    Set(T),
}

/// What becomes of the limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficLimitChanges {
    /// Of [`TrafficLimits::bytes`], what was carried before included.
    pub bytes: LimitChange<u64>,
    /// Of [`TrafficLimits::connections`]; those that are open stay so.
    pub connections: LimitChange<u32>,
    /// Of [`TrafficLimits::bytes_per_second`].
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
