//! What a command is told: its environment, its limits, its signals.

use crate::arena::Arena;
use crate::script::sh_ok;
use testkit::Home;

/// 200 planted secrets in the caller's environment -> none inside. Twin: what is asked for arrives.
#[test]
fn probe_40_env_clean() {
    let home = Home::new();
    let mut call = home.line("--quiet run --no-toolchains --env GIVEN=given --env PASSED -- env");
    for number in 0..195 {
        call = call.env(
            format!("SECRET_{number}"),
            format!("planted-secret-{number}"),
        );
    }
    for name in [
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "SSH_AUTH_SOCK",
        "LD_PRELOAD",
        "BASH_ENV",
    ] {
        call = call.env(name, "planted-secret-x");
    }
    let ran = call.env("PASSED", "passed-on").run();
    let ran = ran.expect_code(0);
    assert!(
        !ran.out().contains("planted-secret") && !ran.out().contains("SECRET_"),
        "{ran}"
    );
    assert!(
        ran.out().contains("GIVEN=given\n") && ran.out().contains("PASSED=passed-on\n"),
        "{ran}"
    );

    let arena = Arena::new();
    let names = sh_ok(&arena.sandbox(), "env | cut -d= -f1 | sort | tr '\\n' ' '");
    for name in names.split_whitespace() {
        assert!(
            [
                "HOME", "PATH", "PWD", "OLDPWD", "SHLVL", "_", "USER", "LOGNAME", "SHELL", "LANG",
                "TERM", "TMPDIR"
            ]
            .contains(&name),
            "{name} is in the environment: {names}"
        );
    }
}

/// The environment of pid 1 and of stage 0 holds nothing either.
#[test]
fn attack_environment_of_the_guest() {
    let home = Home::new();
    let ran = home
        .line("--quiet run --no-toolchains -- sh -c")
        .args([
            "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; echo end",
        ])
        .env("PLANTED", "planted-secret-y")
        .run()
        .expect_code(0);
    assert!(
        ran.out().contains("end") && !ran.out().contains("planted-secret-y"),
        "{ran}"
    );
    assert!(
        !ran.out().contains(&home.state().display().to_string()),
        "host paths leak: {ran}"
    );
}

/// Ignored signals, a strange mask, umask and niceness of the caller are not handed on.
#[test]
fn inherited_oddities_are_reset() {
    let arena = Arena::new();
    let status = sh_ok(&arena.sandbox(), "umask; cat /proc/self/status");
    assert!(status.starts_with("0022\n"), "{status}");
    for field in ["SigBlk", "SigIgn", "SigPnd"] {
        assert!(
            status.contains(&format!("{field}:\t0000000000000000")),
            "{field}: {status}"
        );
    }
}
