//! `--nested`: programs that bring a sandbox of their own work inside, and Glovebox's limits and endings hold for
//! what they start.

use crate::workspace::told;
use serde_json::Value;
use std::time::Duration;
use testkit::{Person, Process, await_sleepers, has_program, marker, skip, wait_until};

/// Bubblewrap as agents call it.
const BWRAP: &str = "bwrap --ro-bind / / --unshare-all --dev /dev --proc /proc";

/// What is said before the command runs.
const WARNING: &str = "--nested lets commands make namespaces";

/// The report of a sandbox that is started with `flags`, as JSON.
fn report(person: &Person, flags: &str) -> Value {
    let file = person.place().home().join("report.json");
    let _ = person
        .line(&format!("run {flags} --report {} -- true", file.display()))
        .run()
        .expect_code(0);
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// State and words of a wall.
fn wall(report: &Value, name: &str) -> (String, String) {
    let walls = report["walls"].as_array().unwrap();
    let wall = walls.iter().find(|wall| wall["name"] == name);
    let wall = wall.unwrap_or_else(|| panic!("no wall `{name}`: {report}"));
    let text = |key: &str| wall[key].as_str().unwrap().to_owned();
    (text("state"), text("detail"))
}

#[test]
fn bubblewrap_works_inside_with_nested_and_not_without() {
    if !has_program("bwrap") {
        skip!("bwrap is not installed");
    }
    Person::each(|person| {
        let script =
            format!("{BWRAP} sh -c 'echo $$ in a nested sandbox; ls -d /proc/[0-9]* | wc -l'");
        let ran = person.script("run --nested", &script).run().expect_code(0);
        let out = ran.out();
        // `sh` is the second process after bubblewrap's own; with `ls` and `wc` there are few, and none of ours.
        let mut lines = out.lines();
        assert_eq!(lines.next(), Some("2 in a nested sandbox"), "{ran}");
        let seen: u32 = lines.next().unwrap().trim().parse().unwrap();
        assert!(seen <= 5, "{ran}");
        insta::assert_snapshot!(told(person, &ran), @"warning: --nested lets commands make namespaces: they reach much more of the kernel, and Landlock is not on them");

        let ran = person.script("run", &script).run();
        assert_ne!(ran.code, 0, "{ran}");
        assert!(
            ran.stdout.is_empty() && !ran.err().contains(WARNING),
            "{ran}"
        );
        person.assert_nothing_left();
    });
}

#[test]
fn what_is_written_in_a_nested_sandbox_is_a_change_like_any_other() {
    if !has_program("bwrap") {
        skip!("bwrap is not installed");
    }
    Person::each(|person| {
        person.write("project/a.txt", "one\n");
        let script = "bwrap --ro-bind / / --bind /workspace /workspace --unshare-user --unshare-net --unshare-pid \
                      --proc /proc sh -c 'echo two > a.txt && ! touch /etc/x 2>/dev/null'";
        let _ = person
            .script("run --nested --apply auto", script)
            .run()
            .expect_code(0);
        let read = std::fs::read_to_string(person.project().join("a.txt")).unwrap();
        assert_eq!(read, "two\n");
    });
}

#[test]
fn the_report_and_info_say_it() {
    Person::each(|person| {
        let nested = report(person, "--nested");
        let (state, detail) = wall(&nested, "namespaces");
        assert_eq!(state, "absent", "{detail}");
        assert!(
            detail.starts_with("NESTED:") && detail.contains("256"),
            "{detail}"
        );
        let (state, detail) = wall(&nested, "landlock");
        assert!(
            state == "absent" && detail.starts_with("NESTED:"),
            "{detail}"
        );
        assert!(
            nested["degraded"].to_string().contains("boot parameters"),
            "{nested}"
        );

        let plain = report(person, "");
        let (state, detail) = wall(&plain, "namespaces");
        assert_eq!(state, "enforced", "{detail}");
        assert!(!plain.to_string().contains("NESTED"), "{plain}");

        let ran = person.line("start --nested box").run().expect_code(0);
        insta::assert_snapshot!(told(person, &ran), @"
        warning: --nested lets commands make namespaces: they reach much more of the kernel, and Landlock is not on them
        glovebox: sandbox `box` is ready
        glovebox: `glovebox exec box -- COMMAND` runs something in it
        ");
        let info = person.line("info box").run().expect_code(0);
        assert!(info.out().contains("NESTED:"), "{info}");
        let listed = person.line("info box --json").run().expect_code(0);
        assert!(listed.out().contains("nested namespaces"), "{listed}");
        // Another setting than that of the sandbox which runs is named, and changes nothing.
        let ran = person.line("start box").run();
        assert_ne!(ran.code, 0, "{ran}");
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the sandbox `box` runs with other settings: nested is true, asked for false
        hint: use it as it is with `glovebox exec box -- COMMAND`, or bring its changes back with `glovebox pull box` and end it with `glovebox kill box` first
        ");
        let explained = person
            .line("run --nested --explain -- true")
            .run()
            .expect_code(0);
        assert!(
            explained.out().contains("COMMANDS MAY MAKE NAMESPACES"),
            "{explained}"
        );
        let _ = person.line("kill box").run().expect_code(0);
    });
}

#[test]
fn what_does_not_go_with_it_is_refused_in_words() {
    Person::each(|person| {
        let said = [
            "run --nested --proc pids -- true",
            "run --nested --proc none -- true",
            "run --backend host --nested -- true",
        ]
        .map(|line| {
            let ran = person.line(line).run().expect_code(125);
            format!("$ glovebox {line}\n{}", ran.failure(person.place().root()))
        });
        insta::assert_snapshot!(said.join("\n"), @"
        $ glovebox run --nested --proc pids -- true
        error: nested namespaces need the whole /proc: programs that bring a sandbox of their own mount a new one, and the kernel refuses them one that shows more than they have
        hint: leave out `--proc`, or `--nested`
        $ glovebox run --nested --proc none -- true
        error: nested namespaces need the whole /proc: programs that bring a sandbox of their own mount a new one, and the kernel refuses them one that shows more than they have
        hint: leave out `--proc`, or `--nested`
        $ glovebox run --backend host --nested -- true
        error: --nested has no meaning with the backend `host`
        hint: choose the backend it belongs to with `--backend`, or leave it out
        ");
        person.assert_nothing_left();
    });
}

#[test]
fn a_project_cannot_ask_for_it_without_consent() {
    Person::each(|person| {
        person.write("project/glovebox.toml", "nested = true\n");
        let ran = person.line("run -- true").run().expect_code(125);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: [ROOT]/project/glovebox.toml:1: `nested = true` lets commands make namespaces and so reach more of the kernel, and a project may not do that by itself
        hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
        ");
        // The twins: with consent, and what only takes away.
        let ran = person
            .line("run --trust-config -- true")
            .run()
            .expect_code(0);
        insta::assert_snapshot!(told(person, &ran), @"warning: --nested lets commands make namespaces: they reach much more of the kernel, and Landlock is not on them");
        person.write("project/glovebox.toml", "nested = false\n");
        let ran = person.line("run -- true").run().expect_code(0);
        assert!(!ran.err().contains(WARNING), "{ran}");
    });
}

/// Puts a process that ignores every signal behind two namespaces of its own: a sandbox in a sandbox.
fn deep_sleep(marker: &str) -> String {
    format!(
        "{BWRAP} --as-pid-1 sh -c 'trap \"\" HUP INT TERM; setsid sleep {marker} & \
         exec {BWRAP} sh -c \"trap \\\"\\\" HUP INT TERM; sleep {marker}\"'"
    )
}

#[test]
fn every_ending_ends_what_runs_in_nested_namespaces() {
    if !has_program("bwrap") {
        skip!("bwrap is not installed");
    }
    Person::each(|person| {
        let is_gone = |marker: &str| {
            wait_until(Duration::from_secs(5), || {
                Process::mentioning(marker).is_empty()
            })
        };
        // A deadline of a run, and of one command in a sandbox that goes on.
        let _ = person.line("start --nested box").run().expect_code(0);
        for verb in ["run --nested", "exec box"] {
            let marker = marker();
            let ran = person
                .script(&format!("{verb} --timeout 1s"), &deep_sleep(&marker))
                .run();
            assert_eq!(ran.code, 124, "{verb}: {ran}");
            let survivors = Process::mentioning(&marker);
            assert!(survivors.is_empty(), "{verb}: {survivors:?}");
        }
        let _ = person.line("exec box -- true").run().expect_code(0);

        for verb in ["stop", "kill"] {
            let _ = person.line("start --nested box").run();
            let marker = marker();
            let mut waiting = person
                .script("exec box", &deep_sleep(&marker))
                .command
                .spawn()
                .unwrap();
            await_sleepers(&marker, 2);
            let _ = person.line(&format!("{verb} box")).run().expect_code(0);
            assert!(
                is_gone(&marker),
                "{verb}: {:?}",
                Process::mentioning(&marker)
            );
            waiting.wait().unwrap();
        }
        person.assert_nothing_lives();
    });
}

#[test]
fn limits_hold_in_nested_namespaces() {
    if !has_program("bwrap") || !has_program("python3") {
        skip!("bwrap or python3 is not installed");
    }
    Person::each(|person| {
        let processes = format!(
            "{BWRAP} sh -c 'for i in $(seq 200); do sleep 20 & done 2>/dev/null; wait' 2>&1"
        );
        let ran = person
            .script("run --nested --pids 64 --timeout 10s", &processes)
            .run();
        assert_ne!(ran.code, 0, "200 processes under a limit of 64: {ran}");
        let memory = format!("{BWRAP} python3 -c 'x = bytearray(600 << 20); print(len(x))'");
        let ran = person.script("run --nested --memory 200MiB", &memory).run();
        assert!(ran.code != 0 && !ran.out().contains("629145600"), "{ran}");
        let ran = person
            .script("run --nested --memory 2GiB", &memory)
            .run()
            .expect_code(0);
        assert!(ran.out().contains("629145600"), "{ran}");
        let disk = "bwrap --ro-bind / / --bind /workspace /workspace --unshare-user --unshare-pid --proc /proc \
                    sh -c 'for i in $(seq 40); do head -c 4M /dev/zero > f$i || exit 9; sleep 0.1; done'";
        let ran = person
            .script("run --nested --disk 20MiB --apply never", disk)
            .run();
        assert_ne!(ran.code, 0, "160 MiB under a limit of 20: {ran}");
        person.assert_nothing_lives();
    });
}

/// Wardens are told from commands although these can have the same capability.
#[test]
fn a_sandbox_with_a_command_in_nested_namespaces_counts_as_busy() {
    if !has_program("unshare") || !has_program("setpriv") {
        skip!("unshare or setpriv is not installed");
    }
    Person::each(|person| {
        let _ = person.line("start --nested box").run().expect_code(0);
        let marker = marker();
        // CAP_KILL and nothing else, as the guest has it.
        let script = format!(
            "exec unshare --user --map-root-user setpriv --bounding-set=-all,+kill --inh-caps=-all,+kill \
             --ambient-caps=-all,+kill sleep {marker}"
        );
        let mut sleeper = person.script("exec box", &script).command.spawn().unwrap();
        await_sleepers(&marker, 1);
        let pid = Process::mentioning(&marker)
            .into_iter()
            .find(|process| process.line.starts_with("sleep"))
            .unwrap_or_else(|| panic!("no sleeper: {:?}", Process::mentioning(&marker)));
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.id)).unwrap();
        assert!(
            status.contains("CapPrm:\t0000000000000020"),
            "the probe is wrong: {status}"
        );
        let ran = person.line("checkpoint box").run();
        assert!(ran.code != 0, "a checkpoint of a busy sandbox: {ran}");
        let _ = person.line("stop box").run().expect_code(0);
        sleeper.wait().unwrap();
        assert!(Process::mentioning(&marker).is_empty());
        let _ = person.line("start --nested box").run().expect_code(0);
        let _ = person.line("checkpoint box").run().expect_code(0);
        let _ = person.line("kill box").run().expect_code(0);
    });
}
