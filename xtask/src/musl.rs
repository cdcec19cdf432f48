//! Standard library for musl, with which the guest is linked if it is available: the guest then
//! starts in half the time (`crates/sandbox/build.rs` explains why).

use crate::step::{has_program, output, root, say};
use std::path::PathBuf;
use std::process::Command;

/// Adds the library to a toolchain that rustup manages. Prints a message if it is not available:
/// the guest is then linked with this machine's C library, and works the same.
pub(crate) fn install_missing() {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    if is_there(&target) {
        return;
    }
    say(&format!("==> add the standard library for {target}"));
    let add = || {
        let mut rustup = Command::new("rustup");
        rustup.args(["target", "add", &target]).current_dir(root());
        rustup.status().is_ok_and(|status| status.success())
    };
    if !has_program("rustup") || !add() {
        say(
            "it is not to be had; the guest is linked with the C library of this machine, and starts more slowly",
        );
    }
}

fn is_there(target: &str) -> bool {
    let mut rustc = Command::new("rustc");
    rustc
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(root());
    // rustc prints the directory even if it does not exist.
    output(&mut rustc).is_ok_and(|dir| PathBuf::from(dir.trim_end()).is_dir())
}
