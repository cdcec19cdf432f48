//! Data that is in no listed file and in no process's pages: it counts against the limits all the same.

use crate::arena::{ALONE, Arena, has_limit_by};
use crate::script::{perl_exec, sh, shell};
use glovebox_proto::{Code, Exit};
use glovebox_sandbox::Sandbox;
use glovebox_spec::{Layers, LimitKind, LimitState};
use rustix::fs::inotify;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

const DISK_BYTES: u64 = 24 << 20;
const MEMORY_BYTES: u64 = 128 << 20;

/// A command that hoards must be ended for `limit`, not by its own deadline.
fn ends_for(sandbox: &Sandbox, name: &str, limit: &str, script: &str) {
    let begun = Instant::now();
    match sandbox.exec(perl_exec(&format!("{script}; sleep 25"))) {
        Err(fault) => assert!(
            fault.message.contains(&format!("{limit} limit")),
            "{name}: {fault:?}"
        ),
        // Where the kernel holds memory it ends the command.
        Ok(output) => assert!(
            output.report.oom && output.report.exit == Exit::Signal(libc::SIGKILL),
            "{name}: nothing happened in {:?}: {:?} {}",
            begun.elapsed(),
            output.report,
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

/// The twin: a command that hoards less than the limit lives to say so.
fn holds(sandbox: &Sandbox, name: &str, script: &str) {
    let output = sandbox
        .exec(perl_exec(&format!("{script}; print 'held'")))
        .expect("it is below the limit");
    assert_eq!(
        output.stdout,
        b"held",
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

const HOARD: &str = r#"sub fill { my ($h, $mib) = @_; for (1 .. $mib) { (syswrite($h, 'x' x (1 << 20)) // 0) == 1 << 20 or return } }
    chdir '/workspace';"#;

/// Files that are unlinked, never linked, mapped only, or below a directory nobody can list -> they count as
/// written. Twin: below the limit all of these work and go on working.
#[test]
fn attack_disk_out_of_sight() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let arena = Arena::new();
    let forms = [
        (
            "unlinked",
            "for my $i (1 .. COUNT) { open(my $h, '+>', \"f$i\") or die; unlink \"f$i\"; fill($h, 4); push @keep, $h }",
        ),
        (
            "unlinked-in-root",
            "for my $i (1 .. COUNT) { open(my $h, '+>', \"/var/tmp/f$i\") or die; unlink \"/var/tmp/f$i\"; fill($h, 4); push @keep, $h }",
        ),
        // A process that cannot be traced, as commands can make themselves.
        (
            "untraceable",
            "sys('prctl', 4, 0, 0, 0, 0); for my $i (1 .. COUNT) { open(my $h, '+>', \"f$i\") or die; unlink \"f$i\"; fill($h, 4); push @keep, $h }",
        ),
        // Such a process whose parents have ended.
        (
            "orphaned",
            "if (!fork) { sys('prctl', 4, 0, 0, 0, 0); if (!fork) { for my $i (1 .. COUNT) { open(my $h, '+>', \"f$i\") or die; unlink \"f$i\"; fill($h, 4); push @keep, $h } sleep 40; exit } exit } wait",
        ),
        (
            "never-linked",
            "for my $i (1 .. COUNT) { sysopen(my $h, '/workspace', 020200002) or die; fill($h, 4); push @keep, $h }",
        ),
        (
            "mapped",
            "for my $i (1 .. COUNT) { open(my $h, '+>', \"f$i\") or die; unlink \"f$i\"; fill($h, 4); sys('mmap', 0, 4 << 20, 1, 1, fileno($h), 0) != -1 or die }",
        ),
        (
            "unlisted",
            "mkdir 'd'; for my $i (1 .. COUNT) { open(my $h, '>', \"d/f$i\") or die; fill($h, 4) } chmod 0, 'd'",
        ),
    ];
    for (name, form) in forms {
        let sandbox = arena.with(|spec| spec.jail.limits.disk_bytes = Some(DISK_BYTES));
        if name == "never-linked" && !makes_unnamed_files(&sandbox) {
            testkit::skip_loudly(
                module_path!(),
                "overlays of this kernel make no files without a name",
            );
            continue;
        }
        let few = format!("{HOARD} {}", form.replace("COUNT", "2"));
        holds(&sandbox, name, &format!("{few}; sleep 2"));
        let many = format!(
            "{HOARD} rmdir 'd'; chdir '/var/tmp' if -e 'd'; {}",
            form.replace("COUNT", "12")
        );
        ends_for(&sandbox, name, "disk", &many);
    }
}

/// Whether files that never had a name can be made in an overlay: older kernels answer EOPNOTSUPP.
fn makes_unnamed_files(sandbox: &Sandbox) -> bool {
    let script = "print sysopen(my $h, '/workspace', 020200002) ? 0 : $! + 0";
    let output = sandbox.exec(perl_exec(script)).expect("an answer");
    output.stdout != libc::EOPNOTSUPP.to_string().as_bytes()
}

/// One file larger than the disk limit -> ends at the limit at once, whatever the watch sees. Twin: one
/// that fits.
#[test]
fn attack_one_large_file() {
    let arena = Arena::new();
    let sandbox = arena.with(|spec| spec.jail.limits.disk_bytes = Some(DISK_BYTES));
    let fits = sh(&sandbox, "dd if=/dev/zero of=/tmp/fits bs=1M count=8 2>&1");
    assert_eq!(fits.exit, Exit::Code(0), "{fits:?}");
    let begun = Instant::now();
    let answer = sandbox.exec(shell(
        "dd if=/dev/zero of=/workspace/big bs=1M count=2000 2>/dev/null; stat -c %s /workspace/big",
    ));
    match answer {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let size: u64 = text.trim().parse().expect("a size");
            assert!(size <= DISK_BYTES, "{size} bytes in one file");
        }
        Err(fault) => assert!(fault.message.contains("disk limit"), "{fault:?}"),
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    let layer = sandbox.dir().join("layers/workspace-upper/big");
    let size = std::fs::symlink_metadata(layer).map_or(0, |meta| meta.len());
    assert!(size <= DISK_BYTES, "{size} bytes in one file of the layer");
}

/// Writes after a time in which nothing ran -> they count at once. Twin: where the kernel counts processor time, a
/// sandbox in which nothing runs is hardly looked at; one in which something does is.
#[test]
fn attack_disk_after_a_rest() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let arena = Arena::new();
    let sandbox = arena.with(|spec| {
        spec.jail.limits.disk_bytes = Some(DISK_BYTES);
        spec.jail.limits.pids = Some(50);
    });
    holds(&sandbox, "before", HOARD);
    let layer = sandbox.dir().join("layers/workspace-upper");
    let opens = || {
        std::thread::sleep(Duration::from_millis(500));
        let inotify = inotify::init(inotify::CreateFlags::NONBLOCK).expect("inotify");
        inotify::add_watch(&inotify, &layer, inotify::WatchFlags::OPEN).expect("a watch");
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        // Of equal events that nobody has read yet there is one (inotify(7)).
        let mut seen = 0;
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(50));
            seen += usize::from(events.next().is_ok());
        }
        seen
    };
    let counts_time = has_limit_by(&sandbox, "cgroup v2");
    let at_rest = opens();
    sandbox
        .start_job(shell("for i in $(seq 400); do sleep 0.05; done"))
        .expect("a job");
    // A machine without time for it looks late.
    let at_work = (0..5)
        .map(|_| opens())
        .find(|seen| *seen > 0)
        .unwrap_or_default();
    assert!(at_work > 0, "nobody looks");
    assert!(
        !counts_time || at_rest < at_work,
        "{at_rest} looks in 2 s at rest, {at_work} at work"
    );
    ends_for(
        &sandbox,
        "after",
        "disk",
        &format!("{HOARD} for (1 .. 10) {{ open(my $h, '>', \"f$_\") or die; fill($h, 4) }}"),
    );
}

/// Processor time of one process, of many short ones, and of children that nobody waits for -> it counts, the last where
/// the kernel counts it. Twin: one that only waits lives on.
#[test]
fn attack_cpu_time_among_many() {
    const MS: u64 = 1000;
    const UNWAITED: &str = "$SIG{CHLD} = 'IGNORE'; while (1) { for (1 .. 2) { fork or do { my $e = times + 0.05; 1 while times < $e; exit } } \
         select undef, undef, undef, 0.1 }";
    let arena = Arena::new();
    let start = || {
        arena.with(|spec| {
            spec.jail.limits.cpu_time_ms = Some(MS);
            spec.jail.limits.pids = Some(50);
        })
    };
    let waits = start();
    holds(&waits, "waits", "sleep 2;");
    let counts_time = has_limit_by(&waits, "cgroup v2");
    for (name, script, is_for_all) in [
        ("one", "1 while 1", true),
        (
            "many",
            "while (1) { fork or do { 1 for 1 .. 100_000; exit }; wait }",
            true,
        ),
        ("unwaited", UNWAITED, false),
    ] {
        if is_for_all || counts_time {
            ends_for(&start(), name, "CPU time", script);
        }
    }
}

/// Memory in no page table: descriptors of memory files, System V segments, pipes, sockets, /dev/shm ->
/// ends for the memory limit. Twin: a quarter of it is fine.
#[test]
fn attack_memory_out_of_sight() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let arena = Arena::new();
    for (name, form) in [
        (
            "memory-files",
            "for (1 .. COUNT) { my $n = \"m\\0\"; my $fd = sys('memfd_create', $n, 0); open(my $h, '>&=', $fd) or die; fill($h, 8); push @keep, $h }",
        ),
        (
            "mapped-memory-files",
            "for (1 .. COUNT) { my $n = \"m\\0\"; my $fd = sys('memfd_create', $n, 0); open(my $h, '+>&=', $fd) or die; fill($h, 8); sys('mmap', 0, 8 << 20, 1, 1, $fd, 0) != -1 or die }",
        ),
        (
            "segments",
            "for (1 .. COUNT) { my $id = shmget(0, 8 << 20, 0600); defined $id or die; shmwrite($id, 'x' x (8 << 20), 0, 8 << 20) or die }",
        ),
        (
            "sockets",
            "for (1 .. 40 * COUNT) { socketpair(my $a, my $b, 1, 1, 0) or last; fcntl($a, 4, 2050); 1 while syswrite($a, 'x' x 65536); push @keep, $a, $b }",
        ),
        (
            "shared-and-heap",
            "open(my $h, '>', '/dev/shm/f') or die; fill($h, 3 * COUNT / 2); my $x = 'x' x (5 * COUNT << 19)",
        ),
    ] {
        let sandbox = arena.with(|spec| spec.jail.limits.memory_bytes = Some(MEMORY_BYTES));
        let state = sandbox.report().expect("a report").limits[0].state;
        assert_ne!(state, LimitState::Absent);
        let few = format!("{HOARD} {}; sleep 1", form.replace("COUNT", "2"));
        holds(&sandbox, name, &format!("{few}; unlink '/dev/shm/f'"));
        let many = format!("{HOARD} {}", form.replace("COUNT", "40"));
        ends_for(&sandbox, name, "memory", &many);
    }
}

