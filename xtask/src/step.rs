//! Step of a task: an ordinary command that is announced, and that can be repeated by hand if it
//! fails.

use anyhow::{Context, Result, bail};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Clock ticks per second in `/proc`. The same on every architecture (proc(5), USER_HZ).
const TICKS_PER_SECOND: u64 = 100;

thread_local! {
    /// Processor time of the steps of this thread.
    static PROCESSOR: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Returns the processor time of the steps that this thread has run. Counts processes that were
/// waited for, not those that detached themselves.
pub(crate) fn processor_time() -> Duration {
    PROCESSOR.get()
}

/// Waits for a step's process. Counts its processor time before the process is reaped, because
/// `/proc/PID` is gone afterwards.
pub(crate) fn wait(mut child: Child) -> Result<ExitStatus> {
    let process = rustix::process::Pid::from_child(&child);
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    if waitid(WaitId::Pid(process), ended).is_ok() {
        let path = format!("/proc/{}/stat", process.as_raw_nonzero());
        let ticks = ticks_of_all(&fs::read_to_string(path).unwrap_or_default());
        let spent = Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND);
        PROCESSOR.set(PROCESSOR.get() + spent);
    }
    Ok(child.wait()?)
}

/// Returns the fields of a line of `/proc/PID/stat` behind the second one, from the state on
/// (proc(5)). The second field is a name in parentheses that may contain any character.
pub(crate) fn stat_fields(stat: &str) -> impl Iterator<Item = &str> {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_whitespace()
}

/// Returns the sum of the fields utime, stime, cutime and cstime, the 14th to 17th.
fn ticks_of_all(stat: &str) -> u64 {
    let fields = stat_fields(stat).skip(11).take(4);
    fields
        .filter_map(|field| field.parse::<u64>().ok())
        .sum::<u64>()
}

/// Prints a line about the progress.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns the project's root directory.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

/// Variable of `crates/sandbox/build.rs` that selects how the programs for the inside of a sandbox
/// are compiled.
pub(crate) const GUEST_PROFILE: &str = "GLOVEBOX_GUEST_PROFILE";
/// Cargo profile of the program that users get.
pub(crate) const SHIPPED_PROFILE: &str = "shipped";

/// Returns cargo's target directory.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Returns a command that runs `cargo` in the project's root.
pub(crate) fn cargo<I, S>(args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root());
    // Tests, measurements and packages all use the guest as it is shipped.
    command.env(GUEST_PROFILE, "shipped");
    command
}

/// Builds the program as users get it. Returns its path.
///
/// # Errors
/// If it does not build.
pub(crate) fn build_shipped() -> Result<PathBuf> {
    run(
        "build glovebox",
        &mut cargo([
            "build",
            "--locked",
            "--package",
            "glovebox",
            "--profile",
            SHIPPED_PROFILE,
        ]),
    )?;
    Ok(target_dir().join(SHIPPED_PROFILE).join("glovebox"))
}

/// Announces and runs a command.
///
/// # Errors
/// If the command fails, with the command line to repeat it.
pub(crate) fn run(title: &str, command: &mut Command) -> Result<()> {
    say(&format!("==> {title}"));
    let shown = shown(command);
    let child = command
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let status = wait(child)?;
    if !status.success() {
        bail!("{title} failed ({status})\nrepeat it with: {shown}");
    }
    Ok(())
}

/// Indents every line by four columns.
pub(crate) fn indented(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("    {line}")).collect();
    lines.join("\n")
}

/// Runs a command. Returns its standard output.
///
/// # Errors
/// If the command fails, with the command line to repeat it.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let mut printed = Vec::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_end(&mut printed)?;
    }
    let status = wait(child)?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

/// Returns true if a program is installed.
pub(crate) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir| dir.join(name).is_file())
}

/// Returns true if this process runs as root.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Returns true in CI, where nothing may be missing.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "0" && value != "false")
}

/// Returns the command as a user could type it, with its variables.
pub(crate) fn shown(command: &Command) -> String {
    let mut words: Vec<String> = command
        .get_envs()
        .filter_map(|(name, value)| {
            Some(format!(
                "{}={}",
                name.to_string_lossy(),
                value?.to_string_lossy()
            ))
        })
        .collect();
    let program = Path::new(command.get_program());
    // Cargo is found by its name; a test program needs its path.
    let is_cargo = program.file_name() == Some(OsStr::new("cargo"));
    let program = if is_cargo {
        Path::new("cargo")
    } else {
        program
    };
    words.push(program.display().to_string());
    words.extend(command.get_args().map(|arg| {
        let text = arg.to_string_lossy();
        if text.contains([' ', '\'', '"', '*']) {
            format!("'{text}'")
        } else {
            text.into_owned()
        }
    }));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 2 3 4 50 60 700 80 20 0 1 0 99 0 0";
        assert_eq!(ticks_of_all(stat), 890);
        assert_eq!(ticks_of_all(""), 0);
    }

    #[test]
    fn what_a_step_computes_is_counted_for_its_thread() {
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        run("busy", Command::new("sh").args(["-c", busy])).unwrap();
        let of_others = std::thread::spawn(processor_time).join().unwrap();
        assert_eq!(of_others, Duration::ZERO);
        assert!(processor_time() > Duration::ZERO);
    }
}
