//! Tools that make, list, use and terminate child sandboxes. Only a toolset that names them has
//! them. They reach only sandboxes that the session itself has made.

pub(crate) mod exec;
pub(crate) mod kill;
pub(crate) mod list;
mod narrow;
pub(crate) mod spawn;

use crate::call::Call;
use crate::children::ChildSandboxes;
use glovebox_proto::{Code, Fault, Setting};

/// Returns the session's children.
///
/// # Errors
/// `unsupported` if the session cannot make sandboxes.
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
