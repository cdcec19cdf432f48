//! Writes a change set as a layer of an overlay. Changes that were fetched from a copy on another
//! machine can then be collected, shown and applied like those of a local sandbox.

use crate::{Change, CollectedChanges, Node, RelPath};
use glovebox_proto::{Code, Fault};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// Writes the changes into the empty directory `layer`, which no other process writes to.
///
/// # Errors
/// When a content cannot be fetched or written. The layer is incomplete then.
pub fn write_layer(collected: &CollectedChanges, layer: &Path) -> Result<(), Fault> {
    let writer = Writer { collected, layer };
    // Whiteouts come first: a name that became a directory, or ceased to be one, must be removed
    // before the new objects are written below it.
    for change in &collected.set.changes {
        if let Some(path) = removed(change) {
            writer.hide(path)?;
        }
    }
    for change in &collected.set.changes {
        if let Some(node) = change.to() {
            writer.write(&change.path, node)?;
        }
    }
    Ok(())
}

/// Returns the name that a change removes.
fn removed(change: &Change) -> Option<&RelPath> {
    match &change.kind {
        crate::ChangeKind::Deleted { .. } => Some(&change.path),
        crate::ChangeKind::Renamed { source, .. } => Some(source),
        crate::ChangeKind::Added { .. } | crate::ChangeKind::Modified { .. } => None,
    }
}

struct Writer<'a> {
    collected: &'a CollectedChanges,
    layer: &'a Path,
}

impl Writer<'_> {
    fn place(&self, path: &RelPath) -> PathBuf {
        self.layer.join(OsStr::from_bytes(path.as_bytes()))
    }

    /// Puts a whiteout at a name. Does nothing if a directory above it is hidden already.
    fn hide(&self, path: &RelPath) -> Result<(), Fault> {
        let place = self.place(path);
        if self.is_hidden_above(path) {
            return Ok(());
        }
        self.make_parents(&place)?;
        if place.is_dir() {
            // The whiteout of the directory also covers the whiteouts below it.
            fs::remove_dir_all(&place).map_err(|error| failed(&place, &error))?;
        }
        // Device 0/0 is a whiteout of an overlay. The kernel lets unprivileged users create this
        // device.
        match mknodat(CWD, &place, FileType::CharacterDevice, Mode::empty(), 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(errno) => Err(failed(&place, &errno.into())),
        }
    }

    fn is_hidden_above(&self, path: &RelPath) -> bool {
        let mut above = path.parent();
        while let Some(dir) = above {
            if is_whiteout(&self.place(&dir)) {
                return true;
            }
            above = dir.parent();
        }
        false
    }

    fn write(&self, path: &RelPath, node: &Node) -> Result<(), Fault> {
        let place = self.place(path);
        self.make_parents(&place)?;
        if is_whiteout(&place) {
            fs::remove_file(&place).map_err(|error| failed(&place, &error))?;
        }
        if *node != Node::Dir && place.is_dir() {
            // The directory holds only whiteouts of its former content.
            fs::remove_dir_all(&place).map_err(|error| failed(&place, &error))?;
        }
        match node {
            Node::Dir => make_dir(&place),
            Node::Link { target } => symlink(OsStr::from_bytes(target), &place),
            Node::File { is_executable, .. } => {
                let mode = if *is_executable { 0o755 } else { 0o644 };
                let mut content = self.collected.open(path)?;
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(mode)
                    .open(&place)
                    .and_then(|mut file| {
                        io::copy(&mut content, &mut file)?;
                        file.sync_all()
                    })
            }
        }
        .map_err(|error| failed(&place, &error))
    }

    fn make_parents(&self, place: &Path) -> Result<(), Fault> {
        let Some(parent) = place.parent().filter(|parent| *parent != self.layer) else {
            return Ok(());
        };
        self.make_parents(parent)?;
        if is_whiteout(parent) {
            // A new path lies below a removed one.
            fs::remove_file(parent).map_err(|error| failed(parent, &error))?;
        }
        make_dir(parent).map_err(|error| failed(parent, &error))
    }
}

fn make_dir(place: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(place) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && place.is_dir() => Ok(()),
        made => made,
    }
}

fn is_whiteout(place: &Path) -> bool {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
    place
        .symlink_metadata()
        .is_ok_and(|meta| meta.file_type().is_char_device() && meta.rdev() == 0)
}

fn failed(place: &Path, error: &io::Error) -> Fault {
    Fault::failed(
        Code::Io,
        format!("cannot keep {}: {error}", place.display()),
    )
}
