//! Using up what there is: processes, memory, disk, descriptors, output. The sandbox may suffer; its
//! owner must not, and nothing may stay behind.

use crate::arena::{ALONE, Arena};
use crate::script::{perl_exec, sh, sh_ok, shell};
use glovebox_proto::{Exec, Exit};
use glovebox_sandbox::Sandbox;
use glovebox_spec::{Layers, LimitKind, LimitState};
use std::fs;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// What a ping may take beside a bomb: 50 ms on an idle machine, more on a shared one.
const PATIENCE: Duration = Duration::from_secs(1);

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pings while a bomb runs: the median must be quick, and each must come.
fn pings(sandbox: &Sandbox, lasting: Duration) -> Duration {
    let end = Instant::now() + lasting;
    let mut times = Vec::new();
    while Instant::now() < end {
        times.push(sandbox.ping().expect("an answer beside the bomb"));
        std::thread::sleep(Duration::from_millis(20));
    }
    times.sort_unstable();
    assert!(
        times[times.len() / 2] < PATIENCE,
        "pings take {:?}",
        times[times.len() / 2]
    );
    times[times.len() - 1]
}

/// Processes on this machine whose /proc/PID/cgroup, environ or cmdline has `mark`.
fn processes_with(mark: &str) -> usize {
    fs::read_dir("/proc")
        .expect("processes")
        .flatten()
        .filter(|entry| {
            let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
            [read("cmdline"), read("environ")].iter().any(|text| {
                text.windows(mark.len())
                    .any(|window| window == mark.as_bytes())
            })
        })
        .filter(|entry| entry.file_name().to_string_lossy() != std::process::id().to_string())
        .count()
}

/// A fork bomb -> the limit holds, pings are answered, nothing is left. Twin: below the limit all runs.
#[test]
fn probe_51_fork_bomb() {
    let _alone = alone();
    let arena = Arena::new();
    let sandbox = arena.with(|spec| spec.jail.limits.pids = Some(64));
    let held = sandbox
        .report()
        .expect("a report")
        .limits
        .iter()
        .any(|limit| limit.kind == LimitKind::Pids && limit.state != LimitState::Absent);
    if !held {
        testkit::skip!("nothing counts processes here");
    }
    let twin = sh(
        &sandbox,
        "for i in 1 2 3 4 5 6 7 8; do sleep 0.1 & done; wait; echo all",
    );
    assert_eq!(twin.out, "all\n");
    let mark = format!("bomb-mark-{}", std::process::id());
    let mut bomb = shell("bomb() { bomb | bomb & }; bomb; sleep 60");
    bomb.env = vec![glovebox_proto::EnvVar {
        name: serde_bytes::ByteBuf::from("MARK"),
        value: serde_bytes::ByteBuf::from(mark.clone()),
    }];
    // What ends it is asked for below; this is for a test that fails before.
    bomb.timeout_ms = Some(60_000);
    let job = sandbox.start_job(bomb).expect("the bomb starts");
    std::thread::sleep(Duration::from_millis(200));
    pings(&sandbox, Duration::from_millis(1500));
    assert!(
        processes_with(&mark) <= 64 + 16,
        "{} processes",
        processes_with(&mark)
    );
    let ended = sandbox.call(glovebox_proto::Request::JobKill { job, grace_ms: 100 });
    assert!(ended.is_ok(), "the bomb cannot be ended: {ended:?}");
    assert_eq!(sh_ok(&sandbox, "echo alive"), "alive\n");
    sandbox.destroy().expect("a sandbox ends in order");
    assert_eq!(processes_with(&mark), 0);
}

