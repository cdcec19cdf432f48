//! Files in a session's sandbox, for the API.

use super::App;
use glovebox_proto::{Code, FileKind};
use glovebox_session::Error;
use glovebox_session::sync::{copied, inside};
use serde::Serialize;
use std::path::Path;
use utoipa::ToSchema;

/// Maximum length of a file in a response, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Maximum number of directory entries in a response.
const MAX_ENTRIES: usize = 10_000;

/// An entry of a directory.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FileEntry {
    /// Its name, with replacement characters where it is not UTF-8.
    pub name: String,
    /// `file`, `directory`, `link` or `other`.
    pub kind: &'static str,
    /// Its length in bytes.
    pub size: u64,
}

/// Content of a path in the workspace.
#[derive(Debug)]
pub(crate) enum FileAnswer {
    File(Vec<u8>),
    Directory {
        entries: Vec<FileEntry>,
        is_cut: bool,
    },
}

impl App {
    /// Reads a path of a session's workspace: the content of a file, or the sorted entries of a
    /// directory. `is_cut` is true if entries are missing.
    pub(crate) fn read_path(&self, id: &str, path: &str) -> Result<FileAnswer, Error> {
        let name = self.session_sandbox(id)?;
        let relative = inside(Path::new(path), None)?;
        let opened = self.open_sandbox(&name)?;
        let sandbox = opened.work.sandbox();
        let mut full = copied::root(sandbox);
        if let Some(relative) = &relative {
            full.push(b'/');
            full.extend_from_slice(relative.as_bytes());
        }
        match sandbox.read_file(&full, MAX_FILE_BYTES) {
            Ok(bytes) => Ok(FileAnswer::File(bytes)),
            Err(fault) if fault.code == Code::IsDirectory => {
                let (list, total) = sandbox.list(&full)?;
                let is_cut = list.len() > MAX_ENTRIES || total > list.len() as u64;
                let entries = list.into_iter().take(MAX_ENTRIES).map(|entry| FileEntry {
                    name: String::from_utf8_lossy(&entry.name).into_owned(),
                    kind: match entry.stat.kind {
                        FileKind::File => "file",
                        FileKind::Directory => "directory",
                        FileKind::Symlink => "link",
                        _ => "other",
                    },
                    size: entry.stat.size,
                });
                let mut entries: Vec<FileEntry> = entries.collect();
                entries.sort_by(|one, other| one.name.cmp(&other.name));
                Ok(FileAnswer::Directory { entries, is_cut })
            }
            Err(fault) => Err(fault.into()),
        }
    }
}
