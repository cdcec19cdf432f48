//! The `command` backend: the guest at the other end of any command that gives a shell there (`ssh
//! box`, `docker exec -i c`, `sh`). It needs nothing but a byte stream. The isolation of the other
//! machine is unknown here, and the report says so.

use super::bootstrap::{GuestPlace, bring_guest};
use super::{Begun, CreateCx, Driver, GuestStream, host, unheld_limits};
use crate::report::Identity;
use crate::{Backend, Report, SandboxSpec};
use glovebox_proto::{Code, Fault};
use glovebox_spec::LimitState;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// File names of POSIX shells.
const SHELLS: &[&str] = &["sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "yash"];

/// Driver of the `command` backend.
#[derive(Debug)]
pub(super) struct CommandDriver;

/// Option with the words of the carrier command.
const CARRIER: &str = "carrier";

impl Driver for CommandDriver {
    fn backend(&self) -> Backend {
        Backend::COMMAND
    }

    fn check(&self, spec: &SandboxSpec) -> Result<(), Fault> {
        if spec.option(CARRIER).first().is_none_or(String::is_empty) {
            return Err(no_carrier());
        }
        Ok(())
    }

    fn explain(&self, spec: &SandboxSpec) -> Result<String, Fault> {
        Ok(format!(
            "the guest at the other end of `{}`; that machine decides what isolates it\n",
            spec.option(CARRIER).join(" ").escape_debug()
        ))
    }

    fn summary(&self, spec: &SandboxSpec) -> Vec<String> {
        vec![format!("via {}", spec.option(CARRIER).join(" "))]
    }

    fn create(&self, cx: &CreateCx<'_>, _: Begun) -> Result<GuestStream, Fault> {
        create(cx)
    }
}

fn no_carrier() -> Fault {
    Fault::failed(
        Code::InvalidArgument,
        "the carrier command is empty; give one such as `ssh box`",
    )
}

/// Runs the carrier and starts the guest through it.
fn create(cx: &CreateCx<'_>) -> Result<GuestStream, Fault> {
    let argv = argv(cx.spec.option(CARRIER));
    let Some((program, args)) = argv.split_first() else {
        return Err(no_carrier());
    };
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(cx.spec.jail.env.iter().map(|(name, value)| (name, value)));

    let mut report = Report::new("command", cx.name.as_str());
    report.limits = unheld_limits(
        cx.spec,
        "the command backend cannot hold limits on the other side",
    );
    report.identity = Identity {
        mode: "login of the carrier".to_owned(),
        ..Identity::default()
    };
    let shown = argv.join(" ");
    report.wall(
        "other side",
        LimitState::Absent,
        format!("glovebox adds no wall to what `{shown}` leads to"),
    );
    report
        .degraded
        .push("whatever isolates the other side is not known here".to_owned());

    let mut carried = host::spawn(command, cx, report, "carrier")?;
    let place = GuestPlace {
        cwd: cx.spec.cwd.as_deref(),
        makes_cwd: false,
        guest_dir: cx.spec.guest_dir.as_deref(),
        command: "serve",
    };
    match bring_guest(&carried.reader, &carried.writer, place, cx.deadline) {
        Ok(early) => {
            carried.early = early;
            Ok(carried)
        }
        Err(fault) => {
            let exit_reason = carried.owner.exit_reason();
            // The caller never got the sandbox, so an error of ending it is of no use to it.
            let _ = carried.owner.kill();
            Err(name_carrier(fault, &shown, exit_reason))
        }
    }
}

/// Returns the words of the carrier. Appends `sh` unless the last word is a shell, because the
/// carrier then runs a given command.
fn argv(carrier: &[String]) -> Vec<String> {
    let is_shell = |word: &String| {
        let name = Path::new(word).file_name().unwrap_or(OsStr::new(""));
        SHELLS.iter().any(|shell| name == *shell)
    };
    let mut argv = carrier.to_vec();
    if !argv.last().is_some_and(is_shell) {
        argv.push("sh".to_owned());
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
    #[test]
    fn a_shell_is_appended_unless_there_is_one() {
        let argv = |words: &[&str]| -> Vec<_> {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            super::argv(&words)
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
