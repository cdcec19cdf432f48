//! Tests with a guest as a detached local process, reached over pipes that break.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in a test, what must not fail may panic"
)]

mod client;
mod machine;

use client::{Client, request_frames};
use glovebox_carrier::{Backoff, CarriedLink, ConnectFailure, LinkedGuest, Sizes, Times, carry};
use glovebox_proto::resume::{
    Identity, Record, RecordDecoder, Refusal, ResumeHello, encode_record,
};
use glovebox_proto::{Class, Code, Fault, Reply, Request, WriteMode};
use machine::{Answer, Exec, LinkOnly, Machine, is_alive, lines, unreachable, wait_until};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use testkit::{has_program, skip};

/// Short times, but a long window: a busy machine must not lose the guest.
const TIMES: Times = Times {
    ping: Duration::from_millis(300),
    silent: Duration::from_millis(900),
    window: Duration::from_secs(30),
    keep: Duration::from_secs(30),
    open: Duration::from_secs(10),
    backoff: Backoff {
        first: Duration::from_millis(2),
        longest: Duration::from_millis(100),
    },
    ack: Duration::from_millis(20),
    notice: Duration::from_millis(50),
};

/// Times with which a guest is lost soon.
const SHORT: Times = Times {
    window: Duration::from_millis(700),
    keep: Duration::from_millis(800),
    ..TIMES
};

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn carry_to(machine: &Arc<Machine>, times: Times) -> (Client, CarriedLink) {
    let connect = Box::new(Exec(Arc::clone(machine)));
    let LinkedGuest { stream, link } = carry(connect, times, Sizes::default(), deadline()).unwrap();
    (Client::new(stream), link)
}

/// Reads until the guest is lost, and returns the fault.
fn read_to_loss(client: &mut Client, link: &CarriedLink) -> Fault {
    assert_eq!(client.read_answer(), None);
    link.lost().expect("the stream ended, and nothing was lost")
}

/// Starts a job that runs for ever, and returns its process id.
fn start_job(client: &mut Client, machine: &Machine) -> i32 {
    client.start("echo $$ > pid; exec sleep 1000");
    let file = machine.path("pid");
    wait_until("the job", || !lines(&file).is_empty());
    lines(&file)[0].parse().unwrap()
}

/// Returns bytes that differ from request to request.
fn payload(number: u32) -> Vec<u8> {
    let len = number * 7919 % 20_000;
    (0..len).map(|at| (at * 31 + number) as u8).collect()
}

/// Checks that the counters count every frame of the requests and their replies, and none twice.
fn check_counts(link: &CarriedLink, requests: u64) {
    let stats = link.meter().stats();
    assert_eq!(stats.reconnects, link.reconnects());
    let bytes: u64 = (1..=requests / 2)
        .map(|number| payload(number as u32).len() as u64)
        .sum();
    // The greeting, the requests, and the frames of input and of credit.
    let frames = 1 + requests + requests / 2;
    assert!(
        (frames..=2 * frames).contains(&stats.sent.frames),
        "{stats:?}"
    );
    let frames = 1 + requests;
    assert!(
        (frames..=2 * frames).contains(&stats.received.frames),
        "{stats:?}"
    );
    for direction in [stats.sent, stats.received] {
        let least = bytes + 12 * direction.frames;
        let most = least + 200 * direction.frames;
        assert!((least..most).contains(&direction.bytes), "{stats:?}");
    }
}