/// Twin: memory that processes share is counted once, not once for each of them.
#[test]
fn shared_memory_counts_once() {
    let arena = Arena::new();
    let sandbox = arena.with(|spec| spec.jail.limits.memory_bytes = Some(MEMORY_BYTES));
    let script = r#"my $at = sys('mmap', 0, 40 << 20, 3, 0x21, -1, 0); my $zeros = "/dev/zero"; open(my $z, '<', $zeros);
        sys('read', fileno($z), $at, 40 << 20); my @p;
        for (1 .. 8) { my $p = fork; if (!$p) { my ($null, $n); open($null, '>', '/tmp/out' . $$); $n = sys('write', fileno($null), $at, 1 << 20);
          for my $i (0 .. 39) { seek($null, 0, 0); sys('pwrite64', fileno($null), $at + ($i << 20), 1 << 20, 0) } sleep 3; exit } push @p, $p }
        waitpid($_, 0) for @p; print 'shared'"#;
    let output = sandbox
        .exec(perl_exec(script))
        .expect("it is below the limit");
    assert_eq!(
        output.stdout,
        b"shared",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A limit that is only approximate is not good enough where it is required. Twin: one the kernel holds.
#[test]
fn approximate_is_not_enough_when_required() {
    let arena = Arena::new();
    let mut spec = arena.spec();
    spec.jail.limits.disk_bytes = Some(64 << 20);
    let sandbox = arena.create(&spec);
    let report = sandbox.report().expect("a report");
    let disk = &report.limits[0];
    assert_eq!(
        (disk.kind, disk.state),
        (LimitKind::Disk, LimitState::Approximate)
    );
    drop(sandbox);
    spec.jail.require = vec![LimitKind::Disk];
    let fault = arena
        .registry
        .create(&spec, None)
        .expect_err("the disk limit is only watched");
    assert_eq!(fault.code, Code::LimitUnavailable, "{fault:?}");
    assert!(
        fault.message.contains("disk") && fault.message.contains("approximate"),
        "{fault:?}"
    );
    spec.jail.limits.file_bytes = Some(1 << 20);
    spec.jail.require = vec![LimitKind::FileSize];
    drop(arena.create(&spec));
    if testkit::has_layers_in_memory() {
        spec.jail.layers = Layers::Memory;
        spec.jail.require = vec![LimitKind::Disk];
        drop(arena.create(&spec));
    }
}
