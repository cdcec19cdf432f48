//! Exec sessions as sockets.

use crate::service::{Service, TOKEN, client, soon};
use glovebox_carrier::PipeEnd as _;
use glovebox_sprites::{ExecPipe, ExecRequest, ExecTimes, await_goodbyes};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;
use testkit::wait_until;

const LONG: Duration = Duration::from_secs(20);

fn exec(service: &Service, script: &str) -> ExecPipe {
    exec_with(service, script, ExecTimes::default())
}

fn exec_with(service: &Service, script: &str, times: ExecTimes) -> ExecPipe {
    let request = ExecRequest {
        argv: &["sh", "-c", script],
        run_after_disconnect: "0",
        times,
    };
    service.client.exec("one", &request, soon()).unwrap()
}

fn started(options: &[&str]) -> Service {
    let service = Service::start(options);
    service.create("one");
    service
}

/// Returns the socket of a pipe, for reading and writing.
fn stream(pipe: &ExecPipe) -> UnixStream {
    let stream = UnixStream::from(pipe.socket.try_clone().unwrap());
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

fn bytes(count: usize) -> Vec<u8> {
    // All byte values, in a period that does not divide a frame's size.
    (0..count).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn megabyte_of_binary_goes_both_ways() {
    let service = started(&[]);
    let pipe = exec(&service, "cat; exit 7");
    let mut writer = stream(&pipe);
    let sent = bytes(1 << 20);
    let expected = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    stream(&pipe).read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    assert!(received == expected, "{} bytes", received.len());
    assert_eq!(pipe.end.exit_code(), Some(7));
    assert_eq!(
        pipe.end.reason().as_deref(),
        Some("the program in the Sprite ended with code 7")
    );
}

#[test]
fn stderr_stands_in_the_reason_and_not_in_the_stream() {
    let service = started(&[]);
    let pipe = exec(
        &service,
        "printf 'out'; printf 'sh: \\033[1mno\\n' >&2; exit 3",
    );
    let mut received = String::new();
    stream(&pipe).read_to_string(&mut received).unwrap();
    assert_eq!(received, "out");
    assert_eq!(
        pipe.end.reason().as_deref(),
        Some("the program in the Sprite ended with code 3, saying: sh: \\x1b[1mno")
    );
}

#[test]
fn output_that_is_not_read_stops_the_program() {
    let service = started(&[]);
    let script = "i=0; while head -c 1048576 /dev/zero; do i=$((i+1)); echo $i >written; done";
    let pipe = exec(&service, script);
    let written = || {
        let text = std::fs::read_to_string(service.home("one").join("written"));
        text.ok().and_then(|text| text.trim().parse::<u64>().ok())
    };
    assert!(wait_until(LONG, || written().is_some()));
    let mut before = written();
    // It has stopped when half a second adds nothing.
    let has_stopped = wait_until(LONG, || {
        std::thread::sleep(Duration::from_millis(500));
        let now = written();
        std::mem::replace(&mut before, now) == now
    });
    assert!(has_stopped && written() < Some(32), "{:?} MiB", written());
    let mut piece = vec![0; 8 << 20];
    stream(&pipe).read_exact(&mut piece).unwrap();
    assert!(wait_until(LONG, || written() > before));
}

#[test]
fn input_that_is_not_read_stops_the_caller() {
    let service = started(&[]);
    let pipe = exec(&service, "sleep 1000");
    let mut writer = stream(&pipe);
    writer
        .set_write_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let piece = vec![0; 1 << 20];
    let count = (0..64)
        .take_while(|_| writer.write_all(&piece).is_ok())
        .count();
    assert!(count < 64);
}

/// Reads the process id that a program prints first.
fn read_pid(stream: &mut UnixStream) -> Pid {
    let mut line = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    let pid = String::from_utf8(line).unwrap().parse().unwrap();
    Pid::from_raw(pid).unwrap()
}

#[test]
fn closed_socket_closes_the_session() {
    let service = started(&["--sessions-end"]);
    for half_closed_first in [false, true] {
        let ExecPipe { socket, end } = exec(&service, "echo $$; exec sleep 1000");
        let mut socket = UnixStream::from(socket);
        let pid = read_pid(&mut socket);
        if half_closed_first {
            socket.shutdown(Shutdown::Write).unwrap();
            std::thread::sleep(Duration::from_millis(200));
            test_kill_process(pid).unwrap();
        }
        drop(socket);
        assert!(wait_until(LONG, || test_kill_process(pid).is_err()));
        assert_eq!(end.exit_code(), None);
    }
}

#[test]
fn last_bytes_arrive_although_the_pipe_is_dropped() {
    let service = started(&[]);
    for round in 0..5 {
        let pipe = exec(&service, &format!("cat >got-{round}"));
        let sent = bytes(100_000);
        stream(&pipe).write_all(&sent).unwrap();
        drop(pipe);
        let got = service.home("one").join(format!("got-{round}"));
        let has_arrived = wait_until(LONG, || {
            std::fs::read(&got).is_ok_and(|found| found == sent)
        });
        assert!(has_arrived, "round {round}");
    }
}

#[test]
#[expect(clippy::exit, reason = "the end of a process is what is tested")]
fn last_bytes_arrive_although_the_process_exits() {
    const ADDRESS: &str = "GLOVEBOX_TEST_SERVICE";
    if let Ok(url) = std::env::var(ADDRESS) {
        let request = ExecRequest {
            argv: &["sh", "-c", "cat >got"],
            run_after_disconnect: "0",
            times: ExecTimes::default(),
        };
        let client = client(&url, &[TOKEN]);
        let pipe = client.exec("one", &request, soon()).unwrap();
        stream(&pipe).write_all(&bytes(100_000)).unwrap();
        drop(pipe);
        await_goodbyes(LONG);
        std::process::exit(0);
    }
    let service = started(&[]);
    let status = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "exec::last_bytes_arrive_although_the_process_exits",
        ])
        .env(ADDRESS, service.server.url())
        // An address without TLS must be reachable from a machine without certificates.
        .env("SSL_CERT_FILE", "/nonexistent")
        .env("SSL_CERT_DIR", "/nonexistent")
        .status()
        .unwrap();
    assert!(status.success());
    let got = service.home("one").join("got");
    let has_arrived = wait_until(LONG, || {
        std::fs::read(&got).is_ok_and(|found| found == bytes(100_000))
    });
    assert!(has_arrived);
}