/// Sends many requests at once over pipes that break, and checks that each is executed and answered
/// once.
fn send_many_over_cuts(machine: &Arc<Machine>, sizes: Sizes) -> CarriedLink {
    const COUNT: u32 = 300;
    let connect = Box::new(Exec(Arc::clone(machine)));
    let LinkedGuest { stream, link } = carry(connect, TIMES, sizes, deadline()).unwrap();
    let mut client = Client::new(stream);
    let log = machine.path("log");
    let append = Request::FileWrite {
        path: ByteBuf::from(log.as_os_str().as_bytes()),
        mode: WriteMode::Append,
        permissions: 0o600,
        make_parents: false,
    };
    let mut writer = client.stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        for number in 1..=COUNT {
            let ping = Request::Ping(ByteBuf::from(payload(number)));
            writer
                .write_all(&request_frames(2 * number, &ping, None))
                .unwrap();
            let line = format!("{number}\n");
            let frames = request_frames(2 * number + 1, &append, Some(line.as_bytes()));
            writer.write_all(&frames).unwrap();
        }
    });
    let mut answers = BTreeMap::new();
    for _ in 0..2 * COUNT {
        let Some((id, answer)) = client.read_answer() else {
            panic!("after {} answers: {:?}", answers.len(), link.lost());
        };
        assert!(answers.insert(id, answer.unwrap()).is_none(), "{id} twice");
    }
    writing.join().unwrap();
    for number in 1..=COUNT {
        let Reply::Pong(bytes) = &answers[&(2 * number)] else {
            panic!("{:?}", answers[&(2 * number)]);
        };
        assert!(*bytes == payload(number), "answer {number} has other bytes");
    }
    let mut done: Vec<u32> = lines(&log)
        .iter()
        .map(|line| line.parse().unwrap())
        .collect();
    done.sort_unstable();
    assert!(done.iter().copied().eq(1..=COUNT), "{done:?}");
    assert_eq!(link.lost(), None);
    check_counts(&link, 2 * u64::from(COUNT));
    link
}

#[test]
fn requests_over_pipes_that_break_are_done_and_answered_once() {
    let machine = Machine::with_proxy(false, 300_000);
    let link = send_many_over_cuts(&machine, Sizes::default());
    assert!(link.reconnects() >= 10, "only {} cuts", link.reconnects());
}

#[test]
fn requests_over_lines_that_break_are_done_and_answered_once() {
    let machine = Machine::with_proxy(true, 400_000);
    let link = send_many_over_cuts(&machine, Sizes::default());
    assert!(link.reconnects() >= 10, "only {} cuts", link.reconnects());
}

#[test]
fn a_pipe_that_has_carried_enough_is_replaced_without_an_outage() {
    let machine = Machine::new();
    let sizes = Sizes {
        rotate: Some(200_000),
        ..Sizes::default()
    };
    let link = send_many_over_cuts(&machine, sizes);
    assert!(
        machine.sessions().len() >= 3,
        "{}",
        machine.sessions().len()
    );
    assert_eq!(link.reconnects(), 0);
}

#[test]
fn killing_the_first_session_leaves_the_guest_and_its_jobs() {
    let machine = Machine::new();
    let (mut client, link) = carry_to(&machine, TIMES);
    client.start("sleep 1000; exit 0");
    machine.kill_session(0);
    let reply = client.call(&Request::JobList);
    let Reply::Jobs(jobs) = reply else {
        panic!("{reply:?}");
    };
    assert!(
        jobs.iter()
            .all(|job| job.state == glovebox_proto::JobState::Running)
    );
    assert_eq!(jobs.len(), 1);
    assert_eq!(link.reconnects(), 1);
    assert_eq!(link.lost(), None);
}

#[test]
fn the_first_session_lives_as_long_as_the_guest() {
    let machine = Machine::new();
    let (mut client, link) = carry_to(&machine, TIMES);
    let guest = client.guest_pid();
    let job = start_job(&mut client, &machine);
    machine.cut();
    client.call(&Request::JobList);
    assert!(machine.sessions()[0].try_wait().unwrap().is_none());
    assert!(is_alive(job));
    link.close();
    wait_until("the guest's end", || !is_alive(guest) && !is_alive(job));
    wait_until("the directory's end", || !machine.run_dir().exists());
    wait_until("the first session's end", || {
        machine.sessions()[0].try_wait().unwrap().is_some()
    });
    let status = machine.sessions()[0].wait().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(link.lost(), None);
}

#[test]
fn a_guest_that_ends_in_order_is_not_lost_although_its_last_pipe_breaks() {
    let machine = Machine::new();
    let (mut client, link) = carry_to(&machine, TIMES);
    let guest = client.guest_pid();
    // The guest's last bytes are lost with the pipe, and delivered over another one.
    machine.mute();
    let frames = request_frames(100, &Request::Shutdown, None);
    client.stream.write_all(&frames).unwrap();
    let (id, answer) = client.read_answer().expect("the stream ended");
    assert_eq!((id, answer), (100, Ok(Reply::Done)));
    assert_eq!(link.reconnects(), 1);
    assert_eq!(client.read_answer(), None);
    assert_eq!(link.lost(), None);
    wait_until("the guest's end", || !is_alive(guest));
    assert!(!machine.run_dir().exists());
}

