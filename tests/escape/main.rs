//! Attempts to break out of a native sandbox, driven through the real product on the real kernel.
//!
//! Each test is named after a probe of the isolation design (section 4): it states what is tried
//! inside and what must come of it. Beside every refusal stands its positive twin, the same tool at
//! its legitimate use, so that a sandbox in which nothing works does not pass.
//!
//! The tests run as whoever runs them: under root they meet leased id ranges and id-mapped mounts,
//! under an ordinary user a single id. Probes run in several shapes of sandbox (see [`arena`]).

#![expect(
    clippy::expect_used,
    reason = "in a test, what must not fail may panic"
)]
#![expect(
    clippy::needless_raw_string_hashes,
    reason = "scripts keep their quotes whatever is added to them"
)]

mod accounting;
mod arena;
mod binaries;
mod bounds;
mod capabilities;
mod devices;
mod environment;
mod exhaustion;
mod files;
mod groups;
mod kernel;
mod layers;
mod lifecycle;
mod locks;
mod mounts;
mod namespaces;
mod neighbours;
mod nested;
mod processes;
mod project_files;
mod requests;
mod script;
mod silence;
mod sockets;
mod steering;
mod syscalls;
mod terminal;
mod tracing;
mod truth;
mod workspace;
