//! Messages about parked changes, and the parking of changes by `run`.

use super::{Cx, TerminalFrontend};
use crate::exit::CommandError;
use crate::render::{self, Messages, escape_text, say};
use crate::sync::copied;
use glovebox_proto::Code;
use glovebox_sandbox::{ParkingNews, Sandbox, ShutdownReport};
use glovebox_session::frontend::Frontend as _;
use std::sync::Arc;

/// Result of parking changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParkOutcome {
    /// The changes are parked.
    Parked,
    /// The sandbox is on another machine, so its changes cannot be parked.
    Impossible,
    /// Parking failed: the changes are lost, or will be parked once there is disk space.
    Failed,
}

/// Ends a sandbox and keeps its changes for a day. The message is printed with `--quiet` too: no
/// other message says where the work is.
pub(super) fn park(
    cx: &Cx,
    sandbox: Arc<Sandbox>,
    reason: &str,
    changes: Option<usize>,
) -> ParkOutcome {
    let name = sandbox.info().name.clone();
    let what = match changes {
        None => "the changes are".to_owned(),
        Some(0) => "the sandbox is".to_owned(),
        Some(1) => "1 change is".to_owned(),
        Some(count) => format!("{count} changes are"),
    };
    // The signal thread drops its reference as soon as the command has ended.
    let Some(sandbox) = Arc::into_inner(sandbox) else {
        say(format_args!(
            "glovebox: {what} gone: the sandbox is still in use"
        ));
        return ParkOutcome::Failed;
    };
    let frontend = TerminalFrontend::new(cx);
    if let Err(error) = copied::fetch_to_layer(&sandbox, &mut *frontend.watch_progress()) {
        cx.talk.error(&CommandError::from(error));
    }
    let is_copy = copied::CopyOrigin::read(sandbox.dir()).is_some()
        && !sandbox.info().backend.capabilities().keeps_files;
    match sandbox.park(reason, changes.map(|count| count as u64)) {
        Ok((news, finished)) => {
            let first = if is_copy {
                format!("`glovebox start {name} --workspace copy` and ")
            } else {
                String::new()
            };
            say(format_args!(
                "glovebox: {what} parked for a day: {first}`glovebox pull {name}` takes them over, \
                 `glovebox diff {name}` shows them"
            ));
            tell_lost_caches(cx.talk, &finished);
            tell_news(cx, &news);
            ParkOutcome::Parked
        }
        // If only the disk is full the work is kept, and parked later.
        Err(fault) if fault.is_retryable => {
            say(format_args!(
                "glovebox: {what} not parked yet ({}): make room, then `glovebox list` parks them, and \
                 `glovebox pull {name}` takes them over",
                escape_text(&fault.message)
            ));
            ParkOutcome::Failed
        }
        Err(fault) if fault.code == Code::Unsupported => {
            say(format_args!(
                "glovebox: {what} gone: a sandbox elsewhere cannot be parked; --apply auto, --patch FILE or --keep \
                 NAME saves them"
            ));
            ParkOutcome::Impossible
        }
        Err(fault) => {
            say(format_args!(
                "glovebox: {what} gone: the sandbox could not be parked ({})",
                escape_text(&fault.message)
            ));
            ParkOutcome::Failed
        }
    }
}

/// Reports caches that could not be kept.
pub(super) fn tell_lost_caches(talk: Messages, finished: &ShutdownReport) {
    if let Some(fault) = &finished.lost_caches {
        talk.warning(escape_text(&fault.message));
    }
}

/// Reports parked changes that were found, expired or displaced.
pub(super) fn tell_news(cx: &Cx, news: &[ParkingNews]) {
    for one in news {
        match one {
            ParkingNews::Found(name) => cx.talk.warning(format_args!(
                "a `glovebox run` was killed and left changes; they are parked for a day: `glovebox pull {name}` takes \
                 them over, `glovebox diff {name}` shows them"
            )),
            ParkingNews::Expired(name) => cx.talk.warning(format_args!(
                "the changes parked as `{name}` were dropped: nobody took them over for a day"
            )),
            ParkingNews::Displaced(name) => cx.talk.warning(format_args!(
                "the changes parked as `{name}` were dropped: newer ones took their room"
            )),
        }
    }
}

/// Keeps a stopped sandbox until the user removes it. `files` describes the state of the user's
/// files.
pub(super) fn keep(cx: &Cx, sandbox: Arc<Sandbox>, reason: &str, files: &str) {
    let name = sandbox.info().name.clone();
    let kept = Arc::into_inner(sandbox).map(|sandbox| sandbox.keep(reason));
    match kept {
        Some(Ok(finished)) => {
            cx.talk.warning(format_args!(
                "the sandbox is kept, {files}: `glovebox diff {name}`, `glovebox pull {name}`, \
                 `glovebox kill {name}`"
            ));
            tell_lost_caches(cx.talk, &finished);
        }
        Some(Err(fault)) if fault.is_retryable => cx.talk.warning(format_args!(
            "the sandbox is not kept yet ({}): make room, then `glovebox list` parks its changes, and \
             `glovebox pull {name}` takes them over",
            render::escape_text(&fault.message)
        )),
        Some(Err(fault)) => cx.talk.warning(format_args!(
            "the sandbox could not be kept ({}); its changes are gone",
            render::escape_text(&fault.message)
        )),
        None => cx
            .talk
            .warning("the sandbox is still in use; its changes are gone"),
    }
}
