//! What is said when a limit has ended a command or a sandbox: which one it was, and the flag that raises it.
//!
//! In: how the command ended, as the guest and the host's counters tell it, and what the sandbox was made with.
//! Nothing is guessed: a limit is named only when it was seen to act.

use crate::exit::CommandError;
use crate::render::{Talk, plural, say};
use crate::units::{Count, Size, Span};
use glovebox_proto::{Exit, ExitReport};
use glovebox_sandbox::jail::spec::{Limits, Net};
use glovebox_sandbox::{Backend, SandboxSpec};

/// Ends a process that writes beyond the size a file may have (signal(7)).
const SIGXFSZ: i32 = 25;

/// Says which limit ended a command, and the flag that raises it. That is said even with `--quiet`: the command
/// did not fail by itself. `spec` gives what the sandbox was made with, where that is known.
pub(super) fn explain(
    talk: Talk,
    report: &ExitReport,
    timeout_ms: Option<u64>,
    spec: impl FnOnce() -> Option<SandboxSpec>,
) {
    if report.exit != Exit::Code(0) || report.timed_out {
        let is_by_limit = report.timed_out
            || report.oom
            || report.fork_refused
            || outlived(report) > 0
            || is_by_file_size(report.exit);
        if is_by_limit {
            let spec = spec();
            for line in lines(report, timeout_ms, spec.as_ref()) {
                say(format_args!("glovebox: {line}"));
            }
        }
    }
    if report.killed > 0 {
        talk.detail(format_args!(
            "{} outlived the command and {} ended",
            plural(report.killed as usize, "process", "processes"),
            if report.killed == 1 { "was" } else { "were" }
        ));
    }
}

fn lines(report: &ExitReport, timeout_ms: Option<u64>, spec: Option<&SandboxSpec>) -> Vec<String> {
    let limits = spec.map(|spec| &spec.jail.limits);
    let mut lines = Vec::new();
    if report.timed_out {
        let span = timeout_ms.map_or_else(String::new, |ms| format!(" after {}", Span(Some(ms))));
        let has_no_network =
            spec.is_some_and(|spec| spec.backend == Backend::Native && spec.jail.net == Net::None);
        lines.push(if has_no_network {
            format!(
                "the command was ended{span}, the limit set with --timeout; it has no network (--net none), so more \
                 time does not help if it waited for one"
            )
        } else {
            format!("the command was ended{span}: raise the limit with --timeout")
        });
    }
    if report.oom {
        let bytes = limits.and_then(|limits| limits.memory_bytes);
        lines.push(format!(
            "the memory limit{} was reached: raise it with --memory",
            of(bytes)
        ));
    }
    let is_full = limits
        .and_then(|limits| limits.pids)
        .is_some_and(|pids| outlived(report) >= pids);
    if report.fork_refused || is_full {
        let count = limits.and_then(|limits| limits.pids);
        let count = count.map_or_else(
            || "processes and threads".to_owned(),
            |count| format!("{} processes and threads", Count(Some(count))),
        );
        lines.push(format!(
            "the limit of {count} was reached: raise it with --pids"
        ));
    }
    if is_by_file_size(report.exit) {
        lines.push(file_size_line(limits));
    }
    lines
}

/// Processes of the command that were there when it ended. Where no control group counts what was refused, as many
/// as the limit tell that it was reached.
const fn outlived(report: &ExitReport) -> u32 {
    report.killed.saturating_add(report.left_running)
}

fn of(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| format!(" of {}", Size(Some(bytes))))
}

/// Whether it ended by the signal for files that grow too large, itself or as a shell reports it.
fn is_by_file_size(exit: Exit) -> bool {
    exit == Exit::Signal(SIGXFSZ) || exit == Exit::Code(128 + SIGXFSZ)
}

/// A file may be as large as both limits allow.
fn file_size_line(limits: Option<&Limits>) -> String {
    let file = limits.and_then(|limits| limits.file_bytes);
    let disk = limits.and_then(|limits| limits.disk_bytes);
    let (what, bytes, flag) = match (file, disk) {
        (Some(file), Some(disk)) if file > disk => ("disk limit", Some(disk), "--disk"),
        (None, Some(disk)) => ("disk limit", Some(disk), "--disk"),
        (file, _) => ("file size limit", file, "--file-size"),
    };
    format!(
        "a file grew to the {what}{}: raise it with {flag}",
        of(bytes)
    )
}

/// Adds the flag that raises the limit to the failure of a sandbox that was ended for exceeding one.
/// The library says which limit it was and knows no flags.
pub(super) fn name_the_flag(error: CommandError) -> CommandError {
    let message = &error.fault.message;
    let flag = ["disk", "memory"]
        .into_iter()
        .find(|limit| message.contains(&format!("{limit} limit")));
    match flag {
        Some(flag) if error.fault.remedy.is_none() => {
            error.remedy(format!("raise the limit with --{flag}"))
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_proto::JobId;

    fn report(exit: Exit) -> ExitReport {
        ExitReport {
            job: JobId(1),
            exit,
            timed_out: false,
            oom: false,
            fork_refused: false,
            wall_us: 0,
            user_us: 0,
            system_us: 0,
            max_rss_kib: 0,
            stdout_bytes: 0,
            stderr_bytes: 0,
            killed: 0,
            left_running: 0,
        }
    }

    fn spec(file_bytes: Option<u64>, disk_bytes: Option<u64>) -> SandboxSpec {
        let mut spec = SandboxSpec::new(Backend::Native);
        spec.jail.limits = Limits {
            file_bytes,
            disk_bytes,
            ..Limits::default()
        };
        spec
    }

    #[test]
    fn the_limit_that_bound_a_file_is_named() {
        let mib = |count: u64| Some(count << 20);
        for (file, disk, want) in [
            (
                mib(1),
                mib(8),
                "a file grew to the file size limit of 1MiB: raise it with --file-size",
            ),
            (
                mib(9),
                mib(8),
                "a file grew to the disk limit of 8MiB: raise it with --disk",
            ),
            (
                None,
                mib(8),
                "a file grew to the disk limit of 8MiB: raise it with --disk",
            ),
        ] {
            for exit in [Exit::Signal(25), Exit::Code(153)] {
                let lines = lines(&report(exit), None, Some(&spec(file, disk)));
                assert_eq!(lines, [want]);
            }
        }
        assert!(lines(&report(Exit::Signal(9)), None, None).is_empty());
    }

    #[test]
    fn more_time_is_not_advised_where_there_is_no_network() {
        let mut late = report(Exit::Signal(9));
        late.timed_out = true;
        let mut spec = spec(None, None);
        let line = |spec: &SandboxSpec| lines(&late, Some(2000), Some(spec)).concat();
        assert!(line(&spec).contains("after 2s") && line(&spec).contains("no network"));
        assert!(!line(&spec).contains("raise"));
        spec.jail.net = Net::Host;
        assert!(line(&spec).contains("raise the limit with --timeout"));
    }
}
