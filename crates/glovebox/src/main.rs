//! The `glovebox` program: the command line with the standard backends.

use std::process::ExitCode;

fn main() -> ExitCode {
    glovebox::main_with(glovebox::standard_backends())
}
