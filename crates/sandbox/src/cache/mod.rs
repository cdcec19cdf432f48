//! Caches of package managers, and build output, that a project's sandboxes keep from one to the next.
//!
//! Inside, each cache is an overlay over the host's own directory, which is never written. What commands write lies
//! in the sandbox's own layers and goes with it. A sandbox that keeps its caches finds below its writable layer what
//! earlier sandboxes of the same project left, and leaves its own layer on top when it has ended in order.
//!
//! Build output is a directory of the workspace; it is moved out of the workspace's own layer and shown as a layer
//! below the next one (`build_output`), as long as its sources are what they were (`sources`).
//!
//! ```text
//! STATE/caches/PROJECT/           named by a digest of the project's path (`store`)
//!     writer.lock                 held by the one sandbox that adds to them (`lease`)
//!     users.lock                  held, shared, by everyone who has the layers mounted
//!     cache.json                  the layers, newest first: the only truth about what is kept
//!     ID/NAME/                    what one sandbox left in one cache
//! ```
//!
//! A directory that `cache.json` does not name is garbage: that is all a crash in the middle can leave. A layer is
//! never written again, and only who has `users.lock` alone takes any away.

mod build_output;
mod lease;
mod merge;
mod sources;
pub(crate) mod store;

pub(crate) use lease::{CacheLease, KeptCaches};
pub(crate) use store::sweep;
