//! Sandboxes without namespaces as a backend: for containers with Docker's defaults, pods, and other places that
//! forbid namespaces and mounts.
//!
//! In: a spec without network and grants. Out: a guest behind the walls of `glovebox_jail::confine`, with a copy
//! of the project, a home and a directory for temporary files of its own, which lie in the sandbox's directory and
//! go with it.

mod driver;
mod report;

pub use driver::Confined;
