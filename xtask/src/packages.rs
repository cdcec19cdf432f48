//! Programs that the tests and benches use, and the Debian packages that contain them.

use crate::step::{self, has_program, is_root, say};
use anyhow::Result;
use std::process::Command;

/// Program, package, and purpose.
const NEEDED: &[(&str, &str, &str)] = &[
    (
        "sshd",
        "openssh-server",
        "the `command` backend over a real SSH server",
    ),
    (
        "ssh",
        "openssh-client",
        "the `command` backend over a real SSH server",
    ),
    ("newuidmap", "uidmap", "id ranges of an ordinary user"),
    ("setpriv", "util-linux", "tests as an ordinary user"),
    ("useradd", "passwd", "tests as an ordinary user"),
    (
        "mkfs.ext4",
        "e2fsprogs",
        "tests on a full disk, a machine with another kernel",
    ),
    ("script", "bsdutils", "terminal tests"),
    ("strace", "strace", "failing system calls"),
    ("gdb", "gdb", "debuggers inside"),
    ("php", "php-cli", "settings in /etc"),
    ("ping", "iputils-ping", "echo requests inside"),
    ("setcap", "libcap2-bin", "programs with file capabilities"),
    ("keyctl", "keyutils", "keyrings"),
    (
        "python3",
        "python3",
        "real projects, clients of `glovebox mcp`",
    ),
    ("pip3", "python3-pip", "clients of `glovebox mcp`"),
    ("pytest", "python3-pytest", "real projects"),
    ("node", "nodejs", "real projects"),
    ("npm", "npm", "real projects"),
    ("make", "make", "real projects"),
    ("less", "less", "pagers beside a pipe"),
    ("fzf", "fzf", "menus beside a pipe"),
    ("zsh", "zsh", "scripts of another shell"),
    ("dash", "dash", "scripts of another shell"),
    ("vim", "vim", "editors that are put aside"),
    ("tmux", "tmux", "panes of a terminal"),
    ("gcc", "gcc", "real projects"),
    ("bzip2", "bzip2", "real projects"),
    ("git", "git", "real projects, searches beside it"),
    ("git-lfs", "git-lfs", "filters of git inside"),
    ("git-crypt", "git-crypt", "filters of git inside"),
    ("rg", "ripgrep", "searches beside it"),
    ("mkfs.exfat", "exfatprogs", "a file system that folds case"),
    (
        "mount.exfat-fuse",
        "exfat-fuse",
        "a file system that folds case",
    ),
    ("bindfs", "bindfs", "a file system in user space"),
    (
        "qemu-system-x86_64",
        "qemu-system-x86",
        "a machine with another kernel",
    ),
    ("busybox", "busybox-static", "a machine with another kernel"),
    ("rclone", "rclone", "a client in Go"),
    ("javac", "default-jdk-headless", "a client in Java"),
    ("wget", "wget", "a client of the filtered network"),
    ("chromium", "chromium", "the web interface"),
    ("bwrap", "bubblewrap", "the measurements beside it"),
    ("crun", "crun", "the measurements beside it"),
    ("rsync", "rsync", "the measurements beside it"),
    ("tinyproxy", "tinyproxy-bin", "the measurements beside it"),
];

/// Installs missing packages if possible (as root on Debian or Ubuntu). Otherwise prints the
/// missing programs: tests that need them are then skipped with a message.
///
/// # Errors
/// If the package lists cannot be refreshed.
pub(crate) fn install_missing() -> Result<()> {
    let missing: Vec<_> = NEEDED
        .iter()
        .filter(|(program, ..)| !has_program(program))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = missing.iter().map(|(_, package, _)| *package).collect();
    packages.dedup();
    if !is_root() || !has_program("apt-get") {
        say("These programs are missing; the tests that need them are skipped:");
        for (program, package, purpose) in missing {
            say(&format!("  {program} (package {package}): {purpose}"));
        }
        return Ok(());
    }
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        apt
    };
    let install = |apt: &mut Command| {
        apt.args(["install", "--yes", "--quiet", "--no-install-recommends"])
            .args(&packages)
            .status()
    };
    step::run(
        "refresh the package lists",
        apt().args(["update", "--quiet"]),
    )?;
    say(&format!("==> install {}", packages.join(", ")));
    if install(&mut apt()).is_ok_and(|status| status.success()) {
        return Ok(());
    }
    // A package that does not exist on this system must not prevent the others.
    for package in packages {
        let alone = apt()
            .args([
                "install",
                "--yes",
                "--quiet",
                "--no-install-recommends",
                package,
            ])
            .status();
        if !alone.is_ok_and(|status| status.success()) {
            say(&format!(
                "package {package} cannot be installed; the tests that need it are skipped"
            ));
        }
    }
    Ok(())
}
