//! Terminals: typing into one that belongs to somebody else.

use crate::arena::Arena;
use crate::script::{findings, perl, perl_exec, run};
use glovebox_proto::WindowSize;
use std::process::{Command, Stdio};

/// TIOCSTI, TIOCLINUX, TIOCSETD, with and without high bits, on every terminal in reach.
const PUSH: &str = include_str!("probes/push.pl");

/// Push characters into the terminal -> EPERM, with a terminal and without. Twin: its size is known.
#[test]
fn probe_17_tiocsti() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(sandbox, PUSH);
        for prefix in ["push/", "linux/", "line/"] {
            found.all_refused(prefix, &["EPERM"]);
        }
        let mut exec = perl_exec(&format!(
            "{PUSH} my $s = \"\\0\" x 8; $! = 0; verdict('size', syscall($nr{{ioctl}}, 0, 0x5413, $s) != -1); found('rows', unpack('S', $s));
             found('tty', -t STDIN ? 'yes' : 'no'); $! = 0; verdict('own', open(my $h, '+<', '/dev/tty'));"
        ));
        exec.pty = Some(WindowSize { rows: 33, cols: 99 });
        let outcome = run(sandbox, exec);
        let found = findings(&outcome.out.replace('\r', ""));
        for prefix in ["push/", "linux/", "line/"] {
            found.all_refused(prefix, &["EPERM"]);
        }
        found.worked("size");
        assert_eq!(found.get("rows"), "33", "{shape:?}");
        assert_eq!(found.get("tty"), "yes");
        found.worked("own");
    });
}

/// A sandbox run with `--tty` from a shell types into that shell -> the shell receives nothing.
#[test]
fn attack_type_into_the_callers_shell() {
    if !testkit::has_program("script") {
        testkit::skip!("a terminal of one's own needs script(1)");
    }
    let arena = Arena::new();
    let inside = arena.home.write(
        "project/push.pl",
        r#"for my $p ('/dev/tty', '/dev/pts/0', '/dev/stdin') { open(my $h, '+<', $p) or next;
            for my $c (split //, "injected\n") { my $b = $c; ioctl($h, 0x5412, $b); } }
            print "pushed\n"; system('stty -a >/dev/null 2>&1');"#,
    );
    assert!(inside.is_file());
    for flag in ["--tty", ""] {
        let line = format!(
            "\"$GLOVEBOX\" --quiet run {flag} --no-toolchains -- perl /workspace/push.pl; \
             stty -icanon -echo min 0 time 3; printf 'typed[%s]' \"$(dd bs=100 count=1 2>/dev/null)\""
        );
        let output = Command::new("script")
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", arena.home.home())
            .env("SHELL", "/bin/sh")
            .env("TERM", "dumb")
            .env("GLOVEBOX_STATE", arena.home.state())
            .env("GLOVEBOX", testkit::binary())
            .current_dir(arena.home.project())
            // Not closed, or script(1) would type an end-of-file of its own.
            .stdin(Stdio::piped())
            .spawn_and_wait();
        assert!(
            output.contains("pushed"),
            "{flag}: the attacker did not run: {output:?}"
        );
        assert!(
            output.contains("typed[]"),
            "{flag}: the shell received something: {output:?}"
        );
    }
}

trait SpawnAndWait {
    /// Standard output, with standard input held open until the end.
    fn spawn_and_wait(&mut self) -> String;
}

impl SpawnAndWait for Command {
    fn spawn_and_wait(&mut self) -> String {
        let mut child = self
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("it starts");
        let held = child.stdin.take();
        let output = child.wait_with_output().expect("it ends");
        drop(held);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Terminals of the host -> not there: the sandbox's /dev/pts has its own only.
#[test]
fn attack_host_terminals() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(
            sandbox,
            r#"opendir(D, '/dev/pts'); found('pts', join ' ', sort grep { !/^\./ } readdir(D));
               try_open('tty', '/dev/tty', 2); try_open('master', '/dev/ptmx', 2);"#,
        );
        assert_eq!(found.get("pts"), "ptmx", "{shape:?}");
        found.refused("tty", &["ENXIO", "EIO"]);
        found.worked("master");
    });
}