/// Fill memory by allocation, tmpfs and pipes -> ends inside and is told. Twin: half of it is fine.
#[test]
fn probe_52_memory_bomb() {
    let _alone = alone();
    let arena = Arena::new();
    for (name, bomb) in [
        (
            "heap",
            "my @a; for (1..400) { push @a, 'x' x (1 << 20) } sleep 3; print 'survived'",
        ),
        (
            "shm",
            "for my $i (1..400) { open(my $h, '>', \"/dev/shm/$i\") or last; (syswrite($h, 'x' x (1 << 20)) // 0) == 1 << 20 or last } sleep 3",
        ),
        (
            "pipes",
            "my @p; for (1..2000) { pipe(my $r, my $w) or last; push @p, $r, $w; fcntl($w, 1031, 1 << 20); fcntl($w, 4, 2049); syswrite($w, 'x' x (1 << 20)) } sleep 1; print 'done'",
        ),
    ] {
        let sandbox = arena.with(|spec| spec.jail.limits.memory_bytes = Some(96 << 20));
        let state = sandbox.report().expect("a report").limits[0].state;
        if state == LimitState::Absent {
            testkit::skip!("nothing holds memory here");
        }
        let half = sandbox.exec(perl_exec("my $x = 'x' x (30 << 20); print length $x"));
        assert_eq!(half.expect("half").stdout, b"31457280", "{name}");
        let begun = Instant::now();
        let answer = sandbox.exec(perl_exec(bomb));
        assert!(
            begun.elapsed() < Duration::from_secs(25),
            "{name} took {:?}",
            begun.elapsed()
        );
        match answer {
            Ok(output) => {
                assert!(
                    !output.stdout.ends_with(b"survived"),
                    "{name}: 400 MiB fit into 96 MiB"
                );
                if output.report.exit == Exit::Signal(libc::SIGKILL) {
                    assert!(
                        output.report.oom,
                        "{name}: killed for memory and not told: {:?}",
                        output.report
                    );
                    assert!(sandbox.ping().is_ok(), "{name}: the guest went with it");
                }
            }
            // Where memory is watched, not held, the watch ends the sandbox and says so.
            Err(fault) => assert!(fault.message.contains("memory"), "{name}: {fault:?}"),
        }
        drop(sandbox);
    }
}

/// Fill the disk with bytes, entries, depth and names -> a limit or a clean failure, and all of it can
/// be removed. Twin: an ordinary tree.
#[test]
fn probe_53_disk_bomb() {
    let _alone = alone();
    let arena = Arena::new();
    // Exact in memory.
    if testkit::has_layers_in_memory() {
        let sandbox = arena.with(|spec| {
            spec.jail.layers = Layers::Memory;
            spec.jail.limits.disk_bytes = Some(8 << 20);
        });
        let full = sh(
            &sandbox,
            "dd if=/dev/zero of=/workspace/big bs=1M count=64 2>&1; stat -c %s /workspace/big; rm /workspace/big; echo again > /workspace/small && cat /workspace/small",
        );
        assert!(
            full.out.contains("No space left") && full.out.ends_with("again\n"),
            "{full:?}"
        );
        assert!(sandbox.ping().is_ok());
        sandbox.destroy().expect("a sandbox ends in order");
    }
    // Watched on disk.
    let sandbox = arena.with(|spec| spec.jail.limits.disk_bytes = Some(8 << 20));
    let answer = sandbox.exec(shell(
        "dd if=/dev/zero of=/workspace/big bs=1M count=200 2>/dev/null; sleep 20",
    ));
    match answer {
        Err(fault) => assert!(fault.message.contains("disk limit"), "{fault:?}"),
        Ok(output) => panic!(
            "200 MiB were written and nothing happened: {:?}",
            output.report
        ),
    }
    drop(sandbox);
    // Shapes of trees.
    let sandbox = arena.sandbox();
    let found = crate::script::perl(
        &sandbox,
        r#"chdir '/workspace'; my $d = 0; for (1 .. 3000) { last unless mkdir('d') && chdir('d'); $d++ } found('depth', $d);
           chdir '/workspace'; mkdir 'many'; my $n = 0; for (1 .. 5000) { open(my $h, '>', "many/$_") or last; $n++ } found('many', $n);
           my $long = 'n' x 255; verdict('long', mkdir($long)); verdict('too-long', mkdir('n' x 256));
           open(my $h, '>', "many/new\nline"); open($h, '>', "many/\xff\xfe"); open($h, '>', "many/-rf");
           mkdir 'locked'; mkdir 'locked/in'; open($h, '>', 'locked/in/file'); chmod 0, 'locked/in'; chmod 0, 'locked';"#,
    );
    assert!(
        found
            .get("depth")
            .parse::<u32>()
            .is_ok_and(|depth| depth > 1000)
    );
    assert_eq!(found.get("many"), "5000");
    found.worked("long");
    found.refused("too-long", &["ENAMETOOLONG"]);
    let dir = sandbox.dir().to_owned();
    sandbox.destroy().expect("all of it can be removed");
    assert!(!dir.exists(), "{} is left", dir.display());
    arena.registry.settle();
    assert_eq!(
        fs::read_dir(arena.home.state().join("trash")).map_or(0, Iterator::count),
        0,
        "the trash is not empty"
    );
}

