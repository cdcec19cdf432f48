//! How sandboxes end and what becomes of them: killed from outside, swept after their owner died, parked for a day.

pub(crate) mod parking;
pub(crate) mod sweep;
pub(crate) mod termination;
