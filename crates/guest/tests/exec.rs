//! Running commands: what goes in arrives unchanged, what comes out is complete, and how it ended
//! is told exactly.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod client;

use client::{Guest, PATIENCE, sh};
use glovebox_proto::{Channel, Code, EnvVar, Exec, Exit, Reply, Request, Stdin, limits};
use proptest::prelude::*;
use serde_bytes::ByteBuf;
use std::time::{Duration, Instant};

fn var(name: &[u8], value: &[u8]) -> EnvVar {
    EnvVar {
        name: ByteBuf::from(name),
        value: ByteBuf::from(value),
    }
}

#[test]
fn codes_and_signals() {
    let mut guest = Guest::start();
    let ran = guest.run(sh("echo out; echo err >&2; exit 42")).unwrap();
    assert_eq!(
        (ran.code(), &ran.stdout[..], &ran.stderr[..]),
        (42, &b"out\n"[..], &b"err\n"[..])
    );
    let report = &ran.report;
    assert_eq!((report.stdout_bytes, report.stderr_bytes), (4, 4));
    assert!(report.wall_us > 0 && report.max_rss_kib > 0 && !report.timed_out);
    assert_eq!((report.killed, report.left_running), (0, 0));
    assert_eq!(
        guest.run(sh("kill -9 $$")).unwrap().report.exit,
        Exit::Signal(9)
    );
    assert_eq!(
        guest.run(sh("kill -TERM $$")).unwrap().report.exit,
        Exit::Signal(15)
    );
    let spin = guest
        .run(sh("i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"))
        .unwrap();
    assert!(spin.report.user_us > 1000, "{:?}", spin.report);
}

#[test]
fn commands_that_cannot_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(dir.path());
    let code = |guest: &mut Guest, exec: Exec| guest.run(exec).unwrap_err().code;
    assert_eq!(
        code(&mut guest, Exec::new(["no-such-command-here"])),
        Code::CommandNotFound
    );
    assert_eq!(
        code(&mut guest, Exec::new(["/no/such/command"])),
        Code::CommandNotFound
    );
    std::fs::write(dir.path().join("plain"), "text").unwrap();
    assert_eq!(
        code(&mut guest, Exec::new(["./plain"])),
        Code::CommandNotExecutable
    );
    assert_eq!(
        code(&mut guest, Exec::new(["/"])),
        Code::CommandNotExecutable
    );
    // A directory of PATH that may not be searched hides no command (root may search everything).
    let locked = dir.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o000)).unwrap();
    let mut hidden = Exec::new(["no-such-command-here"]);
    let path = format!("{}:/usr/bin", locked.display());
    hidden.env = vec![var(b"PATH", path.as_bytes())];
    assert_eq!(code(&mut guest, hidden), Code::CommandNotFound);
    // A file that is there and may not be executed is told apart.
    let mut refused = Exec::new(["plain"]);
    let path = format!("{}:/usr/bin", dir.path().display());
    refused.env = vec![var(b"PATH", path.as_bytes())];
    assert_eq!(code(&mut guest, refused), Code::CommandNotExecutable);
    let mut nowhere = Exec::new(["true"]);
    nowhere.cwd = Some(ByteBuf::from("nowhere"));
    assert_eq!(code(&mut guest, nowhere), Code::CwdNotFound);
    let empty: [&str; 0] = [];
    assert_eq!(code(&mut guest, Exec::new(empty)), Code::InvalidArgument);
    assert_eq!(code(&mut guest, Exec::new([""])), Code::InvalidArgument);
    assert_eq!(
        code(&mut guest, Exec::new(["true", "a\0b"])),
        Code::InvalidArgument
    );
    let huge = vec![b'x'; limits::MAX_ARG_BYTES + 1];
    assert_eq!(
        code(&mut guest, Exec::new([b"true".to_vec(), huge])),
        Code::TooLarge
    );
    // The largest single argument Linux takes, and one byte below what proto refuses.
    let large = vec![b'x'; limits::MAX_ARG_BYTES];
    assert_eq!(
        guest
            .run(Exec::new([b"true".to_vec(), large]))
            .unwrap()
            .code(),
        0
    );

    let script = dir.path().join("script");
    std::fs::write(&script, "echo script \"$1\"").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        guest.run(Exec::new(["./script", "a b"])).unwrap().out(),
        "script a b\n"
    );
    // The working directory and PATH are those of the job.
    let mut by_path = Exec::new(["script", "c"]);
    by_path.cwd = Some(ByteBuf::from(dir.path().to_str().unwrap()));
    by_path.env = vec![var(b"PATH", b"/nowhere::/bin:/usr/bin")];
    assert_eq!(guest.run(by_path).unwrap().out(), "script c\n");
}

