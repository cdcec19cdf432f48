//! Push to a sandbox whose workspace is an overlay, so that programs that watch files inside are
//! notified of changes on the host.
//!
//! An overlay shows the host's files, but the kernel raises no event inside when the host changes
//! them. Therefore the guest writes the changed files, as a program inside would: a copy in the
//! writable layer, which is recorded as one ([`PushedFiles`]). Files that the sandbox has changed
//! stay and are reported.

use crate::base::{
    BaseFile, ChangedPath, Kind, PulledContent, Signature, advance, advance_contents, changed_since,
};
use crate::beneath::Anchor;
use crate::cover::cover;
use crate::progress::{Progress, Watch, report};
use crate::pushed::{PushedFiles, PushedVersion};
use crate::{Digest, RelPath, Stage, SyncError};
use glovebox_proto::{
    Class, Code, Fault, FileKind, Reply, Request, Stat, WriteMode, WritePrecondition,
};
use glovebox_sandbox::{Incoming, Sandbox, WorkspaceLayers};
use glovebox_spec::WORKSPACE;
use serde_bytes::ByteBuf;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Maximum size of a file that is copied, in bytes.
pub const MAX_FILE_BYTES: u64 = 8 << 20;
/// Maximum number of paths of one push.
const MAX_PATHS: usize = 10_000;
/// Maximum size of all files of one push, in bytes.
const MAX_BYTES: u64 = 256 << 20;
/// Maximum size of a content that is recorded as the base of merges, in bytes.
const MAX_NOTED_BYTES: usize = 1 << 20;
/// Maximum size of a file that is compared inside, in bytes.
const MAX_COMPARED_BYTES: u64 = glovebox_proto::limits::MAX_EDIT_BYTES;

/// Suffix of the name to which a file is moved before it is removed.
const ASIDE: &[u8] = b".removed-outside";

/// Result of a push to an overlay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverlayPush {
    /// Files that were written inside.
    pub files: Vec<RelPath>,
    /// Size of their contents in bytes.
    pub bytes: u64,
    /// Paths that were removed inside.
    pub deleted: Vec<RelPath>,
    /// Changed paths that are hidden from the sandbox.
    pub hidden: u64,
    /// Files that the sandbox has changed too: its version stays.
    pub conflicts: Vec<RelPath>,
    /// Files larger than [`MAX_FILE_BYTES`]: the sandbox sees them, but without an event.
    pub large: Vec<RelPath>,
    /// Number of changed paths that are visible without a copy: links, directories, large files.
    pub shown: u64,
}

/// Writes the host's changes since the base into a running sandbox with these layers. Afterwards
/// they count as a change on neither side. Skips paths at or below `hidden`; an `only` that is not
/// empty restricts the push to the paths at or below it.
///
/// # Errors
/// [`Code::Cancelled`] if `watch` asks for it; [`Code::TooLarge`] for too many changes; any failure
/// to read the project or to write inside. Files that were written before it stay.
pub fn push_overlay(
    sandbox: &Sandbox,
    layers: &WorkspaceLayers,
    hidden: &[PathBuf],
    only: &[RelPath],
    watch: &mut Watch<'_>,
) -> Result<OverlayPush, SyncError> {
    let collect = |fault| SyncError::push(Stage::Collect, fault);
    let Some(project) = layers.project.as_deref() else {
        let message = "the workspace of the sandbox did not come from a project";
        return Err(collect(Fault::failed(Code::Unsupported, message)));
    };
    let base = BaseFile {
        index: layers.base.clone(),
        pushed_unix_ns: layers.pushed_unix_ns,
        git: PathBuf::new(),
    };
    let scratch = sandbox.dir().join("base.now");
    let stopped = RefCell::new(None);
    let watching = RefCell::new(&mut *watch);
    let is_stopped = || {
        let mut watch = watching.borrow_mut();
        match report(&mut **watch, Progress::Collecting { paths: 0, bytes: 0 }) {
            Ok(()) => false,
            Err(fault) => {
                stopped.replace(Some(fault));
                true
            }
        }
    };
    let changed = changed_since(project, &base, &scratch, &is_stopped);
    let changed = changed.map_err(|fault| collect(stopped.take().unwrap_or(fault)))?;
    let mut push = Push {
        sandbox,
        anchor: Anchor::open(project).map_err(collect)?,
        pushed: PushedFiles::read(&layers.base),
        brought: BTreeMap::new(),
        entries: Vec::new(),
        contents: BTreeMap::new(),
        total_bytes: 0,
        totals: OverlayPush::default(),
    };
    let chosen = push.choose(changed, hidden, only).map_err(collect)?;
    let sent = push
        .examine(chosen, layers)
        .and_then(|steps| push.send(steps, watch));
    let noted = push.note(&layers.base);
    sent.and(noted)
        .map_err(|fault| SyncError::push(Stage::Transfer, fault))?;
    Ok(push.totals)
}

