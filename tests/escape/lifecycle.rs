//! Ends: of commands that will not, of owners that die, and what must not be left of them.

use crate::arena::{ALONE, Arena, has_limit_by};
use crate::script::{perl_exec, sh_ok, shell};
use glovebox_proto::{Background, EnvVar, Exit};
use serde_bytes::ByteBuf;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use testkit::Home;

fn env(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: ByteBuf::from(name),
        value: ByteBuf::from(value),
    }
}

/// Pids on this machine whose arguments contain `mark`.
fn marked(mark: &str) -> Vec<u32> {
    fs::read_dir("/proc")
        .expect("processes")
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            (pid != std::process::id() && String::from_utf8_lossy(&line).contains(mark))
                .then_some(pid)
        })
        .collect()
}

fn wait_until(what: &str, patience: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + patience;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {patience:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Daemons that fork twice, leave the session, close everything and ignore signals -> dead with their
/// command, by its end or its deadline; no zombies.
#[test]
fn probe_55_zombie_daemon() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let mark = format!("daemon-{shape:?}-{}", std::process::id());
        let daemon = format!(
            r#"$0 = '{mark}'; $SIG{{$_}} = 'IGNORE' for qw(TERM HUP INT QUIT USR1 USR2 PIPE);
               for my $depth (1 .. 6) {{ my $p = fork; if (!$p) {{ syscall({setsid}); next }} exit if $depth % 2; waitpid($p, 0) if 0; }}
               close STDIN; close STDOUT; close STDERR; fork for 1 .. 3; sleep 1 while 1;"#,
            setsid = libc::SYS_setsid
        );
        // Ends by itself and leaves the daemons.
        let mut exec = shell(&format!("perl -e \"$DAEMON\" </dev/null >/dev/null 2>&1 & sleep 0.3; echo {}", "over"));
        exec.env = vec![env("DAEMON", &daemon)];
        exec.background = Background::Kill;
        let output = sandbox.exec(exec).expect("an end");
        assert_eq!(output.report.exit, Exit::Code(0), "{shape:?}");
        assert!(output.report.killed > 0, "{shape:?}: no daemon was there: {:?}", output.report);
        assert_eq!(marked(&mark), Vec::<u32>::new(), "{shape:?}: daemons outlive their command");
        // Does not end by itself.
        let mut exec = perl_exec(&daemon);
        exec.timeout_ms = Some(400);
        exec.grace_ms = 100;
        let begun = Instant::now();
        let _ = sandbox.exec(exec).expect("an end");
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(marked(&mark), Vec::<u32>::new(), "{shape:?}: daemons outlive their deadline");
        let states = sh_ok(sandbox, "cat /proc/[0-9]*/stat 2>/dev/null; true");
        assert!(!states.contains(") Z"), "{shape:?}: zombies: {states}");
    });
}

/// Daemons that no look into /proc shows: not dumpable, by prctl or because their program may not be
/// read -> dead with their command all the same.
#[test]
fn attack_daemons_that_hide() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let mark = format!("hidden-{shape:?}-{}", std::process::id());
        for (way, hide) in [
            ("prctl", format!("syscall({}, 4, 0, 0, 0, 0);", libc::SYS_prctl)),
            ("unreadable", "exec { '/workspace/sleep' } $0, 60;".to_owned()),
        ] {
            sh_ok(sandbox, "cp /bin/sleep /workspace/sleep 2>/dev/null; chmod 0111 /workspace/sleep");
            let daemon = format!(
                "$0 = '{mark}'; fork && exit; setpgrp; syscall({}); fork && exit; $SIG{{TERM}} = 'IGNORE'; {hide} sleep 60 while 1",
                libc::SYS_setsid
            );
            for background in [Background::Kill, Background::Keep] {
                let mut exec = shell("perl -e \"$DAEMON\" </dev/null >/dev/null 2>&1; sleep 0.3; echo over");
                exec.env = vec![env("DAEMON", &daemon)];
                exec.background = background;
                let output = sandbox.exec(exec).expect("an end");
                assert_eq!(output.stdout, b"over\n", "{shape:?}, {way}");
                if background == Background::Keep {
                    assert_ne!(marked(&mark), Vec::<u32>::new(), "{shape:?}, {way}: no daemon was there");
                    let job = output.report.job;
                    let killed = sandbox.call(glovebox_proto::Request::JobKill { job, grace_ms: 50 });
                    assert!(killed.is_ok(), "{shape:?}, {way}: {killed:?}");
                }
                assert_eq!(marked(&mark), Vec::<u32>::new(), "{shape:?}, {way}, {background:?}: the daemon outlives its job");
            }
        }
    });
}