fn argument() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(1_u8.., 0..60),
        Just(b"$(reboot) `x` \"'\\ \n\t| ; & * ? ~".to_vec()),
        Just(b"--".to_vec()),
        proptest::collection::vec(1_u8.., 4000..5000),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn arguments_arrive_unchanged(args in proptest::collection::vec(argument(), 0..8)) {
        let mut guest = Guest::start();
        let mut argv = vec![b"printf".to_vec(), b"%s\\0".to_vec()];
        argv.extend(args.iter().cloned());
        argv[0] = b"/usr/bin/printf".to_vec();
        let mut expected = args.concat_with_nul();
        if args.is_empty() {
            expected = vec![0];
        }
        prop_assert_eq!(guest.run(Exec::new(argv)).unwrap().stdout, expected);
    }

    #[test]
    fn environment_arrives_unchanged(
        vars in proptest::collection::btree_map("[A-Za-z_][A-Za-z0-9_]{0,12}", proptest::collection::vec(1_u8.., 0..60), 0..60)
    ) {
        let mut guest = Guest::start();
        let mut exec = Exec::new(["/usr/bin/env", "-0"]);
        exec.clear_env = true;
        exec.env = vars.iter().map(|(name, value)| var(name.as_bytes(), value)).collect();
        let out = guest.run(exec).unwrap().stdout;
        let mut seen: Vec<_> = out.split(|&byte| byte == 0).filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect();
        seen.sort();
        let mut wanted: Vec<_> = vars.iter().map(|(name, value)| [name.as_bytes(), b"=", value].concat()).collect();
        wanted.sort();
        prop_assert_eq!(seen, wanted);
    }
}

trait ConcatWithNul {
    fn concat_with_nul(&self) -> Vec<u8>;
}

impl ConcatWithNul for Vec<Vec<u8>> {
    fn concat_with_nul(&self) -> Vec<u8> {
        self.iter()
            .flat_map(|arg| arg.iter().copied().chain([0]))
            .collect()
    }
}

#[test]
fn standard_input() {
    let mut guest = Guest::start();
    // /dev/null by default: a question fails at once.
    assert_eq!(guest.run(sh("read x; echo $?")).unwrap().out(), "1\n");

    let mut exec = Exec::new(["cat"]);
    exec.stdin = Stdin::Stream;
    let id = guest.ask(&Request::Exec(exec));
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    guest.send(id, &content, true);
    let ran = guest.ran(id).unwrap();
    assert_eq!(ran.code(), 0);
    assert!(
        ran.stdout == content,
        "{} bytes came back",
        ran.stdout.len()
    );

    // A command that does not read must not stop the host, however much it sends.
    let mut exec = sh("exec <&-; sleep 0.3; echo done");
    exec.stdin = Stdin::Stream;
    let id = guest.ask(&Request::Exec(exec));
    guest.listen(Duration::from_millis(150));
    guest.send(id, &content, true);
    assert_eq!(guest.ran(id).unwrap().out(), "done\n");

    let mut exec = Exec::new(["cat"]);
    exec.stdin = Stdin::Stream;
    let id = guest.ask(&Request::Exec(exec));
    guest.send(id, b"", true);
    assert_eq!(guest.ran(id).unwrap().stdout, b"");
}

#[test]
fn much_output_to_a_slow_reader() {
    let mut guest = Guest::start();
    guest.keeps_data = false;
    guest.gives_credit = false;
    let total: u64 = 200 << 20;
    let id = guest.ask(&Request::Exec(sh(&format!("head -c {total} /dev/zero"))));
    guest.listen(Duration::from_millis(500));
    let before = guest.received[&(id, Channel::Stdout)];
    assert_eq!(
        before,
        u64::from(limits::WINDOW_BYTES),
        "the window is used, and no more"
    );
    let waiting = guest.status_kib("VmRSS");
    guest.gives_credit = true;
    guest.give(id, Channel::Stdout, limits::WINDOW_BYTES);
    // The in-test window has to learn of the credit given by hand.
    guest.forget_window(id, Channel::Stdout);
    let ran = guest.ran(id).unwrap();
    assert_eq!(ran.report.stdout_bytes, total);
    assert_eq!(guest.received[&(id, Channel::Stdout)], total);
    let after = guest.status_kib("VmHWM");
    eprintln!("resident: {waiting} KiB while waiting, {after} KiB at most");
    // The program itself counts as well, and is large when it is not optimised: what must not be is
    // that output piles up in it.
    assert!(after < waiting + (2 << 10), "{waiting} to {after} KiB");
}

