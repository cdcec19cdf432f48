//! Commands on a terminal: its size, its signals, and its hanging up.

use crate::client::{Guest, sh};
use glovebox_proto::{Channel, Code, Exec, Exit, Reply, Request, RequestId, Stdin, WindowSize};
use std::time::{Duration, Instant};

pub(crate) fn terminal(script: &str, rows: u16, cols: u16) -> Exec {
    let mut exec = sh(script);
    exec.pty = Some(WindowSize { rows, cols });
    exec.stdin = Stdin::Stream;
    exec
}

fn until(guest: &mut Guest, id: RequestId, text: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let seen = guest
            .data
            .get(&(id, Channel::Stdout))
            .cloned()
            .unwrap_or_default();
        if String::from_utf8_lossy(&seen).contains(text) {
            return;
        }
        assert!(guest.turn(deadline), "link closed");
    }
}

#[test]
fn terminal_echo_size_and_hangup() {
    let mut guest = Guest::start();
    let script = "tty; stty size; trap 'stty size' WINCH; echo ready; until read a; do :; done; echo \"<$a>\"; read b; exit 9";
    let id = guest.ask(&Request::Exec(terminal(script, 31, 117)));
    until(&mut guest, id, "ready");
    let job = match guest.call(&Request::JobList).unwrap() {
        Reply::Jobs(jobs) => {
            assert!(jobs[0].has_pty);
            jobs[0].job
        }
        other => panic!("{other:?}"),
    };
    let resize = Request::JobResize {
        job,
        size: WindowSize {
            rows: 50,
            cols: 200,
        },
    };
    assert_eq!(guest.call(&resize).unwrap(), Reply::Done);
    guest.send(id, b"typed\n", false);
    until(&mut guest, id, "<typed>");
    guest.send(id, b"", true);
    let ran = guest.ran(id).unwrap();
    assert_eq!(ran.code(), 9);
    let out = ran.out();
    assert!(
        out.contains("/dev/pts/") && out.contains("31 117") && out.contains("50 200"),
        "{out}"
    );
    assert!(out.contains("typed\r\n"), "echo: {out}");
    assert!(ran.stderr.is_empty());
    assert_eq!(guest.call(&resize).unwrap_err().code, Code::JobEnded);
}

#[test]
fn terminal_signals_and_full_output() {
    let mut guest = Guest::start();
    // Ctrl-C reaches the foreground process group through the terminal.
    let id = guest.ask(&Request::Exec(terminal("echo ready; sleep 60", 24, 80)));
    until(&mut guest, id, "ready");
    guest.listen(Duration::from_millis(200));
    guest.send(id, b"\x03", false);
    let begin = Instant::now();
    assert_eq!(guest.ran(id).unwrap().report.exit, Exit::Signal(2));
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
    let begin = Instant::now();
    let id = guest.ask(&Request::Exec(terminal(
        "stty -opost; head -c 1000000 /dev/zero | tr '\\0' x",
        24,
        80,
    )));
    let ran = guest.ran(id).unwrap();
    assert_eq!(ran.stdout.len(), 1_000_000);
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
    // Without a terminal there is none to resize.
    let job = guest.start_job(sh("sleep 5"));
    let resize = Request::JobResize {
        job,
        size: WindowSize {
            rows: 50,
            cols: 200,
        },
    };
    assert_eq!(guest.call(&resize).unwrap_err().code, Code::InvalidArgument);
}
