//! Host side of the isolation: sandbox handles, the link to a guest, backends and the registry.
//!
//! Inputs: a [`SandboxSpec`] and requests of [`glovebox_proto`]. Results: replies, streams,
//! reports, and [`Fault`](glovebox_proto::Fault)s in three classes (refused, failed, lost).
//!
//! A backend only starts the guest and gives one byte stream to it. Everything else is the same for
//! all backends, and everything that arrives over that stream is untrusted.
//!
//! A module uses only those named before it (a test checks that modules do not depend on each
//! other):
//!
//! ```text
//! fault, link_meter, report, spec, image   words and values
//! breach                         limit for which a sandbox was ended
//! link                           frames to a guest and back
//! process                        handles on processes: find, freeze and end them
//! state                          the state directory: locks, files, trash
//! file_systems                   probes of the file systems of projects and of the state directory
//! watch                          limits that the kernel does not enforce
//! applied                        applies to projects, reported to the sandboxes based on them
//! checkpoint                     frozen layers and stacks
//! cache                          package caches that a project's sandboxes keep
//! backend                        mechanisms that isolate a guest, and owners of sandboxes
//! machine                        probes of this machine for native sandboxes
//! control                        start of a supervisor, and orders to it
//! lifecycle                      kill, sweep, parking
//! handle                         `Sandbox`: the handle for callers
//! registry                       all sandboxes of one state directory
//! supervisor                     the process that owns one named sandbox
//! ```
//!
//! The crate is synchronous. It reads no environment variable, home directory or terminal, and
//! prints nothing; all of that is passed in. Programs that use it must leave `SIGPIPE` ignored, as
//! the Rust runtime does.

mod applied;
pub mod backend;
mod breach;
mod cache;
mod checkpoint;
mod control;
mod fault;
mod file_systems;
mod handle;
mod image;
mod lifecycle;
mod link;
mod link_meter;
mod machine;
mod mounts;
mod process;
mod registry;
mod report;
mod spec;
mod state;
mod supervisor;
mod watch;

pub use applied::{ProjectChange, note_applied};
pub use checkpoint::Checkpoint;
pub use checkpoint::seed::SeedMaker;
pub use checkpoint::workspace::{COPY_MANIFEST, COPY_NOTE, WorkspaceLayers};
pub use control::handover::Supervisor;
pub use file_systems::{CopyReason, find_copy_reason, name_file_system, needs_memory_layers};
pub use handle::frozen::FrozenSandbox;
pub use handle::frozen_commands::FrozenCommands;
pub use handle::ports::{PortConnection, PortFailure};
pub use handle::stream::{Input, Stream};
pub use handle::{CommandOutput, Sandbox, SandboxInfo, ShutdownReport};
pub use image::{CarriedProgram, GUEST, GUEST_HASH, GUEST_SHA256, GuestImage, SCRIPTS};
pub use lifecycle::parking::ParkingNews;
pub use lifecycle::sweep::Orphan;
pub use lifecycle::termination::KillOutcome;
pub use link::Incoming;
pub use link_meter::{LinkMeter, LinkStats, LinkTraffic};
pub use machine::{
    describe_machine, duplicate_descriptor, examine_machine, is_inside_sandbox, note_descriptors,
    stop_caller,
};
pub use mounts::find_mounts_below;
pub use registry::{
    Checkpoints, DiskUsage, Fork, ProjectCache, Registry, RegistryConfig, RegistryEntry,
    StartOutcome, is_larger_than,
};
pub use report::{
    CacheFact, CacheKeeping, Identity, LimitFact, NetworkFact, REPORT_VERSION, Report, WallFact,
};
pub use spec::amount::limit_in_words;
pub use spec::backend::{
    BASE_URL_OPTION, Backend, BackendOption, COPY_DIR, Capabilities, CheckpointStore,
    CredentialSource, DEFAULT_START_MS, Declaration, Files, NAME_IN_URL, Place, ProjectChoice,
    StartCost, SubSandboxes, Walls,
};
pub use spec::credential::{Credential, CredentialError};
pub use spec::name::{Name, NameError, random_hex};
pub use spec::workspace_mode::WorkspaceMode;
pub use spec::{Parent, SandboxSpec};
pub use state::ancestors::check_ancestors;
pub use state::status::{ParkedChanges, SandboxState};
pub use supervisor::supervise;
pub use watch::ResourceUsage;
