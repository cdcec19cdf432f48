//! `cargo xtask web`: checks the interface of `glovebox serve`, builds it from `web/`, and tries it
//! in a browser.
//!
//! The built files are committed, so that the program has the interface also when it is built
//! without Node. `--check` builds them in another directory and compares.

use crate::files::{files, read};
use crate::heard;
use crate::step::{self, has_program, is_ci, root, say, target_dir};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of `cargo xtask web`.
#[derive(Debug, Args)]
pub(crate) struct WebArgs {
    /// Change nothing, and fail when the committed files differ from a fresh build
    #[arg(long)]
    check: bool,
    /// Try the interface of this program in Chromium instead
    #[arg(long, value_name = "BINARY", conflicts_with = "check")]
    test: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// If npm or Chromium is missing, a check fails, or the committed files are out of date.
pub(crate) fn run(args: &WebArgs) -> Result<()> {
    if !has_program("npm") {
        bail!("npm is not installed; the interface is built with Node 20 or later");
    }
    install()?;
    if let Some(binary) = &args.test {
        if !has_program("chromium") {
            bail!("chromium is not installed; its package has the same name");
        }
        return try_in_browser(binary);
    }
    if args.check {
        check()
    } else {
        step::run("types of the API", &mut npm(&["run", "types"]))?;
        verify()?;
        step::run("build the interface", &mut npm(&["run", "build"]))
    }
}

/// Runs the part for `cargo xtask test`: the check, and the tests in a browser.
///
/// # Errors
/// If one of them fails; in CI also if npm or Chromium is missing.
pub(crate) fn test(binary: &Path) -> Result<()> {
    let missing: Vec<&str> = ["npm", "chromium"]
        .into_iter()
        .filter(|program| !has_program(program))
        .collect();
    if !missing.is_empty() {
        let missing = missing.join(" and ");
        if is_ci() {
            bail!("the web interface cannot be tried: {missing} not installed");
        }
        say(&format!(
            "skipped: the web interface, because of {missing}, not installed"
        ));
        return Ok(());
    }
    install()?;
    check()?;
    try_in_browser(binary)
}

fn npm(words: &[&str]) -> Command {
    let mut npm = Command::new("npm");
    npm.arg("--silent").args(words).current_dir(dir());
    npm
}

fn dir() -> PathBuf {
    root().join("web")
}

fn install() -> Result<()> {
    // `npm ci` installs exactly the lock file, or fails. The lock file lists the optional packages
    // of every platform. npm omits those of other platforms when it writes the file beside a
    // node_modules directory, so write it with `--package-lock-only`.
    let mut install = npm(&["ci", "--no-audit", "--no-fund"]);
    step::run("install what the interface is built with", &mut install)
}

fn verify() -> Result<()> {
    step::run("types of the interface", &mut npm(&["run", "typecheck"]))?;
    step::run("unit tests of the interface", &mut npm(&["test"]))
}

fn check() -> Result<()> {
    let fresh = target_dir().join("web");
    let types = fresh.join("schema.d.ts");
    let built = fresh.join("dist");
    fs::create_dir_all(&fresh).with_context(|| format!("make {}", fresh.display()))?;
    let mut generate = npm(&["exec", "--", "openapi-typescript", "openapi.json"]);
    generate.arg("--output").arg(&types);
    step::run("types of the API", &mut generate)?;
    if read(&types)? != read(&dir().join("src/api/schema.d.ts"))? {
        bail!("web/src/api/schema.d.ts is not made from web/openapi.json; run `cargo xtask web`");
    }
    verify()?;
    let mut build = npm(&["run", "build"]);
    step::run("build the interface", build.env("GLOVEBOX_WEB_OUT", &built))?;
    let (fresh, committed) = (
        files(&built)?,
        files(&root().join("crates/server/web-dist"))?,
    );
    let old: Vec<&str> = fresh
        .keys()
        .chain(committed.keys())
        .filter(|path| fresh.get(*path) != committed.get(*path))
        .map(String::as_str)
        .collect();
    if !old.is_empty() {
        bail!(
            "crates/server/web-dist is not what web/ builds: {}\nrun `cargo xtask web` and commit the files",
            old.join(", ")
        );
    }
    Ok(())
}

fn try_in_browser(binary: &Path) -> Result<()> {
    let binary = binary
        .canonicalize()
        .with_context(|| format!("find {}", binary.display()))?;
    heard::run_told(
        "the interface in Chromium",
        npm(&["run", "e2e"]).env("GLOVEBOX_BIN", binary),
    )
}
