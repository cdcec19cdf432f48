//! Tools that manage sandboxes beside the session's own: made, listed, used and ended. Only a toolset that
//! names them has them, and they reach nothing but what the session itself has made.

pub(crate) mod exec;
pub(crate) mod kill;
pub(crate) mod list;
mod narrow;
pub(crate) mod spawn;

use crate::call::Call;
use crate::children::ChildSandboxes;
use glovebox_proto::{Code, Fault, Setting};

/// What makes them, for a session that may.
fn children<'a>(call: &Call<'a>) -> Result<&'a ChildSandboxes, Fault> {
    call.session.children().ok_or_else(|| {
        Fault::refused(
            Code::Unsupported,
            "there is no sandbox around this session, so none can be made beside it",
        )
        .remedy([
            "work in a sandbox: `glovebox start NAME`, then ".into(),
            Setting::Sandbox.of("NAME"),
        ])
    })
}
