//! Published projects whose own tests are run inside: their packages, at fixed versions, with the programs that run
//! those tests, in a directory beside the clients'.

use crate::clients;
use crate::step::{has_program, say};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Source distributions of Python that come with tests: directory, version.
const SOURCES: [(&str, &str); 3] = [
    ("click", "8.1.8"),
    ("flask", "3.1.1"),
    ("requests", "2.32.4"),
];
/// What runs their tests, and what they need for it.
const PYTHON: [&str; 10] = [
    "pytest==8.3.5",
    "pytest-mock==3.14.0",
    "pytest-httpbin==2.1.0",
    "PySocks==1.7.1",
    "werkzeug==3.1.3",
    "asgiref==3.8.1",
    "python-dotenv==1.1.0",
    "click==8.1.8",
    "flask==3.1.1",
    "requests==2.32.4",
];
/// A package of Node that comes with tests.
const NODE: (&str, &str) = ("minimist", "1.2.8");
/// What runs them.
const TAPE: &str = "tape@5.9.0";

/// The system's own, which sandboxes see: one of a home is a toolchain, and may be shown or not.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// Fetches what is missing, and says what cannot be: the tests that need it then skip and say so.
pub(crate) fn install_missing() {
    let dir = clients::dir().join("projects");
    let mark = dir.join("installed");
    let version = format!("{SOURCES:?} {PYTHON:?} {NODE:?} {TAPE}");
    if fs::read_to_string(&mark).is_ok_and(|found| found == version) {
        return;
    }
    say(&format!(
        "==> fetch published projects into {}",
        dir.display()
    ));
    if let Err(error) = fetch(&dir).and_then(|()| Ok(fs::write(&mark, version)?)) {
        say(&format!(
            "published projects cannot be fetched ({error:#}); the tests that need them are skipped"
        ));
    }
}

fn fetch(dir: &Path) -> Result<()> {
    ensure!(has_program("npm"), "there is no npm");
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    let packages = dir.join("packages");
    fs::create_dir_all(&packages)?;
    let pip = || {
        let mut pip = Command::new(SYSTEM_PYTHON);
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
        pip
    };
    let mut venv = Command::new(SYSTEM_PYTHON);
    run(venv
        .args(["-m", "venv", "--clear", "--without-pip"])
        .arg(dir.join("venv")))?;
    run(pip()
        .arg("--python")
        .arg(dir.join("venv/bin/python3"))
        .arg("install")
        .args(PYTHON))?;
    run(pip()
        .args(["download", "--no-deps", "--no-binary", ":all:", "--dest"])
        .arg(&packages)
        .args(SOURCES.map(|(name, version)| format!("{name}=={version}"))))?;
    for (name, version) in SOURCES {
        unpack(
            &packages.join(format!("{name}-{version}.tar.gz")),
            &dir.join(name),
        )?;
    }
    let (name, version) = NODE;
    run(Command::new("npm")
        .args(["pack", "--silent", "--pack-destination"])
        .arg(&packages)
        .arg(format!("{name}@{version}")))?;
    unpack(
        &packages.join(format!("{name}-{version}.tgz")),
        &dir.join(name),
    )?;
    run(Command::new("npm")
        .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
        .arg(dir.join("tape"))
        .arg(TAPE))
}

/// Unpacks what is in the one directory of an archive.
fn unpack(archive: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    run(Command::new("tar")
        .args(["--strip-components=1", "--no-same-owner", "-xzf"])
        .arg(archive)
        .arg("-C")
        .arg(to))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
