//! What passes a proxy and what is refused: the log, sums for each host, limits on them, and what of it was not yet told
//! to whoever keeps accounts.

pub(crate) mod accounts;
pub(crate) mod control;
pub(crate) mod ledger;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod meter;
pub(crate) mod traffic;
