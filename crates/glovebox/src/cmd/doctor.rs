//! `glovebox doctor`: the capabilities of this machine, and leftovers of dead sandboxes.

use super::{Cx, try_start};
use crate::args::DoctorArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, escape_text, plural};
use glovebox_sandbox::{
    Backend, DiskUsage, Orphan, Registry, Report, describe_machine, examine_machine,
    is_inside_sandbox,
};
use glovebox_settings::units::human_bytes;
use glovebox_spec::LimitState;
use glovebox_spec::finding::{Finding, FindingState};
use serde::Serialize;
use serde_json::json;
use std::fmt::Write;
use std::path::Path;

/// Checks the machine, and with `--fix` removes leftovers. The exit code is 1 if no backend in the
/// user's order starts here.
pub(crate) fn run(cx: &Cx, args: &DoctorArgs) -> CommandResult {
    let registry = cx.user_registry()?;
    let program = std::env::current_exe().unwrap_or_default();
    let mut findings = examine_machine(registry.state_dir(), &program)?;
    let is_inside = is_inside_sandbox();
    if is_inside {
        // In a sandbox the missing capabilities are refused on purpose; the hints for the machine
        // would not help.
        for finding in &mut findings {
            finding.remedy = None;
        }
    }
    let orphans = if args.fix {
        registry.sweep()?
    } else {
        registry.orphans()?
    };
    let room = registry.room()?;
    let backends = try_backends(&registry);
    let others = other_backends();
    let context = describe_machine(registry.state_dir());
    let order = order(cx)?;
    let has_usable = backends
        .iter()
        .any(|one| one.works && order.contains(&one.name));
    let is_usable = findings
        .iter()
        .all(|finding| finding.state != FindingState::Missing);
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
            "context": context, "backends": backends, "other_backends": others, "native_usable": is_usable, "inside_sandbox": is_inside, "findings": findings, "orphans": orphans, "orphans_removed": args.fix,
            "state_dir": registry.state_dir().display().to_string(), "room": room,
        });
        render::print(render::envelope(is_usable, verdict, &data))?;
    } else {
        render::print(format_args!(
            "{}{}{}{}{}{verdict}\n",
            backends_text(&context, &backends),
            others_text(&others),
            findings_text(&findings),
            orphans_text(&orphans, args.fix),
            room_text(registry.state_dir(), &room)
        ))?;
    }
    Ok(u8::from(!has_usable))
}

/// Backend of this machine, tested by starting a sandbox.
#[derive(Debug, Serialize)]
struct TriedBackend {
    name: &'static str,
    works: bool,
    /// Reason why it does not work. None if it works.
    why: Option<String>,
    /// Walls that the backend's report says are enforced.
    holds: Vec<String>,
}

/// Starts a sandbox of each backend that isolates commands on this machine.
fn try_backends(registry: &Registry) -> Vec<TriedBackend> {
    let walled = Backend::all().iter().filter(|one| one.is_walled_here());
    walled
        .map(|backend| {
            let name = backend.as_str();
            match try_start(registry, *backend) {
                Ok(report) => TriedBackend {
                    name,
                    works: true,
                    why: None,
                    holds: enforced(report),
                },
                Err(error) => TriedBackend {
                    name,
                    works: false,
                    why: Some(error.fault.message),
                    holds: Vec::new(),
                },
            }
        })
        .collect()
}

/// Backend that isolates elsewhere or not at all, so that nothing can be tested here.
#[derive(Debug, Serialize)]
struct OtherBackend {
    name: &'static str,
    about: &'static str,
}

/// Lists the backends that [`try_backends`] leaves out.
fn other_backends() -> Vec<OtherBackend> {
    let others = Backend::all().iter().filter(|one| !one.is_walled_here());
    others
        .map(|backend| OtherBackend {
            name: backend.as_str(),
            about: backend.about(),
        })
        .collect()
}

/// Names the backends that were not tested, in one line.
fn others_text(others: &[OtherBackend]) -> String {
    let all: Vec<String> = others
        .iter()
        .map(|other| format!("{} ({})", other.name, other.about))
        .collect();
    format!(
        "not tried, since no walls of this machine are theirs: {}\n",
        all.join(", ")
    )
}

fn enforced(report: Report) -> Vec<String> {
    let walls = report.walls.into_iter();
    walls
        .filter(|wall| wall.state == LimitState::Enforced)
        .map(|wall| wall.name)
        .collect()
}

/// Returns the backends that the user's settings allow.
fn order(cx: &Cx) -> Result<Vec<&'static str>, CommandError> {
    let settings = cx.settings(None)?;
    let order = settings.backend_order.iter().copied();
    let order = order.chain([settings.backend.value]);
    Ok(order.map(Backend::as_str).collect())
}

/// Describes in one line this machine and the backends that work.
fn backends_text(context: &str, backends: &[TriedBackend]) -> String {
    let one = |tried: &TriedBackend| match &tried.why {
        None => format!("{} works ({})", tried.name, tried.holds.join(", ")),
        Some(why) => format!("{} does not work ({})", tried.name, escape_text(why)),
    };
    let all: Vec<String> = backends.iter().map(one).collect();
    format!("this is {context}; sandboxes here: {}\n", all.join("; "))
}

fn findings_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let word = match finding.state {
            FindingState::Ok => "ok",
            FindingState::Degraded => "weaker",
            FindingState::Missing => "missing",
        };
        let _ = writeln!(
            text,
            "{word:8} {}: {}",
            finding.title,
            escape_text(&finding.detail)
        );
        if let Some(remedy) = &finding.remedy
            && finding.state != FindingState::Ok
        {
            // Some hints are several lines to copy.
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

/// Lists the disk usage, the largest part first; parts below 64 KiB are left out.
fn room_text(state_dir: &Path, room: &[DiskUsage]) -> String {
    const LEAST_BYTES: u64 = 64 << 10;
    let total: u64 = room.iter().filter_map(|part| part.bytes).sum();
    let parts: Vec<String> = room
        .iter()
        .filter_map(|part| match part.bytes {
            Some(bytes) if bytes >= LEAST_BYTES => Some(format!(
                "{} {}",
                escape_text(&part.name),
                human_bytes(bytes)
            )),
            Some(_) => None,
            None => Some(format!("{} (cannot be seen)", escape_text(&part.name))),
        })
        .collect();
    let shown = escape_text(&state_dir.display().to_string());
    let mut text = format!("room     {} in {shown}", human_bytes(total));
    if !parts.is_empty() {
        let _ = write!(text, ": {}", parts.join(", "));
    }
    text.push_str("; `glovebox prune` removes what is stopped\n");
    text
}
