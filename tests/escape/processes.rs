//! Other processes: the host's, the guest's own, and the wardens of jobs.

use crate::arena::Arena;
use crate::script::{perl, sh, sh_ok};
use std::process::{Command, Stdio};

const HIDDEN: [&str; 4] = ["EACCES", "EPERM", "ENOENT", "ESRCH"];

/// A host process with a telling argument; ended when dropped.
struct Marked(std::process::Child);

impl Marked {
    fn start(mark: &str) -> Self {
        let child = Command::new("sh")
            .args(["-c", "sleep 60; exit 0", mark])
            .env("GLOVEBOX_MARK", mark)
            .stdin(Stdio::null())
            .spawn()
            .expect("a host process");
        Self(child)
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// List /proc and signal a host pid -> own pids only, ESRCH. Twin: an own child is seen and signalled.
#[test]
fn probe_01_pid_isolation() {
    let mut host = Marked::start("host-process-mark-7041");
    let pid = host.0.id();
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(
            sandbox,
            &format!(
                r#"opendir(D, '/proc'); my @all = grep {{ /^\d+$/ }} readdir(D);
                found('count', scalar @all);
                my $text = '';
                for (@all) {{ $text .= (slurp("/proc/$_/cmdline") // '') . (slurp("/proc/$_/environ") // '') }}
                found('mark', index($text, 'host-process-' . 'mark-7041') >= 0 ? 'seen' : 'unseen');
                $! = 0; verdict('signal', kill(0, {pid})) unless -d "/proc/{pid}";
                found('signal', 'ESRCH') if -d "/proc/{pid}";
                my $r = sys('pidfd_open', {pid}, 0); verdict('pidfd', $r >= 0);
                my $own = fork(); if (!$own) {{ sleep 20; exit }}
                verdict('own-proc', -d "/proc/$own"); verdict('own-signal', kill(9, $own)); waitpid($own, 0);"#
            ),
        );
        let count: u32 = found.get("count").parse().expect("a number");
        assert!((1..20).contains(&count), "{shape:?}: {count} processes in /proc");
        assert_eq!(found.get("mark"), "unseen", "{shape:?}");
        found.refused("signal", &["ESRCH"]);
        found.refused("pidfd", &["ESRCH", "EINVAL"]);
        found.worked("own-proc");
        found.worked("own-signal");
    });
    assert!(
        host.0.try_wait().expect("a look at it").is_none(),
        "the host process is gone"
    );
}

/// Open what /proc/1 offers, and pid 1's neighbours -> closed. Twin: the same of oneself is open.
#[test]
fn probe_02_proc1() {
    let arena = Arena::new();
    let inside = sh_ok(&arena.sandbox(), "ls /");
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(sandbox, include_str!("probes/probe_02_proc1.pl"));
        found.all_refused("one/", &HIDDEN);
        found.all_refused("link/", &HIDDEN);
        found.all_refused("walk/", &HIDDEN);
        found.all_refused("write/", &HIDDEN);
        found.worked("self/environ");
        found.worked("self/root");
        if shape == crate::arena::Shape::Host {
            let mut names: Vec<_> = inside.split_whitespace().collect();
            names.sort_unstable();
            assert_eq!(
                found.get("above"),
                names.join(" "),
                "above the root lies the root"
            );
        }
    });
}

/// Open the programs of pid 1, the wardens and /usr for writing -> refused. Twin: an own program
/// can be replaced and run.
#[test]
fn probe_03_self_exe_overwrite() {
    let arena = Arena::new();
    let before = std::fs::read("/usr/bin/perl").expect("perl on the host");
    arena.in_every_shape(|_, sandbox| {
        let found = perl(
            sandbox,
            include_str!("probes/probe_03_self_exe_overwrite.pl"),
        );
        assert_eq!(found.get("foreign"), "none");
        found.all_refused("self/", &["EACCES", "ETXTBSY", "EROFS", "EPERM"]);
        found.refused("reopen", &["EACCES", "ETXTBSY", "EROFS", "EPERM"]);
        let twin = sh_ok(
            sandbox,
            "cp /bin/true /workspace/own && /workspace/own && cat /bin/sh > /workspace/own && /workspace/own -c 'echo replaced'",
        );
        assert_eq!(twin, "replaced\n");
    });
    assert!(
        before == std::fs::read("/usr/bin/perl").expect("perl on the host"),
        "perl was changed"
    );
}

/// Descriptors of the owner, close-on-exec or not, in many commands at once -> 0, 1, 2 only.
#[test]
fn probe_04_fd_leak() {
    use rustix::fs::{Mode, OFlags};
    // Left open across exec on purpose, as careless library users do.
    let leak =
        |path: &str| rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).expect("a file to leak");
    let leaked: Vec<_> = (0..50)
        .map(|_| leak("/etc/passwd"))
        .chain((0..5).map(|_| leak("/")))
        .collect();
    let arena = Arena::new();
    let sandbox = arena.sandbox();
    let list = r#"opendir(D, '/proc/self/fd'); my @fd;
        for (sort { $a <=> $b } grep { /^\d+$/ } readdir(D)) {
            my $to = readlink("/proc/self/fd/$_") // next;
            push @fd, $_ unless $to =~ m{^/proc/\d+/fd$}; }
        found('fds', "@fd"); found('cwd', readlink '/proc/self/cwd');
        $! = 0; verdict('escape', chdir('/proc/self/fd/7/../../..')); "#;
    let check = |sandbox: &glovebox_sandbox::Sandbox| {
        let found = perl(sandbox, list);
        assert_eq!(found.get("fds"), "0 1 2");
        assert_eq!(found.get("cwd"), "/workspace");
        found.refused("escape", &["ENOENT"]);
    };
    check(&sandbox);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..12 {
                    check(&sandbox);
                }
            });
        }
    });
    drop(leaked);
    // Twin: what the caller does give arrives.
    let output = sandbox
        .exec_with(crate::script::shell("cat"), b"given", 100)
        .expect("a command with input");
    assert_eq!(output.stdout, b"given");
}

