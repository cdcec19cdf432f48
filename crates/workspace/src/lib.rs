//! A project's way into a sandbox, and its changes' way back.
//!
//! ```text
//! push     project -> names to hide -> sandbox        (overlay: nothing is copied; copy: what differs)
//! collect  sandbox -> ChangeSet                       (from layers, or by comparing manifests)
//! plan     ChangeSet x base x host -> Plan            (three-way; conflicts are found, not guessed)
//! apply    Plan -> staging directory -> destination   (all of it, or nothing)
//! archive  a tar stream <-> a directory of our own    (for whoever has no directory here)
//! ```
//!
//! Everything a sandbox says is untrusted: names are checked once ([`RelPath::new`]), sizes, counts
//! and depths are bounded ([`Quota`]), host paths are opened beneath a directory descriptor and never
//! through a link. What cannot be taken is listed with its reason, never dropped in silence.
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
mod error;
mod filter;
mod git;
mod hide;
mod layer;
mod merge;
mod model;
mod outcome;
pub mod patch;
mod path;
mod plan;
mod progress;
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
pub use path::{BadPath, RelPath, normalize_path};
pub use plan::{
    Host, HostChange, HostNode, HostState, Leftover, MergedFile, Options, Plan, Resolution, Step,
    plan,
};
pub use progress::{Progress, Watch};
