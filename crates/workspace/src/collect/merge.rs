//! Merges the names of one directory from the layers by the rules of overlayfs.
//!
//! `overlayfs.rst` of the kernel: a character device 0:0 is a whiteout and hides the name in every
//! lower layer; a directory with the attribute `user.overlay.opaque` = `y` hides the whole
//! directory of the same name below; directories are merged, everything else is taken from the
//! topmost layer. Sandboxes are mounted without `metacopy` and `redirect_dir`, so there are no
//! other marks; other attributes that a sandbox may set are ignored.

use crate::beneath::{Anchor, read_names, stat_at};
use crate::cover::is_opaque;
use glovebox_proto::{Code, Fault, Setting};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

/// Index of a layer, counted from the newest.
pub(super) type LayerId = u16;

/// Contribution of the host's directory of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// The host has no such directory.
    Absent,
    /// The host's directory is visible.
    Shows,
    /// The host's directory exists, but a layer hides it.
    Hidden,
}

/// Object that the layers have at a name.
#[derive(Debug)]
pub(super) enum TopEntry {
    /// No layer has the name; the host has an object that is hidden.
    Nothing,
    /// A whiteout.
    Whiteout,
    /// A directory, merged from these layers.
    Dir {
        layers: Vec<LayerId>,
        is_opaque: bool,
    },
    /// Any other object.
    Other { layer: LayerId, kind: FileType },
}

/// Attributes of the host's object at a name. Small, because many may be held at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostEntry {
    pub(super) kind: FileType,
    pub(super) size: u64,
    pub(super) is_executable: bool,
}

impl From<Stat> for HostEntry {
    fn from(stat: Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            size: stat.st_size as u64,
            is_executable: stat.st_mode & 0o100 != 0,
        }
    }
}

/// A name of a merged directory.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Box<[u8]>,
    pub(super) top: TopEntry,
    /// The host's object of this name; `None` if there is none.
    pub(super) base: Option<HostEntry>,
}

/// Result of listing a directory of the layers.
pub(super) enum Listing {
    Entries(Vec<Entry>),
    /// The directory of a layer cannot be read.
    Unreadable,
}

/// A name in a layer.
struct LayerEntry {
    name: Box<[u8]>,
    /// `None` for the host, whose directory is hidden.
    layer: Option<LayerId>,
    kind: FileType,
}

/// Reason for which a listing stops.
enum ListingError {
    TooMany,
    Errno(Errno),
}

