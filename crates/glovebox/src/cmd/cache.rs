//! `glovebox cache`: package caches that sandboxes keep for the next sandbox of their project.

use super::{Cx, age, several};
use crate::args::{CacheAction, CacheArgs, CacheListArgs, CachePruneArgs};
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, plural, table};
use glovebox_sandbox::{ProjectCache, Registry};
use glovebox_session::host;
use glovebox_settings::units::human_bytes;
use serde_json::{Value, json};
use std::path::Path;

/// Lists or removes caches.
pub(crate) fn run(cx: &Cx, args: &CacheArgs) -> CommandResult {
    match &args.action {
        None => list(cx, &args.list),
        Some(CacheAction::List(args)) => list(cx, args),
        Some(CacheAction::Prune(args)) => {
            render::answer_failure(prune(cx, args), args.json, || json!({}))
        }
    }
}

fn list(cx: &Cx, args: &CacheListArgs) -> CommandResult {
    let caches = cx.user_registry()?.caches()?;
    if args.json {
        let caches: Vec<Value> = caches.iter().map(in_json).collect();
        render::print(render::envelope(
            true,
            &plural(caches.len(), "project", "projects"),
            &json!({ "caches": caches }),
        ))?;
    } else if caches.is_empty() {
        cx.talk
            .note("no package caches are kept; `glovebox run --cache` keeps them for a project");
    } else {
        render::print(shown(&caches))?;
    }
    Ok(0)
}

fn shown(caches: &[ProjectCache]) -> String {
    let rows: Vec<Vec<String>> = caches
        .iter()
        .map(|cache| {
            vec![
                project_words(cache),
                human_bytes(cache.bytes),
                if cache.is_in_use {
                    "now".to_owned()
                } else {
                    age(cache.used_unix_ms)
                },
                if cache.names.is_empty() {
                    "-".to_owned()
                } else {
                    cache.names.join(", ")
                },
            ]
        })
        .collect();
    table(&["PROJECT", "SIZE", "USED", "CACHES"], &rows)
}

fn project_words(cache: &ProjectCache) -> String {
    let path = cache.project.as_deref().unwrap_or(&cache.path);
    let path = render::escape_text(&path.display().to_string());
    match &cache.owner {
        Some(owner) => format!("{path} (of {})", render::escape_text(owner)),
        None => path,
    }
}

fn in_json(cache: &ProjectCache) -> Value {
    json!({
        "project": cache.project.as_ref().map(|path| path.display().to_string()),
        "owner": cache.owner,
        "path": cache.path.display().to_string(),
        "bytes": cache.bytes,
        "used_unix_ms": cache.used_unix_ms,
        "names": cache.names,
        "is_in_use": cache.is_in_use,
    })
}

fn prune(cx: &Cx, args: &CachePruneArgs) -> CommandResult {
    let registry = cx.user_registry()?;
    let candidates = candidates(cx, &registry, args)?;
    if !candidates.is_empty() && !args.yes {
        several::agree_to_remove(
            cx,
            &format!(
                "the package caches of {}",
                plural(candidates.len(), "project", "projects")
            ),
            "`glovebox cache` shows what is kept",
            &format!("these go:\n{}", shown(&candidates)),
        )?;
    }
    let mut removed: Vec<Value> = Vec::new();
    let mut freed = 0_u64;
    let mut failure: Option<CommandError> = None;
    for cache in &candidates {
        match registry.remove_cache(&cache.path) {
            Ok(()) => {
                freed = freed.saturating_add(cache.bytes);
                removed.push(in_json(cache));
            }
            Err(fault) => {
                several::keep_failure(cx, &mut failure, fault.into());
            }
        }
    }
    let message = match removed.len() {
        0 => "there was nothing to remove".to_owned(),
        count => format!(
            "removed the package caches of {}; {} are free again",
            plural(count, "project", "projects"),
            human_bytes(freed)
        ),
    };
    let data = json!({ "removed": removed, "freed_bytes": freed });
    several::answer_removal(cx, args.json, &message, &data, failure)
}

/// Returns the caches to remove: those of all projects or of one, optionally only those unused for
/// a time.
fn candidates(
    cx: &Cx,
    registry: &Registry,
    args: &CachePruneArgs,
) -> Result<Vec<ProjectCache>, CommandError> {
    let is_any = args.all || (args.older_than.is_some() && args.project.is_none());
    let project = if is_any {
        None
    } else if let Some(path) = &args.project {
        let path = cx.host.absolute(path);
        // A project that was removed can still be named.
        Some(path.canonicalize().unwrap_or(path))
    } else {
        Some(host::find_project(&cx.host)?.dir)
    };
    let min_ms = args.older_than.and_then(|span| span.0).unwrap_or(0);
    let now_ms = glovebox_session::host::now_unix_ms();
    let mut caches = registry.caches()?;
    caches.retain(|cache| {
        let is_old = now_ms.saturating_sub(cache.used_unix_ms) >= min_ms;
        is_old && is_of(cache, project.as_deref())
    });
    Ok(caches)
}

/// Returns true if the cache belongs to the project. A cache of unknown project is of no use to
/// any, so it belongs to each.
fn is_of(cache: &ProjectCache, project: Option<&Path>) -> bool {
    let own = cache.project.as_deref();
    own.is_none() || project.is_none_or(|project| own == Some(project))
}
