//! Commands on a terminal: its size, its signals, and its hanging up.

use crate::client::{Guest, sh};
use glovebox_proto::{
    Channel, Code, Event, EventDecoder, Exec, Exit, ExtraStream, JobId, Reply, Request, RequestId,
    Stdin, TerminalUse, WindowSize,
};
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

/// Waits for the event `Stopped` of a job that was started with events; returns its signal.
fn await_stop(guest: &mut Guest, id: RequestId) -> i32 {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let bytes = guest.data.get(&(id, Channel::Content)).cloned();
        let events = EventDecoder::default()
            .decode(&bytes.unwrap_or_default())
            .unwrap();
        let stop = events.iter().find_map(|event| match event {
            Event::Stopped(signal) => Some(*signal),
            _ => None,
        });
        if let Some(signal) = stop {
            return signal;
        }
        assert!(guest.turn(deadline), "link closed");
    }
}

#[test]
fn command_is_stopped_when_it_wants_its_terminal_and_has_it_when_continued() {
    const SIGCONT: i32 = 18;
    const SIGTTIN: i32 = 21;
    let mut guest = Guest::start();
    let mut exec = terminal(
        "echo shown >/dev/tty; read a </dev/tty; echo \"got $a\"",
        24,
        80,
    );
    exec.stdin = Stdin::Null;
    exec.terminal_use = TerminalUse {
        streams: [false; 3],
        is_foreground: false,
    };
    exec.sends_events = true;
    let id = guest.ask(&Request::Exec(exec));
    assert_eq!(await_stop(&mut guest, id), SIGTTIN);
    let job = JobId(1);
    let stream = ExtraStream::Terminal;
    let carrier = guest.ask(&Request::JobStream { job, stream });
    let second = guest.call(&Request::JobStream { job, stream });
    assert_eq!(second.unwrap_err().code, Code::InvalidArgument);
    until(&mut guest, carrier, "shown");
    guest.send(carrier, b"key\n", false);
    let signal = Request::JobSignal {
        job,
        signal: SIGCONT,
        whole_tree: false,
    };
    assert_eq!(guest.call(&signal).unwrap(), Reply::Done);
    let ran = guest.ran(id).unwrap();
    assert_eq!(ran.out(), "got key\n");
    let ended = Reply::StreamEnded { taken: 0 };
    assert_eq!(guest.answer(carrier).unwrap(), ended);
}

#[test]
fn screen_that_nothing_carried_is_there_after_the_end() {
    let mut guest = Guest::start();
    let mut exec = terminal("echo late >/dev/tty", 24, 80);
    exec.terminal_use = TerminalUse {
        streams: [false; 3],
        is_foreground: false,
    };
    let id = guest.ask(&Request::Exec(exec));
    assert_eq!(guest.ran(id).unwrap().code(), 0);
    let (job, stream) = (JobId(1), ExtraStream::Terminal);
    let carrier = guest.ask(&Request::JobStream { job, stream });
    let ended = Reply::StreamEnded { taken: 0 };
    assert_eq!(guest.answer(carrier).unwrap(), ended);
    assert_eq!(guest.take(carrier, Channel::Stdout), b"late\r\n");
}

#[test]
fn stopped_command_goes_on_where_nothing_would_continue_it() {
    let mut guest = Guest::start();
    let ran = guest
        .run(sh("kill -TSTP $$; echo on; kill -TTIN $$; echo again"))
        .unwrap();
    assert_eq!(ran.out(), "on\nagain\n");
    let mut exec = sh("kill -TSTP $$; echo on");
    exec.sends_events = true;
    let id = guest.ask(&Request::Exec(exec));
    assert_eq!(await_stop(&mut guest, id), 20);
    guest.cancel(id);
    assert_eq!(guest.answer(id).unwrap_err().code, Code::Cancelled);
}