#[test]
fn both_streams_have_windows_of_their_own() {
    let mut guest = Guest::start();
    guest.gives_credit = false;
    let id = guest.ask(&Request::Exec(sh(
        "head -c 2000000 /dev/zero & head -c 100 /dev/zero >&2; wait",
    )));
    guest.listen(Duration::from_millis(300));
    assert_eq!(
        guest.received[&(id, Channel::Stderr)],
        100,
        "the full stdout does not hold stderr up"
    );
    guest.cancel(id);
    assert_eq!(guest.answer(id).unwrap_err().code, Code::Cancelled);
}

#[test]
fn captured_output_never_blocks_the_command() {
    let mut guest = Guest::start();
    let mut exec = sh("head -c 30000000 /dev/zero; echo end >&2");
    exec.stream_output = false;
    let ran = guest.run(exec).unwrap();
    assert_eq!(ran.report.stdout_bytes, 30_000_000);
    assert!(ran.stdout.is_empty());
}

#[test]
fn two_hundred_at_once() {
    let mut guest = Guest::start();
    let ids: Vec<_> = (0..200)
        .map(|n| {
            guest.ask(&Request::Exec(sh(&format!(
                "echo {n}; sleep 0.05; exit {}",
                n % 100
            ))))
        })
        .collect();
    for (n, id) in ids.into_iter().enumerate() {
        let ran = guest.ran(id).unwrap();
        assert_eq!(ran.code(), (n % 100) as i32);
        assert_eq!(ran.out(), format!("{n}\n"));
    }
}

#[test]
fn ten_thousand_short_jobs_leave_memory_flat() {
    let mut guest = Guest::start();
    let run = |guest: &mut Guest, count: usize| {
        let mut open = std::collections::VecDeque::new();
        for _ in 0..count {
            if open.len() == 16 {
                let id = open.pop_front().unwrap();
                assert_eq!(guest.ran(id).unwrap().code(), 0);
            }
            open.push_back(guest.ask(&Request::Exec(Exec::new(["/bin/true"]))));
        }
        for id in open {
            assert_eq!(guest.ran(id).unwrap().code(), 0);
        }
    };
    run(&mut guest, 1000);
    let early = guest.status_kib("VmRSS");
    run(&mut guest, 9000);
    let late = guest.status_kib("VmRSS");
    eprintln!("resident: {early} KiB after 1000 jobs, {late} KiB after 10000");
    assert!(late <= early + 256, "{early} KiB became {late} KiB");
    match guest.call(&Request::JobList).unwrap() {
        Reply::Jobs(jobs) => assert_eq!(jobs.len(), 256),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ping_does_not_wait_for_anything() {
    let mut guest = Guest::start();
    let slow: Vec<_> = (0..8)
        .map(|_| guest.ask(&Request::Exec(sh("sleep 0.4"))))
        .collect();
    let begin = Instant::now();
    let reply = guest.call(&Request::Ping(ByteBuf::from("hello"))).unwrap();
    assert_eq!(reply, Reply::Pong(ByteBuf::from("hello")));
    assert!(begin.elapsed() < Duration::from_millis(350));
    for id in slow {
        guest.ran(id).unwrap();
    }
    assert!(begin.elapsed() < PATIENCE);
}

#[test]
fn facts_are_read_when_asked() {
    let mut guest = Guest::start();
    let Reply::Facts(facts) = guest.call(&Request::Facts).unwrap() else {
        panic!()
    };
    assert_eq!(facts.pid, guest.child.id() as i32);
    assert!(
        facts.has_proc && !facts.kernel.is_empty() && facts.interfaces.contains(&"lo".to_owned())
    );
    assert_eq!(&facts.cwd[..], b"/tmp");
    assert!(
        facts
            .mounts
            .iter()
            .any(|mount| mount.starts_with("/proc proc ")),
        "{:?}",
        facts.mounts
    );
    assert!(
        facts.open_fds.starts_with(&[0, 1, 2]) && facts.open_fds.len() < 10,
        "{:?}",
        facts.open_fds
    );
}
