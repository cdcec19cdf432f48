//! Writes a patch to a file of the user's.

use crate::exit::CommandError;
use crate::sync::patch_error;
use glovebox_settings::Surroundings;
use glovebox_workspace::CollectedChanges;
use glovebox_workspace::patch::{self, PatchError, Style};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes the changes to `path` as typed; `-` is standard output. A regular file appears only when
/// it is complete.
pub(crate) fn write(
    collected: &CollectedChanges,
    path: &Path,
    host: &Surroundings,
) -> Result<(), CommandError> {
    if path == Path::new("-") {
        return fill(collected, std::io::stdout().lock())
            .map_err(|error| patch_error(error, "standard output"));
    }
    let path = host.absolute(path);
    let shown = path.display().to_string();
    let fail = |error: PatchError| patch_error(error, &shown);
    let is_plain = path
        .symlink_metadata()
        .map_or(true, |metadata| metadata.is_file());
    if !is_plain {
        // A pipe or a device is written to, not replaced.
        let file = File::create(&path).map_err(|error| fail(error.into()))?;
        return fill(collected, file).map_err(fail);
    }
    let new = beside(&path);
    let written = File::create(&new)
        .map_err(PatchError::from)
        .and_then(|file| fill(collected, file))
        .and_then(|()| Ok(std::fs::rename(&new, &path)?));
    written.map_err(|error| {
        // An incomplete patch must not remain.
        let _ = std::fs::remove_file(&new);
        fail(error)
    })
}

fn fill(collected: &CollectedChanges, out: impl Write) -> Result<(), PatchError> {
    let mut out = BufWriter::new(out);
    patch::write(collected, Style::Exact, &mut out)?;
    Ok(out.flush()?)
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}
