//! Transfers a project into a sandbox, and the sandbox's changes back to the host.
//!
//! ```text
//! push     project -> names to hide -> sandbox        (overlay: for watchers; copy mode: differences)
//! collect  sandbox -> ChangeSet                       (from layers, or by comparing manifests)
//! plan     ChangeSet x base x host -> Plan            (three-way comparison with conflicts)
//! apply    Plan -> staging directory -> destination   (all of it, or nothing)
//! archive  a tar stream <-> a directory of our own    (for clients without a directory here)
//! ```
//!
//! Everything that a sandbox sends is untrusted: names are validated once ([`RelPath::new`]);
//! sizes, counts and depths are bounded ([`Quota`]); host paths are opened beneath a directory
//! descriptor without following links. A change that cannot be applied is listed with its reason,
//! never dropped silently.
//!
//! The crate is synchronous, prints nothing, and reads no environment.

pub mod apply;
pub mod archive;
pub mod base;
mod beneath;
pub mod branch;
pub mod collect;
mod contents;
pub mod copy;
mod cover;
mod error;
mod filter;
mod git;
mod hide;
mod layer;
mod merge;
mod model;
mod outcome;
mod overlay_push;
pub mod patch;
mod path;
mod plan;
mod progress;
mod pushed;
mod threads;

pub use contents::{CollectedChanges, Contents};
pub use error::{Direction, Stage, SyncError};
pub use filter::Filter;
pub use git::ignored::{IgnoreRules, IgnoredChanges};
pub use git::{
    FoundRepositories, GitHistory, OutsideRepository, RepositoryFacts, RepositoryRecord,
    SEED_MAKER, SeedRecord, SeedReferences, ShownGitDir, WorkingTree, build_seed, complete_held,
    find_outside, find_repositories, find_working_tree, read_seed_record, repository_facts,
};
pub use hide::content::has_token;
pub use hide::{HiddenPaths, HideReason, HideRules, IGNORE_FILE, SKIPPED, find_hidden};
pub use layer::write_layer;
pub use model::{
    Change, ChangeKind, ChangeSet, Digest, Flag, Node, Quota, RefusalReason, RefusedPath,
};
pub use outcome::{
    AppliedChange, Conflict, ConflictReason, EarlierVersions, Effect, FlaggedChange, Outcome,
    TakenPart, UnplacedReason,
};
pub use overlay_push::{MAX_FILE_BYTES as MAX_PUSHED_FILE_BYTES, OverlayPush, push_overlay};
pub use path::{BadPath, RelPath, normalize_path};
pub use plan::{
    Host, HostChange, HostNode, HostState, Leftover, MergedFile, Options, Plan, Resolution, Step,
    plan,
};
pub use progress::{Progress, Watch};
