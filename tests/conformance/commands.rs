//! Running commands.

use crate::Fixture;
use crate::fixture::{eventually, marker, processes};
use glovebox_proto::{
    Background, Channel, Class, Code, EnvVar, Event, EventDecoder, Exec, Exit, Fault, Reply,
    Request, Stdin, WindowSize,
};
use glovebox_sandbox::{CommandOutput, Incoming, Sandbox};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_bytes::ByteBuf;
use std::time::{Duration, Instant};

pub(crate) fn sh(script: &str) -> Exec {
    Exec::new(["sh", "-c", script])
}

fn run(sandbox: &Sandbox, script: &str) -> CommandOutput {
    sandbox.exec(sh(script)).unwrap()
}

pub(crate) fn pings_and_tells_facts(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let request = Request::Ping(ByteBuf::from(vec![0, 255, 7]));
    assert_eq!(
        sandbox.call(request.clone()),
        Ok(Reply::Pong(ByteBuf::from(vec![0, 255, 7])))
    );
    let facts = sandbox.facts().unwrap();
    assert!(!facts.kernel.is_empty());
    assert_eq!(facts.arch, std::env::consts::ARCH);
    assert_eq!(sandbox.info().backend, fixture.spec.backend);
    sandbox.destroy().unwrap();
}

pub(crate) fn streams_and_exit_codes_are_kept_apart(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let output = run(&sandbox, "printf out; printf err >&2; exit 42");
    assert_eq!(
        (&output.stdout[..], &output.stderr[..]),
        (&b"out"[..], &b"err"[..])
    );
    assert_eq!(output.report.exit, Exit::Code(42));
    assert!(!output.report.timed_out && !output.report.oom && !output.truncated);
    assert_eq!(
        (output.report.stdout_bytes, output.report.stderr_bytes),
        (3, 3)
    );
    assert_eq!(run(&sandbox, "kill -9 $$").report.exit, Exit::Signal(9));
    assert_eq!(run(&sandbox, "kill -15 $$").report.exit, Exit::Signal(15));
    // Standard input is empty, so that what asks fails at once.
    assert_eq!(
        run(&sandbox, "read line || exit 7").report.exit,
        Exit::Code(7)
    );
    assert_eq!(run(&sandbox, "true").report.exit, Exit::Code(0));
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        ..Config::default()
    })
}

fn word() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(1_u8..=255, 0..60)
}

pub(crate) fn arguments_environment_and_input_arrive_unchanged(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let words = proptest::collection::vec(word(), 0..6);
    let input = proptest::collection::vec(any::<u8>(), 0..3000);
    let result = runner(24).run(&(words, word(), input), |(words, value, input)| {
        let script = "printf '%s\\0' \"$@\"; printf '%s\\0' \"$GLOVEBOX_T\"; exec cat";
        let mut exec = Exec::new(["sh", "-c", script, "sh"]);
        exec.argv.extend(words.iter().cloned().map(ByteBuf::from));
        exec.env.push(EnvVar {
            name: ByteBuf::from("GLOVEBOX_T"),
            value: ByteBuf::from(value.clone()),
        });
        // printf without arguments prints its format once.
        let mut expected = if words.is_empty() {
            vec![0]
        } else {
            Vec::new()
        };
        for word in words.iter().chain([&value]) {
            expected.extend_from_slice(word);
            expected.push(0);
        }
        expected.extend_from_slice(&input);
        exec.stdin = Stdin::Stream;
        let output = sandbox.exec_with(exec, &input, 1 << 20).unwrap();
        prop_assert_eq!(output.stdout, expected);
        prop_assert_eq!(output.report.exit, Exit::Code(0));
        Ok(())
    });
    result.unwrap();
    let clear = Exec {
        clear_env: true,
        ..sh("/usr/bin/env | /usr/bin/sort")
    };
    let shown = String::from_utf8(sandbox.exec(clear).unwrap().stdout).unwrap();
    assert!(
        shown.lines().all(|line| line.starts_with("PWD=")
            || line.starts_with("_=")
            || line.starts_with("OLDPWD=")
            || line.starts_with("SHLVL=")),
        "{shown}"
    );
}