/// Trace, read and write pid 1 and take its descriptors -> refused. Twin: a child can be waited for
/// and its own memory read.
#[test]
fn probe_24_ptrace_init() {
    let arena = Arena::new();
    arena.in_every_shape(|_, sandbox| {
        let found = perl(sandbox, include_str!("probes/probe_24_ptrace_init.pl"));
        for prefix in ["attach/", "seize/", "read/", "write/"] {
            found.all_refused(prefix, &["EPERM", "ESRCH"]);
        }
        for name in ["attach/1", "seize/1", "read/1", "write/1"] {
            found.refused(name, &["EPERM"]);
        }
        for prefix in ["kcmp/", "getfd/"] {
            found.all_refused(prefix, &["EPERM"]);
        }
        found.worked("pidfd");
        found.worked("child");
    });
}

/// Kill and stop pid 1, the wardens and everything there is, and set their limits -> the sandbox
/// serves on.
#[test]
fn attack_signals_to_guest_and_wardens() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        for attack in [
            "kill 9, 1; kill 19, 1; kill 15, 1; kill 11, 1;",
            "for (2..400) { kill 19, $_ unless $_ == $$ } ",
            "for (2..400) { kill 9, $_ unless $_ == $$ }",
            "for (2..400) { sys('pidfd_send_signal', sys('pidfd_open', $_, 0), 9, 0, 0) unless $_ == $$ }",
            "$SIG{TERM} = 'IGNORE'; kill 15, -1;",
            "kill 9, -1;",
        ] {
            // However the attacker itself ends, an answer comes. One that ends its own warden at once
            // may hear that it was never started.
            let answer = sandbox.exec(crate::script::perl_exec(attack));
            assert!(
                answer.as_ref().map_or_else(|fault| fault.code == glovebox_proto::Code::Busy, |_| true),
                "{shape:?}: no answer to `{attack}`: {answer:?}"
            );
            sandbox.ping().unwrap_or_else(|fault| panic!("{shape:?}: dead after `{attack}`: {fault}"));
            assert_eq!(sh_ok(sandbox, "echo on"), "on\n", "{shape:?}: after `{attack}`");
        }
        let found = perl(
            sandbox,
            r#"my $limit = pack('QQ', 1, 1);
               try('prlimit', 'prlimit64', 1, 7, $limit, 0);
               my $h; $! = 0; my $done = open($h, '>', '/proc/self/oom_score_adj');
               $done = $done && syswrite($h, "-1000"); verdict('oom', $done);
               try('own-limit', 'prlimit64', 0, 7, pack('QQ', 100, 100), 0);"#,
        );
        found.refused("prlimit", &["EPERM"]);
        found.refused("oom", &["EACCES", "EPERM"]);
        found.worked("own-limit");
        assert_eq!(sandbox.ping().map(|_| ()), Ok(()));
    });
}

