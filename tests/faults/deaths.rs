//! Processes of glovebox are killed at every step.

use crate::{END, alone, assert_all_dead, assert_in_words, assert_recovers, finish, kill, start};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Person, Process, await_sleepers, marker, wait_until};

/// From before anything is done to well within the command.
const DELAYS_MS: [u64; 18] = [
    0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 27, 35, 50, 80, 120,
];

fn after(delay_ms: u64) {
    thread::sleep(Duration::from_millis(delay_ms));
}

fn supervisor(person: &Person) -> Option<Process> {
    let state = person.place().state().display().to_string();
    Process::mentioning(&state)
        .into_iter()
        .find(|process| process.line.contains("__supervise"))
}

/// The first process inside, the one everything else hangs on.
fn guest() -> Option<Process> {
    let mut guests: Vec<Process> = Process::descendants(std::process::id())
        .into_iter()
        .filter(Process::is_guest)
        .collect();
    // Wardens look like it; it is the one whose parent is outside.
    let ids: Vec<u32> = guests.iter().map(|process| process.id).collect();
    guests.retain(|process| !ids.contains(&process.parent));
    guests.pop()
}

#[test]
fn the_command_line_dies_during_run() {
    let _alone = alone();
    Person::each(|person| {
        for delay_ms in DELAYS_MS {
            let what = format!("death of `run` after {delay_ms} ms");
            let child = start(person.glovebox(["run", "--", "sleep", &marker()]));
            after(delay_ms);
            kill(child.id());
            let _ = finish(child);
            assert_all_dead(&what);
            assert_recovers(person, &what);
        }
        person.assert_nothing_lives();
    });
}

#[test]
fn the_command_line_dies_during_exec() {
    let _alone = alone();
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        for delay_ms in DELAYS_MS {
            let marker = marker();
            let child = start(person.glovebox(["exec", "box", "--", "sleep", &marker]));
            after(delay_ms);
            kill(child.id());
            let _ = finish(child);
            assert!(
                wait_until(END, || Process::mentioning(&marker).is_empty()),
                "{delay_ms} ms"
            );
        }
        let ran = person.line("exec box -- echo fine").run().expect_code(0);
        assert_eq!(ran.out(), "fine\n");
        let _ = person.line("kill box").run().expect_code(0);
        assert_all_dead("kill");
        assert_recovers(person, "exec");
        person.assert_nothing_lives();
    });
}

#[test]
fn the_command_line_dies_during_start_and_kill() {
    let _alone = alone();
    Person::each(|person| {
        for delay_ms in DELAYS_MS {
            for verb in ["start", "kill"] {
                if verb == "kill" {
                    let _ = person.line("start box").run().expect_code(0);
                }
                let child = start(person.glovebox([verb, "box"]));
                after(delay_ms);
                kill(child.id());
                let _ = finish(child);
                // Whatever came of it, both can be asked for again.
                let _ = person.line("start box").run().expect_code(0);
                let _ = person.line("exec box -- true").run().expect_code(0);
                let _ = person.line("kill box").run().expect_code(0);
                assert_all_dead(&format!("death of `{verb}` after {delay_ms} ms"));
            }
        }
        assert_recovers(person, "start and kill");
        person.assert_nothing_lives();
    });
}

#[test]
fn the_supervisor_dies_while_it_comes_up() {
    let _alone = alone();
    Person::each(|person| {
        for delay_ms in DELAYS_MS {
            let what = format!("death of the supervisor after {delay_ms} ms");
            let child = start(person.line("start box"));
            assert!(
                wait_until(END, || supervisor(person).is_some()),
                "{what}: no supervisor"
            );
            let found = supervisor(person);
            after(delay_ms);
            if let Some(found) = found {
                kill(found.id);
            }
            let (code, said) = finish(child);
            if code != 0 {
                assert_in_words(code, &said, &what);
            }
            assert_all_dead(&what);
            let _ = person.line("start box").run().expect_code(0);
            let _ = person.line("exec box -- true").run().expect_code(0);
            let _ = person.line("kill box").run().expect_code(0);
            assert_recovers(person, &what);
        }
        person.assert_nothing_lives();
    });
}

