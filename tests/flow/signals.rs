//! Signals to glovebox reach the command, and whatever the moment, nothing is left behind.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Glovebox, Person, Process, await_sleepers, marker, wait_until};

fn start(mut call: Glovebox) -> Child {
    call.command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn send(child: &Child, signal: Signal) {
    // It may have ended by itself.
    let _ = kill_process(Pid::from_child(child), signal);
}

/// The exit code, which must come within ten seconds.
fn code(mut child: Child) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let is_over = wait_until(Duration::from_secs(10), || {
        child.try_wait().unwrap().is_some()
    });
    if !is_over {
        let _ = child.kill();
    }
    assert!(is_over, "it did not end");
    let status = child.wait().unwrap();
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap())
}

#[test]
fn a_signal_is_the_commands_to_handle() {
    Person::each(|person| {
        for (signal, expected) in [
            (Signal::INT, 130),
            (Signal::TERM, 143),
            (Signal::HUP, 129),
            (Signal::QUIT, 131),
        ] {
            let marker = marker();
            let child = start(person.glovebox(["run", "--", "sleep", &marker]));
            await_sleepers(&marker, 1);
            send(&child, signal);
            assert_eq!(code(child), expected, "{signal:?}");
            assert!(Process::mentioning(&marker).is_empty());
        }
        // One that cleans up after itself gets the time for it.
        let marker = marker();
        let script = format!("trap 'exit 7' INT; sleep {marker} & wait; wait");
        let child = start(person.script("run", &script));
        await_sleepers(&marker, 1);
        send(&child, Signal::INT);
        assert_eq!(code(child), 7);
        assert!(Process::mentioning(&marker).is_empty());
        person.assert_nothing_left();
    });
}

#[test]
fn a_signal_that_was_ignored_before_stays_ignored() {
    Person::each(|person| {
        let marker = marker();
        let child = person
            .program("sh")
            .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
            .arg(person.binary())
            .args(["run", "--", "sleep", &marker])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        await_sleepers(&marker, 1);
        send(&child, Signal::HUP);
        thread::sleep(Duration::from_millis(300));
        assert!(!Process::mentioning(&marker).is_empty());
        send(&child, Signal::TERM);
        assert_eq!(code(child), 143);
        person.assert_nothing_left();
    });
}

#[test]
fn a_second_signal_ends_a_deaf_command() {
    Person::each(|person| {
        let marker = marker();
        let script = format!("trap '' INT TERM; while :; do sleep {marker}; done");
        let child = start(person.script("run", &script));
        await_sleepers(&marker, 1);
        send(&child, Signal::INT);
        thread::sleep(Duration::from_millis(300));
        assert!(!Process::mentioning(&marker).is_empty());
        send(&child, Signal::INT);
        assert_eq!(code(child), 137);
        assert!(Process::mentioning(&marker).is_empty());
        person.assert_nothing_left();
    });
}

#[test]
fn an_interrupt_at_any_moment_leaves_nothing() {
    Person::each(|person| {
        for signal in [Signal::INT, Signal::TERM] {
            // From before it handles signals to well within the command.
            for delay_ms in [0, 1, 2, 3, 5, 7, 10, 14, 19, 25, 33, 45, 60, 90, 140] {
                let marker = marker();
                let begin = Instant::now();
                let child = start(person.glovebox(["run", "--", "sleep", &marker]));
                thread::sleep(Duration::from_millis(delay_ms).saturating_sub(begin.elapsed()));
                send(&child, signal);
                let own = 128 + signal.as_raw();
                let code = code(child);
                assert!(
                    [own, 130, 143, 125].contains(&code),
                    "{signal:?} after {delay_ms} ms: {code}"
                );
                let is_gone = wait_until(Duration::from_secs(3), || {
                    Process::mentioning(&marker).is_empty()
                });
                assert!(
                    is_gone,
                    "{signal:?} after {delay_ms} ms: {:?}",
                    Process::mentioning(&marker)
                );
            }
        }
        person.assert_nothing_lives();
    });
}

#[test]
fn an_interrupted_exec_leaves_the_sandbox_as_it_is() {
    Person::each(|person| {
        let _ = person.line("start box").run().expect_code(0);
        for delay_ms in [0, 2, 5, 10, 20, 40, 80] {
            let marker = marker();
            let child = start(person.glovebox(["exec", "box", "--", "sleep", &marker]));
            thread::sleep(Duration::from_millis(delay_ms));
            send(&child, Signal::INT);
            let code = code(child);
            assert!([130, 125].contains(&code), "after {delay_ms} ms: {code}");
            assert!(
                wait_until(Duration::from_secs(3), || Process::mentioning(&marker)
                    .is_empty()),
                "{delay_ms}"
            );
        }
        let _ = person.line("exec box -- true").run().expect_code(0);
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_lives();
    });
}

