//! What passes a proxy and what is refused: the log, sums for each host, and limits on them.

pub(crate) mod accounts;
pub(crate) mod control;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod meter;
pub(crate) mod traffic;
