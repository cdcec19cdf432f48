//! `glovebox info`: facts about one sandbox.

use super::{Cx, age, list::state_word, logs};
use crate::args::InfoArgs;
use crate::exit::CommandResult;
use crate::render::{self, escape_text, plural};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::{Backend, ProjectChange, SandboxState};
use serde_json::{Value, json};
use std::fmt::Write;

/// Prints the facts.
pub(crate) fn run(cx: &Cx, args: &InfoArgs) -> CommandResult {
    let name = super::name(&args.name)?;
    let registry = cx.user_registry()?;
    let entry = registry.entry(&name)?.ok_or_else(|| {
        Fault::failed(
            Code::SandboxNotFound,
            format!("there is no sandbox `{name}`"),
        )
        .remedy("`glovebox list` shows what there is; `glovebox start NAME` makes one")
    })?;
    let sandbox = if entry.state == SandboxState::Ready && entry.is_supervised {
        Some(registry.connect(&name)?)
    } else {
        None
    };
    let report = sandbox
        .as_ref()
        .map(glovebox_sandbox::Sandbox::report)
        .transpose()?;
    let jobs = sandbox
        .as_ref()
        .map(glovebox_sandbox::Sandbox::jobs)
        .transpose()?
        .unwrap_or_default();
    let changes = sandbox
        .as_ref()
        .map(glovebox_sandbox::Sandbox::project_changes)
        .unwrap_or_default();
    if args.json {
        let jobs: Vec<Value> = jobs.iter().map(logs::job_json).collect();
        let capabilities = Backend::named(&entry.backend).map(Backend::capabilities);
        let data = json!({
            "sandbox": entry,
            "report": report,
            "capabilities": capabilities,
            "jobs": jobs,
            "project_changed": changes,
        });
        render::print(render::envelope(true, &format!("sandbox `{name}`"), &data))?;
        return Ok(0);
    }
    let mut text = String::new();
    let mut line = |word: &str, value: &str| {
        let _ = writeln!(text, "{word:10} {value}");
    };
    line("name", name.as_str());
    line("state", state_word(entry.state));
    line("backend", &escape_text(&entry.backend));
    line("age", &age(entry.created_unix_ms));
    if let Some(pid) = entry.pid {
        line("owner", &format!("process {pid}"));
    }
    if let Some(workspace) = &entry.workspace {
        line("workspace", &escape_text(workspace));
    }
    if !entry.summary.is_empty() {
        line("asked for", &escape_text(&entry.summary));
    }
    if let Some(problem) = &entry.problem {
        line("problem", &escape_text(problem));
    }
    for change in &changes {
        line("project", &describe_change(change));
    }
    if let Some(report) = &report {
        let _ = write!(text, "\n{}", render::report(report));
    }
    if !jobs.is_empty() {
        let rows: Vec<Vec<String>> = jobs.iter().map(logs::job_row).collect();
        let _ = write!(
            text,
            "\n{}",
            render::table(&["JOB", "STATE", "AGE", "OUTPUT", "COMMAND"], &rows)
        );
    }
    render::print(text)?;
    Ok(0)
}

/// Describes a change of the project that others applied while the sandbox ran.
fn describe_change(change: &ProjectChange) -> String {
    let mut text = match change.count {
        0 => "changed".to_owned(),
        count => format!("{} changed", plural(count as usize, "file", "files")),
    };
    if let Some(by) = &change.by {
        let _ = write!(text, " by {}", escape_text(by));
    }
    if !change.still_old.is_empty() {
        let paths = escape_text(&change.still_old.join(", "));
        let _ = write!(text, "; held open, so still as before: {paths}");
    }
    text
}
