//! Usage errors: one message, one hint, and an exit code that a script can rely on.

use std::fmt::Write;
use testkit::{Home, filters};

/// Lists for each call the command line, the exit code and the output.
fn table(home: &Home, lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        let ran = home.line(line).run();
        assert!(ran.stdout.is_empty(), "{line}\n{ran}");
        let _ = writeln!(
            text,
            "$ glovebox {line}\n{}exit {}\n",
            filters(&ran.err(), home.root()),
            ran.code
        );
    }
    text
}

#[test]
fn a_wrong_run_or_exec_is_125() {
    let home = Home::new();
    insta::assert_snapshot!(table(
        &home,
        &[
            "run",
            "run --",
            "run --memory lots -- true",
            "run --memory 0 -- true",
            "run --timeout 5 -- true",
            "run --cpus many -- true",
            "run --pids 0 -- true",
            "run --backend cloud -- true",
            "run --rootfs moon -- true",
            "run --rootfs dir:/no/such/root -- true",
            "run --net wifi -- true",
            "run --require luck -- true",
            "run --grant relative:target -- true",
            "run --grant /no/such/path -- true",
            "run --env =x -- true",
            "run --env NOT_SET_ANYWHERE -- true",
            "run --keep Bad_Name! -- true",
            "run --backend command -- true",
            "run --carrier ssh -- true",
            "run --nonsense -- true",
            "run -C /no/such/dir -- true",
            "run -C / -- true",
            "exec",
            "exec work",
            "exec -x work true",
            "exec --stream work true",
            "exec UPPER -- true",
            "exec work --timeout soon -- true",
        ]
    ));
}

#[test]
fn a_wrong_call_of_another_command_is_2() {
    let home = Home::new();
    insta::assert_snapshot!(table(
        &home,
        &[
            "start",
            "start -- -x",
            "kill",
            "kill --all work",
            "list extra",
            "attach --job three work",
            "completions perl",
            "config",
            "frobnicate",
            "strat work",
            "-C",
        ]
    ));
}

#[test]
fn the_home_is_no_workspace() {
    let home = Home::new();
    let ran = home
        .line("run -- true")
        .dir(home.home())
        .run()
        .expect_code(125);
    insta::assert_snapshot!(filters(&ran.err(), home.root()), @"
    error: the home directory [ROOT]/home cannot be the workspace: it holds far more than a project
    hint: change to your project, or pass -C DIR
    ");
}

#[test]
fn a_deleted_directory_is_one_sentence() {
    let home = Home::new();
    let gone = home.root().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let mut call = home.glovebox([
        "-c",
        "cd \"$1\" && rmdir \"$1\" && exec \"$2\" run -- true",
        "sh",
    ]);
    let binary = testkit::binary();
    let mut shell = std::process::Command::new("sh");
    shell
        .args(call.command.get_args())
        .arg(&gone)
        .arg(&binary)
        .env_clear();
    shell
        .env("HOME", home.home())
        .env("PATH", "/usr/bin:/bin")
        .env("GLOVEBOX_STATE", home.state());
    call.command = shell;
    let ran = call.run().expect_code(125);
    insta::assert_snapshot!(ran.err(), @"
    error: the current directory does not exist any more
    hint: change to your project, or pass -C DIR
    ");
}

#[test]
fn nobody_listening_is_no_error() {
    let home = Home::new();
    let binary = testkit::binary();
    let script = format!(
        "'{}' completions bash | true; echo ${{PIPESTATUS:-done}}",
        binary.display()
    );
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(home.project())
        .output()
        .unwrap();
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn errors_are_plain_text_when_nobody_sees_them() {
    let home = Home::new();
    let ran = home.line("run --memory lots -- true").run();
    assert!(!ran.stderr.contains(&0x1b), "{ran}");
}
