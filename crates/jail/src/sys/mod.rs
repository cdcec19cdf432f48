//! System calls that no other crate wraps safely. Each file here opts in to `unsafe` and states for
//! each block why it is sound. All functions that the module exports are safe to call.

pub(crate) mod append;
pub(crate) mod clone;
pub(crate) mod filter_trial;
pub(crate) mod holder;
pub(crate) mod ids;
pub(crate) mod inherited;
pub(crate) mod landlock;
pub(crate) mod landlock_trial;
pub(crate) mod memory_lock;
pub(crate) mod mount_attr;
pub(crate) mod notify;
pub(crate) mod once;
pub(crate) mod quota;
pub(crate) mod schedule;
pub(crate) mod seccomp;
pub(crate) mod socket_option;
pub(crate) mod starter;
pub(crate) mod unshare;
pub(crate) mod warden;