#[test]
fn an_interrupted_start_is_all_or_nothing() {
    Person::each(|person| {
        for delay_ms in [0, 2, 4, 7, 11, 16, 24, 35, 60] {
            let child = start(person.line("start box"));
            thread::sleep(Duration::from_millis(delay_ms));
            send(&child, Signal::INT);
            let _ = code(child);
            // Whatever came of it: starting again works, and so does killing.
            let _ = person.line("start box").run().expect_code(0);
            let _ = person.line("exec box -- true").run().expect_code(0);
            let _ = person.line("kill box").run().expect_code(0);
        }
        let state = person.place().state().display().to_string();
        assert!(wait_until(Duration::from_secs(3), || Process::mentioning(
            &state
        )
        .is_empty()));
        person.assert_nothing_lives();
    });
}

#[test]
fn an_interrupted_call_gives_what_its_command_has_written() {
    Person::each(|person| {
        person.line("start -q box").run().expect_code(0);
        let marker = marker();
        for (tool, key) in [("Bash", "command"), ("Code", "source")] {
            let mut arguments = json!({ key: format!("echo begun; sleep {marker}; true") });
            if tool == "Code" {
                arguments["language"] = "bash".into();
            }
            // Not among its own arguments, where the marker would be found before the command runs.
            let mut call = person.glovebox(["call", tool, "-", "--sandbox", "box"]);
            call.command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = call.command.spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            input.write_all(arguments.to_string().as_bytes()).unwrap();
            drop(input);
            let is_there = || !Process::mentioning(&format!("sleep {marker}")).is_empty();
            assert!(wait_until(Duration::from_secs(10), is_there));
            send(&child, Signal::INT);
            let mut told = String::new();
            child
                .stdout
                .take()
                .unwrap()
                .read_to_string(&mut told)
                .unwrap();
            assert!(told.starts_with("begun\n"), "{told}");
            assert!(told.contains("the call was cancelled"), "{told}");
            assert_eq!(code(child), 130);
            assert!(!is_there());
        }
        person.line("kill box").run().expect_code(0);
        person.assert_nothing_lives();
    });
}

/// Catches the signal of this number, tells of it, and goes on for a moment.
const CATCHER: &str = "import signal, sys, time\nheard = []\n\
    signal.signal(int(sys.argv[1]), lambda number, frame: heard.append(number))\n\
    print('up', flush=True)\nend = time.time() + 10\n\
    while not heard and time.time() < end: time.sleep(0.02)\n\
    time.sleep(0.1)\nprint('over', heard, flush=True)";

#[test]
fn every_signal_that_can_be_caught_reaches_the_command() {
    if !testkit::has_program("python3") {
        testkit::skip!("python3 is not installed");
    }
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        let binary = person.binary().to_str().unwrap();
        let ways = [
            vec![],
            vec![binary, "run", "-q", "--apply", "never", "--"],
            vec![binary, "exec", "-q", "box", "--"],
        ];
        // USR1, ALRM, CONT, WINCH, RTMIN+1; then USR2, URG, XCPU, IO, RTMAX.
        let signals = [10, 14, 18, 28, 35, 12, 23, 24, 29, 64];
        let is_whole = std::env::var_os("GLOVEBOX_TEST_WHOLE").is_some();
        for signal in &signals[..if is_whole { 10 } else { 5 }] {
            for way in &ways {
                let number = signal.to_string();
                let mut words = way.clone();
                words.extend(["python3", "-c", CATCHER, &number]);
                let mut child = person
                    .program(words[0])
                    .args(&words[1..])
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                let mut out = child.stdout.take().unwrap();
                let mut up = [0; 3];
                out.read_exact(&mut up).unwrap();
                let killed = Command::new("kill")
                    .args([format!("-{signal}"), child.id().to_string()])
                    .status();
                assert!(killed.unwrap().success());
                let mut rest = String::new();
                let _ = out.read_to_string(&mut rest).unwrap();
                assert_eq!(rest, format!("over [{signal}]\n"), "{way:?}");
                assert_eq!(code(child), 0, "signal {signal}, {way:?}");
            }
        }
        let _ = person.line("kill -q box").run().expect_code(0);
    });
}
