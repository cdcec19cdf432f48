//! Changes that go with their sandbox: counted before they do, as far as that takes little time.

use super::ignore_rules;
use glovebox_proto::Code;
use glovebox_sandbox::{Name, Registry};
use glovebox_settings::Surroundings;
use glovebox_workspace::collect::{LayerPaths, from_layers};
use glovebox_workspace::{Filter, Progress, Quota};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Longest time for which changes are counted before they are removed.
const COUNT_TIME: Duration = Duration::from_secs(2);

/// Number of changes that are about to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscardCount {
    /// Nothing is known of changes: there are none, or they lie on another machine.
    None,
    /// So many.
    Changes(usize),
    /// There are changes, too many to be counted now.
    Uncounted,
}

/// Returns a watch that ends counting after [`COUNT_TIME`].
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

/// Counts the changes of a sandbox that is to be removed. The sandbox is not held still for it: one whose
/// guest does not answer must end without delay.
pub fn count_named(host: &Surroundings, registry: &Registry, name: &Name) -> DiscardCount {
    let is_there = matches!(registry.entry(name), Ok(Some(_)));
    let Some(layers) = is_there
        .then(|| registry.workspace_layers(name).ok())
        .flatten()
    else {
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
