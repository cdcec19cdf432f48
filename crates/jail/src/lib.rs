//! Linux isolation: the requested sandbox ([`glovebox_spec`]), facts about the machine ([`facts`]),
//! an ordered plan that can be printed before it is carried out ([`plan`]), and its application
//! ([`stage0`]).
//!
//! This crate knows neither the wire protocol nor the registry. The only `unsafe` code of the whole
//! project is below `sys`, each block with the invariant that makes it sound.

pub mod bounds;
mod byte_path;
pub mod cgroup;
mod channel;
pub mod compute;
pub mod confine;
pub mod counters;
pub mod etc;
pub mod exchange;
mod explain;
pub mod facts;
mod identity;
pub mod inherited;
pub mod landlock;
pub mod launch;
pub mod mask;
pub mod memory_program;
mod mount;
mod mount_path;
pub mod plan;
pub mod private_memory;
pub mod probe;
pub mod process;
pub mod processors;
pub mod program;
pub mod project_quota;
pub mod refresh;
pub mod seccomp;
pub mod seed;
pub mod skeleton;
pub mod stage0;
mod sys;
mod system_data;
pub mod tracing;
pub mod usage;