/// A command that stops itself, and one that waits in vfork for ever -> the deadline holds.
#[test]
fn probe_56_sigstop_vfork() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let arena = Arena::new();
    let sandbox = arena.sandbox();
    for body in [
        "kill 19, $$; sleep 60".to_owned(),
        "for (1..5) { my $p = fork; if (!$p) { kill 19, $$; sleep 60 } } kill 19, $$; sleep 60".to_owned(),
        // The parent hangs until the child ends, and the child does not.
        format!("my $p = syscall({}, 0x4000 | 17, 0, 0, 0, 0); sleep 60", libc::SYS_clone),
        "$SIG{TERM} = 'IGNORE'; sys('openat', -100, '/workspace/fifo', 0, 0) if !try('f', 'mknodat', -100, '/workspace/fifo', 0010666, 0); sleep 60".to_owned(),
    ] {
        let mut exec = perl_exec(&body);
        exec.timeout_ms = Some(300);
        exec.grace_ms = 200;
        let begun = Instant::now();
        let output = sandbox.exec(exec).expect("an end");
        assert!(begun.elapsed() < Duration::from_secs(20), "`{body}` took {:?}", begun.elapsed());
        assert!(output.report.timed_out, "`{body}`: {:?}", output.report);
    }
    assert_eq!(sh_ok(&sandbox, "echo on"), "on\n");
}

/// The owner is killed in the middle of a command -> everything inside is gone soon, and the
/// next start sweeps what it left. For a named sandbox, the work is kept.
#[test]
fn probe_57_supervisor_death() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let home = Home::new();
    let mark = format!("orphan-{}", std::process::id());
    let sleeper = format!(
        "perl -e '$0 = \"{mark}\"; setpgrp; fork; fork; sleep 100' {mark} & perl -e 'sleep 100' {mark}"
    );
    let mut owner = home
        .line("--quiet run --no-toolchains --memory 256MiB --pids 50 -- sh -c")
        .args([sleeper.as_str()])
        .command;
    let mut owner = owner
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("an owner");
    // The owner, the shell and four processes of the shell's.
    wait_until("the command runs", Duration::from_secs(10), || {
        marked(&mark).len() >= 6
    });
    owner.kill().expect("kill the owner");
    owner.wait().expect("reap the owner");
    wait_until("everything inside is gone", Duration::from_secs(20), || {
        marked(&mark).is_empty()
    });
    let ran = home.line("--quiet run --no-toolchains -- true").run();
    let _ = ran.expect_code(0);
    assert_eq!(
        left_in(&home.state().join("sandboxes")),
        Vec::<String>::new(),
        "directories are left"
    );
    assert_eq!(left_in(&home.state().join("trash")), Vec::<String>::new());
    assert_no_mounts(&home);

    let _ = home
        .line("--quiet start --no-toolchains kept")
        .run()
        .expect_code(0);
    let _ = home
        .line("exec kept -- sh -c")
        .args(["echo work > /workspace/work"])
        .run()
        .expect_code(0);
    let listed = home.line("list --json").run().expect_code(0).out();
    let list: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let pid = find_number(&list, "pid").unwrap_or_else(|| panic!("no pid in {listed}"));
    let job = home
        .line("exec --keep-background kept -- sh -c")
        .args([format!("perl -e 'sleep 100' {mark} &")])
        .run();
    let _ = job.expect_code(0);
    wait_until("the job runs", Duration::from_secs(5), || {
        !marked(&mark).is_empty()
    });
    assert!(
        Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status()
            .is_ok_and(|status| status.success())
    );
    wait_until("everything inside is gone", Duration::from_secs(20), || {
        marked(&mark).is_empty()
    });
    // Its processes inside end before it has let go of its lock.
    wait_until("the list says it is lost", Duration::from_secs(5), || {
        home.line("list").run().out().contains("lost")
    });
    // Others come up meanwhile, and may be given ids; those of the kept files stay its own.
    let _ = home
        .line("--quiet start --no-toolchains other")
        .run()
        .expect_code(0);
    let _ = home
        .line("--quiet start --no-toolchains kept")
        .run()
        .expect_code(0);
    let more = home
        .line("exec kept -- sh -c")
        .args(["cat /workspace/work && echo more >> /workspace/work && ls -ln /workspace/work"]);
    let more = more.run().expect_code(0).out();
    assert!(
        more.starts_with("work\n") && more.contains(" 1000 1000 "),
        "{more}"
    );
    let _ = home.line("--quiet kill other").run().expect_code(0);
    let _ = home.line("--quiet kill kept").run().expect_code(0);
    assert_eq!(
        left_in(&home.state().join("sandboxes")),
        Vec::<String>::new()
    );
    assert_no_mounts(&home);
}