pub(crate) fn any_bytes_come_back_unchanged(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let input: Vec<u8> = (0..5_000_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let output = sandbox
        .exec_with(Exec::new(["cat"]), &input, 16 << 20)
        .unwrap();
    assert!(
        output.stdout == input,
        "{} of {} bytes",
        output.stdout.len(),
        input.len()
    );
    // Input that is not taken is no failure.
    let output = sandbox
        .exec_with(Exec::new(["true"]), &input, 16 << 20)
        .unwrap();
    assert_eq!(output.report.exit, Exit::Code(0));
}

fn fault(sandbox: &Sandbox, exec: Exec) -> Fault {
    sandbox.exec(exec).unwrap_err()
}

pub(crate) fn bad_commands_are_named(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let missing = fault(&sandbox, Exec::new(["no-such-command-anywhere"]));
    assert_eq!(
        (missing.class, missing.code),
        (Class::Failed, Code::CommandNotFound)
    );
    assert!(
        missing.message.contains("no-such-command-anywhere"),
        "{missing}"
    );
    sandbox
        .write_file(
            b"plain",
            glovebox_proto::WriteMode::Replace,
            b"no program\n",
        )
        .unwrap();
    assert_eq!(
        fault(&sandbox, Exec::new(["./plain"])).code,
        Code::CommandNotExecutable
    );
    let lost = Exec {
        cwd: Some(ByteBuf::from("/no/such/dir")),
        ..Exec::new(["true"])
    };
    assert_eq!(fault(&sandbox, lost).code, Code::CwdNotFound);
    assert_eq!(
        fault(&sandbox, Exec::new(["echo", "a\0b"])).code,
        Code::InvalidArgument
    );
    assert_eq!(fault(&sandbox, Exec::new([""])).code, Code::InvalidArgument);
    assert_eq!(
        fault(&sandbox, Exec::new(Vec::<Vec<u8>>::new())).code,
        Code::InvalidArgument
    );
    let huge = vec![b'x'; 200 << 10];
    assert_eq!(
        fault(&sandbox, Exec::new([b"echo".to_vec(), huge])).code,
        Code::TooLarge
    );
    // None of it harmed the sandbox.
    assert_eq!(run(&sandbox, "exit 3").report.exit, Exit::Code(3));
}

pub(crate) fn many_run_at_once(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    std::thread::scope(|scope| {
        for thread in 0..24 {
            let sandbox = &sandbox;
            scope.spawn(move || {
                for round in 0..4 {
                    let text = format!("{thread}-{round}");
                    let output = run(sandbox, &format!("printf {text}; exit {thread}"));
                    assert_eq!(output.stdout, text.as_bytes());
                    assert_eq!(output.report.exit, Exit::Code(thread));
                }
            });
        }
    });
}

pub(crate) fn a_slow_reader_slows_the_writer_only(fixture: &Fixture) {
    const TOTAL: usize = 24 << 20;
    let sandbox = fixture.sandbox();
    let exec = sh(&format!("head -c {TOTAL} /dev/zero; echo done >&2"));
    let mut stream = sandbox.open(Request::Exec(exec)).unwrap();
    // Nobody takes the output; others must not notice.
    for _ in 0..20 {
        assert!(sandbox.ping().unwrap() < Duration::from_secs(2));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(run(&sandbox, "printf fine").stdout, b"fine");
    let (mut taken, mut errors) = (0, Vec::new());
    loop {
        match stream.recv() {
            Incoming::Data {
                channel: Channel::Stdout,
                bytes,
                ..
            } => {
                assert!(bytes.iter().all(|byte| *byte == 0));
                taken += bytes.len();
            }
            Incoming::Data { bytes, .. } => errors.extend(bytes),
            Incoming::Reply(reply) => {
                assert!(matches!(reply, Ok(Reply::Exited(_))), "{reply:?}");
                break;
            }
        }
    }
    assert_eq!(taken, TOTAL);
    assert_eq!(errors, b"done\n");
}

pub(crate) fn a_deadline_ends_everything_the_command_started(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let marker = marker();
    let script =
        format!("trap '' TERM; (setsid sleep {marker} &) ; sleep {marker} & wait; sleep {marker}");
    let exec = Exec {
        timeout_ms: Some(300),
        grace_ms: 200,
        ..sh(&script)
    };
    let begin = Instant::now();
    let output = sandbox.exec(exec).unwrap();
    assert!(output.report.timed_out);
    assert!(begin.elapsed() >= Duration::from_millis(300));
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
    assert!(processes(&marker).is_empty());
}

pub(crate) fn leftovers_are_killed_or_kept_as_asked(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let marker = marker();
    let script = format!("(setsid sleep {marker} >/dev/null 2>&1 </dev/null &); exit 5");
    let output = run(&sandbox, &script);
    assert_eq!(output.report.exit, Exit::Code(5));
    assert!(output.report.killed >= 1, "{:?}", output.report);
    assert!(processes(&marker).is_empty());

    let keep = Exec {
        background: Background::Keep,
        ..sh(&script)
    };
    let output = sandbox.exec(keep).unwrap();
    assert_eq!(output.report.exit, Exit::Code(5));
    assert_eq!(output.report.left_running, 1);
    assert!(eventually(|| processes(&marker).len() == 1));
    sandbox.destroy().unwrap();
    assert!(eventually(|| processes(&marker).is_empty()));
}

pub(crate) fn a_terminal_is_one(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let size = WindowSize {
        rows: 33,
        cols: 101,
    };
    let exec = Exec {
        pty: Some(size),
        stdin: Stdin::Stream,
        ..sh("test -t 0 && test -t 1 && test -t 2 && stty size; read line; echo got $line")
    };
    let mut stream = sandbox.open(Request::Exec(exec)).unwrap();
    stream.send(b"hello\n").unwrap();
    let mut shown = Vec::new();
    let reply = loop {
        match stream.recv() {
            Incoming::Data { bytes, .. } => shown.extend(bytes),
            Incoming::Reply(reply) => break reply,
        }
    };
    assert!(matches!(reply, Ok(Reply::Exited(_))), "{reply:?}");
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(
        shown.contains("33 101") && shown.contains("got hello"),
        "{shown:?}"
    );
}

pub(crate) fn lent_input_is_counted_and_merged_output_is_one_stream(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    for is_followed in [false, true] {
        let exec = Exec {
            stdin: Stdin::Lent { is_followed },
            merge: true,
            sends_events: true,
            ..sh("head -c 3; head -c 2 >&2; echo end")
        };
        let mut stream = sandbox.open(Request::Exec(exec)).unwrap();
        stream.send(b"abc").unwrap();
        let (mut shown, mut news, mut decoder) = (Vec::new(), Vec::new(), EventDecoder::default());
        let mut is_sent = false;
        let report = loop {
            match stream.recv() {
                Incoming::Data {
                    channel: Channel::Content,
                    bytes,
                    ..
                } => news.extend(decoder.decode(&bytes).unwrap()),
                Incoming::Data { channel, bytes, .. } => {
                    assert!(bytes.is_empty() || channel == Channel::Stdout);
                    shown.extend(bytes);
                }
                Incoming::Reply(Ok(Reply::Exited(report))) => break report,
                Incoming::Reply(other) => panic!("{other:?}"),
            }
            // Only now, so that all of the first piece was read for a moment.
            let is_read = !is_followed || news.contains(&Event::InputTaken(3));
            if shown.starts_with(b"abc") && is_read && !std::mem::replace(&mut is_sent, true) {
                stream.send(b"defgh").unwrap();
            }
        };
        assert_eq!(String::from_utf8(shown).unwrap(), "abcdeend\n");
        assert_eq!((report.input_taken, report.stderr_bytes), (5, 0));
        assert_eq!(news[0], Event::Began(report.job));
        let told = &news[1..];
        assert_eq!(told.is_empty(), !is_followed, "{told:?}");
    }
}

pub(crate) fn captured_output_is_capped(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let output = sandbox
        .exec_with(sh("head -c 3000000 /dev/zero; printf e >&2"), &[], 1000)
        .unwrap();
    assert!(output.truncated);
    assert_eq!((output.stdout.len(), output.stderr.len()), (1000, 1));
    assert_eq!(output.report.stdout_bytes, 3_000_000);
}
