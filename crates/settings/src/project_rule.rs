//! Rules for values in a project's own file. Only this module decides which value is "more".
//!
//! A judge compares the settings that contain the project's value (`new`) to those of the user
//! alone (`user`). It returns the effect of the value in a few words, or `None` if the value adds
//! nothing.

use super::agent::Mode;
use super::{Settings, SourcedValue};
use crate::limits::in_force_without;
use glovebox_sandbox::{ProjectChoice, WorkspaceMode};
use glovebox_spec::{Ids, Layers, LimitKind, Net, ProcMode, RootFs};
use glovebox_tools::policy::{Toolset, USUAL_TOOLSET};
use glovebox_workspace::GitHistory;
use std::fmt::Display;

/// Comparison function; see the module.
pub type Judge = fn(new: &Settings, user: &Settings) -> Option<String>;

/// Condition under which a project's own file may set a key.
#[derive(Debug, Clone, Copy)]
pub enum ProjectRule {
    /// Always permitted: the value only restricts.
    Harmless,
    /// Permitted if the judge returns `None`. Otherwise the value needs consent.
    TightensOnly(Judge),
    /// As [`Self::TightensOnly`] in a native sandbox. Outside one the value always needs consent,
    /// for the given reason.
    NativeOnly(Judge, &'static str),
    /// Always needs consent, for the given reason.
    NeedsTrust(&'static str),
    /// Only the user may set the key.
    UserOnly,
}

fn when(is_more: bool, why: &str) -> Option<String> {
    is_more.then(|| why.to_owned())
}

/// Returns true if a limit is higher than another. `None` is no limit.
fn is_higher<T: PartialOrd>(new: Option<T>, old: Option<T>) -> bool {
    match (new, old) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(new), Some(old)) => new > old,
    }
}

fn raised<T: Display, N: PartialOrd>(
    new: &SourcedValue<T>,
    old: &SourcedValue<T>,
    limit: impl Fn(&T) -> Option<N>,
) -> Option<String> {
    is_higher(limit(&new.value), limit(&old.value))
        .then(|| format!("raises the limit from {} to {}", old.value, new.value))
}

pub(super) fn same_or_free_backend(new: &Settings, user: &Settings) -> Option<String> {
    let backend = new.backend.value;
    when(
        backend != user.backend.value && backend.project_choice() != ProjectChoice::Free,
        "leaves the native sandbox",
    )
}

pub(super) fn no_other_rootfs(new: &Settings, user: &Settings) -> Option<String> {
    let is_less = new.rootfs.value == RootFs::Host && user.rootfs.value == RootFs::HostAll;
    when(
        new.rootfs.value != user.rootfs.value && !is_less,
        "shows other files of your machine",
    )
}

pub(super) fn no_network(new: &Settings, user: &Settings) -> Option<String> {
    let rank = |settings: &Settings| match settings.net.value {
        Net::None => 0,
        Net::Egress => 1,
        Net::Host => 2,
    };
    when(rank(new) > rank(user), "opens your network")
}

pub(super) fn no_toolchains(new: &Settings, user: &Settings) -> Option<String> {
    when(
        new.toolchains.value && !user.toolchains.value,
        "shows toolchains from your home",
    )
}

pub(super) fn no_further_history(new: &Settings, user: &Settings) -> Option<String> {
    let sends_all = |settings: &Settings| settings.git.value == GitHistory::Full;
    when(
        sends_all(new) && !sends_all(user),
        "sends all branches of the repository to another machine",
    )
}

/// Kept caches come from the project's own sandboxes, but they stay on the disk after those.
pub(super) fn no_kept_caches(new: &Settings, user: &Settings) -> Option<String> {
    when(
        new.cache.value && !user.cache.value,
        "keeps on your disk what package managers write inside",
    )
}

/// `project_env` has already refused forbidden names.
pub(super) fn no_new_env_from_host(new: &Settings, user: &Settings) -> Option<String> {
    let mut added = new.env.iter().skip(user.env.len());
    when(
        added.any(|var| var.value.value.is_none()),
        "passes on variables of your environment",
    )
}

pub(super) fn same_or_narrower_workspace(new: &Settings, user: &Settings) -> Option<String> {
    // The rank ignores the backend, which flags may still change.
    let rank = |settings: &Settings| match settings.workspace.value {
        Some(WorkspaceMode::ReadOnly) => 1,
        Some(WorkspaceMode::Overlay | WorkspaceMode::Copy) => 2,
        Some(WorkspaceMode::Live) => 3,
        None if settings.sync.enabled.value => 2,
        Some(WorkspaceMode::None) | None => 0,
    };
    match (rank(user), rank(new)) {
        (0..3, 3) => when(true, "gives the sandbox your own files to write"),
        (1, 2) => when(
            true,
            "lets the sandbox write in a workspace that is read-only",
        ),
        (0, 1 | 2) => when(true, "shows the project's files"),
        _ => None,
    }
}