#[test]
fn the_supervisor_dies_under_a_command_and_the_files_stay() {
    let _alone = alone();
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        let _ = person
            .script("exec box", "echo work > result; mkdir ~/kept")
            .run()
            .expect_code(0);
        let marker = marker();
        let child = start(person.glovebox(["exec", "box", "--", "sleep", &marker]));
        await_sleepers(&marker, 1);
        kill(supervisor(person).unwrap().id);
        let (code, said) = finish(child);
        assert_eq!(code, 125, "{said}");
        assert_in_words(code, &said, "exec");
        assert_all_dead("death of the supervisor");

        let list = person.line("list --json").run().expect_code(0).out();
        assert!(list.contains(r#""state":"lost""#), "{list}");
        let ran = person.line("exec box -- true").run().expect_code(125);
        assert!(ran.err().contains("glovebox start"), "{ran}");
        // It is kept on purpose, so it is nothing to be tidied away.
        let doctor = person.line("doctor --json").run().out();
        assert!(doctor.contains(r#""orphans":[]"#), "{doctor}");
        let _ = person.line("start box").run().expect_code(0);
        let ran = person
            .script("exec box", "cat result; ls ~")
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "work\nkept\n");
        let _ = person.line("kill box").run().expect_code(0);
        assert_recovers(person, "death of the supervisor");
        person.assert_nothing_lives();
    });
}

#[test]
fn the_guest_dies_while_it_comes_up() {
    let _alone = alone();
    Person::each(|person| {
        for delay_us in [
            0, 300, 600, 1000, 1500, 2000, 3000, 4000, 6000, 9000, 14_000, 20_000,
        ] {
            let what = format!("death of the guest after {delay_us} us");
            let child = start(person.glovebox(["run", "--", "sleep", &marker()]));
            let deadline = Instant::now() + END;
            while guest().is_none() && Instant::now() < deadline {}
            thread::sleep(Duration::from_micros(delay_us));
            // Stage 0 goes early; who is left is the first process inside.
            if let Some(found) = guest() {
                kill(found.id);
            }
            // If it was the early one that died late, the command runs on and is ended from here.
            let is_over = wait_until(Duration::from_secs(2), || {
                Process::find(child.id()).is_none_or(|process| process.state == 'Z')
            });
            // It may end between that look and this one.
            if !is_over && let Some(found) = guest() {
                kill(found.id);
            }
            let (code, said) = finish(child);
            assert_eq!(code, 125, "{what}: {said}");
            assert_in_words(code, &said, &what);
            assert_recovers(person, &what);
        }
        person.assert_nothing_lives();
    });
}

#[test]
fn the_guest_dies_under_a_command() {
    let _alone = alone();
    Person::each(|person| {
        let marker = marker();
        let child = start(person.glovebox(["run", "--", "sleep", &marker]));
        await_sleepers(&marker, 1);
        kill(guest().unwrap().id);
        let (code, said) = finish(child);
        assert_eq!(code, 125, "{said}");
        assert_in_words(code, &said, "run");
        assert_recovers(person, "death of the guest");

        let _ = person.line("start box").run().expect_code(0);
        let child = start(person.glovebox(["exec", "box", "--", "sleep", &marker]));
        await_sleepers(&marker, 1);
        kill(guest().unwrap().id);
        let (code, said) = finish(child);
        assert_eq!(code, 125, "{said}");
        assert_in_words(code, &said, "exec");
        assert_all_dead("death of the guest");
        let _ = person.line("start box").run().expect_code(0);
        let _ = person.line("exec box -- true").run().expect_code(0);
        let _ = person.line("kill box").run().expect_code(0);
        assert_recovers(person, "death of the guest");
        person.assert_nothing_lives();
    });
}
