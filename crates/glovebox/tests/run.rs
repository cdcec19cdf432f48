//! `glovebox run` as a script sees it: streams, exit codes, limits, leftovers.
//!
//! Rules for every backend are tested with the two that need no setup: `host` always, `native` if
//! this machine supports it.

use std::time::{Duration, Instant};
use testkit::{Canary, Glovebox, Home, filters};

/// Returns true if native sandboxes work here; prints a note if they do not.
fn has_native(home: &Home) -> bool {
    home.line("doctor").run().code == 0
}

fn each_backend(test: impl Fn(&Home, &dyn Fn(&[&str]) -> Glovebox)) {
    let home = Home::new();
    let mut backends = vec!["host"];
    if has_native(&home) {
        backends.push("native");
    } else {
        testkit::skip_loudly(
            module_path!(),
            "the native half: `glovebox doctor` tells what is missing",
        );
    }
    for backend in backends {
        test(&home, &|args| {
            home.glovebox(["run", "-q", "--backend", backend])
                .args(args)
        });
    }
}

#[test]
fn the_commands_streams_and_code_are_ours() {
    each_backend(|_, run| {
        let ran = run(&[
            "--",
            "sh",
            "-c",
            "printf 'out\\377'; printf 'err\\n' >&2; exit 42",
        ])
        .run();
        assert_eq!(
            (ran.code, ran.stdout.as_slice()),
            (42, &b"out\xff"[..]),
            "{ran}"
        );
        assert!(ran.err().ends_with("err\n"), "{ran}");
    });
}

#[test]
fn failures_to_start_have_a_shells_codes() {
    each_backend(|home, run| {
        home.write("project/plain.txt", "not a program\n");
        assert_eq!(run(&["--", "no-such-command-anywhere"]).run().code, 127);
        assert_eq!(run(&["--", "./plain.txt"]).run().code, 126);
        assert_eq!(
            run(&["--cwd", "/no/such/directory", "--", "true"])
                .run()
                .code,
            125
        );
        assert_eq!(run(&["--", "sh", "-c", "kill -9 $$"]).run().code, 137);
    });
}

#[test]
fn a_deadline_ends_everything_and_says_so() {
    each_backend(|home, run| {
        let clock = Instant::now();
        let script = "trap '' TERM; (setsid sleep 54321 &) ; sleep 54321";
        let ran = run(&["--timeout", "500ms", "--", "sh", "-c", script]).run();
        assert_eq!(ran.code, 124, "{ran}");
        assert!(ran.err().contains("--timeout"), "{ran}");
        assert!(
            clock.elapsed() < Duration::from_secs(5),
            "{:?}",
            clock.elapsed()
        );
        let mark = home.state().display().to_string();
        let left = std::process::Command::new("pgrep")
            .args(["-f", "sleep 54321"])
            .output();
        assert!(
            left.is_ok_and(|left| left.stdout.is_empty()),
            "something survived below {mark}"
        );
    });
}

