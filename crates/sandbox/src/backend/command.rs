//! The `command` backend: the guest at the other end of any command that gives a shell there
//! (`ssh box`, `docker exec -i c`, `sh`). It shows that a backend is only a carrier: nothing but a
//! byte stream is needed. What isolates the other side is not known here, and the report says so.

use super::bootstrap::Bootstrap;
use super::{CreateCx, GuestStream, host, unheld_limits};
use crate::Report;
use crate::report::Identity;
use glovebox_jail::spec::LimitState;
use glovebox_proto::{Code, Fault};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// Names under which POSIX shells go.
const SHELLS: &[&str] = &["sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "yash"];

/// Runs the carrier and brings the guest up behind it.
pub(super) fn create(cx: &CreateCx<'_>, carrier: &[OsString]) -> Result<GuestStream, Fault> {
    let argv = argv(carrier);
    let Some((program, args)) = argv.split_first() else {
        return Err(Fault::failed(
            Code::InvalidArgument,
            "the carrier command is empty",
        ));
    };
    let mut command = Command::new(program);
    command.args(args);

    let mut report = Report::new("command", cx.name.as_str());
    report.limits = unheld_limits(
        cx.spec,
        "the command backend cannot hold limits on the other side",
    );
    report.identity = Identity {
        mode: "login of the carrier".to_owned(),
        ..Identity::default()
    };
    let shown: Vec<_> = argv.iter().map(|word| word.to_string_lossy()).collect();
    report.wall(
        "other side",
        LimitState::Absent,
        format!(
            "glovebox adds no wall to what `{}` leads to",
            shown.join(" ")
        ),
    );
    report
        .degraded
        .push("whatever isolates the other side is not known here".to_owned());

    let mut carried = host::spawn(command, cx, report, "carrier")?;
    let bootstrap = Bootstrap::new(&carried.reader, &carried.writer, cx.deadline);
    match bootstrap.run(cx.spec.cwd.as_deref(), cx.spec.guest_dir.as_deref()) {
        Ok(early) => {
            carried.early = early;
            Ok(carried)
        }
        Err(fault) => {
            let exit_reason = carried.owner.exit_reason();
            // The sandbox was never handed out; whether its end succeeds changes nothing.
            let _ = carried.owner.kill();
            Err(name_carrier(fault, &shown.join(" "), exit_reason))
        }
    }
}

/// The carrier as given if its last word is a shell, else with `sh` appended: what runs a given
/// command then runs a shell.
fn argv(carrier: &[OsString]) -> Vec<OsString> {
    let is_shell = |word: &OsString| {
        let name = Path::new(word).file_name().unwrap_or(OsStr::new(""));
        SHELLS.iter().any(|shell| name == *shell)
    };
    let mut argv = carrier.to_vec();
    if !argv.last().is_some_and(is_shell) {
        argv.push("sh".into());
    }
    argv
}

fn name_carrier(mut fault: Fault, carrier: &str, exit_reason: Option<String>) -> Fault {
    if fault.code == Code::CarrierFailed {
        fault.message = match exit_reason {
            Some(exit_reason) => format!("carrier `{carrier}`: {}; {exit_reason}", fault.message),
            None => format!("carrier `{carrier}`: {}", fault.message),
        };
    }
    fault
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_appended_unless_there_is_one() {
        let argv = |words: &[&str]| -> Vec<_> {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            super::argv(&words)
                .into_iter()
                .map(|word| word.into_string().unwrap())
                .collect()
        };
        assert_eq!(argv(&["ssh", "box"]), ["ssh", "box", "sh"]);
        assert_eq!(
            argv(&["docker", "exec", "-i", "c", "/bin/sh"]),
            ["docker", "exec", "-i", "c", "/bin/sh"]
        );
        assert_eq!(argv(&["env", "-i", "bash"]), ["env", "-i", "bash"]);
        assert_eq!(argv(&["sh"]), ["sh"]);
    }
}
