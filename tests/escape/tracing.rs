//! Tracing (ptrace(2)) and the memory of other processes: open within what one command started, closed to everything else.

use crate::arena::Arena;
use crate::script::{perl, perl_exec, sh_ok};
use glovebox_sandbox::Sandbox;

/// `trace(NAME, PID)` and `own_child()`.
const TRACING: &str = include_str!("probes/tracing.pl");
/// Every way in that `trace` tries.
const WAYS: [&str; 5] = ["readv", "writev", "mem", "seize", "attach"];

/// Runs `work` beside another job of the sandbox that has written its id into `/workspace/other`.
fn beside_a_job(sandbox: &Sandbox, work: impl FnOnce()) {
    let job = "open(my $file, '>', 'new'); print $file $$; close $file; rename('new', 'other'); \
               select(undef, undef, undef, 0.05) until -e 'end';";
    std::thread::scope(|scope| {
        let _ = scope.spawn(|| perl(sandbox, job));
        let _ = perl(
            sandbox,
            "select(undef, undef, undef, 0.05) until -e 'other';",
        );
        work();
        sh_ok(sandbox, ": > end");
    });
}

/// Trace, read and write another job, the guest, wardens and what waits under them to become a command -> refused.
/// Twin: the same of an own child.
#[test]
fn attack_tracing_of_others() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        // From the second command on, a warden and its child wait for the next one.
        sh_ok(sandbox, "true");
        beside_a_job(sandbox, || {
            let found = perl(
                sandbox,
                &format!(
                    r#"{TRACING}
                    my $job = slurp('/workspace/other') + 0; my $warden = getppid();
                    # One warden waits with its child for the next command, a moment after the last one began.
                    my @others; my $waiting = 0;
                    for (1 .. 100) {{ @others = others();
                      $waiting = grep {{ (slurp("/proc/$_/comm") // '') =~ /^glovebox-warden/ }} @others;
                      last if $waiting >= 4; select(undef, undef, undef, 0.05); }}
                    found('waiting', $waiting);
                    found('job', grep($_ == $job, @others) ? 'seen' : 'unseen');
                    trace("other/$_", $_) for @others;
                    trace('job', $job); trace('warden', $warden);
                    my $child = own_child(); trace('own', $child); kill(9, $child); waitpid($child, 0);"#
                ),
            );
            assert_eq!(found.get("job"), "seen", "{shape:?}");
            // Those of this command and of the job, and one that waits with its child.
            let waiting: u32 = found.get("waiting").parse().expect("a number");
            assert!(waiting >= 4, "{shape:?}: {found:#?}");
            found.all_refused("other/", &["EPERM", "EACCES", "ESRCH", "ENOENT"]);
            for way in WAYS {
                for name in ["job", "warden", "other/1"] {
                    found.refused(&format!("{name}/{way}"), &["EPERM", "EACCES"]);
                }
                found.worked(&format!("own/{way}"));
            }
            found.worked("own/interrupt");
        });
    });
}