#[test]
fn input_passes_through_unchanged() {
    each_backend(|_, run| {
        let input: Vec<u8> = (0..3_000_000u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let ran = run(&["--", "cat"])
            .input(input.clone())
            .run()
            .expect_code(0);
        assert!(
            ran.stdout == input,
            "{} bytes of {} came back",
            ran.stdout.len(),
            input.len()
        );
        let ran = run(&["--", "cat"]).run().expect_code(0);
        assert!(ran.stdout.is_empty());
    });
}

#[test]
fn nobody_reading_ends_the_command() {
    each_backend(|home, run| {
        let call = run(&["--", "yes"]).command;
        let words: Vec<_> = call
            .get_args()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let script = format!(
            "'{}' {} | head -n 1",
            testkit::binary().display(),
            words.join(" ")
        );
        let clock = Instant::now();
        let mut shell = home.line("");
        shell.command = std::process::Command::new("sh");
        shell
            .command
            .args(["-c", &script])
            .current_dir(home.project())
            .env("GLOVEBOX_STATE", home.state());
        let ran = shell.run().expect_code(0);
        assert_eq!(ran.out(), "y\n");
        assert!(clock.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn variables_arrive_and_others_do_not() {
    each_backend(|_, run| {
        let ran = run(&["--env", "GIVEN=a b=c", "--env", "PASSED", "--", "env"])
            .env("PASSED", "on")
            .env("AWS_SECRET_ACCESS_KEY", "hush")
            .run()
            .expect_code(0);
        let out = ran.out();
        assert!(
            out.contains("GIVEN=a b=c\n") && out.contains("PASSED=on\n"),
            "{out}"
        );
        assert!(!out.contains("hush"), "{out}");
    });
}

#[test]
fn the_project_outside_is_never_written() {
    let home = Home::new();
    if !has_native(&home) {
        testkit::skip!("needs native sandboxes");
    }
    let canary = Canary::plant(home.project().join("canary"));
    let keys = Canary::plant(home.home().join(".ssh"));
    let script = "rm -rf /workspace/* /workspace/.[!.]* \"$HOME\"/.ssh; echo gone > new; ls -A /workspace \"$HOME\"";
    let ran = home
        .glovebox(["run", "-q", "--", "sh", "-c", script])
        .run()
        .expect_code(0);
    assert!(
        ran.out().contains("new\n") && !ran.out().contains("canary"),
        "{ran}"
    );
    canary.assert_untouched();
    keys.assert_untouched();
    assert!(!home.project().join("new").exists());
}

#[test]
fn changes_are_listed_when_asked_for_and_names_cannot_act() {
    let home = Home::new();
    if !has_native(&home) {
        testkit::skip!("needs native sandboxes");
    }
    home.write("project/old", "old\n");
    home.write("project/edit", "edit\n");
    let script = "rm old; echo more >> edit; touch \"$(printf 'new\\033[2J')\"";
    let ran = home
        .glovebox(["run", "-v", "--no-toolchains", "--", "sh", "-c", script])
        .run()
        .expect_code(0);
    let said = ran.err();
    let listed: Vec<&str> = said.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(listed, ["  M edit", "  A new\\x1b[2J", "  D old"], "{ran}");
    assert!(!ran.stderr.contains(&0x1b), "{ran}");
    let ran = home
        .line("run --no-toolchains --apply discard")
        .args(["--", "sh", "-c", script])
        .run()
        .expect_code(0);
    // Standard error is no terminal, so the changes are not listed; their number is printed
    // nevertheless.
    insta::assert_snapshot!(ran.err(), @"glovebox: 3 changes discarded; `--keep NAME` keeps them");
}

#[test]
fn the_report_is_written_and_says_what_holds() {
    let home = Home::new();
    if !has_native(&home) {
        testkit::skip!("needs native sandboxes");
    }
    let file = home.root().join("report.json");
    home.glovebox(["run", "-q", "--report"])
        .args([file.as_os_str()])
        .args(["--", "true"])
        .run()
        .expect_code(0);
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["version"], 1);
    assert_eq!(report["backend"], "native");
    let walls: Vec<&str> = report["walls"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|wall| wall["name"].as_str())
        .collect();
    for wall in ["filesystem", "network", "syscalls", "capabilities"] {
        assert!(walls.contains(&wall), "{walls:?}");
    }
    let ran = home
        .glovebox([
            "run",
            "-q",
            "--report",
            "/no/such/dir/report.json",
            "--",
            "true",
        ])
        .run();
    assert_eq!(ran.code, 125, "{ran}");
}

#[test]
fn explain_prints_the_plan_and_starts_nothing() {
    let home = Home::new();
    let ran = home
        .line("run -q --no-toolchains --explain -- touch never")
        .run()
        .expect_code(0);
    assert!(ran.out().contains("/workspace"), "{ran}");
    assert!(
        !home
            .state()
            .join("sandboxes")
            .read_dir()
            .is_ok_and(|mut all| all.next().is_some())
    );
}

#[test]
fn missing_walls_are_said_loudly() {
    let home = Home::new();
    let ran = home.line("run --backend host -- true").run().expect_code(0);
    insta::assert_snapshot!(filters(&ran.err(), home.root()), @"warning: the backend `host` has no walls: the command runs as you, on your files, with your network");
    let ran = home
        .line("run --backend host --memory 64MiB -- true")
        .run()
        .expect_code(0);
    insta::assert_snapshot!(ran.shown_err(home.root()), @"
    warning: the backend `host` has no walls: the command runs as you, on your files, with your network
    warning: the memory limit of 64 MiB does not hold here: the host backend has no walls
    ");
    let ran = home
        .line("run --backend host --require memory -- true")
        .run()
        .expect_code(125);
    insta::assert_snapshot!(ran.failure(home.root()), @"
    error: the required limit on memory is not held by the kernel: memory is absent here (the host backend has no walls)
    hint: drop the requirement, or use a machine that holds the limit: `glovebox doctor` says what is missing, and `--layers memory` makes the disk limit exact
    ");
}

#[test]
fn a_limit_that_was_hit_is_named_with_its_flag() {
    let home = Home::new();
    if !has_native(&home) {
        testkit::skip!("needs native sandboxes");
    }
    let script = "head -c 40M /dev/zero > big; sleep 60";
    let ran = home
        .glovebox(["run", "-q", "--disk", "8MiB", "--", "sh", "-c", script])
        .run()
        .expect_code(125);
    assert!(
        ran.err().contains("disk limit") && ran.err().contains("--disk"),
        "{ran}"
    );
    let script = "head -c 400M /dev/zero | tail -c 300M > /dev/null; kill -9 $$";
    let ran = home
        .glovebox(["run", "-q", "--memory", "64MiB", "--", "sh", "-c", script])
        .run();
    assert!(ran.code == 137 || ran.code == 125, "{ran}");
    assert!(ran.err().contains("--memory"), "{ran}");
}

#[test]
fn nothing_is_left_behind() {
    each_backend(|home, run| {
        run(&["--", "true"]).run().expect_code(0);
        let left: Vec<_> = home
            .state()
            .join("sandboxes")
            .read_dir()
            .into_iter()
            .flatten()
            .flatten()
            .collect();
        assert!(left.is_empty(), "{left:?}");
    });
    let home = Home::new();
    let ran = home.line("doctor --json").run();
    let value: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(value["data"]["orphans"], serde_json::json!([]));
}

#[test]
fn a_limit_that_a_named_sandbox_hit_is_named_with_its_flag() {
    let home = Home::new();
    if !has_native(&home) {
        testkit::skip!("needs native sandboxes");
    }
    home.line("start -q box --disk 8MiB").run().expect_code(0);
    let script = "head -c 40M /dev/zero > big; sleep 60";
    let ran = home
        .glovebox(["exec", "box", "--", "sh", "-c", script])
        .run()
        .expect_code(125);
    assert!(
        ran.err().contains("disk limit") && ran.err().contains("--disk"),
        "{ran}"
    );
    home.line("kill -q box").run().expect_code(0);
}

#[test]
fn the_project_has_its_own_path_inside_as_well() {
    let home = Home::new();
    if !has_native(&home) {
        testkit::skip!("needs native sandboxes");
    }
    let project = home.project().canonicalize().expect("a project");
    let tool = project.join("bin/tool");
    std::fs::create_dir_all(project.join("bin")).expect("a directory");
    std::os::unix::fs::symlink("/bin/sh", project.join("bin/interpreter")).expect("a link");
    // As pip writes it into a virtual environment.
    let script = format!(
        "#!{}\necho ran\n",
        project.join("bin/interpreter").display()
    );
    std::fs::write(&tool, script).expect("a script");
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("permissions");
    let ran = home.line("run -q -- bin/tool").run().expect_code(0);
    assert_eq!(ran.out(), "ran\n", "{ran}");
    let path = project.display().to_string();
    let ran = home
        .glovebox(["run", "-q", "--", "readlink", path.as_str()])
        .run()
        .expect_code(0);
    assert_eq!(ran.out(), "/workspace\n", "{ran}");
}

#[test]
fn a_root_that_shows_everything_says_what_that_leaves_open() {
    let home = Home::new();
    if !has_native(&home) {
        testkit::skip!("needs native sandboxes");
    }
    let report = home.root().join("report.json");
    let file = report.display().to_string();
    home.glovebox([
        "run",
        "-q",
        "--rootfs",
        "host-all",
        "--report",
        file.as_str(),
        "--",
        "true",
    ])
    .run()
    .expect_code(0);
    let text = std::fs::read_to_string(&report).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(report["degraded"].to_string().contains("socket"), "{text}");
}