/// Write or removal inside.
enum Step {
    /// Write a file over a known state.
    Write(RelPath, KnownInside),
    /// Remove a file whose content inside is known.
    RemoveFile(RelPath, KnownInside),
    /// Remove a directory, if it is empty.
    RemoveDirectory(RelPath),
}

/// State of a path inside before the push.
#[derive(Clone, Copy)]
enum KnownInside {
    Nothing,
    Content(Digest),
}

struct Push<'a> {
    sandbox: &'a Sandbox,
    anchor: Anchor,
    pushed: PushedFiles,
    brought: BTreeMap<RelPath, Option<PushedVersion>>,
    entries: Vec<(RelPath, Signature)>,
    contents: BTreeMap<RelPath, PulledContent>,
    /// Size of all files that will be written, in bytes.
    total_bytes: u64,
    totals: OverlayPush,
}

/// Change that can be written inside.
struct Chosen {
    path: RelPath,
    kind: ChosenKind,
}

/// Kind of a change on the host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChosenKind {
    Written,
    GoneFile,
    GoneDirectory,
}

impl Push<'_> {
    /// Chooses the changes that can be written inside.
    fn choose(
        &mut self,
        changed: Vec<ChangedPath>,
        hidden: &[PathBuf],
        only: &[RelPath],
    ) -> Result<Vec<Chosen>, Fault> {
        let mut chosen = Vec::new();
        for ChangedPath { path, before, now } in changed {
            if !only.is_empty() && !only.iter().any(|wanted| path.starts_with(wanted)) {
                continue;
            }
            if hidden
                .iter()
                .any(|hidden| path.as_path().starts_with(hidden))
            {
                self.totals.hidden += 1;
                continue;
            }
            match (before, now) {
                (
                    _,
                    Signature::Present {
                        kind: Kind::File,
                        size,
                        ..
                    },
                ) => {
                    if size > MAX_FILE_BYTES {
                        self.totals.large.push(path);
                        self.totals.shown += 1;
                        continue;
                    }
                    self.total_bytes += size;
                    let kind = ChosenKind::Written;
                    chosen.push(Chosen { path, kind });
                }
                (
                    Some(Signature::Present {
                        kind: kind @ (Kind::File | Kind::Dir),
                        ..
                    }),
                    Signature::Absent,
                ) => {
                    let kind = match kind {
                        Kind::Dir => ChosenKind::GoneDirectory,
                        _ => ChosenKind::GoneFile,
                    };
                    chosen.push(Chosen { path, kind });
                }
                _ => self.totals.shown += 1,
            }
        }
        if chosen.len() > MAX_PATHS || self.total_bytes > MAX_BYTES {
            let message = format!(
                "{} changed paths with {} bytes are more than one push brings",
                chosen.len(),
                self.total_bytes
            );
            return Err(Fault::failed(Code::TooLarge, message)
                .remedy("name the paths that programs inside are to hear of"));
        }
        Ok(chosen)
    }

    /// Compares with the state of the sandbox. From here on, a write of the sandbox makes the step
    /// for its file a conflict.
    fn examine(
        &mut self,
        chosen: Vec<Chosen>,
        layers: &WorkspaceLayers,
    ) -> Result<Vec<Step>, Fault> {
        let anchors = layers
            .layers
            .iter()
            .map(|layer| Anchor::open(layer))
            .collect::<Result<Vec<_>, _>>()?;
        let (mut steps, mut removes) = (Vec::new(), Vec::new());
        for Chosen { path, kind } in chosen {
            // The content is read before the layers: a later write shows in them, or differs from
            // the content.
            let known = match kind {
                ChosenKind::Written | ChosenKind::GoneFile => self.known(&path, kind)?,
                ChosenKind::GoneDirectory => None,
            };
            // The guest does not remove a directory that holds files of the sandbox.
            let is_own = kind != ChosenKind::GoneDirectory && self.pushed.is_own(&anchors, &path);
            match (kind, known) {
                _ if is_own && self.has_same(&anchors, &path) => {}
                _ if is_own => self.totals.conflicts.push(path),
                (ChosenKind::Written, Some(known)) => steps.push(Step::Write(path, known)),
                (ChosenKind::Written, None) => self.totals.shown += 1,
                _ if self.goes_by_itself(&path, kind, &anchors) => {
                    self.entries.push((path, Signature::Absent));
                    self.totals.shown += 1;
                }
                (ChosenKind::GoneFile, Some(known)) => removes.push(Step::RemoveFile(path, known)),
                (ChosenKind::GoneFile, None) => self.totals.shown += 1,
                (ChosenKind::GoneDirectory, _) => removes.push(Step::RemoveDirectory(path)),
            }
        }
        // The entries of a directory are removed before it.
        removes.reverse();
        steps.append(&mut removes);
        Ok(steps)
    }

    /// Returns true if the sandbox's own file has the same content as the host's.
    fn has_same(&self, layers: &[Anchor], path: &RelPath) -> bool {
        let path = path.as_bytes();
        let digest = |anchor: &Anchor| {
            let size = anchor.stat(path).ok()?.st_size as u64;
            anchor.digest(path, size).ok()?
        };
        let top = layers.iter().find(|layer| cover(layer, path).is_some());
        top.and_then(digest)
            .is_some_and(|own| digest(&self.anchor) == Some(own))
    }

    /// Returns true if a name disappears inside when the overlay is refreshed: a directory, and the
    /// entries of one. Removing it would leave the directory in the layer.
    fn goes_by_itself(&self, path: &RelPath, kind: ChosenKind, layers: &[Anchor]) -> bool {
        let parent = path.parent();
        let parent = parent.as_ref().map_or(&b""[..], RelPath::as_bytes);
        let has_place = self.anchor.dir(parent).is_ok();
        let is_in_layers = layers
            .iter()
            .any(|layer| cover(layer, path.as_bytes()).is_some());
        !is_in_layers && (kind == ChosenKind::GoneDirectory || !has_place)
    }

    /// Returns the state of the file inside. `None` if it is not written over, so that only the
    /// refresh shows the change.
    fn known(&self, path: &RelPath, kind: ChosenKind) -> Result<Option<KnownInside>, Fault> {
        let inside = inside(path);
        let stat = match self.sandbox.stat(&inside, false) {
            Ok(stat) => stat,
            Err(fault) if fault.code == Code::NotFound => {
                return Ok(Some(KnownInside::Nothing));
            }
            Err(fault) if fault.class == Class::Lost => return Err(fault),
            Err(_) => return Ok(None),
        };
        if stat.kind != FileKind::File {
            return Ok(None);
        }
        // A copy keeps the permissions that are there.
        if kind == ChosenKind::Written {
            let host = self.anchor.stat(path.as_bytes()).ok();
            if host.is_none_or(|host| (host.st_mode ^ stat.permissions) & 0o777 != 0) {
                return Ok(None);
            }
        }
        match self.sandbox.read_file(&inside, MAX_COMPARED_BYTES) {
            Ok(content) => Ok(Some(KnownInside::Content(
                *blake3::hash(&content).as_bytes(),
            ))),
            Err(fault) if fault.class == Class::Lost => Err(fault),
            Err(_) => Ok(None),
        }
    }

    fn send(&mut self, steps: Vec<Step>, watch: &mut Watch<'_>) -> Result<(), Fault> {
        let writes = steps.iter().filter(|step| matches!(step, Step::Write(..)));
        let total_files = writes.count() as u64;
        for step in steps {
            match step {
                Step::Write(path, known) => self.write(path, known)?,
                Step::RemoveFile(path, known) => self.remove_file(path, known)?,
                Step::RemoveDirectory(path) => self.remove_directory(path)?,
            }
            let done = Progress::Staging {
                files: self.totals.files.len() as u64,
                total_files,
                bytes: self.totals.bytes,
                total_bytes: self.total_bytes,
            };
            report(watch, done)?;
        }
        Ok(())
    }

    fn write(&mut self, path: RelPath, known: KnownInside) -> Result<(), Fault> {
        let Ok((file, stat)) = self.anchor.file(path.as_bytes()) else {
            // It was removed meanwhile, which the next push finds.
            return Ok(());
        };
        let mut content = Vec::new();
        let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content);
        if read.is_err() || content.len() as u64 > MAX_FILE_BYTES {
            self.totals.shown += 1;
            return Ok(());
        }
        let mode = WriteMode::ReplaceKnown(match known {
            KnownInside::Nothing => WritePrecondition::Nothing,
            KnownInside::Content(digest) => WritePrecondition::Digest(digest),
        });
        let permissions = stat.st_mode & 0o777;
        let mut stream = self
            .sandbox
            .send_file(&inside(&path), mode, permissions, &content)?;
        let answer = loop {
            match stream.recv() {
                Incoming::Data { .. } => {}
                Incoming::Reply(answer) => break answer,
            }
        };
        match answer {
            Ok(Reply::WrittenOver { .. }) => {}
            Ok(_) => return Err(Fault::failed(Code::Internal, "the guest wrote no file")),
            Err(fault) if fault.code == Code::UnseenContent => {
                self.totals.conflicts.push(path);
                return Ok(());
            }
            Err(fault) => return Err(fault),
        }
        let digest = *blake3::hash(&content).as_bytes();
        let version = PushedVersion {
            digest,
            is_executable: stat.st_mode & 0o100 != 0,
        };
        self.brought.insert(path.clone(), Some(version));
        self.entries.push((path.clone(), Signature::from(&stat)));
        self.totals.bytes += content.len() as u64;
        let content = (content.len() <= MAX_NOTED_BYTES).then_some(content);
        let digest = Some(digest);
        self.contents
            .insert(path.clone(), PulledContent { digest, content });
        self.totals.files.push(path);
        Ok(())
    }

    fn remove_directory(&mut self, path: RelPath) -> Result<(), Fault> {
        match self.call_remove(&inside(&path)) {
            Ok(()) => {}
            Err(fault) if fault.class == Class::Lost => return Err(fault),
            Err(fault) if fault.code == Code::NotFound => {}
            // The sandbox has something in it.
            Err(_) => return Ok(()),
        }
        self.note_removed(path);
        Ok(())
    }

    fn remove_file(&mut self, path: RelPath, known: KnownInside) -> Result<(), Fault> {
        let place = inside(&path);
        let known = match known {
            KnownInside::Content(known) => known,
            KnownInside::Nothing => {
                // The overlay shows already that it is gone, without an event. An empty file in its
                // place, removed again, raises one in the directory.
                let parent = path.parent();
                let parent = parent.as_ref().map_or(&b""[..], RelPath::as_bytes);
                let has_place = self.anchor.dir(parent).is_ok();
                if !has_place || !self.create_empty(&place)? {
                    self.note_removed(path);
                    return Ok(());
                }
                *blake3::hash(b"").as_bytes()
            }
        };
        if self.remove_known(&place, known)? {
            self.note_removed(path);
        } else {
            self.totals.conflicts.push(path);
        }
        Ok(())
    }

    /// Creates an empty file. Returns false if the sandbox does not let it.
    fn create_empty(&self, place: &[u8]) -> Result<bool, Fault> {
        match self.sandbox.write_file(place, WriteMode::CreateNew, b"") {
            Ok(_) => Ok(true),
            Err(fault) if fault.class == Class::Lost => Err(fault),
            Err(_) => Ok(false),
        }
    }

    /// Removes a file that has a known content. Returns false if it has another one: the sandbox's
    /// version stays.
    ///
    /// The file is moved aside, compared there, and removed or moved back: a removal by name alone
    /// would take a version that was written after the comparison. The name aside is an ordinary
    /// one, so that a file that cannot be moved back is a change that is shown.
    fn remove_known(&self, place: &[u8], known: Digest) -> Result<bool, Fault> {
        let aside = [place, ASIDE].concat();
        match self.rename(place, &aside) {
            Ok(()) => {}
            Err(fault) if fault.class == Class::Lost => return Err(fault),
            Err(fault) if fault.code == Code::NotFound => return Ok(true),
            Err(_) => return Ok(false),
        }
        let is_file = |stat: Stat| stat.kind == FileKind::File;
        let has_known = self.sandbox.stat(&aside, false).is_ok_and(is_file)
            && self
                .sandbox
                .read_file(&aside, MAX_COMPARED_BYTES)
                .is_ok_and(|content| *blake3::hash(&content).as_bytes() == known);
        if has_known {
            return self.call_remove(&aside).map(|()| true);
        }
        match self.rename(&aside, place) {
            Err(fault) if fault.class == Class::Lost => Err(fault),
            // The sandbox has made a new file there meanwhile; both stay.
            _ => Ok(false),
        }
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Fault> {
        let request = Request::Rename {
            from: ByteBuf::from(from),
            to: ByteBuf::from(to),
            replace: false,
        };
        self.sandbox.call(request).map(drop)
    }

    fn call_remove(&self, place: &[u8]) -> Result<(), Fault> {
        let request = Request::Remove {
            path: ByteBuf::from(place),
            recursive: false,
        };
        self.sandbox.call(request).map(drop)
    }

    fn note_removed(&mut self, path: RelPath) {
        self.brought.insert(path.clone(), None);
        self.entries.push((path.clone(), Signature::Absent));
        self.contents.insert(path.clone(), PulledContent::default());
        self.totals.deleted.push(path);
    }

    /// Records the copies and removals, so that they count as a change on neither side.
    fn note(&mut self, index: &Path) -> Result<(), Fault> {
        PushedFiles::add(index, std::mem::take(&mut self.brought))?;
        advance_contents(index, &self.contents)?;
        advance(index, std::mem::take(&mut self.entries))
    }
}

/// Returns the path inside of a file of the project.
fn inside(path: &RelPath) -> Vec<u8> {
    [WORKSPACE.as_bytes(), b"/", path.as_bytes()].concat()
}
