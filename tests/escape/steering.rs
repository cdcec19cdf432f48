//! Scheduling, affinity, priority and signals as a way to the guest and its wardens, and the ends that
//! must not depend on either.

use crate::arena::{ALONE, Arena};
use crate::script::{Findings, perl, perl_exec, sh_ok};
use glovebox_proto::Code;
use glovebox_sandbox::Sandbox;
use glovebox_spec::Ids;
use rustix::process::Pid;
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use testkit::{Process, wait_until};

/// `steer(NAME, PID)` tries everything that changes when and where a process runs; `others()` are the
/// processes that this one has not started.
const STEER: &str = include_str!("probes/steer.pl");

/// The kinds of user ids this machine can give a sandbox.
fn kinds_of_ids() -> Vec<Ids> {
    let mut kinds = vec![Ids::Auto];
    if !testkit::is_root()
        && std::fs::read_to_string("/etc/subuid").is_ok_and(|text| has_own_line(&text))
    {
        kinds.push(Ids::Range);
    }
    kinds
}

fn has_own_line(text: &str) -> bool {
    let uid = rustix::process::getuid().as_raw().to_string();
    let name = Command::new("id").arg("-un").output();
    let name = name.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.lines()
        .filter_map(|line| line.split(':').next())
        .any(|owner| owner == uid || name.as_ref().is_ok_and(|name| owner == name))
}

fn has_one_id(sandbox: &Sandbox) -> bool {
    sandbox.report().expect("a report").identity.mode == "one id"
}

/// How pid 1 is scheduled: policy, nice value, I/O priority.
fn guest_state(sandbox: &Sandbox) -> Findings {
    perl(
        sandbox,
        r#"found('policy', sys('sched_getscheduler', 1)); found('nice', 20 - sys('getpriority', 0, 1));
           my $io = sys('ioprio_get', 1, 1); found('io', $io >> 13);"#,
    )
}

/// Change scheduler, affinity, nice and I/O priority of the guest, of wardens and of what waits under
/// them -> refused. Twin: the same of oneself, and of an own child where commands have a user id of their own.
#[test]
fn attack_steering_of_guest_and_wardens() {
    let arena = Arena::new();
    for ids in kinds_of_ids() {
        let sandbox = arena.with(|spec| spec.jail.ids = ids);
        // From the second command on, a warden and its child wait for the next one.
        sh_ok(&sandbox, "true");
        sh_ok(&sandbox, "true");
        let found = perl(
            &sandbox,
            &format!(
                r#"{STEER}
                my @others = others(); found('others', scalar @others);
                steer("other/$_", $_) for @others;
                my $ppid = getppid(); found('warden', $ppid > 1 && grep($_ == $ppid, @others) ? 'seen' : 'unseen');
                try('group', 'setpriority', 1, getpgrp(1), 5) if getpgrp(1) > 0;
                sys('setpriority', 2, 0, 5); sys('setpriority', 2, 1000, 5); sys('ioprio_set', 3, 1000, (3 << 13) | 7);
                my $child = fork(); if (!$child) {{ sleep 30; exit }}
                steer('child', $child); kill(9, $child); waitpid($child, 0);
                steer('own', 0);"#
            ),
        );
        found.all_refused("other/", &["EPERM", "ESRCH"]);
        assert_eq!(found.get("warden"), "seen");
        for name in [
            "affinity", "param", "nice", "ioprio", "batch", "attr", "idle",
        ] {
            found.worked(&format!("own/{name}"));
            found.refused(&format!("other/1/{name}"), &["EPERM"]);
            let child = format!("child/{name}");
            if has_one_id(&sandbox) {
                found.refused(&child, &["EPERM"]);
            } else {
                found.worked(&child);
            }
        }
        let state = guest_state(&sandbox);
        assert_eq!(
            (state.get("policy"), state.get("nice")),
            ("0", "0"),
            "{ids:?}"
        );
        assert_ne!(
            state.get("io"),
            "3",
            "{ids:?}: its I/O priority was changed"
        );
        assert_eq!(sh_ok(&sandbox, "echo on"), "on\n");
    }
}

/// Stop and kill wardens where commands have a user id of their own -> refused. Twin: an own child.
#[test]
fn attack_signals_to_wardens_of_another_id() {
    let arena = Arena::new();
    for ids in kinds_of_ids() {
        let sandbox = arena.with(|spec| spec.jail.ids = ids);
        if has_one_id(&sandbox) {
            continue;
        }
        sh_ok(&sandbox, "true");
        sh_ok(&sandbox, "true");
        let found = perl(
            &sandbox,
            r#"my $warden = getppid();
               for (19, 9, 15, 64) { $! = 0; verdict("warden/$_", kill($_, $warden)); }
               # Within a session the kernel lets everybody continue everybody (kill(2)); nothing had stopped it.
               kill(18, $warden);
               try('pidfd', 'pidfd_send_signal', sys('pidfd_open', $warden, 0), 9, 0, 0);
               my $own = fork(); if (!$own) { sleep 20; exit } verdict('own', kill(9, $own)); waitpid($own, 0);"#,
        );
        found.all_refused("warden/", &["EPERM"]);
        found.refused("pidfd", &["EPERM"]);
        found.worked("own");
    }
}

