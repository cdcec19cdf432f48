//! The product on another kernel than this machine's: a stock one of Debian, with control groups of version
//! 2 only, in QEMU's software emulation.
//!
//! Whoever changes the product works on a new kernel, and often on one with control groups of version 1. What
//! an older kernel lacks, and what is different with version 2 alone, shows only where it is run. So
//! machines are put together on the spot (`image`) and started (`machine`). They have no network and no
//! installation, only programs of this machine, and those that cargo has built for its tests: the tests in
//! `inside`, as root, as an ordinary user with a delegated group and as one without, and of other suites the attempts
//! to break out.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod checks;
mod image;
mod inside;
mod machine;
mod quota;

use checks::Check;
use image::{Image, Parts};
use machine::Console;

/// Starts a machine that makes these checks.
fn boot(checks: &[Check]) {
    let parts = match Parts::find() {
        Ok(parts) => parts,
        Err(missing) => testkit::skip!("{missing}"),
    };
    let image = Image::make(&parts, checks);
    let wrong = checks::judge(checks, &Console::of(&image));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn root_on_a_stock_kernel_of_debian() {
    boot(&checks::of_root());
}

#[test]
fn ordinary_users_on_a_stock_kernel_of_debian() {
    boot(&checks::of_ordinary_users());
}

#[test]
fn every_group_of_attempts_is_run_or_left_out() {
    let wrong = checks::undecided();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
