//! The real guest in a server with the contract of an AIO Sandbox, over the carrier: losses and
//! repetitions by failed requests must be invisible above it.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

use glovebox_aio::{ApiKey, BaseUrl, Client, Connector, GuestProgram, PipeSizes, Placement};
use glovebox_carrier::{Backoff, CarriedLink, LinkedGuest, Sizes, Times, carry};
use glovebox_proto::{
    Capability, Class, Code, Decoder, Fault, FrameKind, Header, Hello, Reply, Request, RequestId,
    Role, encode, encode_header,
};
use glovebox_sandbox::{GUEST_SHA256, GuestImage};
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::{ContractServer, wait_until};

/// Maximum time for each step; no test waits for it.
const GUARD: Duration = Duration::from_mins(1);
/// Short times, but a long window: a busy machine must lose no guest.
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

/// Server with a guest in it.
struct Sandbox {
    dir: TempDir,
    server: ContractServer,
    client: Client,
    stream: UnixStream,
    link: CarriedLink,
}

fn start(options: &[&str], times: Times, sizes: Sizes) -> Sandbox {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let mut arguments = vec!["--dir", home.to_str().unwrap(), "--key", "a-key"];
    arguments.extend(options);
    let server = ContractServer::start("aio", &arguments);
    let key = ApiKey::new("a-key".to_owned().into(), None);
    let client = Client::new(BaseUrl::parse(server.url()).unwrap(), Some(key)).unwrap();
    let connector = Connector::new(
        client.clone(),
        guest(),
        Placement::default(),
        dir.path().join("run").to_str().unwrap(),
        PipeSizes {
            batch: sizes.batch,
            wait: 1,
        },
    );
    let deadline = Instant::now() + GUARD;
    let LinkedGuest { stream, link } = carry(Box::new(connector), times, sizes, deadline).unwrap();
    let stream = UnixStream::from(stream);
    stream.set_read_timeout(Some(GUARD)).unwrap();
    Sandbox {
        dir,
        server,
        client,
        stream,
        link,
    }
}

/// Returns the guest that is embedded in this program.
fn guest() -> GuestProgram {
    GuestProgram::new(GUEST_SHA256, || {
        let image = GuestImage::new()?;
        fs::read(image.path())
            .map_err(|error| Fault::failed(Code::Io, format!("cannot read the guest: {error}")))
    })
}

/// Returns bytes that differ from number to number.
fn payload(number: u32) -> Vec<u8> {
    let len = number * 7919 % 20_000;
    (0..len).map(|at| (at * 31 + number) as u8).collect()
}

fn frame(kind: FrameKind, id: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header::control(kind, RequestId(id), payload.len() as u32);
    [&encode_header(header)[..], payload].concat()
}

impl Sandbox {
    fn add_fault(&self, fault: &str) {
        self.server.control("POST", "/__contract/fault", fault);
    }

    fn sessions(&self) -> Vec<String> {
        self.client.list_sessions(Instant::now() + GUARD).unwrap()
    }

    /// Greets the guest, and sends pings with these numbers; checks that each is answered once and
    /// with its own bytes. `during` is called after every tenth answer.
    fn exchange(&self, numbers: std::ops::Range<u32>, mut during: impl FnMut(u32)) {
        let mut writer = self.stream.try_clone().unwrap();
        let hello = encode(&Hello::new(Role::Host, &[] as &[Capability])).unwrap();
        writer
            .write_all(&frame(FrameKind::Hello, 0, &hello))
            .unwrap();
        let asked = numbers.clone();
        let writing = std::thread::spawn(move || {
            for number in asked {
                let ping = encode(&Request::Ping(ByteBuf::from(payload(number)))).unwrap();
                writer
                    .write_all(&frame(FrameKind::Request, number, &ping))
                    .unwrap();
            }
        });
        let mut decoder = Decoder::new();
        let mut waited: BTreeSet<u32> = numbers.collect();
        let mut reader = &self.stream;
        while !waited.is_empty() {
            let Some(found) = decoder.next_frame().unwrap() else {
                let count = reader.read(decoder.space()).unwrap();
                assert!(
                    count > 0,
                    "{} are open: {:?}",
                    waited.len(),
                    self.link.lost()
                );
                decoder.filled(count);
                continue;
            };
            if found.header.kind != FrameKind::Reply {
                continue;
            }
            let id = found.header.id.0;
            let reply: Result<Reply, Fault> =
                glovebox_proto::decode(found.payload, "reply").unwrap();
            let Ok(Reply::Pong(bytes)) = reply else {
                panic!("{reply:?}");
            };
            assert!(*bytes == payload(id), "answer {id} has other bytes");
            assert!(waited.remove(&id), "answer {id} came twice");
            if waited.len().is_multiple_of(10) {
                during(id);
            }
        }
        writing.join().unwrap();
    }

