//! `glovebox help [COMMAND]`: the same text as `glovebox COMMAND --help`.

use crate::args::{Cli, HelpArgs};
use crate::usage;
use std::ffi::OsString;

/// Prints the text; an unknown command is a usage error, as everywhere.
pub(crate) fn run(args: &HelpArgs) -> u8 {
    let mut argv: Vec<OsString> = vec!["glovebox".into()];
    argv.extend(args.command.iter().map(OsString::from));
    argv.push("--help".into());
    match Cli::read(&argv) {
        Err(error) => usage::explain(&error, &argv),
        // Not reached: the parser always handles `--help` before `--`.
        Ok(_) => 0,
    }
}
