//! Access to files of the source tree, with errors that name the file.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Reads a file.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// Reads all files at and below `dir`, by their paths relative to it.
///
/// # Errors
/// If a file cannot be read, or a directory cannot be listed.
pub(crate) fn files(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        let entries = fs::read_dir(&next).with_context(|| format!("list {}", next.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(dir).unwrap_or(&path);
            found.insert(name.display().to_string(), read(&path)?);
        }
    }
    Ok(found)
}