#[test]
fn dropped_end_closes_the_session() {
    let service = started(&["--sessions-end"]);
    let ExecPipe { socket, end } = exec(&service, "echo $$; exec sleep 1000");
    let mut socket = UnixStream::from(socket);
    let pid = read_pid(&mut socket);
    drop(end);
    assert!(wait_until(LONG, || test_kill_process(pid).is_err()));
    assert_eq!(socket.read(&mut [0]).unwrap(), 0);
}

#[test]
fn cut_connection_ends_the_stream_with_a_reason() {
    let service = started(&[]);
    let pipe = exec(&service, "echo $$; exec sleep 1000");
    let mut socket = stream(&pipe);
    read_pid(&mut socket);
    service.server.control("POST", "/__contract/cut", "");
    assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    assert_eq!(pipe.end.exit_code(), None);
    let reason = pipe.end.reason().unwrap();
    assert!(
        reason.starts_with("the connection to the service"),
        "{reason}"
    );
}

#[test]
fn exit_counts_without_a_close_frame() {
    let service = started(&["--drop-after-exit"]);
    for code in [0, 9] {
        let pipe = exec(&service, &format!("echo done; exit {code}"));
        let mut received = String::new();
        stream(&pipe).read_to_string(&mut received).unwrap();
        assert_eq!(
            (received.as_str(), pipe.end.exit_code()),
            ("done\n", Some(code))
        );
    }
}

#[test]
fn silent_connection_is_given_up_and_a_quiet_one_is_not() {
    let service = started(&[]);
    let times = ExecTimes {
        ping: Duration::from_millis(100),
        silent: Duration::from_secs(2),
    };
    let pipe = exec_with(&service, "echo $$; sleep 4; echo there; sleep 1000", times);
    let mut socket = stream(&pipe);
    read_pid(&mut socket);
    let mut line = [0; 6];
    // For twice the time only responses to pings arrive.
    socket.read_exact(&mut line).unwrap();
    let server = Pid::from_raw(service.server.pid() as i32).unwrap();
    kill_process(server, Signal::STOP).unwrap();
    let read = socket.read(&mut [0]);
    kill_process(server, Signal::CONT).unwrap();
    assert_eq!(read.unwrap(), 0);
    let reason = pipe.end.reason().unwrap();
    assert!(
        reason.contains("nothing came from the service for 2s"),
        "{reason}"
    );
}

#[test]
fn cold_sprite_is_waited_for() {
    let service = started(&["--wake-ms", "1500"]);
    let pipe = exec(&service, "exit 0");
    assert_eq!(stream(&pipe).read(&mut [0]).unwrap(), 0);
    assert_eq!(pipe.end.exit_code(), Some(0));
}

#[test]
fn restore_and_destroy_end_sessions() {
    let service = started(&[]);
    let id = service.client.checkpoint("one", "", soon()).unwrap();
    // A process that leaves its session still belongs to the machine.
    let script = "setsid sleep 1000 & echo $!; exec sleep 1000";
    let pipe = exec(&service, script);
    let mut socket = stream(&pipe);
    let pid = read_pid(&mut socket);
    service.client.restore("one", &id, soon()).unwrap();
    assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    assert!(wait_until(LONG, || test_kill_process(pid).is_err()));
    let pipe = exec(&service, "echo $$; exec sleep 1000");
    let mut socket = stream(&pipe);
    read_pid(&mut socket);
    assert!(service.client.destroy("one", soon()).unwrap());
    assert_eq!(socket.read(&mut [0]).unwrap(), 0);
}
