//! `glovebox bundle`: agents and tools that a JavaScript file declares.

mod run;

use super::Cx;
use crate::args::{BundleAction, BundleArgs};
use crate::exit::CommandResult;

/// Does it.
pub(crate) fn run(cx: &Cx, args: &BundleArgs) -> CommandResult {
    match &args.action {
        BundleAction::Run(args) => run::run(cx, args),
    }
}
