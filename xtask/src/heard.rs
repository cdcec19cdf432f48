//! Command whose output is read line by line, and which is killed when it falls silent.
//!
//! A test that waits for ever would block the whole run, without a hint which one it is. Therefore
//! a command that prints nothing for [`SILENCE`] is listed with all its descendants, and killed.

use crate::step::{self, say};
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Maximum time without output. An emulated machine is silent for six minutes, and longer on a busy
/// machine.
pub(crate) const SILENCE: Duration = Duration::from_mins(15);

/// Number of last lines of a failed step that its error repeats.
const LAST_LINES: usize = 60;

/// Result of a command.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) status: ExitStatus,
    /// Processes that were running when the command was killed after a silence, one per line.
    /// `None` if it was not killed.
    pub(crate) silent: Option<String>,
}

/// Same as [`step::run`], for a step whose output explains its failure. The error repeats the last
/// lines, which would be hard to find between the output of other steps.
///
/// # Errors
/// If the command fails, with the command line to repeat it and its last lines.
pub(crate) fn run_told(title: &str, command: &mut Command) -> Result<()> {
    say(&format!("==> {title}"));
    let shown = step::shown(command);
    let mut last = VecDeque::new();
    let status = run(command, SILENCE, |line| {
        last.push_back(line.to_owned());
        if last.len() > LAST_LINES {
            last.pop_front();
        }
    })?
    .status;
    if !status.success() {
        let last: Vec<String> = last.into();
        bail!(
            "{title} failed ({status})\nrepeat it with: {shown}\nits last lines:\n{}",
            step::indented(&last.join("\n"))
        );
    }
    Ok(())
}

/// Runs a command and shows its output. Calls `hear` with every line of its standard output. Kills
/// the command after a silence of the given duration.
///
/// # Errors
/// If it cannot be started, or its output cannot be shown.
pub(crate) fn run(
    command: &mut Command,
    silence: Duration,
    mut hear: impl FnMut(&str),
) -> Result<Heard> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", step::shown(command)))?;
    let mut silent = None;
    if let Some(mut output) = child.stdout.take() {
        let mut pending = Vec::new();
        let mut bytes = vec![0; 64 << 10];
        loop {
            if !is_readable_within(&output, silence)? {
                silent = end_silent(&mut child, silence)?;
                break;
            }
            // In pieces, not in lines: a test program may print the name of a test, without an end
            // of the line, before the test waits for ever. Reaches the end only when processes that
            // outlive the command have closed the pipe too.
            let count = output.read(&mut bytes)?;
            if count == 0 {
                break;
            }
            std::io::stdout().write_all(&bytes[..count])?;
            pending.extend_from_slice(&bytes[..count]);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                hear(String::from_utf8_lossy(&line).trim_end_matches('\n'));
            }
        }
        if !pending.is_empty() {
            hear(&String::from_utf8_lossy(&pending));
        }
    }
    let status = step::wait(child)?;
    Ok(Heard { status, silent })
}

fn is_readable_within(output: &ChildStdout, limit: Duration) -> Result<bool> {
    let limit = Timespec::try_from(limit)?;
    loop {
        let mut fds = [PollFd::new(output, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Kills a silent command with all its descendants. Returns a list of them. `None` if the command
/// itself has ended and a process that it left behind keeps its output open, which is not a
/// failure.
fn end_silent(child: &mut Child, silence: Duration) -> Result<Option<String>> {
    if child.try_wait()?.is_some() {
        say("something that the command left behind keeps its output open; it is not waited for");
        return Ok(None);
    }
    let tree = process_tree(child.id());
    let lines: Vec<&str> = tree.iter().map(|(_, line)| line.as_str()).collect();
    let shown = lines.join("\n");
    say(&format!(
        "nothing was printed for {} s; what runs, and is killed now:\n{}",
        silence.as_secs(),
        step::indented(&shown)
    ));
    for (process, _) in &tree {
        if let Some(process) = rustix::process::Pid::from_raw(*process) {
            // Fails only if the process has ended meanwhile.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
    }
    Ok(Some(shown))
}

/// Lists a process and all its descendants, parents first, with a line for each: process id, state,
/// position in the kernel, and command line.
fn process_tree(top: u32) -> Vec<(i32, String)> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(process) = process else { continue };
        if let Some(parent) = stat_field(process, 1).and_then(|parent| parent.parse().ok()) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut tree = Vec::new();
    let mut waiting: Vec<(i32, usize)> =
        i32::try_from(top).map(|top| (top, 0)).into_iter().collect();
    while let Some((process, depth)) = waiting.pop() {
        tree.push((process, described(process, depth)));
        let below = children.remove(&process).unwrap_or_default();
        waiting.extend(below.into_iter().map(|child| (child, depth + 1)));
    }
    tree
}

/// Returns one of the fields of `/proc/PID/stat` behind the name; 0 is the state, 1 the parent.
fn stat_field(process: i32, index: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    step::stat_fields(&stat).nth(index).map(str::to_owned)
}

fn described(process: i32, depth: usize) -> String {
    let read =
        |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
    let state = stat_field(process, 0);
    let words = read("cmdline").replace('\0', " ");
    // For each thread: the thread of the test is the one that is stuck, not that of the harness.
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let waits: Vec<String> = threads
        .into_iter()
        .flatten()
        .flatten()
        .map(|thread| {
            let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            format!("{}@{}", read("comm").trim_end(), read("wchan"))
        })
        .collect();
    let shown: String = words.trim_end().chars().take(200).collect();
    format!(
        "{:depth$}{process} {} [{}] {shown}",
        "",
        state.unwrap_or_default(),
        waits.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(script: &str, silence: Duration) -> (Heard, Vec<String>) {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let heard = run(&mut command, silence, |line| lines.push(line.to_owned()));
        (heard.unwrap(), lines)
    }

    #[test]
    fn lines_are_heard_whole() {
        let (heard, lines) = hear("printf 'a\\nb'; printf 'c\\nd'; exit 3", SILENCE);
        assert_eq!(lines, ["a", "bc", "d"]);
        assert_eq!(heard.status.code(), Some(3));
        assert_eq!(heard.silent, None);
    }

    #[test]
    fn silent_command_is_shown_and_killed_with_what_it_started() {
        let script = "echo begun; sleep 4711 & wait";
        let (heard, lines) = hear(script, Duration::from_millis(500));
        assert_eq!(lines, ["begun"]);
        assert!(!heard.status.success());
        let shown = heard.silent.unwrap();
        assert!(shown.contains("sleep 4711"), "{shown}");
        assert!(shown.starts_with(char::is_numeric), "{shown}");
        let left = Command::new("pgrep")
            .args(["-f", "^sleep 4711"])
            .output()
            .unwrap();
        assert!(left.stdout.is_empty(), "{left:?}");
    }

    #[test]
    fn output_that_others_keep_open_is_left() {
        let (heard, lines) = hear("sleep 20 & echo done", Duration::from_millis(500));
        assert_eq!(lines, ["done"]);
        assert!(heard.status.success());
        assert_eq!(heard.silent, None);
    }
}