/// The guest of a sandbox of this process, by something it started whose arguments hold `mark`.
fn guest_of(mark: &str) -> i32 {
    let own = std::process::id();
    let mut seen = None;
    assert!(
        wait_until(Duration::from_secs(30), || {
            seen = Process::mentioning(mark)
                .into_iter()
                .find(|process| process.id != own);
            seen.is_some()
        }),
        "nothing mentions {mark}"
    );
    let mut process = seen.expect("a process");
    while process.parent != own {
        process = Process::find(process.parent).expect("its parent");
    }
    i32::try_from(process.id).expect("a pid")
}

/// Lowers the scheduling of a process as far as anybody may, and binds it to one processor.
fn lower(pid: i32) {
    let run = |program: &str, args: &[&str]| {
        let status = Command::new(program)
            .args(args)
            .stdout(Stdio::null())
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "{program} {args:?}"
        );
    };
    let pid = pid.to_string();
    run("taskset", &["-p", "1", &pid]);
    run("renice", &["-n", "19", "-p", &pid]);
    run("chrt", &["-i", "-p", "0", &pid]);
}

const CROWD: u32 = 600;

/// A crowd of processes whose arguments hold `mark`. All of them become busy at once, after `before`. Each is a
/// session of its own: the kernel gives each session the same share of processor time (sched(7), autogroups).
fn crowd(mark: &str, before: &str) -> String {
    format!(
        r#"{STEER} $0 = "{mark}"; pipe(R, W); my $byte;
           for (2..{CROWD}) {{ die "fork: $!" unless defined(my $p = fork());
             if (!$p) {{ close(W); syscall({setsid}); sysread(R, $byte, 1); 1 while 1; }} }}
           {before}; close(W); 1 while 1;"#,
        setsid = libc::SYS_setsid,
    )
}

/// Binds a process and what it starts to the first processor.
const ON_ONE: &str = "my $first = pack('Q', 1); sys('sched_setaffinity', 0, 8, $first)";

/// A sandbox with room for a crowd, in a control group where there may be one.
fn for_a_crowd(arena: &Arena, has_group: bool) -> Sandbox {
    arena.with(|spec| {
        if has_group {
            spec.jail.limits.memory_bytes = Some(4 << 30);
            spec.jail.limits.pids = Some(2000);
            spec.jail.limits.cpu_millis = Some(2000);
        }
    })
}

fn alive(mark: &str) -> usize {
    let own = std::process::id();
    Process::mentioning(mark)
        .iter()
        .filter(|process| process.id != own)
        .count()
}

/// Lower pid 1 and keep every processor busy with 600 processes -> the deadline holds, and destroying the
/// sandbox takes seconds.
#[test]
fn attack_lowered_guest_and_a_busy_crowd() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let arena = Arena::new();
    for has_group in [false, true] {
        let sandbox = for_a_crowd(&arena, has_group);
        let mark = format!("busy-crowd-{}-{has_group}", std::process::id());
        let mut exec = perl_exec(&crowd(&mark, "steer('one', 1)"));
        exec.timeout_ms = Some(3000);
        exec.grace_ms = 200;
        let begun = Instant::now();
        let output = sandbox.exec(exec);
        let took = begun.elapsed();
        assert!(
            took < Duration::from_secs(45),
            "{has_group}: the deadline of 3 s took {took:?}"
        );
        // On a machine that is as busy as this, the guest may take longer than the host waits for it.
        match output {
            Ok(output) => assert!(output.report.timed_out, "{has_group}: {:?}", output.report),
            Err(fault) => assert_eq!(fault.code, Code::TimedOut, "{has_group}: {fault:?}"),
        }
        let begun = Instant::now();
        sandbox.destroy().expect("an end in order");
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{has_group}: {:?}",
            begun.elapsed()
        );
        assert_eq!(alive(&mark), 0, "{has_group}");
    }
}

/// A guest that gets no processor time (lowered by somebody on the host) among a busy crowd -> the sandbox
/// is ended from outside, in seconds, with all of it.
#[test]
fn a_starved_guest_is_ended_from_outside() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for tool in ["taskset", "renice", "chrt"] {
        if !testkit::has_program(tool) {
            testkit::skip!("lowering a process needs taskset, renice and chrt of util-linux");
        }
    }
    let arena = Arena::new();
    for has_group in [false, true] {
        let sandbox = for_a_crowd(&arena, has_group);
        let mark = format!("starved-crowd-{}-{has_group}", std::process::id());
        let mut exec = perl_exec(&format!("{ON_ONE}; {}", crowd(&mark, "1")));
        exec.timeout_ms = None;
        sandbox.start_job(exec).expect("a job");
        assert!(
            wait_until(Duration::from_mins(1), || alive(&mark) >= CROWD as usize),
            "only {} of the crowd came up",
            alive(&mark)
        );
        let guest = guest_of(&mark);
        lower(guest);
        let begun = Instant::now();
        sandbox.destroy().expect("an end in order");
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(20), "{has_group}: {took:?}");
        assert_eq!(
            alive(&mark),
            0,
            "{has_group}: something outlives the sandbox"
        );
        let pid = Pid::from_raw(guest).expect("a pid");
        assert!(
            rustix::process::test_kill_process(pid).is_err(),
            "{has_group}: the guest lives"
        );
    }
}