    /// Reads to the end of the stream; returns the reason for which the guest is lost.
    fn loss(&self) -> Fault {
        (&self.stream).read_to_end(&mut Vec::new()).unwrap();
        self.link.lost().unwrap()
    }
}

#[test]
fn nothing_is_lost_or_repeated_when_requests_fail() {
    let sandbox = start(&["--end-kills-group"], TIMES, Sizes::default());
    sandbox.add_fault(r#"{"path": "/v1/bash/write", "skip": 3, "count": 4, "lose_answer": true}"#);
    sandbox.add_fault(r#"{"path": "/v1/bash/output", "skip": 5, "count": 9, "lose_answer": true}"#);
    sandbox.exchange(1..301, |id| match id {
        id if id % 3 == 0 => {
            sandbox.add_fault(r#"{"path": "/v1/bash/output", "status": 503, "count": 2}"#);
        }
        id if id % 3 == 1 => {
            for session in sandbox.sessions() {
                if session.starts_with("glovebox-link-") {
                    let soon = Instant::now() + GUARD;
                    sandbox.client.close_session(&session, soon).unwrap();
                }
            }
        }
        _ => {}
    });
    assert_eq!(sandbox.link.lost(), None);
    assert!(sandbox.link.reconnects() > 0, "no pipe broke");
    let journal = sandbox.server.journal();
    assert_eq!(journal["refusals"], serde_json::json!([]), "{journal}");
}

#[test]
fn start_survives_answers_that_are_lost() {
    let lost = [
        r#"{"path": "/v1/bash/exec", "skip": 2, "count": 1, "lose_answer": true}"#,
        r#"{"path": "/v1/bash/write", "count": 1, "lose_answer": true}"#,
        r#"{"path": "/v1/bash/output", "skip": 1, "count": 1, "lose_answer": true}"#,
    ];
    let options = lost.map(|fault| ["--fault", fault]).concat();
    let sandbox = start(&options, TIMES, Sizes::default());
    sandbox.exchange(1..20, |_| {});
    assert_eq!(sandbox.link.lost(), None);
    sandbox.link.close();
    assert_eq!(sandbox.sessions(), [""; 0]);
}

#[test]
fn pipes_are_replaced_before_the_service_keeps_too_much() {
    let sizes = Sizes {
        rotate: Some(200_000),
        ..Sizes::default()
    };
    let sandbox = start(&[], TIMES, sizes);
    sandbox.exchange(1..301, |_| {});
    assert_eq!(sandbox.link.lost(), None);
    let journal = sandbox.server.journal();
    let started = journal["requests"]["/v1/bash/exec"].as_u64().unwrap();
    assert!(started > 6, "only {started} commands: {journal}");
    // The session of the guest, which must stay, and that of the current pipe.
    assert!(
        wait_until(GUARD, || sandbox.sessions().len() == 2),
        "{:?}",
        sandbox.sessions()
    );
}

#[test]
fn restart_of_the_container_loses_the_guest() {
    let sandbox = start(&[], TIMES, Sizes::default());
    sandbox.exchange(1..10, |_| {});
    sandbox.server.control("POST", "/__contract/restart", "");
    let fault = sandbox.loss();
    assert_eq!(fault.class, Class::Lost, "{fault:?}");
    assert!(fault.message.contains("has ended"), "{fault:?}");
}

#[test]
fn container_that_is_gone_loses_the_guest_after_the_window() {
    let times = Times {
        window: Duration::from_millis(700),
        ..TIMES
    };
    let mut sandbox = start(&[], times, Sizes::default());
    sandbox.exchange(1..10, |_| {});
    sandbox.server.kill();
    let fault = sandbox.loss();
    assert_eq!((fault.class, fault.code), (Class::Lost, Code::LinkLost));
    assert!(fault.message.contains("AIO Sandbox at"), "{fault:?}");
}

#[test]
fn end_of_the_link_ends_the_guest_and_leaves_nothing() {
    let sandbox = start(&[], TIMES, Sizes::default());
    sandbox.exchange(1..10, |_| {});
    sandbox.link.close();
    // The session of the guest's own command is closed before the link's end returns.
    assert_eq!(sandbox.sessions(), [""; 0]);
    assert!(!sandbox.dir.path().join("run").exists());
}
