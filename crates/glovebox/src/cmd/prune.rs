//! `glovebox prune`: removes stopped and lost sandboxes, and leftovers of dead ones.
//!
//! In addition, [`remove_temporary`] runs whenever a command opens the registry: it removes
//! sandboxes that tools created for themselves (`call-*`, `mcp-*`) a day after they ended.

use super::kill::{clean_elsewhere, discarded_git_json, discarded_json};
use super::{Cx, list::state_word, service, several};
use crate::args::PruneArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, plural, table};
use crate::sync::tell_discarded;
use glovebox_sandbox::{Name, Registry, RegistryEntry, SandboxState};
use glovebox_session::sync::discard::count_named;
use glovebox_settings::units::human_bytes;
use serde_json::json;
use std::time::{Duration, SystemTime};

/// Prefixes of generated sandbox names, and the time for which each is kept after its end, so that
/// its changes can be pulled.
const TEMPORARY: [(&str, Duration); 2] = [
    ("call", Duration::from_hours(24)),
    ("mcp", Duration::from_hours(24)),
];

/// Removes the candidates, if the user agrees.
pub(crate) fn run(cx: &Cx, args: &PruneArgs) -> CommandResult {
    render::answer_failure(prune(cx, args), args.json, || json!({}))
}

fn prune(cx: &Cx, args: &PruneArgs) -> CommandResult {
    if args.service.is_given() {
        return service::prune(cx, args);
    }
    let registry = cx.user_registry()?;
    let min_age = args
        .older_than
        .and_then(|span| span.0)
        .map(Duration::from_millis);
    let candidates: Vec<(RegistryEntry, Option<u64>)> = registry
        .list()?
        .into_iter()
        .filter(|entry| matches!(entry.state, SandboxState::Stopped | SandboxState::Lost))
        .filter(|entry| min_age.is_none_or(|min| ended_for(&registry, &entry.name) >= min))
        .map(|entry| {
            let bytes = registry.disk_bytes(&entry.name).ok().flatten();
            (entry, bytes)
        })
        .collect();
    if args.dry_run {
        return tell_candidates(cx, &candidates, args.json);
    }
    if !candidates.is_empty() && !args.yes {
        agree(cx, &candidates)?;
    }
    let before = total_bytes(&registry);
    let mut removed = Vec::new();
    let mut failure: Option<CommandError> = None;
    for (entry, bytes) in &candidates {
        // The sandbox may have been started since the list was read.
        let is_ended = registry
            .entry(&entry.name)?
            .is_some_and(|now| matches!(now.state, SandboxState::Stopped | SandboxState::Lost));
        if !is_ended {
            continue;
        }
        if let Err(error) = clean_elsewhere(cx, &registry, &entry.name) {
            several::keep_failure(cx, &mut failure, error);
            continue;
        }
        let discarded = count_named(&cx.host, &registry, &entry.name);
        match registry.kill(&entry.name) {
            Ok(_) => {
                removed.push(json!({
                    "name": entry.name,
                    "was": entry.state,
                    "bytes": bytes,
                    "discarded_changes": discarded_json(discarded.changes),
                    "discarded_git": discarded_git_json(&discarded.git),
                }));
                if !args.json {
                    tell_discarded(cx.talk, &discarded, &format!(" with {}", entry.name));
                }
            }
            Err(fault) => {
                several::keep_failure(cx, &mut failure, fault.into());
            }
        }
    }
    let leftovers = registry.sweep()?;
    glovebox_workspace::apply::sweep_earlier(registry.state_dir());
    let freed = before.saturating_sub(total_bytes(&registry));
    let message = match (removed.len(), leftovers.len()) {
        (0, 0) => "there was nothing to remove".to_owned(),
        (count, left) => format!(
            "removed {}{}; {} are free again",
            plural(count, "sandbox", "sandboxes"),
            match left {
                0 => String::new(),
                left => format!(" and {}", plural(left, "leftover", "leftovers")),
            },
            human_bytes(freed)
        ),
    };
    let data = json!({ "removed": removed, "leftovers": leftovers, "freed_bytes": freed });
    several::answer_removal(cx, args.json, &message, &data, failure)
}

/// Prints the names of the candidates.
fn tell_candidates(
    cx: &Cx,
    candidates: &[(RegistryEntry, Option<u64>)],
    is_json: bool,
) -> CommandResult {
    let message = match candidates.len() {
        0 => "there is nothing to remove".to_owned(),
        count => format!("{} would go", plural(count, "sandbox", "sandboxes")),
    };
    let names: Vec<&Name> = candidates.iter().map(|(entry, _)| &entry.name).collect();
    if !is_json {
        for name in &names {
            render::print(format!("{name}\n"))?;
        }
    }
    several::answer_removal(cx, is_json, &message, &json!({ "candidates": names }), None)
}

/// Lists the candidates and asks for consent.
fn agree(cx: &Cx, candidates: &[(RegistryEntry, Option<u64>)]) -> Result<(), CommandError> {
    let rows: Vec<Vec<String>> = candidates
        .iter()
        .map(|(entry, bytes)| {
            vec![
                entry.name.to_string(),
                state_word(entry.state).to_owned(),
                super::age(entry.created_unix_ms),
                bytes.map_or_else(|| "-".to_owned(), human_bytes),
                entry
                    .workspace
                    .as_deref()
                    .map_or_else(|| "-".to_owned(), render::escape_text),
            ]
        })
        .collect();
    several::agree_to_remove(
        cx,
        &plural(candidates.len(), "sandbox", "sandboxes"),
        "`glovebox list` shows what is stopped or lost",
        &format!(
            "these go, with changes that were not pulled and their checkpoints:\n{}",
            table(&["NAME", "STATE", "AGE", "SIZE", "WORKSPACE"], &rows)
        ),
    )
}

/// Returns the time since a sandbox last changed its state; zero if it is unknown.
fn ended_for(registry: &Registry, name: &Name) -> Duration {
    let changed = registry.changed_at(name).ok().flatten();
    changed
        .and_then(|at| SystemTime::now().duration_since(at).ok())
        .unwrap_or_default()
}

fn total_bytes(registry: &Registry) -> u64 {
    let parts = registry.room().unwrap_or_default();
    parts.iter().filter_map(|part| part.bytes).sum()
}

/// Removes sandboxes that tools created for themselves and that ended a day ago. A failed removal
/// is tried again by the next command.
pub(super) fn remove_temporary(cx: &Cx, registry: &Registry) {
    let Ok(entries) = std::fs::read_dir(registry.state_dir().join("sandboxes")) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry
            .file_name()
            .to_str()
            .and_then(|name| Name::parse(name).ok());
        let Some(name) = name else { continue };
        let is_over = TEMPORARY
            .iter()
            .any(|(prefix, age)| name.is_random(prefix) && ended_for(registry, &name) >= *age);
        if !is_over {
            continue;
        }
        let has_ended = matches!(
            registry.entry(&name),
            Ok(Some(RegistryEntry {
                state: SandboxState::Stopped | SandboxState::Lost,
                ..
            }))
        );
        // Files at a service may be the only copy of the work, and a removal there sends requests;
        // only a user may do that.
        let is_elsewhere = registry
            .spec(&name)
            .is_ok_and(|spec| spec.backend.capabilities().keeps_files);
        let has_ended = has_ended && !is_elsewhere;
        let discarded = has_ended.then(|| count_named(&cx.host, registry, &name));
        if let Some(discarded) = discarded
            && registry.kill(&name).is_ok()
        {
            tell_discarded(
                cx.talk,
                &discarded,
                &format!(" with {name}, a day after it ended"),
            );
        }
    }
}