/// Lift the filter of an own child, or have it make a call that the filter refuses -> refused. Twin: a tracer changes
/// which of two ordinary calls its child makes.
#[test]
fn attack_filter_by_tracing() {
    let arena = Arena::new();
    let found = perl(
        &arena.sandbox(),
        &format!(
            r#"{TRACING}
            my $child = own_child();
            try('seize-suspended', 'ptrace', 0x4206, $child, 0, 1 << 21);
            try('seize', 'ptrace', 0x4206, $child, 0, 0);
            sys('ptrace', 0x4207, $child, 0, 0); waitpid($child, 0);
            try('suspend', 'ptrace', 0x4200, $child, 0, 1 << 21); try('options', 'ptrace', 0x4200, $child, 0, 1);
            try('filter', 'ptrace', 0x420c, $child, 0, 0);
            kill(9, $child); waitpid($child, 0);
            # Registers by their place in struct user of x86-64: orig_rax, rdi, rax.
            sub peek {{ my ($pid, $place) = @_; my $now = "\0" x 8;
              syscall($nr{{ptrace}}, 3, $pid, $place, $now); return unpack('q', $now); }}
            sub changed {{ my ($name, $number, $argument) = @_;
              my $pid = fork();
              if (!$pid) {{ sys('ptrace', 0, 0, 0, 0); kill(10, $$); sys('gettid'); exit }}
              waitpid($pid, 0); sys('ptrace', 24, $pid, 0, 0); waitpid($pid, 0);
              # From the end of kill(2) on to the entry of the next call.
              for (1 .. 8) {{ last if peek($pid, 120) == $nr{{gettid}};
                sys('ptrace', 24, $pid, 0, 0); waitpid($pid, 0); }}
              sys('ptrace', 6, $pid, 120, $number); sys('ptrace', 6, $pid, 112, $argument);
              sys('ptrace', 24, $pid, 0, 0); waitpid($pid, 0);
              my $result = peek($pid, 80);
              found($name, $result < 0 ? errname(-$result) : $result == $pid ? 'own-pid' : $result);
              kill(9, $pid); waitpid($pid, 0); }}
            if ({is_x86}) {{ changed('twin', $nr{{getpid}}, 0);
              changed('unshare', $nr{{unshare}}, 0x10000000); changed('keyctl', $nr{{keyctl}}, 0); }}"#,
            is_x86 = i32::from(cfg!(target_arch = "x86_64")),
        ),
    );
    for name in ["seize-suspended", "suspend"] {
        found.refused(name, &["EPERM", "EINVAL"]);
    }
    found.refused("filter", &["EACCES", "EPERM", "EINVAL"]);
    found.worked("seize");
    found.worked("options");
    if cfg!(target_arch = "x86_64") {
        assert_eq!(found.get("twin"), "own-pid");
        for name in ["unshare", "keyctl"] {
            found.refused(name, &["EPERM"]);
        }
    }
}

/// Make the warden one's tracer, then be stopped by a signal, by SIGSTOP or by an exec, as the command itself and as an
/// orphan of it -> everything goes on as if there were no tracer, and the end of the command is told.
#[test]
fn attack_warden_as_tracer() {
    let arena = Arena::new();
    let sandbox = arena.sandbox();
    let steps = r#"
        sub steps { my ($k) = @_; my $seen = 0; $SIG{USR1} = sub { $seen++ };
          try("$k/traceme", 'ptrace', 0, 0, 0, 0);
          kill(10, $$); found("$k/signal", $seen ? 'ok' : 'lost');
          my $me = $$; my $helper = fork();
          if (!$helper) { select(undef, undef, undef, 0.3); kill(18, $me); exit }
          sys('ptrace', 0, 0, 0, 0); kill(19, $$); waitpid($helper, 0); found("$k/stop", 'ok'); }"#;
    let found = perl(
        &sandbox,
        &format!(
            r#"{steps} steps('command'); sys('ptrace', 0, 0, 0, 0);
            exec('sh', '-c', 'printf "exec\tok\n"');"#
        ),
    );
    for name in ["command/traceme", "command/signal", "command/stop", "exec"] {
        found.worked(name);
    }
    let found = perl(
        &sandbox,
        &format!(
            r#"{steps} pipe(my $read, my $write); my $own = $$;
            if (!fork()) {{ if (!fork()) {{ close $read; select(undef, undef, undef, 0.01) until getppid() != $own
                && (slurp('/proc/' . getppid() . '/comm') // '') =~ /^glovebox-warden/;
              steps('orphan'); exit }} exit }}
            wait(); close $write; sysread($read, my $byte, 1);"#
        ),
    );
    for name in ["orphan/traceme", "orphan/signal", "orphan/stop"] {
        found.worked(name);
    }
    // Twin: a signal that ends a program ends it.
    let mut exec = perl_exec("sys('ptrace', 0, 0, 0, 0); kill(11, $$); sleep 60;");
    exec.timeout_ms = Some(5000);
    let output = sandbox.exec(exec).expect("an end");
    assert_eq!(
        output.report.exit,
        glovebox_proto::Exit::Signal(libc::SIGSEGV)
    );
}