/// `!pattern` cancels an earlier exclusion, possibly one of the user's own.
pub(super) fn no_reinclusion(
    new: &[SourcedValue<String>],
    user: &[SourcedValue<String>],
) -> Option<String> {
    let mut added = new.iter().skip(user.len());
    when(
        added.any(|pattern| pattern.value.starts_with('!')),
        "takes back what another pattern excludes",
    )
}

pub(super) fn not_applied_by_itself(new: &Settings, user: &Settings) -> Option<String> {
    when(
        new.sync.on_success.value && !user.sync.on_success.value,
        "writes to your files without asking",
    )
}

pub(super) fn same_or_narrower_toolset(new: &Settings, user: &Settings) -> Option<String> {
    match (new.tools.toolset(), user.tools.toolset()) {
        (Ok(new), Ok(user)) => new.wider_than(user),
        (Err(message), _) | (_, Err(message)) => Some(message),
    }
}

/// A toolset of the project has no effect until the user selects it. It may therefore contain the
/// tools of the user's toolset or of the default one.
pub(super) fn same_or_narrower_toolsets(new: &Settings, user: &Settings) -> Option<String> {
    if new.tools.networks.len() > user.tools.networks.len() {
        return Some("gives a toolset a network of its choice".to_owned());
    }
    let known = user.tools.toolsets.len();
    let usual = match Toolset::find(&user.tools.toolsets, USUAL_TOOLSET) {
        Ok(usual) => usual,
        Err(message) => return Some(message),
    };
    let chosen = user.tools.toolset().unwrap_or(usual);
    let mut added = new.tools.toolsets.iter().skip(known);
    added.find_map(|toolset| {
        toolset.wider_than(chosen)?;
        toolset.wider_than(usual)
    })
}

pub(super) fn sandboxed_mode(new: &Settings, user: &Settings) -> Option<String> {
    let mode = new.agent.mode.value;
    when(
        mode != user.agent.mode.value && mode != Mode::Sandbox,
        "lets the agent work without a sandbox",
    )
}

pub(super) fn fewer_agent_turns(new: &Settings, user: &Settings) -> Option<String> {
    raised(&new.agent.max_turns, &user.agent.max_turns, |count| count.0)
}

pub(super) fn less_agent_time(new: &Settings, user: &Settings) -> Option<String> {
    raised(&new.agent.max_time, &user.agent.max_time, |span| span.0)
}

pub(super) fn fewer_agent_tokens(new: &Settings, user: &Settings) -> Option<String> {
    raised(&new.agent.max_tokens, &user.agent.max_tokens, |count| {
        count.0
    })
}

pub(super) fn less_spending(new: &Settings, user: &Settings) -> Option<String> {
    raised(&new.agent.max_cost, &user.agent.max_cost, |dollars| {
        dollars.0
    })
}

/// Compares limits of a sandbox. Where the user sets none, the value that holds without a setting
/// counts.
pub(super) fn raised_limit(kind: LimitKind, new: &Settings, user: &Settings) -> Option<String> {
    let in_force = |settings: &Settings| {
        let value = settings.limits.value(kind);
        value.or(in_force_without(kind))
    };
    is_higher(in_force(new), in_force(user)).then(|| {
        let (from, to) = (user.limits.text(kind), new.limits.text(kind));
        format!("raises the limit from {from} to {to}")
    })
}

/// A project must not make its user wait longer.
pub(super) fn less_start_time(new: &Settings, user: &Settings) -> Option<String> {
    raised(&new.start_timeout, &user.start_timeout, |span| span.0)
}

/// A deadline that the user did not set is no limit.
pub(super) fn less_time(new: &Settings, user: &Settings) -> Option<String> {
    let ms = |settings: &Settings| settings.timeout.value.and_then(|span| span.0);
    when(is_higher(ms(new), ms(user)), "gives commands more time")
}

/// Memory is permitted because less data stays behind than on disk.
pub(super) fn no_other_layers(new: &Settings, user: &Settings) -> Option<String> {
    when(
        new.layers.value != user.layers.value && new.layers.value != Layers::Memory,
        "writes to your disk what you keep in memory",
    )
}

pub(super) fn no_more_ids(new: &Settings, user: &Settings) -> Option<String> {
    when(
        new.ids.value == Ids::Range && user.ids.value != Ids::Range,
        "gives the sandbox a range of user ids",
    )
}

pub(super) fn no_nested_namespaces(new: &Settings, user: &Settings) -> Option<String> {
    when(
        new.nested.value && !user.nested.value,
        "lets commands make namespaces and so reach more of the kernel",
    )
}

pub(super) fn less_proc(new: &Settings, user: &Settings) -> Option<String> {
    let rank = |mode| match mode {
        ProcMode::None => 0,
        ProcMode::Pids => 1,
        ProcMode::Masked => 2,
    };
    when(
        rank(new.proc.value) > rank(user.proc.value),
        "shows more of /proc",
    )
}
