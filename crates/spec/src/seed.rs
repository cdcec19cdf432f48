//! Names of the parts of a sandbox's git seed, on the host and inside.

/// Directory of a seed that is mounted over the project.
pub const GIT_DIR: &str = "workspace";
/// Directory of a seed with hard links to object files, one directory for each repository.
pub const HELD: &str = "held";
/// Symbolic link in a seed to the project's own directory of objects.
pub const LIVE_OBJECTS: &str = "live-objects";
/// Symbolic link in a seed to the project's own large files of git-lfs.
pub const LIVE_LFS: &str = "live-lfs";
/// Mount point of [`HELD`] inside.
pub const HELD_INSIDE: &str = "/run/glovebox/git/held";
/// Mount point of the project's own objects inside.
pub const LIVE_OBJECTS_INSIDE: &str = "/run/glovebox/git/live/objects";
/// Mount point of the project's git-lfs files inside, where git-lfs looks for them beside these
/// objects.
pub const LIVE_LFS_INSIDE: &str = "/run/glovebox/git/live/lfs/objects";
