//! How a command ends is how `glovebox run` ends; what glovebox itself cannot do is 125.

use std::time::{Duration, Instant};
use testkit::{Person, Process, await_sleepers, marker, wait_until};

#[test]
fn the_exit_code_is_the_commands_own() {
    Person::each(|person| {
        person.write("project/text", "no program\n");
        let table: [(&[&str], i32); 9] = [
            (&["true"], 0),
            (&["sh", "-c", "exit 42"], 42),
            (&["sh", "-c", "exit 125"], 125),
            (&["sh", "-c", "kill -9 $$"], 137),
            (&["sh", "-c", "kill -TERM $$"], 143),
            (&["no-such-command"], 127),
            (&["/no/such/command"], 127),
            (&["./text"], 126),
            (&["/usr"], 126),
        ];
        for (command, code) in table {
            let ran = person
                .glovebox(["run", "--"].iter().chain(command))
                .run()
                .expect_code(code);
            assert!(ran.stdout.is_empty(), "{command:?}: {ran}");
            let is_ours = matches!(
                command[0],
                "no-such-command" | "/no/such/command" | "./text" | "/usr"
            );
            assert_eq!(ran.err().contains("error:"), is_ours, "{command:?}: {ran}");
        }
        person.assert_nothing_left();
    });
}

#[test]
fn exec_ends_as_run_does() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        for (script, code) in [
            ("exit 42", 42),
            ("kill -9 $$", 137),
            ("exec no-such-command", 127),
        ] {
            let _ = person.script("exec box", script).run().expect_code(code);
        }
        let _ = person
            .line("exec box -- no-such-command")
            .run()
            .expect_code(127);
        let _ = person.line("exec box -- /etc").run().expect_code(126);
        let _ = person.line("exec nobody -- true").run().expect_code(125);
        let _ = person
            .line("exec box --nonsense -- true")
            .run()
            .expect_code(125);
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

/// Runs `script` with a deadline of one second; what it starts sleeps for `marker` seconds.
fn past_its_deadline(person: &Person, verb: &str, script: &str, marker: &str) {
    let begin = Instant::now();
    let ran = person
        .script(&format!("{verb} --timeout 1s"), script)
        .run()
        .expect_code(124);
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(1), "{took:?}: {ran}");
    assert!(took < Duration::from_secs(30), "{took:?}: {ran}");
    let survivors = Process::mentioning(marker);
    assert!(survivors.is_empty(), "{script}: {survivors:?}");
}

#[test]
fn nothing_survives_a_deadline() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        for verb in ["run", "exec box"] {
            let marker = marker();
            past_its_deadline(person, verb, &format!("sleep {marker}"), &marker);
            // Deaf to SIGTERM, in sessions of their own, their parents gone.
            let script = format!(
                "trap '' TERM; setsid sh -c 'trap \"\" TERM HUP; (sleep {marker} & sleep {marker} &) & sleep {marker}' & \
                 sleep {marker}; sleep {marker}"
            );
            past_its_deadline(person, verb, &script, &marker);
        }
        // The sandbox itself is as good as before.
        let _ = person.line("exec box -- true").run().expect_code(0);
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn what_a_command_leaves_running_ends_with_it() {
    Person::each(|person| {
        let marker = marker();
        let _ = person
            .script(
                "run",
                &format!("sleep {marker} & setsid sleep {marker} & exit 3"),
            )
            .run()
            .expect_code(3);
        assert!(Process::mentioning(&marker).is_empty());

        let _ = person.line("start box").run().expect_code(0);
        let ran = person
            .script(
                "exec box",
                &format!("sleep {marker} >/dev/null 2>&1 & exit 4"),
            )
            .run()
            .expect_code(4);
        let line = "exec ended 1 process that the command left running in the background; `--keep-background` keeps such";
        assert!(ran.err().contains(line), "{ran}");
        assert!(wait_until(Duration::from_secs(2), || Process::mentioning(
            &marker
        )
        .is_empty()));
        let kept = format!("sleep {marker} >/dev/null 2>&1 & exit 5");
        let _ = person
            .script("exec --keep-background box", &kept)
            .run()
            .expect_code(5);
        // In the middle of its exec a process has no words.
        assert!(wait_until(Duration::from_secs(2), || {
            Process::mentioning(&marker).len() == 1
        }));
        let _ = person.line("kill box").run().expect_code(0);
        assert!(Process::mentioning(&marker).is_empty());
        person.assert_nothing_left();
    });
}

#[test]
fn a_kept_sandbox_has_what_the_command_wrote() {
    Person::each(|person| {
        person.write("project/notes", "mine\n");
        let _ = person
            .script("run --keep try", "echo theirs > notes; exit 6")
            .run()
            .expect_code(6);
        let ran = person.line("exec try -- cat notes").run().expect_code(0);
        assert_eq!(ran.out(), "theirs\n");
        assert_eq!(
            std::fs::read_to_string(person.project().join("notes")).unwrap(),
            "mine\n"
        );
        let _ = person.line("run --keep try -- true").run().expect_code(125);
        let _ = person.line("kill try").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_sandbox_killed_under_a_command_ends_it_in_words() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        let marker = marker();
        let (verb, sleep) = (["exec", "box", "--", "sleep"], marker.as_str());
        std::thread::scope(|scope| {
            let exec = scope.spawn(|| person.glovebox(verb.iter().chain([&sleep])).run());
            await_sleepers(&marker, 1);
            let _ = person.line("kill box").run().expect_code(0);
            let ran = exec.join().unwrap().expect_code(125);
            assert!(
                ran.err().starts_with("error: ") && ran.err().contains("sandbox"),
                "{ran}"
            );
        });
        assert!(Process::mentioning(&marker).is_empty());
        person.assert_nothing_left();
    });
}

#[test]
fn two_runs_in_one_project_do_not_meet() {
    Person::each(|person| {
        person.write("project/shared", "start\n");
        std::thread::scope(|scope| {
            let run = |word: &'static str| {
                let script = format!(
                    "echo {word} > shared; sleep 0.3; cat shared; ls | wc -l; touch new-{word}"
                );
                scope.spawn(move || person.script("run --apply never", &script).run())
            };
            let (a, b) = (run("left"), run("right"));
            assert_eq!(a.join().unwrap().expect_code(0).out(), "left\n1\n");
            assert_eq!(b.join().unwrap().expect_code(0).out(), "right\n1\n");
        });
        assert_eq!(
            std::fs::read_to_string(person.project().join("shared")).unwrap(),
            "start\n"
        );
        person.assert_nothing_left();
    });
}
