//! Behaviour on a real terminal, which script(1) provides.

use std::process::{Command, Stdio};
use testkit::Home;

/// Runs a shell command on a terminal of its own; `G` is the binary.
fn on_terminal(home: &Home, line: &str) -> (i32, String) {
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", line, "/dev/null"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home.home())
        .env("GLOVEBOX_STATE", home.state())
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh")
        .env("G", testkit::binary())
        .current_dir(home.project())
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("script does not start: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    (output.status.code().unwrap_or(-1), text)
}

#[test]
fn a_command_with_a_terminal_sees_one_of_the_right_size() {
    if !testkit::has_program("script") {
        testkit::skip!("needs `script` (package bsdutils)");
    }
    let home = Home::new();
    let line = "stty rows 33 cols 101; \"$G\" run -q --backend host --tty -- sh -c 'test -t 0 && test -t 1 && stty size; exit 7'";
    let (code, text) = on_terminal(&home, line);
    assert!(text.contains("33 101"), "{text}");
    assert_eq!(code, 7, "{text}");
}

#[test]
fn the_terminal_is_given_back_however_it_ends() {
    if !testkit::has_program("script") {
        testkit::skip!("needs `script` (package bsdutils)");
    }
    let home = Home::new();
    for ending in ["true", "kill -TERM $PPID; sleep 1", "no-such-command"] {
        let line = format!(
            "before=$(stty -g); \"$G\" run -q --backend host --tty -- sh -c '{ending}'; \
             [ \"$(stty -g)\" = \"$before\" ] && echo restored"
        );
        let (_, text) = on_terminal(&home, &line);
        assert!(text.contains("restored"), "{ending}: {text}");
    }
    // A signal from outside ends glovebox while the command has the terminal.
    let line = "before=$(stty -g); (sleep 1; pkill -TERM -P $$ -x glovebox) & \"$G\" run -q --backend host --tty -- sleep 30; \
                [ \"$(stty -g)\" = \"$before\" ] && echo restored";
    let (_, text) = on_terminal(&home, line);
    assert!(text.contains("restored"), "{text}");
}

#[test]
fn a_terminal_is_needed_where_one_was_asked_for() {
    let home = Home::new();
    let ran = home
        .line("run --backend host -q --tty -- true")
        .run()
        .expect_code(125);
    insta::assert_snapshot!(ran.failure(home.root()), @"
    error: standard input is not a terminal
    hint: run it from a terminal, or leave --tty out
    ");
    home.glovebox(["start", "-q", "--backend", "host", "work"])
        .run()
        .expect_code(0);
    let ran = home.line("attach work").run().expect_code(2);
    insta::assert_snapshot!(ran.failure(home.root()), @"
    error: a shell needs a terminal, and standard input is none
    hint: run single commands with `glovebox exec NAME -- COMMAND`
    ");
}