#[test]
fn commands_inherit_no_socket_of_the_guest() {
    let machine = Machine::new();
    let (mut client, _link) = carry_to(&machine, TIMES);
    machine.cut();
    let listing = client.run("ls -l /proc/self/fd /proc/$$/fd");
    assert!(listing.contains("/dev/null"), "{listing}");
    assert!(!listing.contains("socket:"), "{listing}");
}

#[test]
fn the_guest_is_lost_when_the_window_passes_and_ends_after_it() {
    let machine = Machine::new();
    let (mut client, link) = carry_to(&machine, SHORT);
    let guest = client.guest_pid();
    let job = start_job(&mut client, &machine);

    machine.is_unreachable.store(true, Ordering::Relaxed);
    let cut_at = Instant::now();
    machine.cut();
    wait_until("a notice", || link.waiting_since().is_some());
    let outage = link.waiting_since().unwrap();
    assert_eq!(outage.until - outage.since, SHORT.window);
    let fault = read_to_loss(&mut client, &link);
    assert!(cut_at.elapsed() >= SHORT.window);
    assert_eq!((fault.class, fault.code), (Class::Lost, Code::LinkLost));
    assert!(
        fault.message.contains("no route to the service"),
        "{}",
        fault.message
    );
    assert_eq!(link.waiting_since(), None);

    wait_until("the guest's end", || !is_alive(guest));
    assert!(cut_at.elapsed() >= SHORT.window + SHORT.keep);
    wait_until("the job's end", || !is_alive(job));
    assert!(!machine.run_dir().exists());
}

#[test]
fn a_killed_guest_is_lost() {
    let machine = Machine::new();
    let (mut client, link) = carry_to(&machine, TIMES);
    let guest = client.guest_pid();
    let guest = rustix::process::Pid::from_raw(guest).unwrap();
    rustix::process::kill_process(guest, rustix::process::Signal::KILL).unwrap();
    let fault = read_to_loss(&mut client, &link);
    assert_eq!((fault.class, fault.code), (Class::Lost, Code::LinkLost));
    assert!(
        fault.message.contains("the guest has ended"),
        "{}",
        fault.message
    );
}

#[test]
fn a_process_in_the_guests_place_is_not_taken_for_it() {
    let machine = Machine::new();
    let (mut client, link) = carry_to(&machine, TIMES);
    let guest = client.guest_pid();
    machine.is_unreachable.store(true, Ordering::Relaxed);
    let pid = rustix::process::Pid::from_raw(guest).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    wait_until("the guest's end", || !is_alive(guest));
    let socket = machine.run_dir().join("socket");
    std::fs::remove_file(&socket).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let impostor = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut greeting = [0; 66];
        stream.read_exact(&mut greeting).unwrap();
        // The answer of a guest to another host.
        greeting[14..62].fill(7);
        let _ = stream.write_all(&greeting);
        let _ = stream.read(&mut greeting);
    });
    machine.is_unreachable.store(false, Ordering::Relaxed);
    let fault = read_to_loss(&mut client, &link);
    assert_eq!((fault.class, fault.code), (Class::Lost, Code::LinkLost));
    assert!(fault.message.contains("another guest"), "{}", fault.message);
    impostor.join().unwrap();
}