/// Endless output without a line break, invalid text and control sequences -> bounded, told, and
/// harmless to the owner. Twin: short output is exact.
#[test]
fn probe_54_output_bomb() {
    let _alone = alone();
    let arena = Arena::new();
    let sandbox = arena.sandbox();
    let resident = || -> u64 {
        let statm = fs::read_to_string("/proc/self/statm").expect("own memory");
        statm
            .split(' ')
            .nth(1)
            .and_then(|pages| pages.parse().ok())
            .unwrap_or(0)
            * 4096
    };
    let before = resident();
    let mut bomb = Exec::new([
        "perl",
        "-e",
        "my $x = \"\\xff\\x1b]0;owned\\x07\" x 20000; while (1) { syswrite(STDOUT, $x); syswrite(STDERR, $x) }",
    ]);
    bomb.timeout_ms = Some(1500);
    bomb.grace_ms = 100;
    let output = sandbox.exec_with(bomb, &[], 1 << 20).expect("an end");
    assert!(
        output.report.timed_out && output.truncated,
        "{:?}",
        output.report
    );
    assert_eq!(
        (output.stdout.len(), output.stderr.len()),
        (1 << 20, 1 << 20)
    );
    assert!(output.report.stdout_bytes > 4 << 20, "{:?}", output.report);
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "the owner grew by {grown} bytes");
    let exact = sandbox
        .exec(Exec::new(["printf", "\\377\\033[31mx"]))
        .expect("a command");
    assert_eq!(exact.stdout, b"\xff\x1b[31mx");
}

/// All descriptors, terminals and sockets -> the limit is the command's own. Twin: the next command.
#[test]
fn attack_descriptors_and_terminals() {
    let _alone = alone();
    let arena = Arena::new();
    let sandbox = arena.sandbox();
    for hoard in [
        "my @h; while (open(my $h, '<', '/dev/null')) { push @h, $h } print scalar(@h); sleep 1",
        "my @h; while (open(my $h, '+<', '/dev/ptmx')) { push @h, $h } print scalar(@h); sleep 1",
        "my @h; while (socketpair(my $a, my $b, 1, 1, 0)) { push @h, $a, $b } print scalar(@h); sleep 1",
        "my @h; for (1..5000) { my $p = fork // last; if (!$p) { sleep 3; exit } push @h, $p; last if @h > 300 } print scalar(@h); sleep 1",
    ] {
        let job = sandbox
            .start_job(Exec::new(["perl", "-e", hoard]))
            .expect("it starts");
        pings(&sandbox, Duration::from_millis(400));
        assert_eq!(sh_ok(&sandbox, "echo next < /dev/null"), "next\n");
        let ended = sandbox.call(glovebox_proto::Request::JobKill { job, grace_ms: 50 });
        assert!(ended.is_ok(), "{ended:?}");
    }
}