fn find_number(value: &serde_json::Value, name: &str) -> Option<u64> {
    match value {
        serde_json::Value::Object(map) => map
            .get(name)
            .and_then(serde_json::Value::as_u64)
            .or_else(|| map.values().find_map(|value| find_number(value, name))),
        serde_json::Value::Array(list) => list.iter().find_map(|value| find_number(value, name)),
        _ => None,
    }
}

fn left_in(dir: &Path) -> Vec<String> {
    fs::read_dir(dir)
        .map(|entries| {
            entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default()
}

fn assert_no_mounts(home: &Home) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let root = home.root().display().to_string();
    assert!(
        !mounts.contains(&root) && !mounts.contains(" - overlay glovebox "),
        "mounts are left: {mounts}"
    );
}

/// Sandboxes that end leave no process, no control group, no directory and no mount.
#[test]
fn nothing_is_left() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let arena = Arena::new();
    // Control groups are named after the sandbox's directory.
    let groups = |dir: &Path| -> String {
        let digest = blake3::hash(dir.as_os_str().as_encoded_bytes()).to_hex();
        let name = format!("sandbox-{}", &digest[..16]);
        let output = Command::new("find")
            .args(["/sys/fs/cgroup", "-type", "d", "-name", name.as_str()])
            .output();
        output.map_or_else(
            |error| error.to_string(),
            |output| String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    for round in 0..10 {
        let sandbox = arena.with(|spec| {
            spec.jail.limits.memory_bytes = Some(128 << 20);
            spec.jail.limits.pids = Some(50);
            spec.jail.limits.cpu_millis = Some(1000);
        });
        sh_ok(&sandbox, "sleep 50 & sleep 50 & echo started");
        let dir = sandbox.dir().to_owned();
        let has_group = has_limit_by(&sandbox, "cgroup");
        assert_eq!(
            !groups(&dir).is_empty(),
            has_group,
            "control groups are looked for under another name"
        );
        match round % 2 {
            0 => sandbox.destroy().expect("an end in order"),
            _ => drop(sandbox),
        }
        assert_eq!(groups(&dir), "", "control groups are left");
    }
    assert_eq!(
        left_in(&arena.home.state().join("sandboxes")),
        Vec::<String>::new()
    );
    arena.registry.settle();
    assert_eq!(
        left_in(&arena.home.state().join("trash")),
        Vec::<String>::new()
    );
    assert_eq!(arena.registry.list().expect("a list"), []);
    assert_eq!(arena.registry.orphans().expect("orphans"), []);
    assert_no_mounts(&arena.home);
}
