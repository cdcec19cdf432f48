//! `glovebox doctor`: what this machine can do, and what dead sandboxes left behind.

use super::Cx;
use crate::args::DoctorArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, escape_text, plural};
use glovebox_sandbox::jail::cgroup::{Controllers, DetectCx};
use glovebox_sandbox::jail::probe::{self, Finding, ProbeCx, State};
use glovebox_sandbox::{GuestImage, Orphan};
use serde_json::json;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Checks, and with `--fix` cleans up. Fails when the native backend cannot be used here.
pub(crate) fn run(cx: &Cx, args: &DoctorArgs) -> CommandResult {
    let registry = cx.user_registry()?;
    let mut findings = findings(registry.state_dir())?;
    let is_inside = probe::is_inside_sandbox(Path::new("/"));
    if is_inside {
        // What is missing here is refused on purpose, and settings of the machine would not change that.
        for finding in &mut findings {
            finding.remedy = None;
        }
    }
    let orphans = if args.fix {
        registry.sweep()?
    } else {
        registry.orphans()?
    };
    let is_usable = findings
        .iter()
        .all(|finding| finding.state != State::Missing);
    let verdict = if is_usable {
        "the native backend works here"
    } else if is_inside {
        "this is the inside of a Glovebox sandbox: that no further one can be made here is one of its walls; \
         run `glovebox doctor` outside to check the machine"
    } else {
        "the native backend does not work here"
    };
    if args.json {
        let data = json!({
            "native_usable": is_usable, "findings": findings, "orphans": orphans, "orphans_removed": args.fix,
        });
        render::print(render::envelope(is_usable, verdict, &data))?;
    } else {
        render::print(format_args!(
            "{}{}{verdict}\n",
            findings_text(&findings),
            orphans_text(&orphans, args.fix)
        ))?;
    }
    Ok(u8::from(!is_usable))
}

/// Tries everything, each in a process of its own that runs the embedded guest.
fn findings(state_dir: &Path) -> Result<Vec<Finding>, CommandError> {
    let image = GuestImage::new()?;
    let program = std::env::current_exe().unwrap_or_default();
    let run_child = |argument: &str| {
        let output = Command::new(image.path())
            .args(["probe", argument])
            .env_clear()
            .stdin(Stdio::null())
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    Ok(probe::run_all(&ProbeCx {
        run_child: &run_child,
        state_dir,
        program: &program,
        root: Path::new("/"),
        controllers: &Controllers::detect(&DetectCx::default()),
    }))
}

fn findings_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let word = match finding.state {
            State::Ok => "ok",
            State::Degraded => "weaker",
            State::Missing => "missing",
        };
        let _ = writeln!(
            text,
            "{word:8} {}: {}",
            finding.title,
            escape_text(&finding.detail)
        );
        if let Some(remedy) = &finding.remedy
            && finding.state != State::Ok
        {
            // Some remedies are several lines to copy.
            for line in remedy.lines() {
                let _ = writeln!(text, "{:8} fix: {}", "", escape_text(line));
            }
        }
    }
    text
}

fn orphans_text(orphans: &[Orphan], is_fixed: bool) -> String {
    if orphans.is_empty() {
        return "nothing was left behind by dead sandboxes\n".to_owned();
    }
    let word = if is_fixed { "removed" } else { "left" };
    let mut text = String::new();
    for orphan in orphans {
        let _ = writeln!(
            text,
            "{word:8} {} {}: {}",
            orphan.kind,
            escape_text(&orphan.path),
            escape_text(&orphan.detail)
        );
    }
    let leftovers = plural(orphans.len(), "leftover", "leftovers");
    let _ = if is_fixed {
        writeln!(text, "{leftovers} of dead sandboxes removed")
    } else {
        writeln!(
            text,
            "{leftovers} of dead sandboxes; `glovebox doctor --fix` removes them"
        )
    };
    text
}
