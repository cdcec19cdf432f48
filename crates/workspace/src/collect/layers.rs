//! Collects the changes of a native sandbox from its layers on this machine.
//!
//! Input: the writable layer and the frozen ones below it, the project below all of them, and the
//! paths that were hidden from the sandbox. Output: a change set with digests, and access to the
//! contents. The layers were written from inside and are untrusted: see [`crate::beneath`]. Only
//! paths in a layer are inspected, so the cost depends on the changes and not on the size of the
//! project.

use super::BaseTree;
use super::merge::LayerId;
use super::walk::Walk;
use crate::beneath::{Anchor, io};
use crate::filter::Filter;
use crate::progress::Watch;
use crate::pushed::PushedFiles;
use crate::{CollectedChanges, Contents, Quota, RelPath, Stage, SyncError};
use glovebox_proto::{Code, Fault};
use rustix::io::Errno;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Locations of the layers of a workspace.
#[derive(Debug, Clone, Copy)]
pub struct LayerPaths<'a> {
    /// The host's directory below the layers; `None` if there is none.
    pub project: Option<&'a Path>,
    /// Layers, newest first: the writable one, then those that checkpoints froze.
    pub layers: &'a [PathBuf],
    /// Relative paths that were hidden from the sandbox.
    pub hidden: &'a [PathBuf],
    /// Base index of the sandbox; the record of pushed copies is beside it. `None` if pushes
    /// cannot have written anything.
    pub base: Option<&'a Path>,
}

/// Prefix of the names of staging directories in a destination.
pub(crate) const RESERVED_PREFIX: &[u8] = b".glovebox-pull-";

/// Collects the changes of a sandbox.
///
/// # Errors
/// [`Code::TooLarge`] if the changes exceed `quota`, [`Code::Cancelled`] if `watch` stops the
/// operation, and any error of reading the layers or the project.
pub fn from_layers(
    source: &LayerPaths<'_>,
    filter: &Filter,
    quota: &Quota,
    watch: &mut Watch<'_>,
) -> Result<CollectedChanges, SyncError> {
    let failed = |fault| SyncError::pull(Stage::Collect, fault);
    let trees = Arc::new(Trees::open(source).map_err(failed)?);
    let (mut set, ignored) = Walk::new(&trees, source, filter, quota, watch)
        .run()
        .map_err(failed)?;
    let pushed = source.base.map(PushedFiles::read).unwrap_or_default();
    set.changes.retain(|change| !pushed.has(change));
    let contents = LayerContents {
        git_dir: trees.project.as_ref().and_then(super::named_by_file),
        trees: Arc::clone(&trees),
    };
    super::complete(&mut set, &contents, &contents);
    let mut collected = CollectedChanges::new(set, Box::new(contents));
    collected.ignored = ignored;
    Ok(collected)
}

/// Opened layers and project.
#[derive(Debug)]
pub(super) struct Trees {
    pub(super) layers: Vec<Anchor>,
    pub(super) project: Option<Anchor>,
}

impl Trees {
    fn open(source: &LayerPaths<'_>) -> Result<Self, Fault> {
        if source.layers.len() >= usize::from(LayerId::MAX) {
            return Err(Fault::failed(Code::TooLarge, "there are too many layers"));
        }
        Ok(Self {
            layers: source
                .layers
                .iter()
                .map(|path| Anchor::open(path))
                .collect::<Result<_, _>>()?,
            project: source.project.map(Anchor::open).transpose()?,
        })
    }
}

/// Contents in layers. They are not checked here: the change set has their digests.
struct LayerContents {
    trees: Arc<Trees>,
    git_dir: Option<RelPath>,
}

impl Contents for LayerContents {
    fn open(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        let mut last = Errno::NOENT;
        for layer in &self.trees.layers {
            match layer.file(path.as_bytes()) {
                Ok((file, _)) => return Ok(Box::new(file)),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => last = errno,
            }
        }
        Err(io("read the sandbox's version of", path.as_path(), last))
    }

    fn open_base(&self, path: &RelPath) -> Result<Box<dyn Read + Send + '_>, Fault> {
        let opened = match &self.trees.project {
            Some(project) => project.file(path.as_bytes()),
            None => Err(Errno::NOENT),
        };
        match opened {
            Ok((file, _)) => Ok(Box::new(file)),
            Err(errno) => Err(io("read the host's version of", path.as_path(), errno)),
        }
    }
}

impl BaseTree for LayerContents {
    fn link(&self, path: &RelPath) -> Option<Vec<u8>> {
        match self.trees.project.as_ref()?.link(path.as_bytes()) {
            Ok(target) => Some(target),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::INVAL | Errno::LOOP) => None,
            // A path that cannot be inspected may be a link to anywhere.
            Err(_) => Some(b"/".to_vec()),
        }
    }

    fn holds(&self, path: &RelPath) -> bool {
        let project = self.trees.project.as_ref();
        project.is_some_and(|project| project.stat(path.as_bytes()).is_ok())
    }

    fn git_dir(&self) -> Option<&RelPath> {
        self.git_dir.as_ref()
    }
}
