//! `glovebox __commit DIR`: the step of a pull that changes the user's files
//! (`glovebox_session::sync`), in a separate process.

use crate::args::CommitArgs;
use crate::render;
use glovebox_sandbox::note_applied;
use glovebox_workspace::{RelPath, apply};

/// Commits the content of the staging directory. The parent process reads a failure from standard
/// output.
pub(crate) fn run(args: &CommitArgs) -> u8 {
    // Own session, so that Ctrl-C at the terminal cannot interrupt the commit. Fails only if this
    // process leads a session already.
    let _ = rustix::process::setsid();
    let mut tell = |paths: &[RelPath]| {
        if let (Some(state), Some(to)) = (&args.state, args.dir.parent()) {
            let paths = paths.iter().map(RelPath::as_path);
            // The changes are applied already; a sandbox that is not notified only sees old names
            // for a while longer.
            let _ = note_applied(state, to, args.by.as_deref(), paths);
        }
    };
    match apply::commit(&args.dir, &mut tell) {
        Ok(()) => 0,
        Err(error) => {
            // The parent may have exited.
            let _ = render::print(serde_json::to_string(&error.fault).unwrap_or_default());
            1
        }
    }
}
