//! The program with one backend more.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut backends = glovebox::standard_backends();
    backends.push(Box::new(glovebox_made_up::MadeUp));
    glovebox::main_with(backends)
}
