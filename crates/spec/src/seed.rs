//! Names of the parts of a sandbox's git seed, on the host and inside.

/// Directory of a seed that lies over the project.
pub const GIT_DIR: &str = "workspace";
/// Directory of a seed with links to object files, one directory for each repository.
pub const HELD: &str = "held";
/// Link in a seed to the project's own directory of objects.
pub const LIVE_OBJECTS: &str = "live-objects";
/// Link in a seed to the project's own large files of git-lfs.
pub const LIVE_LFS: &str = "live-lfs";
/// Directory inside where [`HELD`] is shown.
pub const HELD_INSIDE: &str = "/run/glovebox/git/held";
/// Directory inside where the project's own objects are shown.
pub const LIVE_OBJECTS_INSIDE: &str = "/run/glovebox/git/live/objects";
/// Directory inside where git-lfs looks for files beside these objects.
pub const LIVE_LFS_INSIDE: &str = "/run/glovebox/git/live/lfs/objects";
