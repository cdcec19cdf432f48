//! `cargo xtask dist`: files for users, in `target/dist`.
//!
//! Makes a tree as it lies below a prefix (`bin`, `share/man`, completions of three shells,
//! `share/doc`), a tar archive of it that can be unpacked below any prefix, and a Debian package if
//! `dpkg-deb` is installed. All of it comes from the binary: manual pages and completions are
//! generated from the declarations of its command line.

use crate::step::{self, say};
use crate::{licences, musl};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of `dist`.
#[derive(Debug, clap::Args)]
pub(crate) struct DistArgs {
    /// Package this program instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Where to put it [default: target/dist]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Shell, and the path of its completions below a prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/glovebox"),
    ("zsh", "share/zsh/vendor-completions/_glovebox"),
    ("fish", "share/fish/vendor_completions.d/glovebox.fish"),
];
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// File with the licences of everything that the binary is linked with.
const THIRD_PARTY: &str = "THIRD-PARTY-LICENCES";

/// Builds the release binary and everything that is made from it.
///
/// # Errors
/// If a step fails.
pub(crate) fn run(args: &DistArgs) -> Result<()> {
    let binary = if let Some(binary) = &args.binary {
        binary.clone()
    } else {
        musl::install_missing();
        step::build_shipped()?
    };
    let dist = args
        .out
        .clone()
        .unwrap_or_else(|| step::target_dir().join("dist"));
    package(&binary, &dist)?;
    say(&format!("All of it is in {}", dist.display()));
    Ok(())
}

/// Makes the tree, the archive and the package. Returns the files that were made.
fn package(binary: &Path, dist: &Path) -> Result<Vec<PathBuf>> {
    if dist.exists() {
        fs::remove_dir_all(dist)?;
    }
    let name = format!(
        "glovebox-{}-{}-linux",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    );
    let tree = dist.join(&name);
    fill(binary, &tree)?;
    let tar = dist.join(format!("{name}.tar.gz"));
    step::run(
        "tar",
        Command::new("tar")
            .args(["--owner=0", "--group=0", "--sort=name", "-C"])
            .arg(dist)
            .arg("-czf")
            .args([&tar, Path::new(&name)]),
    )?;
    let mut made = vec![tar];
    if step::has_program("dpkg-deb") {
        made.push(debian(&tree, dist)?);
    } else {
        say("no Debian package is made: dpkg-deb is not installed");
    }
    Ok(made)
}

/// Fills a tree as it lies below a prefix.
fn fill(binary: &Path, prefix: &Path) -> Result<()> {
    let man = prefix.join("share/man/man1");
    fs::create_dir_all(&man).with_context(|| format!("cannot make {}", man.display()))?;
    let program = prefix.join("bin/glovebox");
    put(
        &program,
        &fs::read(binary).context("cannot read the binary")?,
        0o755,
    )?;
    step::run(
        "manual pages",
        Command::new(&program).arg("__man").arg(&man),
    )?;
    for page in fs::read_dir(&man)? {
        fs::set_permissions(page?.path(), fs::Permissions::from_mode(0o644))?;
    }
    for (shell, place) in COMPLETIONS {
        let script = step::output(Command::new(&program).args(["completions", shell]))?;
        put(&prefix.join(place), script.as_bytes(), 0o644)?;
    }
    for name in DOCUMENTS {
        let text =
            fs::read(step::root().join(name)).with_context(|| format!("cannot read {name}"))?;
        put(&prefix.join("share/doc/glovebox").join(name), &text, 0o644)?;
    }
    put(
        &prefix.join("share/doc/glovebox").join(THIRD_PARTY),
        licences::third_party()?.as_bytes(),
        0o644,
    )?;
    Ok(())
}

/// Writes a file, and creates its parent directories.
fn put(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let write = || {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, content)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Makes a Debian package from a filled tree. The package runs no scripts on installation.
fn debian(tree: &Path, dist: &Path) -> Result<PathBuf> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("there is no Debian name for the architecture {other} here"),
    };
    let version = format!("{}-1", env!("CARGO_PKG_VERSION"));
    let root = dist.join("deb");
    step::run(
        "tree of the package",
        Command::new("cp").arg("-a").arg(tree).arg(&root),
    )?;
    let usr = root.join("usr");
    fs::create_dir(&usr)?;
    for part in ["bin", "share"] {
        fs::rename(root.join(part), usr.join(part))?;
    }
    // Paths and names that Debian prescribes (Debian Policy, 12.1, 12.5 and 12.7).
    let man = usr.join("share/man/man1");
    let pages = fs::read_dir(&man)?.collect::<Result<Vec<_>, _>>()?;
    step::run(
        "compress manual pages",
        Command::new("gzip")
            .arg("-9n")
            .args(pages.iter().map(fs::DirEntry::path)),
    )?;
    let documents = usr.join("share/doc/glovebox");
    let licences = ["LICENSE-MIT", "LICENSE-APACHE"]
        .map(|name| fs::read_to_string(documents.join(name)).unwrap_or_default());
    put(
        &documents.join("copyright"),
        format!(
            "Either of these two licences, at your option.\n\n{}\n{}",
            licences[0], licences[1]
        )
        .as_bytes(),
        0o644,
    )?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        fs::remove_file(documents.join(name))?;
    }
    let program = fs::read(usr.join("bin/glovebox"))?;
    put(
        &root.join("DEBIAN/control"),
        control(&version, architecture, installed_kib(&usr)?, &program).as_bytes(),
        0o644,
    )?;
    let file = dist.join(format!("glovebox_{version}_{architecture}.deb"));
    step::run(
        "Debian package",
        Command::new("dpkg-deb")
            .args(["--build", "--root-owner-group"])
            .args([&root, &file]),
    )?;
    fs::remove_dir_all(&root)?;
    Ok(file)
}

/// Returns the control file of the package (deb-control(5)).
fn control(version: &str, architecture: &str, installed_kib: u64, program: &[u8]) -> String {
    let needs = glibc_version(program).map_or_else(String::new, |minor| {
        format!("Depends: libc6 (>= 2.{minor}), libgcc-s1\n")
    });
    format!(
        "Package: glovebox\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: The Glovebox developers <glovebox@localhost>\n\
         Section: utils\n\
         Priority: optional\n\
         Installed-Size: {installed_kib}\n\
         {needs}\
         Recommends: uidmap\n\
         Description: run any command in a sandbox that starts in milliseconds\n \
         The command sees your project and may do anything to it; your files stay\n \
         untouched until you take its changes over. It sees the machine's programs,\n \
         and neither your home, your secrets nor the network.\n"
    )
}

/// Returns the newest version of the C library whose symbols a program requires: 34 for 2.34.
/// `None` if it requires none, because it is linked statically.
fn glibc_version(program: &[u8]) -> Option<u32> {
    const MARK: &[u8] = b"GLIBC_2.";
    program
        .windows(MARK.len() + 3)
        .filter_map(|window| window.strip_prefix(MARK))
        .filter_map(|digits| {
            let digits: String = digits
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .map(|byte| char::from(*byte))
                .collect();
            digits.parse().ok()
        })
        .max()
}

fn installed_kib(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let found = entry.metadata()?;
        bytes += if found.is_dir() {
            installed_kib(&entry.path())? * 1024
        } else {
            found.len().next_multiple_of(1024)
        };
    }
    Ok(bytes / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_decides_what_is_needed() {
        assert_eq!(
            glibc_version(b"GLIBC_2.17 GLIBC_2.34 GLIBC_2.4\n"),
            Some(34)
        );
        assert_eq!(glibc_version(b"static"), None);
    }
}