impl From<Errno> for ListingError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// Lists one directory of the layers, sorted by name.
// TRUST: the sandbox controls the number of names. It is bounded by `max_names`.
pub(super) fn list(
    layers: &[Anchor],
    ids: &[LayerId],
    project: Option<&Anchor>,
    base: Base,
    path: &[u8],
    max_names: usize,
) -> Result<Listing, Fault> {
    let mut seen = Vec::new();
    let mut dirs: Vec<(LayerId, OwnedFd)> = Vec::with_capacity(ids.len());
    for id in ids {
        let anchor = &layers[usize::from(*id)];
        match anchor.dir(path) {
            Ok(dir) => dirs.push((*id, dir)),
            // The sandbox still runs, and has removed or replaced the directory.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(Errno::ACCESS) => return Ok(Listing::Unreadable),
            Err(errno) => return Err(cannot_read(anchor, path, errno)),
        }
    }
    for (id, dir) in &dirs {
        collect(dir, Some(*id), &mut seen, max_names)
            .map_err(|stop| words(&stop, &layers[usize::from(*id)], path, max_names))?;
    }
    let base_dir = match (project, base) {
        (Some(project), Base::Shows | Base::Hidden) => match project.dir(path) {
            Ok(dir) => Some((project, dir)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
            Err(Errno::ACCESS) => return Ok(Listing::Unreadable),
            Err(errno) => return Err(cannot_read(project, path, errno)),
        },
        _ => None,
    };
    if let (Some((project, dir)), Base::Hidden) = (&base_dir, base) {
        collect(dir, None, &mut seen, max_names)
            .map_err(|stop| words(&stop, project, path, max_names))?;
    }
    // Within a name, the newest layer comes first and the host last.
    seen.sort_by(|a, b| {
        let rank = |seen: &LayerEntry| seen.layer.unwrap_or(LayerId::MAX);
        a.name.cmp(&b.name).then(rank(a).cmp(&rank(b)))
    });
    let mut entries = Vec::new();
    let mut rest = seen.into_iter().peekable();
    while let Some(first) = rest.next() {
        let mut group = vec![(first.layer, first.kind)];
        while let Some(next) = rest.next_if(|next| next.name == first.name) {
            group.push((next.layer, next.kind));
        }
        let top = match resolve(&dirs, &first.name, &group) {
            Ok(top) => top,
            Err(Errno::NOENT) => continue,
            Err(errno) => {
                let anchor = &layers[usize::from(group[0].0.unwrap_or(0))];
                return Err(cannot_read(anchor, path, errno));
            }
        };
        let base = match &base_dir {
            None => None,
            Some((project, dir)) => match stat_at(dir.as_fd(), &first.name) {
                Ok(stat) => Some(HostEntry::from(stat)),
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(cannot_read(project, path, errno)),
            },
        };
        entries.push(Entry {
            name: first.name,
            top,
            base,
        });
    }
    Ok(Listing::Entries(entries))
}

fn collect(
    dir: &OwnedFd,
    layer: Option<LayerId>,
    seen: &mut Vec<LayerEntry>,
    max_names: usize,
) -> Result<(), ListingError> {
    read_names(dir, |name, kind| {
        if seen.len() >= max_names {
            return Err(ListingError::TooMany);
        }
        seen.push(LayerEntry {
            name: name.into(),
            layer,
            kind,
        });
        Ok(())
    })
}

/// Merges the objects that the layers have at a name.
fn resolve(
    dirs: &[(LayerId, OwnedFd)],
    name: &[u8],
    group: &[(Option<LayerId>, FileType)],
) -> Result<TopEntry, Errno> {
    let mut merged = Vec::new();
    for (layer, kind) in group {
        let Some((id, dir)) = layer.and_then(|id| dirs.iter().find(|(known, _)| *known == id))
        else {
            continue;
        };
        let is_dir = match kind {
            FileType::Directory => true,
            FileType::Unknown => {
                let stat = stat_at(dir.as_fd(), name)?;
                FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            }
            _ => false,
        };
        if is_dir {
            merged.push(*id);
            if is_opaque(dir, name) {
                return Ok(TopEntry::Dir {
                    layers: merged,
                    is_opaque: true,
                });
            }
            continue;
        }
        let stat = stat_at(dir.as_fd(), name)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_whiteout = kind == FileType::CharacterDevice && stat.st_rdev == 0;
        if !merged.is_empty() {
            // The directory hides an object below that is not a directory.
            return Ok(TopEntry::Dir {
                layers: merged,
                is_opaque: true,
            });
        }
        return Ok(if is_whiteout {
            TopEntry::Whiteout
        } else {
            TopEntry::Other { layer: *id, kind }
        });
    }
    Ok(if merged.is_empty() {
        TopEntry::Nothing
    } else {
        TopEntry::Dir {
            layers: merged,
            is_opaque: false,
        }
    })
}

fn cannot_read(anchor: &Anchor, path: &[u8], errno: Errno) -> Fault {
    let name = String::from_utf8_lossy(path);
    crate::beneath::io("read", &anchor.path().join(name.as_ref()), errno)
}

fn words(stop: &ListingError, anchor: &Anchor, path: &[u8], max_names: usize) -> Fault {
    match stop {
        ListingError::Errno(errno) => cannot_read(anchor, path, *errno),
        ListingError::TooMany => Fault::failed(
            Code::TooLarge,
            format!(
                "the directory `{}` has more than {max_names} names",
                String::from_utf8_lossy(path).escape_debug()
            ),
        )
        .remedy(["leave it out with ".into(), Setting::Exclude.into()]),
    }
}
