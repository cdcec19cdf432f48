//! Sandboxes without namespaces as a backend: for containers with Docker's defaults, pods, and
//! other environments that forbid namespaces and mounts.
//!
//! In: a spec without grants, whose network is none or that of listed hosts. Out: a guest behind
//! the walls of `glovebox_jail::confine`, with its own copy of the project, home and temporary
//! directory. They lie in the sandbox's directory and are removed with it.

mod driver;
mod report;

pub use driver::Confined;
