//! A line about limits that the kernel does not enforce, printed once per state directory and
//! change.
//!
//! In: the report of a sandbox that was just started. Out: the line, or None if all limits are
//! enforced. Printed lines are recorded in a file in the state directory; if that cannot be read or
//! written, the line is printed again.

use glovebox_sandbox::{Backend, Report};
use glovebox_spec::{LimitKind, LimitState};
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Name of the file in the state directory.
const SAID: &str = "said-limits";
/// Maximum number of bytes that are read of it. Lines beyond it are printed again.
const MAX_SAID_BYTES: u64 = 64 << 10;

/// Returns the line for a report. None if the kernel enforces every limit that it can; the disk
/// limit does not count, because layers on disk are only watched, on every machine.
pub(super) fn line(report: &Report) -> Option<String> {
    if !Backend::named(&report.backend).is_some_and(Backend::is_walled_here) {
        return None;
    }
    let weak: Vec<_> = report
        .limits
        .iter()
        .filter(|limit| limit.state != LimitState::Enforced)
        .collect();
    if weak.iter().all(|limit| limit.kind == LimitKind::Disk) {
        return None;
    }
    let parts: Vec<String> = [LimitState::Absent, LimitState::Approximate]
        .into_iter()
        .filter_map(|state| {
            let kinds: Vec<&str> = weak
                .iter()
                .filter(|limit| limit.state == state)
                .map(|limit| limit.kind.as_str())
                .collect();
            (!kinds.is_empty()).then(|| format!("{} {state}", kinds.join(", ")))
        })
        .collect();
    Some(format!(
        "limits here: {}; `glovebox doctor` says what is missing, --require LIMIT makes it an error",
        parts.join("; ")
    ))
}

/// Returns true if `line` was printed before with this state directory, and records it.
pub(super) fn was_said(state_dir: &Path, line: &str) -> bool {
    let path = state_dir.join(SAID);
    let mut text = String::new();
    if let Ok(file) = fs::File::open(&path) {
        // Text that is not UTF-8 was not written by Glovebox, so it is ignored.
        let _ = file.take(MAX_SAID_BYTES).read_to_string(&mut text);
    }
    if text.lines().any(|said| said == line) {
        return true;
    }
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path);
    if let Ok(mut file) = file {
        let _ = writeln!(file, "{line}");
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_sandbox::LimitFact;

    fn report(states: &[(LimitKind, LimitState)]) -> Report {
        let mut report = Report::new("native", "x");
        report.limits = states
            .iter()
            .map(|(kind, state)| LimitFact {
                kind: *kind,
                value: 1,
                state: *state,
                mechanism: String::new(),
            })
            .collect();
        report
    }

    #[test]
    fn the_line_names_what_does_not_hold() {
        use LimitKind::{Cpu, Disk, Memory, Pids};
        use LimitState::{Absent, Approximate, Enforced};
        assert_eq!(
            line(&report(&[(Memory, Enforced), (Disk, Approximate)])),
            None
        );
        let weak = report(&[
            (Memory, Approximate),
            (Cpu, Absent),
            (Pids, Approximate),
            (Disk, Approximate),
        ]);
        let said = line(&weak).unwrap();
        assert!(
            said.starts_with(
                "limits here: cpu absent; memory, pids, disk approximate; `glovebox doctor`"
            ),
            "{said}"
        );
        assert_eq!(
            line(&Report {
                backend: "host".to_owned(),
                ..weak
            }),
            None
        );
    }

    #[test]
    fn a_line_is_said_once() {
        let state = tempfile::tempdir().unwrap();
        assert!(!was_said(state.path(), "one"));
        assert!(was_said(state.path(), "one"));
        assert!(!was_said(state.path(), "two"));
        assert!(was_said(state.path(), "one"));
        fs::write(state.path().join(SAID), [0xff, b'\n']).unwrap();
        assert!(!was_said(state.path(), "one"));
        assert!(!was_said(&state.path().join("no-such"), "one"));
    }
}
