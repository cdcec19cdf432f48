//! Instructions for the model: the user's own `AGENTS.md` from the configuration directory, and
//! `AGENTS.md` and `CLAUDE.md` of the project, from its top and from the start directory.
//!
//! A project's file is read as the workspace shows it: hidden files are skipped, no link may lead
//! out of the project, and opening a file does not block. A project's file that cannot be used
//! causes a warning, because a project must not keep an agent from working. The user's file causes
//! an error, because it may forbid something.

use crate::Error;
use crate::frontend::{Frontend, Notice};
use crate::host::short_path;
use crate::spec::hide_rules;
use glovebox_agent::{InstructionSource, Instructions};
use glovebox_proto::{Remedy, Setting};
use glovebox_sandbox::WorkspaceMode;
use glovebox_settings::{Settings, Surroundings};
use glovebox_workspace::find_hidden;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// File names in a project.
const NAMES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];
/// File name in the user's configuration directory.
const OWN_NAME: &str = "AGENTS.md";
/// Flags for opening instruction files: no wait for the other end of a FIFO, no controlling
/// terminal.
const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Loads the instructions for the model.
///
/// # Errors
/// The user's own file exists and cannot be read.
pub fn load_instructions(
    host: &Surroundings,
    frontend: &dyn Frontend,
    settings: &Settings,
    project: &Path,
) -> Result<Vec<Instructions>, Error> {
    if !settings.agent.instructions.value {
        return Ok(Vec::new());
    }
    let mut all: Vec<Instructions> = own(host)?.into_iter().collect();
    if settings.workspace_mode() != WorkspaceMode::None {
        all.extend(of_project(host, frontend, settings, project)?);
    }
    Ok(all)
}

fn own(host: &Surroundings) -> Result<Option<Instructions>, Error> {
    let Some(path) = host.config_dir().map(|dir| dir.join(OWN_NAME)) else {
        return Ok(None);
    };
    let shown = short_path(host, &path);
    let opened = openat(CWD, &path, FLAGS, Mode::empty());
    let read = match opened {
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        opened => opened
            .map(File::from)
            .map_err(io::Error::from)
            .and_then(read),
    };
    let found = read.map_err(|error| {
        Error::usage(
            format!("your instructions {shown} cannot be read: {error}"),
            Remedy::advice([
                "make it a regular file that you can read, or pass ".into(),
                Setting::NoInstructions.into(),
            ]),
        )
    })?;
    let source = InstructionSource::User;
    Ok(Instructions::new(
        source,
        &shown,
        &found.content,
        found.bytes,
    ))
}

fn of_project(
    host: &Surroundings,
    frontend: &dyn Frontend,
    settings: &Settings,
    project: &Path,
) -> Result<Vec<Instructions>, Error> {
    let start_dir = host.start_dir(project);
    let mut dirs = vec![PathBuf::new()];
    if !start_dir.as_os_str().is_empty() {
        dirs.push(start_dir);
    }
    let mut paths: Vec<PathBuf> = dirs
        .iter()
        .flat_map(|dir| NAMES.iter().map(move |name| dir.join(name)))
        .collect();
    paths.retain(|path| project.join(path).symlink_metadata().is_ok());
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let hidden = find_hidden(project, &hide_rules(settings))?;
    let is_hidden = |path: &Path| {
        hidden
            .paths
            .iter()
            .any(|(hidden, _)| path.starts_with(hidden))
    };
    let top = openat(
        CWD,
        project,
        OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|error| Error::io("open the project", &error.into()))?;
    let mut found = Vec::new();
    let mut seen = Vec::new();
    for path in paths {
        if is_hidden(&path) {
            continue;
        }
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let opened = openat2(&top, &path, FLAGS, Mode::empty(), within);
        let read = opened
            .map(File::from)
            .map_err(io::Error::from)
            .and_then(read);
        let file = match read {
            // The path is a link to a hidden name.
            Ok(file) if target(project, &path).is_none_or(|target| is_hidden(&target)) => {
                drop(file);
                continue;
            }
            Ok(file) => file,
            Err(error) => {
                frontend.notify(&Notice::InstructionsLeftOut {
                    path: &path,
                    reason: &why(&error),
                });
                continue;
            }
        };
        // `CLAUDE.md` is often a link to `AGENTS.md`.
        if seen.contains(&file.id) {
            continue;
        }
        seen.push(file.id);
        let shown = path.display().to_string();
        let source = InstructionSource::Project;
        found.extend(Instructions::new(source, &shown, &file.content, file.bytes));
    }
    Ok(found)
}

/// Returns the canonical target of a path in the project, relative to the project.
fn target(project: &Path, path: &Path) -> Option<PathBuf> {
    let real = project.join(path).canonicalize().ok()?;
    let top = project.canonicalize().ok()?;
    Some(real.strip_prefix(top).ok()?.to_owned())
}

fn why(error: &io::Error) -> String {
    match error
        .raw_os_error()
        .map(rustix::io::Errno::from_raw_os_error)
    {
        Some(rustix::io::Errno::XDEV) => "it is a link out of the project".to_owned(),
        _ => error.to_string(),
    }
}

struct ReadFile {
    content: Vec<u8>,
    bytes: u64,
    /// Device and inode.
    id: (u64, u64),
}

/// Reads up to `MAX_BYTES + 1` bytes of a regular file.
fn read(file: File) -> io::Result<ReadFile> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    let limit = Instructions::MAX_BYTES as u64 + 1;
    file.take(limit).read_to_end(&mut content)?;
    Ok(ReadFile {
        bytes: metadata.len().max(content.len() as u64),
        id: (metadata.dev(), metadata.ino()),
        content,
    })
}
