//! `glovebox bundle dev`: what is wrong with a bundle, said again each time its file is saved.

use super::{check, read};
use crate::args::BundleDevArgs;
use crate::cmd::Cx;
use crate::exit::{CommandError, CommandResult};
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Soon enough for a person who saves, and next to no work.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Which state of a file was looked at. Editors write in place, or rename a new file over the old one.
#[derive(Debug, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

/// Checks it until the process is interrupted.
pub(super) fn run(cx: &Cx, args: &BundleDevArgs) -> CommandResult {
    if args.bundle.file.as_os_str() == OsStr::new("-") {
        return Err(CommandError::usage(
            "standard input cannot be watched",
            "name a file, or use `glovebox bundle check -`",
        ));
    }
    // A first file that cannot be read is a mistake; later it may be about to be written.
    let path = cx.host.directory().join(&args.bundle.file);
    let version = version_of(&path);
    check::tell(&read(cx, &args.bundle)?, args.json)?;
    cx.talk.note(format_args!(
        "checking again when the file is saved; Ctrl-C ends; `glovebox bundle call FILE TOOL JSON` tries a tool"
    ));
    match watch(cx, args, &path, version)? {}
}

fn watch(
    cx: &Cx,
    args: &BundleDevArgs,
    path: &Path,
    mut seen: Option<FileVersion>,
) -> Result<Infallible, CommandError> {
    loop {
        std::thread::sleep(LOOK_EVERY);
        let version = version_of(path);
        if version == seen || version.is_none() {
            continue;
        }
        seen = version;
        match read(cx, &args.bundle) {
            Ok(read) => drop(check::tell(&read, args.json)?),
            Err(error) => cx
                .talk
                .warning(format_args!("not checked: {}", error.fault.message)),
        }
    }
}

fn version_of(path: &Path) -> Option<FileVersion> {
    let found = fs::metadata(path).ok()?;
    Some(FileVersion {
        inode: found.ino(),
        bytes: found.len(),
        modified: found.modified().ok(),
    })
}
