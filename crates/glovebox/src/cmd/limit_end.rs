//! Messages about a wall or a limit that ended a command or a sandbox: its name, and the flag that
//! changes it.
//!
//! In: the end of the command, as the guest and the host's counters report it, and the sandbox's
//! settings. Nothing is guessed: a limit is named only if it was seen to act, a wall only if a fact
//! shows it.

use crate::render::{Messages, in_flags, plural, say};
use glovebox_proto::{Denial, Exit, ExitReport};
use glovebox_sandbox::{Sandbox, SandboxSpec};
use glovebox_settings::units::{Count, Size, Span};
use glovebox_spec::{Limits, Net};
use serde_json::{Value, json};
use std::fmt;

/// Wall or limit that a command met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WallNote {
    /// Code for programs.
    kind: &'static str,
    what: String,
    remedy: String,
}

impl WallNote {
    /// Returns true if the wall is a hidden file of the project.
    pub(super) fn is_hidden_file(&self) -> bool {
        self.kind == "hidden"
    }

    /// Returns true if the note is about a secret; such a note is printed in any case.
    fn is_about_secret(&self) -> bool {
        self.kind == "secret"
    }
}

impl fmt::Display for WallNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

/// Lists walls and limits for programs.
pub(super) fn as_json(walls: &[WallNote]) -> Value {
    let object =
        |wall: &WallNote| json!({ "kind": wall.kind, "what": wall.what, "remedy": wall.remedy });
    walls.iter().map(object).collect()
}

/// Prints the walls and limits that a command met, and how to change them. If the command failed
/// they are printed with `--quiet` too: it did not fail by itself. So are notes about secrets.
pub(super) fn explain(talk: Messages, report: &ExitReport, walls: &[WallNote]) {
    let has_failed = report.exit != Exit::Code(0) || report.timed_out;
    for wall in walls {
        if has_failed || wall.is_about_secret() {
            say(format_args!("glovebox: {wall}"));
        } else {
            talk.note(format_args!("{wall}"));
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

/// Returns the walls and limits that a command met. `spec` returns the sandbox's settings, or None
/// if they are unknown; it is called only if there is a note.
pub(super) fn met_walls(
    sandbox: &Sandbox,
    report: &ExitReport,
    timeout_ms: Option<u64>,
    spec: impl FnOnce() -> Option<SandboxSpec>,
) -> Vec<WallNote> {
    let denials = sandbox.denials(report);
    if denials.is_empty() && !report.timed_out {
        return Vec::new();
    }
    walls(report, &denials, timeout_ms, spec().as_ref())
}

fn walls(
    report: &ExitReport,
    denials: &[Denial],
    timeout_ms: Option<u64>,
    spec: Option<&SandboxSpec>,
) -> Vec<WallNote> {
    let limits = spec.map(|spec| &spec.jail.limits);
    let mut walls = Vec::new();
    if report.timed_out {
        let span = timeout_ms.map_or_else(String::new, |ms| format!(" after {}", Span(Some(ms))));
        let has_no_network =
            spec.is_some_and(|spec| spec.backend.is_walled_here() && spec.jail.net == Net::None);
        let (set, remedy) = if has_no_network {
            (
                ", the limit set with --timeout",
                "it has no network (--net none), so more time does not help if it waited for one",
            )
        } else {
            ("", "raise the limit with --timeout")
        };
        walls.push(WallNote {
            kind: "timeout",
            what: format!("the command was ended{span}{set}"),
            remedy: remedy.to_owned(),
        });
    }
    walls.extend(denials.iter().map(|denial| wall(denial, limits)));
    walls
}

/// Words a denial for the command line, with the value of a limit and the flag that raises it.
fn wall(denial: &Denial, limits: Option<&Limits>) -> WallNote {
    let (what, remedy) = match denial {
        Denial::Memory => {
            let bytes = limits.and_then(|limits| limits.memory_bytes);
            (
                format!("the memory limit{} was reached", of(bytes)),
                "raise it with --memory".to_owned(),
            )
        }
        Denial::Processes => {
            let count = limits.and_then(|limits| limits.pids);
            let count = count.map_or_else(
                || "processes and threads".to_owned(),
                |count| format!("{} processes and threads", Count(Some(count))),
            );
            (
                format!("the limit of {count} was reached"),
                "raise it with --pids".to_owned(),
            )
        }
        Denial::FileSize => file_size(limits),
        Denial::Disk => {
            let bytes = limits.and_then(|limits| limits.disk_bytes);
            (
                format!("the disk limit{} was reached", of(bytes)),
                "raise it with --disk".to_owned(),
            )
        }
        Denial::Files => {
            let files = limits.and_then(Limits::files);
            let files = files.map_or_else(String::new, |files| format!(" ({files})"));
            (
                format!("more files were made than the disk limit allows{files}"),
                "raise it with --disk".to_owned(),
            )
        }
        denial => (denial.what(), in_flags(&denial.remedy())),
    };
    WallNote {
        kind: denial.kind(),
        what,
        remedy,
    }
}

fn of(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| format!(" of {}", Size(Some(bytes))))
}

/// Words a denial by file size. The smaller of both limits applies to a file.
fn file_size(limits: Option<&Limits>) -> (String, String) {
    let file = limits.and_then(|limits| limits.file_bytes);
    let disk = limits.and_then(|limits| limits.disk_bytes);
    let (what, bytes, flag) = match (file, disk) {
        (Some(file), Some(disk)) if file > disk => ("disk limit", Some(disk), "--disk"),
        (None, Some(disk)) => ("disk limit", Some(disk), "--disk"),
        (file, _) => ("file size limit", file, "--file-size"),
    };
    (
        format!("a file grew to the {what}{}", of(bytes)),
        format!("raise it with {flag}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_proto::{Exit, JobId};
    use glovebox_sandbox::Backend;

    fn report(exit: Exit) -> ExitReport {
        ExitReport::new(JobId(1), exit)
    }

    fn spec(file_bytes: Option<u64>, disk_bytes: Option<u64>) -> SandboxSpec {
        let mut spec = SandboxSpec::new(Backend::NATIVE);
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
            let spec = spec(file, disk);
            let wall = wall(&Denial::FileSize, Some(&spec.jail.limits));
            assert_eq!(wall.to_string(), want);
        }
    }

    #[test]
    fn the_disk_limit_is_named_with_its_value() {
        let spec = spec(None, Some(8 << 20));
        let wall = wall(&Denial::Disk, Some(&spec.jail.limits));
        assert_eq!(
            wall.to_string(),
            "the disk limit of 8MiB was reached: raise it with --disk"
        );
    }

    #[test]
    fn more_time_is_not_advised_where_there_is_no_network() {
        let mut late = report(Exit::Signal(9));
        late.timed_out = true;
        let mut spec = spec(None, None);
        let line = |spec: &SandboxSpec| walls(&late, &[], Some(2000), Some(spec))[0].to_string();
        assert!(line(&spec).contains("after 2s") && line(&spec).contains("no network"));
        assert!(!line(&spec).contains("raise"));
        spec.jail.net = Net::Host;
        assert!(line(&spec).contains("raise the limit with --timeout"));
    }
}
