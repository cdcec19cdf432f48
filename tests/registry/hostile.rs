//! Commands that will not stand still, or pass for what is ours, while somebody looks at their files.

use crate::checkpoints::Ground;
use crate::name;
use glovebox_proto::{Code, EnvVar, Exec, JobId};
use glovebox_sandbox::Sandbox;
use rustix::process::{Pid, Signal, kill_process};
use serde_bytes::ByteBuf;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Starts a Perl program whose processes carry `mark` in their environment.
fn perl_job(sandbox: &Sandbox, mark: &str, body: &str) -> JobId {
    let mut exec = Exec::new(["perl", "-e", body]);
    exec.env = vec![EnvVar {
        name: ByteBuf::from("GLOVEBOX_TEST_MARK"),
        value: ByteBuf::from(mark),
    }];
    sandbox.start_job(exec).unwrap()
}

/// Pids of this machine with that mark, which are not dead.
fn marked(mark: &str) -> Vec<String> {
    let line = format!("GLOVEBOX_TEST_MARK={mark}");
    let has_mark = |pid: &String| {
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
            environ
                .split(|byte| *byte == 0)
                .any(|entry| entry == line.as_bytes())
        })
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && has_mark(name))
        .collect()
}

fn await_file(ground: &Ground, file: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    while ground.sh("a", "ls").lines().all(|name| name != file) {
        assert!(Instant::now() < until, "the job has not begun");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that calls itself a warden -> is a process like any other: no checkpoint is made under it, and
/// it does not survive a restore. Twin: without it, both are made while the sandbox lives on.
#[test]
fn a_process_named_as_a_warden_is_none() {
    let ground = Ground::new();
    ground.start("a");
    ground.sh("a", "echo 1 > one");
    assert_eq!(ground.checkpoint("a"), "v1");
    let mark = format!("warden-{}", std::process::id());
    let sandbox = ground.place.registry.connect(&name("a")).unwrap();
    let body = format!(
        r#"my $name = "glovebox-warden"; syscall({}, 15, $name) == 0 or die "name: $!"; open(F, '>', '/workspace/up'); close(F);
           while (1) {{ select(undef, undef, undef, 0.05); }}"#,
        libc::SYS_prctl
    );
    perl_job(&sandbox, &mark, &body);
    await_file(&ground, "up");
    assert_eq!(marked(&mark).len(), 1);
    let registry = &ground.place.registry;
    let refused = registry.checkpoint(&name("a"), None, false).unwrap_err();
    assert_eq!(refused.code, Code::Busy);
    ground.restore("a", "v1");
    assert_eq!(
        marked(&mark),
        Vec::<String>::new(),
        "it survived the restore"
    );
    assert_eq!(ground.sh("a", "cat one; ls"), "1\nbase\none\n");
    // With nothing but wardens the guest lives on.
    let boot = "cut -d' ' -f22 /proc/1/stat";
    let before = ground.sh("a", boot);
    ground.sh("a", "echo 2 > two");
    assert_eq!(ground.checkpoint("a"), "v2");
    ground.restore("a", "v1");
    assert_eq!(ground.sh("a", boot), before, "the guest was started anew");
}

/// A program that writes all the time, and timers that have it continued every few milliseconds.
fn restless() -> String {
    format!(
        r#"$SIG{{CONT}} = sub {{}}; # One that is ignored does not wind the timer up again.
           # Several, for stopping a process throws away a SIGCONT that is on its way, and its timer stays unwound.
           for my $ms (3, 5, 7, 11, 13, 17) {{
             my ($id, $event) = ("\0" x 8, pack('Qiix48', 0, 18, 0));
             syscall({create}, 1, $event, $id) == 0 or die "timer: $!";
             my $every = pack('qqqq', 0, $ms * 1_000_000, 0, $ms * 1_000_000);
             syscall({set}, unpack('i', $id), 0, $every, 0) == 0 or die "timer: $!"; }}
           my $n = 0;
           while (1) {{ $n++; for my $name ('up', 'twin') {{ open(F, '>', "/workspace/$name"); print F $n; close(F); }} }}"#,
        create = libc::SYS_timer_create,
        set = libc::SYS_timer_settime,
    )
}

/// A process that a timer continues whenever it is stopped -> no copy is made of files that move. Twin: one that
/// writes as much and stays stopped is copied.
#[test]
fn what_cannot_be_held_is_not_copied() {
    let ground = Ground::new();
    // Copying takes a while.
    for index in 0..1500 {
        fs::write(
            ground.project().join(format!("f{index}")),
            vec![7_u8; 20_000],
        )
        .unwrap();
    }
    ground.start("a");
    ground.sh("a", "for f in f*; do echo x >> $f; done");
    let sandbox = ground.place.registry.connect(&name("a")).unwrap();
    let mark = format!("restless-{}", std::process::id());
    let job = perl_job(&sandbox, &mark, &restless());
    await_file(&ground, "twin");
    let registry = &ground.place.registry;
    let restless = marked(&mark);
    assert_eq!(restless.len(), 1);
    let pid = Pid::from_raw(restless[0].parse().unwrap()).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // On a busy machine all its timers may be caught unwound. Then it stands still, and copies
        // of its files are sound.
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let _ = kill_process(pid, Signal::CONT);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let taken: Vec<_> = (0..3)
            .map(|_| registry.checkpoint(&name("a"), None, true))
            .collect();
        is_done.store(true, Ordering::Relaxed);
        for taken in taken {
            match taken {
                Err(fault) => assert_eq!(fault.code, Code::Busy, "{fault:?}"),
                Ok(taken) => panic!("a copy was made of files that move: {taken:?}"),
            }
        }
    });
    assert_eq!(marked(&mark).len(), 1, "it goes on");
    let kill = glovebox_proto::Request::JobKill { job, grace_ms: 0 };
    sandbox.call(kill).unwrap();
    let calm = "my $n = 0; while (1) { $n++; for my $name ('up', 'twin') \
                { open(F, '>', \"/workspace/$name\"); print F $n; close(F); } }";
    perl_job(&sandbox, &mark, calm);
    registry.checkpoint(&name("a"), None, true).unwrap();
}
