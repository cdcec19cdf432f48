//! Wardens against the real kernel. One test function: the code under test waits for every child of
//! the process, so nothing else in this process may start any.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::print_stderr,
    reason = "what it measured is for whoever runs it"
)]

use glovebox_jail::landlock::{Policy, Ruleset};
use glovebox_jail::process::{
    self, Census, CommandEnd, CommandNews, EndStatus, Launch, ReapedChild, Separation, SpawnError,
    StartedCommand, Strings, TreeKill, Wardens,
};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Resource, Signal};
use std::ffi::CStr;
use std::time::{Duration, Instant};

fn strings(items: &[&str]) -> Strings {
    let mut strings = Strings::new();
    for item in items {
        strings.push(&[item.as_bytes()]).unwrap();
    }
    strings
}

fn null() -> OwnedFd {
    rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

fn spawn_at(
    wardens: &mut Wardens,
    argv: &[&str],
    candidates: &[&str],
    cwd: Option<&CStr>,
) -> Result<StartedCommand, SpawnError> {
    spawn_with(wardens, argv, candidates, cwd, &[])
}

fn spawn_with(
    wardens: &mut Wardens,
    argv: &[&str],
    candidates: &[&str],
    cwd: Option<&CStr>,
    limits: &[(Resource, u64)],
) -> Result<StartedCommand, SpawnError> {
    let null = null();
    let (argv, candidates) = (strings(argv), strings(candidates));
    wardens.spawn(&Launch {
        argv: &argv,
        env: &strings(&["PATH=/usr/bin:/bin"]),
        candidates: &candidates,
        program: None,
        cwd,
        stdio: [null.as_fd(), null.as_fd(), null.as_fd()],
        descriptors: &[],
        terminal: None,
        limits,
        umask: None,
    })
}

fn sh(wardens: &mut Wardens, script: &str) -> StartedCommand {
    spawn_at(wardens, &["sh", "-c", script], &["/bin/sh"], None).unwrap()
}

fn await_end(wardens: &mut Wardens, started: StartedCommand) -> CommandEnd {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if let Some(end) = wardens.end_of(started.warden) {
            return end;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the command did not end");
}

fn await_gone(wardens: &mut Wardens, warden: Pid) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        match wardens.reap() {
            Some(ReapedChild::Warden {
                warden: gone,
                was_killed,
                ..
            }) if gone == warden => return was_killed,
            Some(_) => {}
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    panic!("the warden did not leave");
}

fn kill_all(wardens: &mut Wardens, started: StartedCommand) -> usize {
    let mut kill = TreeKill::new();
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        kill.round(started.warden, &Census::take().unwrap())
            .unwrap();
        for _ in 0..20 {
            if let Some(ReapedChild::Warden { warden, .. }) = wardens.reap()
                && warden == started.warden
            {
                return kill.killed(Some(started.command));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    panic!(
        "still not dead: {:?}",
        Census::take().unwrap().descendants_of(started.warden)
    );
}

/// Processes whose command line contains `mark`.
fn count_marked(mark: &str) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        if let Ok(line) = std::fs::read(entry.path().join("cmdline")) {
            let is_self = entry.file_name().to_string_lossy() == std::process::id().to_string();
            count += usize::from(!is_self && String::from_utf8_lossy(&line).contains(mark));
        }
    }
    count
}

#[test]
fn wardens() {
    process::reset_and_block_signals().unwrap();
    process::become_subreaper().unwrap();
    process::set_non_dumpable().unwrap();
    let mut wardens = Wardens::new(None, Separation::None).unwrap();

    ends_are_told(&mut wardens);
    refusals_are_told_apart(&mut wardens);
    scripts_without_interpreter_line(&mut wardens);
    leftovers_keep_the_warden(&mut wardens);
    hiding_does_not_help(&mut wardens);
    fork_bomb(&mut wardens);
    killing_the_warden_frees_nothing(&mut wardens);
    stopping_everything_during_starts(&mut wardens);
    child_state_is_clean(&mut wardens);
    what_waits_serves_one_command_and_keeps_nothing(&mut wardens);
    what_waits_may_be_killed_or_stopped(&mut wardens);
    walls_are_put_up(&mut wardens);
    dismiss(&mut wardens);
    confinement();
    speed(&mut wardens, false);
    speed(&mut wardens, true);
    dismiss(&mut wardens);
    assert!(wardens.is_empty());
}

fn ends_are_told(wardens: &mut Wardens) {
    let started = sh(wardens, "exit 42");
    let end = await_end(wardens, started);
    assert_eq!(end.status, EndStatus::Code(42));
    assert!(end.is_empty && end.max_rss_kib > 0 && end.ended_ns > 0);
    let ended = CommandNews::Ended(end);
    assert_eq!(wardens.next_news(), Some((started.warden, ended)));
    assert_eq!(wardens.next_news(), None);
    assert!(!await_gone(wardens, started.warden));

    let started = sh(wardens, "kill -9 $$");
    assert_eq!(await_end(wardens, started).status, EndStatus::Signal(9));
    assert!(!await_gone(wardens, started.warden));
}

fn refusals_are_told_apart(wardens: &mut Wardens) {
    let error = spawn_at(wardens, &["x"], &["/nowhere/x", "/bin/sh/x"], None).unwrap_err();
    assert_eq!(error, SpawnError::NotFound);
    let error = spawn_at(
        wardens,
        &["x"],
        &["/nowhere/x", "/etc/passwd", "/nowhere/y"],
        None,
    )
    .unwrap_err();
    assert!(matches!(error, SpawnError::NotExecutable(_)), "{error:?}");
    let error = spawn_at(wardens, &["x"], &["/etc"], None).unwrap_err();
    assert!(matches!(error, SpawnError::NotExecutable(_)), "{error:?}");
    let error = spawn_at(wardens, &["sh"], &["/bin/sh"], Some(c"/nowhere")).unwrap_err();
    assert!(matches!(error, SpawnError::Cwd(_)), "{error:?}");
    let long = "x".repeat(100_000);
    let error = spawn_at(wardens, &[long.as_str(); 70], &["/bin/sh"], None).unwrap_err();
    assert_eq!(error, SpawnError::TooLarge);
    let deadline = Instant::now() + Duration::from_secs(10);
    while !wardens.is_empty() && Instant::now() < deadline {
        wardens.reap();
    }
}

fn scripts_without_interpreter_line(wardens: &mut Wardens) {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let script = make("script", b"exit $(($1 + 1))\n");
    let started = spawn_at(wardens, &["script", "6"], &[&script], None).unwrap();
    assert_eq!(await_end(wardens, started).status, EndStatus::Code(7));
    await_gone(wardens, started.warden);
    let binary = make("binary", b"\x7fELF\0\0\0garbage");
    let error = spawn_at(wardens, &["binary"], &[&binary], None).unwrap_err();
    assert!(matches!(error, SpawnError::NotExecutable(_)), "{error:?}");
}

fn leftovers_keep_the_warden(wardens: &mut Wardens) {
    let started = sh(wardens, "sleep 987001 & exit 3");
    let end = await_end(wardens, started);
    assert_eq!(end.status, EndStatus::Code(3));
    assert!(!end.is_empty);
    while let Some(gone) = wardens.reap() {
        assert!(!matches!(gone, ReapedChild::Warden { warden, .. } if warden == started.warden));
    }
    assert_eq!(kill_all(wardens, started), 1);
    assert_eq!(count_marked("987001"), 0);
}

fn hiding_does_not_help(wardens: &mut Wardens) {
    let scripts = [
        // Ignores every signal that can be ignored.
        "trap '' TERM HUP INT QUIT; while :; do sleep 987002; done",
        // Stopped.
        "sleep 987002 & kill -STOP $!; kill -STOP $$",
        // Double fork, new session, closed descriptors.
        "(setsid sh -c 'exec >&- 2>&- <&-; trap \"\" TERM; sleep 987002 & sleep 987002' &) ; exit 0",
        // A chain of sessions, each leaving at once.
        "setsid sh -c 'setsid sh -c \"setsid sleep 987002 & exit\" & exit' & exit",
    ];
    for script in scripts {
        let started = sh(wardens, script);
        std::thread::sleep(Duration::from_millis(60));
        assert!(
            count_marked("987002") > 0,
            "{script}: nothing to kill, the test proves nothing"
        );
        kill_all(wardens, started);
        assert_eq!(count_marked("987002"), 0, "{script}");
    }
}

fn fork_bomb(wardens: &mut Wardens) {
    // The shell gives up at the process limit; the bomb ignores that and goes on. The script bounds
    // its number of processes, because a process limit would apply to all tests of the user.
    let script = "bomb() { [ $1 -le 0 ] && { sleep 987003; return; }; \
                  while :; do bomb $(($1 - 1)) & bomb $(($1 - 1)) & wait; done; }; bomb 7";
    let started = sh(wardens, script);
    std::thread::sleep(Duration::from_millis(300));
    kill_all(wardens, started);
    assert_eq!(count_marked("987003"), 0);

    // Always moving: it forks, lets the parent exit, and never has more than a few processes.
    let script = "f() { (f &) ; exit 0; }; # 987004\n f";
    let started = sh(wardens, script);
    std::thread::sleep(Duration::from_millis(100));
    kill_all(wardens, started);
    assert_eq!(count_marked("987004"), 0);
}

fn killing_the_warden_frees_nothing(wardens: &mut Wardens) {
    let script = "(setsid sleep 987005 &); sleep 987005 & kill -9 $PPID; sleep 987005";
    let started = sh(wardens, script);
    assert!(await_gone(wardens, started.warden), "it was killed");
    let deadline = Instant::now() + Duration::from_secs(10);
    while count_marked("987005") > 0 && Instant::now() < deadline {
        wardens.kill_strays(&Census::take().unwrap());
        while wardens.reap().is_some() {}
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(count_marked("987005"), 0);
    while wardens.reap().is_some() {}
}

fn stopping_everything_during_starts(wardens: &mut Wardens) {
    // Only wardens of this process: there may be real sandboxes on the machine.
    let hostile = sh(
        wardens,
        &"while :; do for p in /proc/[0-9]*; do read -r n < $p/comm; \
         [ \"$n\" = glovebox-warden ] && read -r _ _ _ parent _ < $p/stat && [ $parent = OWNER ] && [ ${p#/proc/} != $PPID ] && { kill -STOP ${p#/proc/}; kill -KILL ${p#/proc/}; }; \
         done; done 2>/dev/null"
            .replace("OWNER", &std::process::id().to_string()),
    );
    let mut outcomes = [0; 3];
    for _ in 0..300 {
        match spawn_at(wardens, &["true"], &["/usr/bin/true", "/bin/true"], None) {
            Ok(started) => {
                outcomes[0] += 1;
                outcomes[2] += usize::from(await_gone(wardens, started.warden));
            }
            Err(SpawnError::Interrupted) => outcomes[1] += 1,
            Err(other) => panic!("{other}"),
        }
        if wardens.kill_strays(&Census::take().unwrap()) > 0 {
            while wardens.reap().is_some() {}
        }
    }
    eprintln!(
        "under attack: {} started, {} interrupted, {} killed later",
        outcomes[0], outcomes[1], outcomes[2]
    );
    kill_all(wardens, hostile);
    while wardens.reap().is_some() {}
    let started = sh(wardens, "exit 5");
    assert_eq!(await_end(wardens, started).status, EndStatus::Code(5));
    await_gone(wardens, started.warden);
}

fn child_state_is_clean(wardens: &mut Wardens) {
    let leak = rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
    assert!(
        leak.as_fd().as_raw_fd() < 10,
        "the script below would not look at it"
    );
    // The command is in a process group of its own, in the session of its warden.
    let script = "grep -q '^SigBlk:[[:space:]]*0*$' /proc/self/status || exit 11; \
                  grep -q '^SigIgn:[[:space:]]*0*$' /proc/self/status || exit 12; \
                  for n in 3 4 5 6 7 8 9; do [ ! -e /proc/$$/fd/$n ] || exit 13; done; \
                  [ \"$(cut -d' ' -f5,6 /proc/$$/stat)\" = \"$$ $PPID\" ] || exit 14";
    let started = sh(wardens, script);
    assert_eq!(await_end(wardens, started).status, EndStatus::Code(0));
    await_gone(wardens, started.warden);
    drop(leak);
}

/// Kills every warden, among them one that waits for a command.
fn dismiss(wardens: &mut Wardens) {
    for pid in wardens.pids().collect::<Vec<_>>() {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
        await_gone(wardens, pid);
    }
    assert!(!wardens.has_ready() && wardens.is_empty());
}

/// Makes a warden ready. Returns it and its child as soon as both wait.
fn waiting(wardens: &mut Wardens) -> (Pid, Pid) {
    assert!(wardens.is_empty());
    wardens.make_ready();
    assert!(wardens.has_ready());
    let warden = wardens.pids().next().unwrap();
    let is_asleep = |pid: Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
        stat.is_ok_and(|stat| stat.contains(") S "))
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        assert!(Instant::now() < deadline, "nothing waits");
        let census = Census::take().unwrap();
        if let [child] = census.descendants_of(warden)[..]
            && is_asleep(child.pid)
        {
            // The child may sleep for a moment before it waits, but not for 2 ms.
            std::thread::sleep(Duration::from_millis(2));
            if is_asleep(child.pid) {
                return (warden, child.pid);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn what_waits_serves_one_command_and_keeps_nothing(wardens: &mut Wardens) {
    for _ in 0..50 {
        wardens.make_ready();
        wardens.make_ready();
        assert_eq!(wardens.len(), 1);
        child_state_is_clean(wardens);
        assert!(wardens.is_empty());
    }
    // The command does not inherit descriptors that were opened while its process waited, nor
    // receive signals that were sent then.
    let (warden, child) = waiting(wardens);
    let leak = rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::USR1, Signal::TSTP] {
        rustix::process::kill_process(child, signal).unwrap();
    }
    for number in [34, 40, 40, 64] {
        process::send_signal(child, number).unwrap();
    }
    let script = "for n in 3 4 5 6 7 8 9; do [ ! -e /proc/$$/fd/$n ] || exit 13; done; \
                  grep -q '^SigPnd:[[:space:]]*0*$' /proc/self/status || exit 11; \
                  grep -q '^ShdPnd:[[:space:]]*0*$' /proc/self/status || exit 12; exit 6";
    let started = sh(wardens, script);
    assert_eq!((started.warden, started.command), (warden, child));
    assert_eq!(await_end(wardens, started).status, EndStatus::Code(6));
    await_gone(wardens, started.warden);
    drop(leak);
    // A ready warden reports errors as any other.
    wardens.make_ready();
    let error = spawn_at(wardens, &["x"], &["/nowhere/x"], None).unwrap_err();
    assert_eq!(error, SpawnError::NotFound);
    wardens.make_ready();
    let error = spawn_at(wardens, &["sh"], &["/bin/sh"], Some(c"/nowhere")).unwrap_err();
    assert!(matches!(error, SpawnError::Cwd(_)), "{error:?}");
    while !wardens.is_empty() {
        wardens.reap();
    }
}

fn what_waits_may_be_killed_or_stopped(wardens: &mut Wardens) {
    for (hits_warden, hits_child) in [(true, false), (false, true), (true, true)] {
        for signal in [Signal::KILL, Signal::STOP] {
            let (warden, child) = waiting(wardens);
            for (pid, is_hit) in [(child, hits_child), (warden, hits_warden)] {
                if is_hit {
                    rustix::process::kill_process(pid, signal).unwrap();
                }
            }
            // A process that is killed a moment later may already have begun its command.
            std::thread::sleep(Duration::from_millis(50));
            let started = sh(wardens, "exit 7");
            // Waiting for wardens also continues stopped ones.
            let end = loop {
                if let Some(ReapedChild::Warden { warden, end, .. }) = wardens.reap()
                    && warden == started.warden
                {
                    break end.unwrap();
                }
            };
            assert_eq!(end.status, EndStatus::Code(7));
            while !wardens.is_empty() {
                wardens.reap();
            }
            assert!(!wardens.has_ready());
        }
    }
    // A ready warden that is killed without a command is only a dead child.
    let (warden, _) = waiting(wardens);
    rustix::process::kill_process(warden, Signal::KILL).unwrap();
    assert!(await_gone(wardens, warden));
    assert!(!wardens.has_ready());
}

fn walls_are_put_up(wardens: &mut Wardens) {
    let check = |wardens: &mut Wardens, script: &str, limits: &[(Resource, u64)]| {
        let started =
            spawn_with(wardens, &["sh", "-c", script], &["/bin/sh"], None, limits).unwrap();
        let end = await_end(wardens, started);
        await_gone(wardens, started.warden);
        end.status
    };
    // Limits are lowered, never raised.
    let hard = rustix::process::getrlimit(Resource::Nofile)
        .maximum
        .unwrap();
    let limits = [(Resource::Nofile, 77), (Resource::Core, 0)];
    let script = "[ $(ulimit -n) = 77 ] && [ $(ulimit -Hn) = 77 ] && [ $(ulimit -c) = 0 ]";
    assert_eq!(check(wardens, script, &limits), EndStatus::Code(0));
    let script = format!("[ $(ulimit -Hn) = {hard} ]");
    let limits = [(Resource::Nofile, hard + 1)];
    assert_eq!(check(wardens, &script, &limits), EndStatus::Code(0));

    // The score is written from outside, so the command may read it a moment too early.
    let started = sh(
        wardens,
        "sleep 0.2; [ $(cat /proc/self/oom_score_adj) = 321 ]",
    );
    while !process::set_oom_score(started.command, 321) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(await_end(wardens, started).status, EndStatus::Code(0));
    await_gone(wardens, started.warden);
    assert_eq!(
        std::fs::read_to_string("/proc/self/oom_score_adj")
            .unwrap()
            .trim(),
        "0"
    );
}

/// Tests rulesets in sets of wardens of their own. No other test may run meanwhile.
fn confinement() {
    let dir = tempfile::tempdir().unwrap();
    let policy = Policy {
        read_exec: vec!["/".into()],
        read_write: vec![dir.path().into()],
        ..Policy::default()
    };
    let Some(ruleset) = Ruleset::build(&policy).unwrap().fd else {
        testkit::skip!("this kernel has no Landlock");
    };
    let (inside, outside) = (dir.path().display(), std::env::temp_dir());
    let outside = outside.join(format!("glovebox-warden-{}", std::process::id()));
    let script = format!(
        "grep -q '^NoNewPrivs:.*1' /proc/self/status || exit 11; \
         : > {inside}/file || exit 12; ( : > {} ) 2>/dev/null && exit 13; exit 0",
        outside.display()
    );
    let mut confined = Wardens::new(Some(ruleset), Separation::None).unwrap();
    for is_ready in [false, true] {
        if is_ready {
            confined.make_ready();
        }
        let started = sh(&mut confined, &script);
        assert_eq!(await_end(&mut confined, started).status, EndStatus::Code(0));
        await_gone(&mut confined, started.warden);
        assert!(!outside.exists());
    }
    // The process that started the command is not restricted.
    std::fs::write(&outside, "").unwrap();
    std::fs::remove_file(&outside).unwrap();
    // Another ruleset applies at once, even if a warden is ready.
    let other = tempfile::tempdir().unwrap();
    let policy = Policy {
        read_write: vec![other.path().into()],
        ..policy
    };
    let ruleset = Ruleset::build(&policy).unwrap().fd;
    confined.make_ready();
    confined.renew(ruleset);
    assert!(!confined.has_ready());
    let script = format!(
        "( : > {inside}/file ) 2>/dev/null && exit 14; : > {}/file || exit 15; exit 0",
        other.path().display()
    );
    let started = sh(&mut confined, &script);
    assert_eq!(await_end(&mut confined, started).status, EndStatus::Code(0));
    while !confined.is_empty() {
        confined.reap();
    }
    // A descriptor that is no ruleset must be an error, so that no command runs unconfined.
    let mut broken = Wardens::new(Some(null()), Separation::None).unwrap();
    for is_ready in [false, true] {
        if is_ready {
            broken.make_ready();
        }
        let refused = spawn_at(&mut broken, &["true"], &["/bin/true"], None).unwrap_err();
        assert!(matches!(refused, SpawnError::Confine(_)), "{refused:?}");
        while !broken.is_empty() {
            broken.reap();
        }
    }
}

fn speed(wardens: &mut Wardens, is_prepared: bool) {
    let rounds = 300;
    let median = |mut samples: Vec<u128>| {
        samples.sort_unstable();
        samples[samples.len() / 2]
    };
    let mut ours = Vec::new();
    for _ in 0..rounds {
        if is_prepared {
            waiting(wardens);
        }
        let begin = Instant::now();
        let started = spawn_at(wardens, &["true"], &["/usr/bin/true", "/bin/true"], None).unwrap();
        loop {
            let ring = wardens.ring();
            let mut poll = [rustix::event::PollFd::new(
                &ring,
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut poll, None).unwrap();
            if wardens
                .next_news()
                .is_some_and(|(warden, _)| warden == started.warden)
            {
                break;
            }
        }
        ours.push(begin.elapsed().as_micros());
        await_gone(wardens, started.warden);
    }
    let mut direct = Vec::new();
    for _ in 0..rounds {
        let begin = Instant::now();
        let null = || std::process::Stdio::null();
        let mut child = std::process::Command::new("/usr/bin/true")
            .stdin(null())
            .stdout(null())
            .stderr(null())
            .spawn()
            .unwrap();
        child.wait().unwrap();
        direct.push(begin.elapsed().as_micros());
    }
    eprintln!(
        "spawn to end of `true`, p50: warden{} {} us, direct {} us",
        if is_prepared { " made ready" } else { "" },
        median(ours),
        median(direct)
    );
}