/// Start a command in a directory behind a descriptor, behind pid 1, or above the root -> refused, or
/// inside. Twin: an ordinary directory.
#[test]
fn attack_working_directory() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        sh_ok(sandbox, "mkdir -p /workspace/sub; ln -s /proc/self/fd/3 /workspace/three; ln -s / /workspace/top");
        let at = |path: &str| {
            let mut exec = crate::script::shell("echo /*; pwd -P");
            exec.cwd = Some(serde_bytes::ByteBuf::from(path));
            sandbox.exec(exec).map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let usual = at("/workspace/sub").expect("an ordinary directory");
        assert!(usual.ends_with("/workspace/sub\n"), "{shape:?}: {usual}");
        let top = usual.lines().next();
        for fd in 3..20 {
            for path in [format!("/proc/self/fd/{fd}"), format!("/proc/self/fd/{fd}/../.."), format!("/proc/1/fd/{fd}")] {
                assert!(at(&path).is_err(), "{shape:?}: a command started in {path}");
            }
        }
        for path in ["/proc/1/cwd", "/proc/1/root", "/workspace/three", "/workspace/sub/nothing"] {
            assert!(at(path).is_err(), "{shape:?}: a command started in {path}");
        }
        for path in ["/..", "/workspace/top/..", "/proc/self/root/..", "/workspace/../../.."] {
            if let Ok(seen) = at(path) {
                assert_eq!(seen.lines().next(), top, "{shape:?}: {path} has another root");
            }
        }
    });
}

/// Real-time scheduling, raised priority, real-time I/O -> EPERM. Twin: lowering works.
#[test]
fn probe_61_priority() {
    let arena = Arena::new();
    let found = perl(
        &arena.sandbox(),
        r#"try('fifo', 'sched_setscheduler', 0, 1, pack('i', 10)); try('rr', 'sched_setscheduler', 0, 2, pack('i', 1));
           try('nice', 'setpriority', 0, 0, -20); try('ioprio', 'ioprio_set', 1, 0, 1 << 13);
           try('mlockall', 'mlockall', 3);
           try('own-nice', 'setpriority', 0, 0, 19); try('own-io', 'ioprio_set', 1, 0, 3 << 13);"#,
    );
    for name in ["fifo", "rr", "nice", "ioprio"] {
        found.refused(name, &["EPERM", "EACCES"]);
    }
    found.refused("mlockall", &["EPERM", "ENOMEM", "EAGAIN"]);
    found.worked("own-nice");
    found.worked("own-io");
}

/// A command that becomes somebody else's child or leader stays a process of the sandbox.
#[test]
fn attack_session_and_group_of_others() {
    let arena = Arena::new();
    let sandbox = arena.sandbox();
    let outcome = sh(
        &sandbox,
        "cat /proc/self/stat | cut -d' ' -f5,6; setsid sh -c 'echo own session'",
    );
    assert!(outcome.out.contains("own session"), "{outcome:?}");
}
