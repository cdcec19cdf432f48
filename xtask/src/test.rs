//! `cargo xtask test`: everything a change must pass.
//!
//! 1. install what is missing (as root on Debian or Ubuntu; otherwise say what is missing)
//! 2. build the binary, then all tests
//! 3. run all tests as the current user
//! 4. as root: run the suites under `tests/` again as an ordinary user, from prebuilt copies
//! 5. in CI also formatting, lints and licences, before anything else; there a skip is a failure
//!
//! At the end every skipped test is listed with its reason.

use crate::step::{self, cargo, is_ci, is_root, say, target_dir};
use crate::{check, packages};
use anyhow::{Context, Result};
use clap::Args;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user and group `nobody` of every Linux.
const UNPRIVILEGED_ID: u32 = 65534;

/// Suites that try both users by themselves, or are about no user at all.
const BOTH_ALREADY: [&str; 2] = ["flow-", "architecture-"];
/// Suites that start a second program from where cargo built it.
const IN_PLACE: [&str; 1] = ["registry-"];

/// Options of `cargo xtask test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Install nothing
    #[arg(long)]
    no_install: bool,
    /// Do not repeat the suites as an ordinary user
    #[arg(long)]
    no_unprivileged: bool,
    /// Only tests whose name contains this
    filter: Option<String>,
}

/// Runs it.
///
/// # Errors
/// At the first step that fails.
pub(crate) fn run(args: &TestArgs) -> Result<()> {
    if !args.no_install {
        packages::install_missing()?;
    }
    if is_ci() {
        check::run()?;
    }
    step::run(
        "build glovebox",
        &mut cargo(["build", "--locked", "--package", "glovebox"]),
    )?;
    let binary = target_dir().join("debug/glovebox");
    let skip_log = target_dir().join("skipped-tests.txt");
    let _ = fs::remove_file(&skip_log);

    // All of it: somebody who waits for a whole run wants to know everything that is wrong.
    let mut tests = cargo(["test", "--locked", "--workspace", "--no-fail-fast"]);
    tests.args(&args.filter);
    set_variables(&mut tests, &binary, &skip_log);
    step::run("all tests", &mut tests)?;
    if is_root() && !args.no_unprivileged {
        again_unprivileged(args, &binary, &skip_log)?;
    }
    report_skips(&skip_log);
    say("All tests passed.");
    Ok(())
}

fn set_variables(command: &mut Command, binary: &Path, skip_log: &Path) {
    command
        .env("GLOVEBOX_TEST_BIN", binary)
        .env("GLOVEBOX_TEST_SKIP_LOG", skip_log);
    if is_ci() {
        command.env("GLOVEBOX_TEST_NO_SKIP", "1");
    }
}

/// Runs the suites of `tests/` as an ordinary user. Neither cargo nor the project's directory need
/// to be reachable for that user: the built programs are copied to a place of its own.
fn again_unprivileged(args: &TestArgs, binary: &Path, skip_log: &Path) -> Result<()> {
    let package = "glovebox-tests";
    if !step::root().join("tests/Cargo.toml").exists() {
        return Ok(());
    }
    let messages = step::output(&mut cargo([
        "test",
        "--locked",
        "--no-run",
        "--package",
        package,
        "--message-format",
        "json",
    ]))?;
    let place = Place::new()?;
    let binary = place.lend(binary)?;
    let log = place.dir.join("home/skipped-tests.txt");
    let can_reach_target = as_unprivileged(&target_dir().join("debug/glovebox"))
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    for suite in executables(&messages) {
        let name = suite
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if BOTH_ALREADY.iter().any(|known| name.starts_with(known)) {
            continue;
        }
        if !can_reach_target && IN_PLACE.iter().any(|known| name.starts_with(known)) {
            say(&format!(
                "{name} is not repeated: an ordinary user cannot reach {}",
                target_dir().display()
            ));
            continue;
        }
        let program = place.lend(&suite)?;
        let mut command = as_unprivileged(&program);
        command
            .args(&args.filter)
            .env("HOME", place.dir.join("home"))
            .env("TMPDIR", place.dir.join("tmp"))
            .env("CARGO_MANIFEST_DIR", step::root().join("tests"))
            .current_dir(place.dir.join("home"));
        set_variables(&mut command, &binary, &log);
        // What only root can set up is tried in the run as root; here a skip is listed, not failed.
        command.env_remove("GLOVEBOX_TEST_NO_SKIP");
        step::run(&format!("{name} as an ordinary user"), &mut command)?;
    }
    // Both lists in one: the user could not write to ours.
    if let Ok(skipped) = fs::read_to_string(&log) {
        let mut all = fs::read_to_string(skip_log).unwrap_or_default();
        for line in skipped.lines() {
            all.push_str("as an ordinary user: ");
            all.push_str(line);
            all.push('\n');
        }
        fs::write(skip_log, all)?;
    }
    Ok(())
}

/// A program that will run as an ordinary user, with an environment of its own.
fn as_unprivileged(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        // The standard library also drops the supplementary groups when root changes its user.
        .gid(UNPRIVILEGED_ID)
        .uid(UNPRIVILEGED_ID);
    command
}

/// Paths of the test programs in cargo's JSON messages, one message per line.
fn executables(messages: &str) -> Vec<PathBuf> {
    messages
        .lines()
        .filter(|line| line.contains(r#""kind":["test"]"#))
        .filter_map(|line| line.split(r#""executable":""#).nth(1)?.split('"').next())
        .map(PathBuf::from)
        .collect()
}

/// A directory that an ordinary user may use; removed when dropped.
struct Place {
    dir: PathBuf,
}

impl Place {
    fn new() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("glovebox-xtask-{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let place = Self { dir };
        fs::set_permissions(&place.dir, fs::Permissions::from_mode(0o755))?;
        for name in ["home", "tmp", "bin"] {
            let dir = place.dir.join(name);
            fs::create_dir(&dir)?;
            if name != "bin" {
                chown(&dir, Some(UNPRIVILEGED_ID), Some(UNPRIVILEGED_ID))?;
            }
        }
        Ok(place)
    }

    fn lend(&self, program: &Path) -> Result<PathBuf> {
        let copy = self
            .dir
            .join("bin")
            .join(program.file_name().unwrap_or_default());
        fs::copy(program, &copy).with_context(|| format!("cannot copy {}", program.display()))?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
        Ok(copy)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn report_skips(log: &Path) {
    let skipped = fs::read_to_string(log).unwrap_or_default();
    if skipped.is_empty() {
        say("No test was skipped.");
        return;
    }
    say(&format!("Skipped, {} in all:", skipped.lines().count()));
    for line in skipped.lines() {
        say(&format!("  {line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_among_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"x"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"kind":["test"],"name":"escape"},"executable":"/t/debug/deps/escape-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(
            executables(messages),
            [PathBuf::from("/t/debug/deps/escape-1")]
        );
    }
}
