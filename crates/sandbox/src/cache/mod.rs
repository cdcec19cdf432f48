//! Package caches and build output that the sandboxes of a project pass on to each other.
//!
//! Inside, each cache is an overlay over the host's own directory, which is never written. Files
//! that commands write are in the sandbox's own layers and are removed with it. A sandbox that
//! keeps its caches has the layers of earlier sandboxes of the project below its writable layer,
//! and adds its own layer on top after it has ended in order.
//!
//! Build output is a directory of the workspace. It is moved out of the workspace's writable layer
//! and mounted as a layer below the next one (`build_output`), as long as its sources are unchanged
//! (`sources`).
//!
//! ```text
//! STATE/caches/PROJECT/           named by a digest of the project's path (`store`)
//!     writer.lock                 held by the one sandbox that adds to them (`lease`)
//!     users.lock                  shared lock of every sandbox that has the layers mounted
//!     cache.json                  the layers, newest first; decides which layers are kept
//!     ID/NAME/                    layer of one cache that one sandbox left
//! ```
//!
//! A directory that `cache.json` does not name is garbage, and a crash can leave nothing else. A
//! layer is never written again, and only the exclusive holder of `users.lock` removes layers.

mod build_output;
mod lease;
mod merge;
mod sources;
pub(crate) mod store;

pub(crate) use lease::{CacheLease, KeptCaches};
pub(crate) use store::sweep;
