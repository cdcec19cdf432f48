//! Messages about the files that are hidden from a sandbox: at its start, and again when a command
//! fails.

use crate::render;
use glovebox_workspace::{HiddenPaths, HideReason};
use std::os::unix::ffi::OsStrExt as _;

/// Maximum number of names per kind.
const MAX_NAMES: usize = 3;

/// Describes how many files of the project are hidden, and why. None if there are none.
pub(super) fn at_start(hidden: &HiddenPaths) -> Option<String> {
    let part = |reason, what: &str| {
        let count = hidden.count(reason);
        if count == 0 {
            return None;
        }
        let mut names = names(hidden, |why| why == reason);
        if count > MAX_NAMES {
            names.push("...".to_owned());
        }
        Some(format!("{count} {what} ({})", names.join(", ")))
    };
    let mut parts: Vec<String> = [
        part(HideReason::Secret, "by a name like that of a secret"),
        part(HideReason::Content, "with a key or token in it"),
        part(HideReason::Excluded, "by a pattern"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let can_be_shown = !parts.is_empty();
    if !hidden.replaced.is_empty() {
        let names = hidden.replaced.iter().take(MAX_NAMES);
        // TRUST: the project chose these names.
        let names: Vec<String> = names
            .map(|(path, _)| render::escape(path.as_os_str().as_bytes()))
            .collect();
        parts.push(format!("the credentials in {}", names.join(", ")));
    }
    if parts.is_empty() {
        return None;
    }
    let flag = if can_be_shown {
        "; --include PATTERN shows them"
    } else {
        ""
    };
    Some(format!(
        "hidden from the sandbox: {}{flag}",
        parts.join(", ")
    ))
}

/// Describes the hidden files that a failed command may have needed. None if there are none.
pub(super) fn after_failure(hidden: &HiddenPaths) -> Option<String> {
    let names = names(hidden, |_| true);
    let (first, count) = (names.first()?, hidden.paths.len());
    let more = if count > names.len() { ", ..." } else { "" };
    let it = if count == 1 { "it" } else { "them" };
    let flag = super::shown_command(&[b"--include", first.as_bytes()]);
    let others = if count == 1 { "" } else { ", one for each" };
    Some(format!(
        "the command failed without {}{more}; if it needs {it}: `{flag}`{others}",
        names.join(", ")
    ))
}

// TRUST: the project chose these names.
fn names(hidden: &HiddenPaths, is_wanted: impl Fn(HideReason) -> bool) -> Vec<String> {
    let paths = hidden.paths.iter().filter(|(_, why)| is_wanted(*why));
    paths
        .take(MAX_NAMES)
        .map(|(path, _)| render::escape(path.as_os_str().as_bytes()))
        .collect()
}
