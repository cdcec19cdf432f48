//! One line about limits that the kernel does not hold, said once per state directory and change.
//!
//! In: the report of a sandbox that was just started. Out: the line, or nothing when all limits hold or it
//! was said before. What was said is a file of lines in the state directory; when that cannot be read or
//! written the line is said again.

use glovebox_sandbox::{Backend, Report};
use glovebox_spec::{LimitKind, LimitState};
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Name of the file in the state directory.
const SAID: &str = "said-limits";
/// Most of it that is read. Lines that do not fit are said again.
const MAX_SAID_BYTES: u64 = 64 << 10;

/// The line for this report. `None` when the kernel holds everything that it holds anywhere: layers on
/// disk are watched on every machine.
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

/// Whether `line` was said before with this state directory; from now on it was.
pub(super) fn was_said(state_dir: &Path, line: &str) -> bool {
    let path = state_dir.join(SAID);
    let mut text = String::new();
    if let Ok(file) = fs::File::open(&path) {
        // Something that is no text was written by something else.
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
