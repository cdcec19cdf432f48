//! Stock kernel of Debian for tests that start a virtual machine. It is downloaded and unpacked
//! below the target directory, and never installed.

use crate::clients;
use crate::step::{has_program, output, say};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Empty package that depends on the newest kernel for virtual machines.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// Downloads the kernel unless it is present. Prints the reason if that fails: tests that need it
/// are then skipped with a message.
pub(crate) fn install_missing() {
    let dir = clients::dir().join("kernel");
    let is_useful = cfg!(target_arch = "x86_64") && has_program("apt-get");
    if dir.join("vmlinuz").is_file() || !is_useful {
        return;
    }
    say(&format!(
        "==> unpack the kernel of {PACKAGE} in {}",
        dir.display()
    ));
    if let Err(error) = fetch(&dir) {
        say(&format!(
            "there is no kernel to be had ({error:#}); the tests that need it are skipped"
        ));
    }
}

/// Puts the kernel, `vmlinuz`, and the directory of its modules, `modules`, into `dir`.
fn fetch(dir: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(dir);
    let parts = dir.join("parts");
    fs::create_dir_all(&parts)?;
    let depends = output(Command::new("apt-cache").args(["depends", PACKAGE]))?;
    let package = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .with_context(|| format!("{PACKAGE} names no kernel"))?;
    output(
        Command::new("apt-get")
            .args(["download", "--quiet", package])
            .current_dir(&parts),
    )?;
    let unpacked = parts.join("unpacked");
    output(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(only_entry(&parts)?)
            .arg(&unpacked),
    )?;
    // Newer releases put modules under `usr`, and compress them.
    let places = ["lib/modules", "usr/lib/modules"].map(|dir| unpacked.join(dir));
    let place = places.iter().find(|dir| dir.is_dir());
    let place = place.with_context(|| format!("{package} has no modules"))?;
    let modules = only_entry(place)?.join("kernel");
    output(
        Command::new("find")
            .arg(&modules)
            .args(["-name", "*.ko.xz", "-exec", "xz", "-d", "{}", "+"]),
    )?;
    fs::rename(modules, dir.join("modules"))?;
    let release = package.trim_start_matches("linux-image-");
    let release = release.trim_end_matches("-unsigned");
    fs::rename(
        unpacked.join("boot").join(format!("vmlinuz-{release}")),
        dir.join("vmlinuz"),
    )?;
    fs::remove_dir_all(parts)?;
    Ok(())
}

fn only_entry(dir: &Path) -> Result<PathBuf> {
    let entry = fs::read_dir(dir)
        .and_then(|mut entries| entries.next().transpose())
        .with_context(|| format!("cannot look into {}", dir.display()))?;
    Ok(entry
        .with_context(|| format!("{} is empty", dir.display()))?
        .path())
}
