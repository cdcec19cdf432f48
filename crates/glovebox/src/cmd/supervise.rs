//! `glovebox __supervise`: the process that owns one named sandbox. Started by `start`, not by people.

use crate::args::SuperviseArgs;
use crate::exit::CommandResult;

/// Owns the sandbox until it ends.
pub(crate) fn run(args: &SuperviseArgs) -> CommandResult {
    glovebox_sandbox::supervise(&args.state, &super::name(&args.name)?)?;
    Ok(0)
}
