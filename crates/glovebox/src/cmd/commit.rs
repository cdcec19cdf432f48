//! `glovebox __commit DIR`: the step of a pull that changes the user's files (`glovebox_session::sync`), in a process of
//! its own.

use crate::args::CommitArgs;
use crate::render;
use glovebox_sandbox::note_applied;
use glovebox_workspace::{RelPath, apply};

/// Commits what lies in the staging directory. The process that started it reads from standard output why it failed.
pub(crate) fn run(args: &CommitArgs) -> u8 {
    // Fails only for a process that leads a session already.
    let _ = rustix::process::setsid();
    let mut tell = |paths: &[RelPath]| {
        if let (Some(state), Some(to)) = (&args.state, args.dir.parent()) {
            let paths = paths.iter().map(RelPath::as_path);
            // The changes are applied; a sandbox that does not hear of it sees old names a while longer.
            let _ = note_applied(state, to, args.by.as_deref(), paths);
        }
    };
    match apply::commit(&args.dir, &mut tell) {
        Ok(()) => 0,
        Err(error) => {
            // Nobody may be left to read it.
            let _ = render::print(serde_json::to_string(&error.fault).unwrap_or_default());
            1
        }
    }
}
