//! End of sandboxes: killed from another process, swept after their owner died, or parked for a
//! day.

pub(crate) mod parking;
pub(crate) mod sweep;
pub(crate) mod termination;
