//! The host side of the wall: sandbox handles, the link to a guest, backends and the registry.
//!
//! In: a [`SandboxSpec`] and requests of [`glovebox_proto`]. Out: replies, streams, reports, and
//! [`Fault`](glovebox_proto::Fault)s in three classes (refused, failed, lost).
//!
//! A backend is only a carrier: it starts the guest somewhere and gives one byte stream to it.
//! Everything after that is the same for all of them, and everything that arrives over that stream
//! is untrusted.
//!
//! The crate is synchronous. It reads no environment variable, no home directory and no terminal,
//! and prints nothing: all of that is passed in. Programs that use it must leave `SIGPIPE` ignored,
//! as the Rust runtime does.

mod amount;
mod ancestors;
mod backend;
mod bond;
mod cell;
mod checkpoint;
mod client;
mod control;
mod denials;
mod fault;
mod forced_end;
mod freeze;
mod handle;
mod hold;
mod image;
mod janitor;
mod launch;
mod layout;
mod link;
mod name;
mod process;
mod registry;
mod report;
mod router;
mod slot;
mod spec;
mod stream;
mod supervisor;
mod sweep;
mod termination;
mod trash;
mod wall;
mod watch;
mod workspace;

pub use glovebox_jail as jail;
pub use glovebox_proto as proto;

pub use amount::limit_in_words;
pub use ancestors::check_ancestors;
pub use backend::explain;
pub use checkpoint::{Checkpoint, Checkpoints, Forked};
pub use freeze::Frozen;
pub use handle::{Info, Output, Sandbox};
pub use hold::Held;
pub use image::{GUEST_HASH, GUEST_SHA256, GuestImage, SCRIPTS_BYTES, SCRIPTS_HASH};
pub use name::{Name, NameError};
pub use registry::{
    Entry, Parked, ParkingNews, Registry, RegistryConfig, Room, Started, State, Supervisor,
};
pub use report::{Identity, LimitFact, REPORT_VERSION, Report, WallFact};
pub use spec::{Backend, Parent, SandboxSpec};
pub use stream::{Incoming, Input, Stream};
pub use supervisor::supervise;
pub use sweep::Orphan;
pub use termination::Killed;
pub use watch::Work;
pub use workspace::WorkspaceLayers;
