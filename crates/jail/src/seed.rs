//! Parts of a sandbox's git seed, and their places inside.
//!
//! A seed is a frozen layer: a git directory of one moment, and object files of the project that a
//! clean-up on the host cannot remove.

use glovebox_spec::seed::{
    GIT_DIR, HELD, HELD_INSIDE, LIVE_LFS, LIVE_LFS_INSIDE, LIVE_OBJECTS, LIVE_OBJECTS_INSIDE,
};
use std::path::{Path, PathBuf};

/// A seed on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed {
    /// Layer over the project and its mask.
    pub git_dir: PathBuf,
    /// Directory of hard links to object files.
    pub held: PathBuf,
    /// The project's own object directory, which the host may change. `None` if it is not shown.
    pub live_objects: Option<PathBuf>,
    /// The project's own directory of git-lfs files. `None` if it is not shown.
    pub live_lfs: Option<PathBuf>,
}

impl Seed {
    /// Finds the parts of the seed in the directory `layer`. A directory of the host that no longer
    /// exists is left out.
    pub fn find(layer: &Path) -> Self {
        let live = |name: &str| {
            let target = std::fs::read_link(layer.join(name)).ok()?;
            let meta = target.symlink_metadata().ok()?;
            meta.is_dir().then_some(target)
        };
        Self {
            git_dir: layer.join(GIT_DIR),
            held: layer.join(HELD),
            live_objects: live(LIVE_OBJECTS),
            live_lfs: live(LIVE_LFS),
        }
    }

    /// Returns the directories on the host and their places inside.
    pub(crate) fn binds(&self) -> Vec<(&Path, &'static str)> {
        let mut binds = vec![(self.held.as_path(), HELD_INSIDE)];
        binds.extend(
            self.live_objects
                .as_deref()
                .map(|path| (path, LIVE_OBJECTS_INSIDE)),
        );
        binds.extend(self.live_lfs.as_deref().map(|path| (path, LIVE_LFS_INSIDE)));
        binds
    }
}
