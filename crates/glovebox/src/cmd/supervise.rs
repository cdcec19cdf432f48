//! `glovebox __supervise`: the process that owns one named sandbox. Started by `start`, not by
//! users.

use crate::args::SuperviseArgs;
use crate::exit::CommandResult;
use crate::sync::BaseIndex;

/// Owns the sandbox until it ends.
pub(crate) fn run(args: &SuperviseArgs) -> CommandResult {
    let name = super::name(&args.name)?;
    let mut index = None;
    glovebox_sandbox::supervise(&args.state, &name, |layers| {
        index = BaseIndex::begin(layers);
    })?;
    Ok(0)
}