#[test]
fn a_guest_takes_no_connection_of_another_user() {
    const SCRIPT: &str = r"
# The guest may have closed the connection before the greeting.
$SIG{PIPE} = 'IGNORE';
my $socket = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die;
open my $greeting, '<', $ARGV[1] or die;
local $/;
syswrite $socket, <$greeting>;
sysread $socket, my $answer, 100;
print unpack('H*', $answer) || 'closed';";
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || !has_program("perl") || !has_program("setpriv") {
        skip!("needs root, perl and setpriv");
    }
    let machine = Machine::new();
    let (mut client, link) = carry_to(&machine, TIMES);
    // The modes alone would exclude another user, so they are opened for the test.
    let socket = machine.run_dir().join("socket");
    for (path, mode) in [
        (machine.path("."), 0o755),
        (machine.run_dir(), 0o755),
        (socket.clone(), 0o666),
    ] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let greeting = machine.path("greeting");
    std::fs::write(&greeting, stranger()).unwrap();
    let answer_to = |user: &str| {
        let output = Command::new("setpriv")
            .args([
                user,
                "--clear-groups",
                "perl",
                "-MIO::Socket::UNIX",
                "-e",
                SCRIPT,
            ])
            .arg(&socket)
            .arg(&greeting)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    // Root gets a refusal; the other user gets no answer.
    assert!(answer_to("--reuid=0").starts_with("06"));
    assert_eq!(answer_to("--reuid=65534"), "closed");
    client.call(&Request::JobList);
    assert_eq!((link.reconnects(), link.lost()), (0, None));
}

#[test]
fn a_machine_that_is_gone_is_lost_with_the_services_reason() {
    let machine = Machine::new();
    let (mut client, link) = carry_to(&machine, TIMES);
    let gone = Fault::failed(Code::SandboxNotFound, "there is no such machine");
    let failure = ConnectFailure::Final(gone);
    machine
        .answers
        .lock()
        .unwrap()
        .push(Answer::Failure(failure));
    machine.cut();
    let fault = read_to_loss(&mut client, &link);
    assert_eq!(
        (fault.class, fault.code),
        (Class::Lost, Code::SandboxNotFound)
    );
}

#[test]
fn bytes_that_are_no_records_end_the_link() {
    let machine = Machine::new();
    let (mut client, link) = carry_to(&machine, TIMES);
    let page = b"<html>502 Bad Gateway</html>".to_vec();
    machine.answers.lock().unwrap().push(Answer::Bytes(page));
    machine.cut();
    let fault = read_to_loss(&mut client, &link);
    assert_eq!((fault.class, fault.code), (Class::Lost, Code::Protocol));
}

#[test]
fn a_service_that_asks_to_wait_is_left_alone() {
    let machine = Machine::new();
    let (mut client, _link) = carry_to(&machine, TIMES);
    let pause = Duration::from_millis(600);
    let failure = Answer::Failure(unreachable(Some(pause)));
    machine.answers.lock().unwrap().push(failure);
    machine.cut();
    client.call(&Request::JobList);
    let attempts = machine.attempts.lock().unwrap();
    assert_eq!(attempts.len(), 2);
    assert!(attempts[1] - attempts[0] >= pause);
}

#[test]
fn a_pipe_that_falls_silent_is_replaced() {
    let machine = Machine::new();
    let (mut client, link) = carry_to(&machine, TIMES);
    client.call(&Request::JobList);
    machine.freeze();
    let began = Instant::now();
    client.call(&Request::JobList);
    assert!(began.elapsed() + TIMES.ping >= TIMES.silent);
    assert!(
        began.elapsed() < TIMES.window,
        "it was noticed by something else"
    );
    assert_eq!(link.reconnects(), 1);
}

#[test]
fn a_pipe_that_takes_no_more_bytes_is_replaced_before_it_is_silent_for_long() {
    let machine = Machine::new();
    let times = Times {
        silent: Duration::from_mins(1),
        ..TIMES
    };
    let (mut client, link) = carry_to(&machine, times);
    client.call(&Request::JobList);
    machine.half_close();
    let began = Instant::now();
    client.call(&Request::JobList);
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(link.reconnects(), 1);
}

#[test]
fn an_idle_link_is_kept_by_signs_of_life() {
    let machine = Machine::new();
    let times = Times {
        silent: Duration::from_secs(3),
        ..SHORT
    };
    let (mut client, link) = carry_to(&machine, times);
    // Longer than the guest waits in silence.
    std::thread::sleep(2 * (times.window + times.keep));
    client.call(&Request::JobList);
    assert_eq!(link.reconnects(), 0);
}

#[test]
fn local_bytes_are_taken_up_to_a_bound_while_there_is_no_pipe() {
    let machine = Machine::new();
    let connect = Box::new(Exec(Arc::clone(&machine)));
    let sizes = Sizes {
        buffer: 1 << 20,
        ..Sizes::default()
    };
    let LinkedGuest { stream, link } = carry(connect, TIMES, sizes, deadline()).unwrap();
    let mut client = Client::new(stream);
    machine.is_unreachable.store(true, Ordering::Relaxed);
    machine.cut();
    let ping = Request::Ping(ByteBuf::from(vec![7; 64 << 10]));
    let requests = (1..=64).map(|id| request_frames(id, &ping, None));
    let bytes: Vec<u8> = requests.flatten().collect();
    let mut stream = client.stream.try_clone().unwrap();
    stream
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let mut taken = 0;
    while taken < bytes.len()
        && let Ok(count) = stream.write(&bytes[taken..])
    {
        taken += count;
    }
    assert!(taken >= sizes.buffer, "{taken}");
    assert!(taken < bytes.len(), "everything was taken");
    machine.is_unreachable.store(false, Ordering::Relaxed);
    // The answers must be read meanwhile: otherwise the guest stops reading.
    let writing = std::thread::spawn(move || {
        stream.set_write_timeout(None).unwrap();
        stream.write_all(&bytes[taken..]).unwrap();
    });
    let mut count = 0;
    while count < 64 {
        let (_, answer) = client.read_answer().expect("the stream ended");
        assert!(matches!(answer, Ok(Reply::Pong(bytes)) if bytes.len() == 64 << 10));
        count += 1;
    }
    writing.join().unwrap();
    assert_eq!(link.lost(), None);
}

/// Returns a greeting with a key that no guest has.
fn stranger() -> Vec<u8> {
    let identity = Identity {
        session: [0; 16],
        key: [0; 32],
    };
    let mut wire = Vec::new();
    encode_record(
        &Record::Hello(ResumeHello {
            identity,
            received: 0,
            keep_ms: 1,
        }),
        &mut wire,
    );
    wire
}

/// Greets a guest directly. Returns its refusal; `None` if it closes the connection without one.
fn greet_directly(machine: &Machine, wire: &[u8]) -> Option<Refusal> {
    let mut socket = UnixStream::connect(machine.run_dir().join("socket")).unwrap();
    socket.write_all(wire).unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let mut decoder = RecordDecoder::new();
    decoder.push(&answer);
    match decoder.next_record() {
        Ok(Some(Record::Refuse(refusal))) => Some(refusal),
        _ => None,
    }
}

#[test]
fn a_guest_takes_no_connection_without_its_key() {
    let machine = Machine::new();
    let (mut client, link) = carry_to(&machine, TIMES);
    let wire = stranger();
    assert_eq!(greet_directly(&machine, &wire), Some(Refusal::Stranger));
    let mut other_version = wire.clone();
    other_version[12] = 99;
    assert_eq!(
        greet_directly(&machine, &other_version),
        Some(Refusal::Version)
    );
    assert_eq!(greet_directly(&machine, b"GET / HTTP/1.1\r\n\r\n"), None);

    let connect = Box::new(LinkOnly(Arc::clone(&machine)));
    let stranger = carry(connect, TIMES, Sizes::default(), deadline()).unwrap();
    wait_until("the refusal", || stranger.link.lost().is_some());
    let fault = stranger.link.lost().unwrap();
    assert_eq!(
        (fault.class, fault.code),
        (Class::Failed, Code::CarrierFailed)
    );

    client.call(&Request::JobList);
    assert_eq!((link.reconnects(), link.lost()), (0, None));
}

#[test]
fn the_directory_and_its_socket_are_the_owners_alone() {
    use std::os::unix::fs::MetadataExt as _;
    let machine = Machine::new();
    let (_client, _link) = carry_to(&machine, TIMES);
    let mode = |name: &str| {
        std::fs::metadata(machine.run_dir().join(name))
            .unwrap()
            .mode()
            & 0o777
    };
    assert_eq!(
        (mode("."), mode("socket"), mode("lock")),
        (0o700, 0o600, 0o600)
    );
    let lock = std::fs::File::open(machine.run_dir().join("lock")).unwrap();
    assert!(lock.try_lock().is_err(), "the guest holds it");
}

#[test]
fn a_guest_that_does_not_start_is_told_with_its_reason() {
    let machine = Machine::new();
    std::fs::write(machine.run_dir(), "in the way").unwrap();
    let connect = Box::new(Exec(Arc::clone(&machine)));
    let carried = carry(connect, TIMES, Sizes::default(), deadline()).unwrap();
    wait_until("the failure", || carried.link.lost().is_some());
    let fault = carried.link.lost().unwrap();
    assert_eq!(
        (fault.class, fault.code),
        (Class::Failed, Code::CarrierFailed)
    );
    assert!(
        fault.message.starts_with("the guest did not start: "),
        "{}",
        fault.message
    );
}
