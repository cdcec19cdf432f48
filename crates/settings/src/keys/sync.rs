//! Keys of file transfer to and from a sandbox.

use super::access::{list, one};
use super::{DefaultValue, Key};
use crate::project_rule::ProjectRule::{NeedsTrust, TightensOnly};
use crate::project_rule::{no_reinclusion, not_applied_by_itself, same_or_narrower_workspace};
use crate::raw::switch;
use crate::values::parse_pattern;

pub(super) const KEYS: &[Key] = &[
    Key::new(
        "sync.enabled",
        "`false` starts with an empty workspace unless `workspace` says otherwise",
        TightensOnly(same_or_narrower_workspace),
        one!(sync.enabled, switch),
    )
    .variable("GLOVEBOX_SYNC_ENABLED")
    .default(DefaultValue::Plain("true")),
    Key::new(
        "sync.push.exclude",
        "patterns of files the sandbox is not shown",
        TightensOnly(|new, user| no_reinclusion(&new.sync.push_exclude, &user.sync.push_exclude)),
        list!(
            sync.push_exclude,
            patterns,
            |text, _| parse_pattern(text),
            Clone::clone
        ),
    )
    .flags(&["exclude"]),
    Key::new(
        "sync.push.include",
        "patterns of files it is shown although they look like secrets or are excluded",
        NeedsTrust("shows files that are hidden otherwise"),
        list!(
            sync.push_include,
            patterns,
            |text, _| parse_pattern(text),
            Clone::clone
        ),
    )
    .flags(&["include"]),
    Key::new(
        "sync.pull.exclude",
        "patterns of files that do not come back",
        TightensOnly(|new, user| no_reinclusion(&new.sync.pull_exclude, &user.sync.pull_exclude)),
        list!(
            sync.pull_exclude,
            patterns,
            |text, _| parse_pattern(text),
            Clone::clone
        ),
    )
    .flags(&["pull exclude"]),
    Key::new(
        "sync.pull.include",
        "patterns of files that come back although they are excluded",
        NeedsTrust("brings back files that would stay in the sandbox"),
        list!(
            sync.pull_include,
            patterns,
            |text, _| parse_pattern(text),
            Clone::clone
        ),
    )
    .flags(&["pull include"]),
    Key::new(
        "sync.on_success",
        "apply when a command of `run` exits with 0",
        TightensOnly(not_applied_by_itself),
        one!(sync.on_success, switch),
    )
    .variable("GLOVEBOX_SYNC_ON_SUCCESS")
    .flags(&["run sync-on-success"])
    .default(DefaultValue::Plain("false")),
];
