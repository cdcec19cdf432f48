//! Small file system in which overlays are assembled. It has a directory for each layer, so that
//! the options of an overlay are short names that contain no text of the caller.

use super::{Context as _, FailedStep};
use crate::mount::{self, FsOption};
use glovebox_spec::files_within;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;

/// Number of files of the staging file system itself, beside those of the sandbox that it may hold.
const OWN_FILES: u64 = 512;
/// Maximum length of an option's value in bytes; see fsconfig(2).
const OPTION_BYTES: usize = 255;

const DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Creates the file system and mounts it over the root, where absolute paths do not reach it.
/// Enters it.
pub(crate) fn create(bytes: u64) -> Result<OwnedFd, FailedStep> {
    let size = bytes.to_string();
    let files = (files_within(bytes) + OWN_FILES).to_string();
    let staging = mount::create(
        "tmpfs",
        &[
            FsOption::Value("size", &size),
            FsOption::Value("nr_inodes", &files),
            FsOption::Value("mode", "0755"),
        ],
        MountAttrFlags::MOUNT_ATTR_NODEV,
    )
    .cannot("create the staging file system")?;
    mount::attach_over_root(&staging).cannot("mount the staging file system")?;
    for name in ["empty", "root", "layers"] {
        mkdir(&staging, name, 0o755)?;
    }
    touch(&staging, "void")?;
    enter(&staging)?;
    Ok(staging)
}

/// Makes the staging file system the working directory. Overlay options are paths: relative to it
/// they are short, and no name chosen by a caller is part of them.
pub(crate) fn enter(staging: &OwnedFd) -> Result<(), FailedStep> {
    rustix::process::fchdir(staging).cannot("enter the staging file system")
}

/// Opens a directory of the staging file system.
pub(crate) fn open(staging: &OwnedFd, name: &str) -> Result<OwnedFd, FailedStep> {
    rustix::fs::openat(staging, name, DIR, Mode::empty()).cannot("open a staging directory")
}

/// Mounts a detached mount on a directory of the staging file system.
pub(crate) fn attach(staging: &OwnedFd, mount: &OwnedFd, name: &str) -> Result<(), FailedStep> {
    let target = open(staging, name)?;
    mount::attach(mount, &target).cannot("mount a layer in the staging file system")
}

/// Mounts the read-only layers of one overlay, top first. Returns their names. Each overlay needs a
/// different `number`.
pub(crate) fn place(
    staging: &OwnedFd,
    lowers: &[&OwnedFd],
    number: usize,
) -> Result<Vec<String>, FailedStep> {
    let letters = letters(number);
    let mut names = Vec::with_capacity(lowers.len());
    for (index, lower) in lowers.iter().enumerate() {
        // Names are short because older kernels take all of them in one option of 255 bytes.
        let name = format!("{letters}{index}");
        mkdir(staging, &name, 0o755)?;
        attach(staging, lower, &name)?;
        names.push(name);
    }
    if names.is_empty() {
        names.push("empty".to_owned());
    }
    Ok(names)
}

/// Returns a number in letters: `a` to `z`, then `ba`.
fn letters(number: usize) -> String {
    let mut digits = Vec::new();
    let mut rest = number;
    loop {
        digits.push(char::from(b'a' + (rest % 26) as u8));
        rest /= 26;
        if rest == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

/// Creates a detached overlay over layers that [`place`] has mounted. Precondition: the staging
/// file system is the working directory and has the writable layers in `layers`.
///
/// # Errors
/// `EOPNOTSUPP`: the writable layer has no extended attributes for users (tmpfs before Linux 6.6).
pub(crate) fn overlay(names: &[String], layer: &str, is_read_only: bool) -> Result<OwnedFd, Errno> {
    let (upper, work) = (
        format!("layers/{layer}-upper"),
        format!("layers/{layer}-work"),
    );
    let own = [
        FsOption::Value("upperdir", &upper),
        FsOption::Value("workdir", &work),
        FsOption::Flag("userxattr"),
        // Without it the kernel syncs the whole underlying file system whenever a sandbox ends.
        // Changes survive the end of the sandbox; only a crash of the machine can lose them.
        FsOption::Flag("volatile"),
    ];
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NODEV;
    // This concerns the mount only. The writable layer is made all the same and stays empty.
    attributes.set(MountAttrFlags::MOUNT_ATTR_RDONLY, is_read_only);
    // Without these attributes the kernel mounts the overlay all the same and only logs it. A
    // removed directory could then not be created again.
    if rustix::fs::getxattr(&upper, c"user.overlay.opaque", &mut [0_u8; 1]) == Err(Errno::OPNOTSUPP)
    {
        return Err(Errno::OPNOTSUPP);
    }
    let joined = names.join(":");
    let mut options = Vec::with_capacity(names.len() + own.len());
    if joined.len() <= OPTION_BYTES {
        options.push(FsOption::Value("lowerdir", &joined));
    } else {
        // Since Linux 6.8. Older kernels refuse this option and log a complaint.
        options.extend(names.iter().map(|name| FsOption::Value("lowerdir+", name)));
    }
    options.extend(own);
    mount::create("overlay", &options, attributes)
}

/// Makes a directory during set-up.
pub(crate) fn mkdir(at: &OwnedFd, name: &str, mode: u32) -> Result<(), FailedStep> {
    rustix::fs::mkdirat(at, name, Mode::from_raw_mode(mode))
        .cannot(&format!("make the directory {name} during set-up"))
}

/// Makes an empty file during set-up.
pub(crate) fn touch(at: &OwnedFd, name: &str) -> Result<(), FailedStep> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::from_raw_mode(0o444))
        .map(drop)
        .cannot(&format!("make the file {name} during set-up"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_overlay_has_letters_of_its_own() {
        assert_eq!([0, 25, 26].map(letters), ["a", "z", "ba"]);
        let all: HashSet<String> = (0..2_000).map(letters).collect();
        assert_eq!(all.len(), 2_000);
    }
}
