//! Changes and git work that are removed with their sandbox: counted first, as far as that takes
//! little time.

use super::git_state::{find_git_work_named, find_in_layers};
use super::ignore_rules;
use crate::GitWork;
use glovebox_proto::Code;
use glovebox_sandbox::{Name, Registry, RegistryConfig, RegistryEntry, SandboxState};
use glovebox_settings::Surroundings;
use glovebox_workspace::collect::{LayerPaths, from_layers};
use glovebox_workspace::{Filter, Progress, Quota};
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum time for counting changes before they are removed.
const COUNT_TIME: Duration = Duration::from_secs(2);

/// Number of changes that are about to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscardCount {
    /// No changes are known: there are none, or they are on another machine.
    None,
    /// Number of changes.
    Changes(usize),
    /// Changes exist, too many to count in time.
    Uncounted,
}

/// Work that exists only in a sandbox and is removed with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscardedWork {
    /// Changed files.
    pub changes: DiscardCount,
    /// Commits, branches, tags and stashes that the host does not have.
    pub git: GitWork,
}

/// Returns a watch that stops counting after [`COUNT_TIME`].
pub(super) fn count_deadline() -> Box<dyn FnMut(Progress) -> ControlFlow<()>> {
    let deadline = Instant::now() + COUNT_TIME;
    Box::new(move |_| {
        if Instant::now() < deadline {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })
}

/// Counts the changes and the git work of a sandbox that is about to be removed. The sandbox is not
/// frozen for that, because a sandbox whose guest does not answer must end without delay.
pub fn count_named(host: &Surroundings, registry: &Registry, name: &Name) -> DiscardedWork {
    let Ok(Some(entry)) = registry.entry(name) else {
        return DiscardedWork {
            changes: DiscardCount::None,
            git: GitWork::default(),
        };
    };
    DiscardedWork {
        changes: count_changes(host, registry, name),
        git: find_git_work(registry, &entry),
    }
}

/// Finds the git work of a sandbox: in its layers, and if they have some and it runs, through git
/// inside.
fn find_git_work(registry: &Registry, entry: &RegistryEntry) -> GitWork {
    let seen = find_in_layers(registry, entry);
    if seen.is_empty() || entry.state != SandboxState::Ready {
        return seen;
    }
    let (told, answer) = mpsc::channel();
    let (name, state_dir) = (entry.name.clone(), registry.state_dir().to_owned());
    // A guest that does not answer blocks this thread, not the user.
    let asked = thread::Builder::new().spawn(move || {
        let registry = Registry::open(RegistryConfig {
            state_dir,
            max_sandboxes: 1,
            seed_maker: None,
        });
        let work = registry.map(|registry| find_git_work_named(&registry, &name));
        // After the timeout nothing receives the result.
        let _ = told.send(work.ok().and_then(Result::ok));
    });
    let work = asked
        .ok()
        .and_then(|_| answer.recv_timeout(COUNT_TIME).ok());
    work.flatten().unwrap_or(seen)
}

fn count_changes(host: &Surroundings, registry: &Registry, name: &Name) -> DiscardCount {
    let Ok(layers) = registry.workspace_layers(name) else {
        return DiscardCount::None;
    };
    let project = layers.project.as_deref();
    let rules = project.filter(|project| project.is_dir());
    let rules = rules.and_then(|project| ignore_rules(host, project, &[]).ok());
    let filter = rules.map_or_else(Filter::default, |rules| {
        Filter::default().without_ignored(rules)
    });
    let source = LayerPaths {
        project,
        layers: &layers.layers,
        hidden: &layers.hidden,
        base: Some(&layers.base),
    };
    match from_layers(&source, &filter, &Quota::default(), &mut *count_deadline()) {
        Ok(collected) if collected.set.changes.is_empty() => DiscardCount::None,
        Ok(collected) => DiscardCount::Changes(collected.set.changes.len()),
        Err(error) if matches!(error.fault.code, Code::Cancelled | Code::TooLarge) => {
            DiscardCount::Uncounted
        }
        Err(_) => DiscardCount::None,
    }
}
