//! Records of a proxy: the log of decisions, traffic for each host, limits on it, and the reports
//! for accounts that are kept elsewhere.

pub(crate) mod accounts;
pub(crate) mod control;
pub(crate) mod ledger;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod meter;
pub(crate) mod traffic;
