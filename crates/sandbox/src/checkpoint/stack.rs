//! Files in a sandbox's directory that name its layers and its checkpoints.

use super::{Checkpoint, Layer, change, number};
use crate::fault;
use crate::state::layout::{CHECKPOINTS, STACK};
use crate::state::sandbox_dir::{read_json, write_json};
use glovebox_proto::{Code, Fault};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Version of the schemas of this module's files.
pub(crate) const VERSION: u32 = 1;
/// Maximum number of checkpoints of one sandbox.
pub(crate) const MAX_CHECKPOINTS: usize = 10_000;

/// Stack of layers that a sandbox is based on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stack {
    pub(crate) version: u32,
    /// Frozen layers, newest first.
    pub(crate) layers: Vec<Layer>,
    /// Ids of the layers that the sandbox has mounted, or had mounted last.
    pub(crate) mounted: Vec<String>,
    /// Number of the last checkpoint.
    pub(crate) last: u64,
    /// Checkpoint that the present files are based on.
    pub(crate) parent: Option<String>,
}

impl Default for Stack {
    fn default() -> Self {
        Self {
            version: VERSION,
            layers: Vec::new(),
            mounted: Vec::new(),
            last: 0,
            parent: None,
        }
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join(STACK)
}

fn checkpoints_dir(dir: &Path) -> PathBuf {
    dir.join(CHECKPOINTS)
}

fn if_there<T>(result: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(fault) if fault.code == Code::NotFound => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Reads the stack of the sandbox in `dir`. Empty if it has none.
pub(crate) fn read(dir: &Path) -> Result<Stack, Fault> {
    let stack: Option<Stack> = if_there(read_json(&path(dir)))?;
    let stack = stack.unwrap_or_default();
    if stack.version == VERSION {
        return Ok(stack);
    }
    Err(Fault::failed(
        Code::Unsupported,
        format!(
            "{} was written by another glovebox (version {})",
            path(dir).display(),
            stack.version
        ),
    ))
}

pub(crate) fn write(dir: &Path, stack: &Stack) -> Result<(), Fault> {
    write_json(&path(dir), stack)
}

/// Records the layers that are about to be mounted, so that they are not removed even if the stack
/// changes.
///
/// The layers in `others` stay mounted as well.
pub(crate) fn note_mounted(dir: &Path, stack: &Stack, others: &[String]) -> Result<(), Fault> {
    let mut mounted: Vec<String> = stack.layers.iter().map(|layer| layer.id.clone()).collect();
    let old: Vec<_> = others.iter().filter(|id| !mounted.contains(id)).collect();
    mounted.extend(old.into_iter().cloned().collect::<Vec<_>>());
    if mounted == stack.mounted {
        return Ok(());
    }
    write(
        dir,
        &Stack {
            mounted,
            ..stack.clone()
        },
    )
}

pub(crate) fn checkpoint_path(dir: &Path, id: &str) -> PathBuf {
    checkpoints_dir(dir).join(format!("{id}.json"))
}

/// Reads one checkpoint of the sandbox in `dir`.
///
/// # Errors
/// `not-found` if there is no such checkpoint.
pub(crate) fn checkpoint(dir: &Path, id: &str) -> Result<Checkpoint, Fault> {
    let found = match number(id) {
        Some(_) => if_there(read_json::<Checkpoint>(&checkpoint_path(dir, id)))?,
        None => None,
    };
    found.ok_or_else(|| {
        Fault::failed(
            Code::NotFound,
            format!("there is no checkpoint `{}`", id.escape_debug()),
        )
        .remedy("`glovebox checkpoints NAME` lists them")
    })
}

/// Reads all checkpoints of the sandbox in `dir`, oldest first.
pub(crate) fn checkpoints(dir: &Path) -> Result<Vec<Checkpoint>, Fault> {
    let room = checkpoints_dir(dir);
    let entries = match fs::read_dir(&room) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fault::io("list", &room, error)),
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_suffix(".json"));
        if let Some(id) = id.filter(|id| number(id).is_some()) {
            // It may be deleted at this moment.
            found.extend(if_there(read_json::<Checkpoint>(&checkpoint_path(
                dir, id,
            )))?);
        }
    }
    found.sort_by_key(Checkpoint::number);
    Ok(found)
}

pub(crate) fn count(dir: &Path) -> usize {
    fs::read_dir(checkpoints_dir(dir)).map_or(0, Iterator::count)
}

pub(crate) fn write_checkpoint(dir: &Path, checkpoint: &Checkpoint) -> Result<(), Fault> {
    super::store::make_dir(&checkpoints_dir(dir))?;
    write_json(&checkpoint_path(dir, &checkpoint.id), checkpoint)
}

pub(crate) fn remove_checkpoint(dir: &Path, id: &str) -> Result<(), Fault> {
    let path = checkpoint_path(dir, id);
    fs::remove_file(&path).map_err(|error| fault::io("remove", &path, error))
}

/// Adds the ids of all layers that files in `dir` name. A missing directory names none.
pub(crate) fn add_references(dir: &Path, used: &mut HashSet<String>) -> Result<(), Fault> {
    let mut add = |layers: &[Layer]| used.extend(layers.iter().map(|layer| layer.id.clone()));
    // In this order: a pending change names its layers until the other files do, so read later it
    // could be missed.
    if let Some(pending) = if_there(change::read_pending(dir))? {
        add(&pending.stack.layers);
        add(pending.frozen.as_slice());
    }
    for checkpoint in checkpoints(dir)? {
        add(&checkpoint.layers);
    }
    let stack = read(dir)?;
    add(&stack.layers);
    used.extend(stack.mounted);
    Ok(())
}
