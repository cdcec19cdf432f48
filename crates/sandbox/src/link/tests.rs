//! Tests of the link with a peer made of threads: order, credit, cancellation, loss and violations.

use super::*;
use glovebox_jail::program::socket_pair;
use glovebox_proto::limits::WINDOW_BYTES;
use glovebox_proto::{Exec, HEADER_BYTES, JobId, Reply, Role, decode, encode_header};
use proptest::prelude::*;
use serde_bytes::ByteBuf;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::thread;

/// Other end of a link, which speaks the protocol by hand.
pub(super) struct Peer {
    pub(super) stream: File,
    decoder: Decoder,
}

impl Peer {
    /// Returns the next frame, or `None` at the end of the stream.
    pub(super) fn next(&mut self) -> Option<(Header, Vec<u8>)> {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Some((frame.header, frame.payload.to_vec()));
            }
            match self.stream.read(self.decoder.space()) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.decoder.filled(count),
            }
        }
    }

    /// Returns the next request and its id. Skips credit and cancellation.
    pub(super) fn request(&mut self) -> Option<(RequestId, Request)> {
        loop {
            let (header, payload) = self.next()?;
            if header.kind == FrameKind::Request {
                return Some((header.id, decode(&payload, "request").unwrap()));
            }
        }
    }

    fn send(&mut self, header: Header, payload: &[u8]) {
        let mut bytes = encode_header(header).to_vec();
        bytes.extend_from_slice(payload);
        // Fails if the host has closed the link, which some tests provoke.
        let _ = self.stream.write_all(&bytes);
    }

    pub(super) fn data(&mut self, id: RequestId, channel: Channel, bytes: &[u8], is_last: bool) {
        self.send(
            Header::data(id, channel, bytes.len() as u32, is_last),
            bytes,
        );
    }

    pub(super) fn reply(&mut self, id: RequestId, reply: &Result<Reply, Fault>) {
        let payload = encode(reply).unwrap();
        self.send(
            Header::control(FrameKind::Reply, id, payload.len() as u32),
            &payload,
        );
    }
}

fn sockets() -> (OwnedFd, OwnedFd) {
    socket_pair().unwrap()
}

pub(super) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn greet_over(ours: OwnedFd) -> Result<GuestLink, Fault> {
    let writer = ours.try_clone().unwrap();
    greet(ours, writer, &[], soon())
}

/// Returns a link whose guest is `guest`, run on a thread.
pub(super) fn link(
    guest: impl FnOnce(Peer) + Send + 'static,
) -> (Arc<Link>, thread::JoinHandle<()>) {
    let (ours, theirs) = sockets();
    let thread = thread::spawn(move || {
        let mut peer = Peer {
            stream: File::from(theirs),
            decoder: Decoder::new(),
        };
        let payload = encode(&Hello::new(Role::Guest, &[])).unwrap();
        peer.send(
            Header::control(FrameKind::Hello, RequestId(0), payload.len() as u32),
            &payload,
        );
        assert_eq!(peer.next().unwrap().0.kind, FrameKind::Hello);
        guest(peer);
    });
    (Arc::new(Link::new(greet_over(ours).unwrap())), thread)
}

pub(super) fn ping(byte: u8) -> Request {
    Request::Ping(ByteBuf::from(vec![byte]))
}

pub(super) fn call(link: &Link, request: &Request) -> Result<Reply, Fault> {
    let id = link.open(request)?;
    let reply = loop {
        match link
            .recv(id, Some(soon()))
            .map_err(WaitFailure::into_fault)?
        {
            Incoming::Reply(reply) => break reply,
            Incoming::Data { .. } => {}
        }
    };
    link.release(id);
    reply
}

/// Answers pings with their bytes until the host closes the link.
fn echo(mut peer: Peer) {
    while let Some((id, request)) = peer.request() {
        if let Request::Ping(bytes) = request {
            peer.reply(id, &Ok(Reply::Pong(bytes)));
        }
    }
}

#[test]
fn many_threads_share_one_link() {
    let (link, guest) = link(echo);
    thread::scope(|scope| {
        for byte in 0..32 {
            let link = &link;
            scope.spawn(move || {
                for _ in 0..200 {
                    assert_eq!(
                        call(link, &ping(byte)),
                        Ok(Reply::Pong(ByteBuf::from(vec![byte])))
                    );
                }
            });
        }
    });
    drop(link);
    guest.join().unwrap();
}

#[test]
fn replies_find_their_callers_in_any_order() {
    let (link, guest) = link(|mut peer| {
        let mut open: Vec<_> = (0..3).map(|_| peer.request().unwrap()).collect();
        open.reverse();
        for (id, request) in open {
            let Request::Ping(bytes) = request else {
                panic!("not a ping")
            };
            thread::sleep(Duration::from_millis(20));
            peer.reply(id, &Ok(Reply::Pong(bytes)));
        }
        echo(peer);
    });
    thread::scope(|scope| {
        for byte in 0..3 {
            let link = &link;
            scope.spawn(move || {
                assert_eq!(
                    call(link, &ping(byte)),
                    Ok(Reply::Pong(ByteBuf::from(vec![byte])))
                );
            });
        }
    });
    drop(link);
    guest.join().unwrap();
}

#[test]
fn the_end_of_the_guest_reaches_everybody_who_waits() {
    let (link, guest) = link(|mut peer| {
        for _ in 0..8 {
            peer.request().unwrap();
        }
    });
    thread::scope(|scope| {
        for byte in 0..8 {
            let link = &link;
            scope.spawn(move || {
                let fault = call(link, &ping(byte)).unwrap_err();
                assert_eq!(fault.code, Code::LinkLost, "{fault}");
                assert_eq!(fault.class, glovebox_proto::Class::Lost);
            });
        }
    });
    guest.join().unwrap();
    assert_eq!(call(&link, &ping(0)).unwrap_err().code, Code::LinkLost);
}

#[test]
fn a_reply_sent_before_the_end_is_not_lost_with_it() {
    for _ in 0..50 {
        let (link, guest) = link(|mut peer| {
            let (id, _) = peer.request().unwrap();
            peer.reply(id, &Ok(Reply::Done));
        });
        assert_eq!(call(&link, &Request::Shutdown), Ok(Reply::Done));
        guest.join().unwrap();
    }
}

#[test]
fn a_deadline_is_kept_and_the_late_reply_does_no_harm() {
    let (link, guest) = link(|mut peer| {
        let (slow, _) = peer.request().unwrap();
        let (header, _) = peer.next().unwrap();
        assert_eq!((header.kind, header.id), (FrameKind::Cancel, slow));
        let (quick, _) = peer.request().unwrap();
        peer.reply(slow, &Ok(Reply::Done));
        peer.reply(quick, &Ok(Reply::Done));
    });
    let id = link.open(&Request::Facts).unwrap();
    let begin = Instant::now();
    let unmet = link
        .recv(id, Some(begin + Duration::from_millis(50)))
        .unwrap_err();
    assert!(matches!(unmet, WaitFailure::TimedOut));
    assert!(begin.elapsed() >= Duration::from_millis(50));
    link.release(id);
    assert_eq!(call(&link, &Request::Facts), Ok(Reply::Done));
    guest.join().unwrap();
}

#[test]
fn an_answer_may_take_longer_than_it_is_looked_out_for() {
    let (link, guest) = link(|mut peer| {
        while let Some((id, _)) = peer.request() {
            thread::sleep(Duration::from_millis(3));
            peer.reply(id, &Ok(Reply::Done));
        }
    });
    let stat = Request::Stat {
        path: ByteBuf::from("x"),
        follow: true,
    };
    for _ in 0..3 {
        assert_eq!(call(&link, &stat).unwrap(), Reply::Done);
    }
    drop(link);
    guest.join().unwrap();
}

#[test]
fn a_flood_waits_for_its_reader() {
    const TOTAL: usize = 8 << 20;
    let (link, guest) = link(|mut peer| {
        let (id, _) = peer.request().unwrap();
        let piece = vec![7_u8; 64 << 10];
        let mut window = glovebox_proto::SendWindow::new();
        let mut sent = 0;
        while sent < TOTAL {
            let count = piece.len().min(window.room() as usize).min(TOTAL - sent);
            if count == 0 {
                let (header, payload) = peer.next().unwrap();
                assert_eq!(header.kind, FrameKind::Credit);
                window
                    .credit(u32::from_le_bytes(payload.try_into().unwrap()))
                    .unwrap();
                continue;
            }
            window.spend(count as u32);
            peer.data(id, Channel::Content, &piece[..count], false);
            sent += count;
        }
        peer.reply(
            id,
            &Ok(Reply::Read {
                bytes: TOTAL as u64,
                size: TOTAL as u64,
            }),
        );
    });
    let request = Request::FileRead {
        path: ByteBuf::from("f"),
        offset: 0,
        max_bytes: None,
    };
    let id = link.open(&request).unwrap();
    let mut taken = 0;
    loop {
        match link.recv(id, Some(soon())).unwrap() {
            Incoming::Data { bytes, .. } => taken += bytes.len(),
            Incoming::Reply(reply) => {
                reply.unwrap();
                break;
            }
        }
    }
    assert_eq!(taken, TOTAL);
    link.release(id);
    guest.join().unwrap();
}

#[test]
fn input_waits_for_credit_and_stops_at_the_reply() {
    let (link, guest) = link(|mut peer| {
        let (id, _) = peer.request().unwrap();
        let mut taken = 0;
        while taken < WINDOW_BYTES {
            let (header, payload) = peer.next().unwrap();
            assert_eq!(header.kind, FrameKind::Data);
            taken += payload.len() as u32;
        }
        peer.send(Header::credit(id, Channel::Input), &1000_u32.to_le_bytes());
        let (header, _) = peer.next().unwrap();
        assert_eq!((header.kind, header.len), (FrameKind::Data, 1000));
        peer.reply(id, &Err(Fault::failed(Code::NoSpace, "full")));
        echo(peer);
    });
    let request = Request::FileWrite {
        path: ByteBuf::from("f"),
        mode: glovebox_proto::WriteMode::Replace,
        permissions: 0o644,
        make_parents: false,
    };
    let id = link.open(&request).unwrap();
    let fault = link.send_input(id, &vec![0; 2 << 20]).unwrap_err();
    assert_eq!(fault.code, Code::JobEnded);
    let Incoming::Reply(reply) = link.recv(id, Some(soon())).unwrap() else {
        panic!("no reply")
    };
    assert_eq!(reply.unwrap_err().code, Code::NoSpace);
    link.finish_input(id).unwrap();
    link.release(id);
    assert!(call(&link, &ping(1)).is_ok());
    drop(link);
    guest.join().unwrap();
}

/// Both sides fill the stream at once; they must not wait for each other for ever.
#[test]
fn two_full_directions_do_not_block_each_other() {
    const FRAMES: usize = 400;
    let (link, guest) = link(|peer| {
        let mut reader = Peer {
            stream: peer.stream.try_clone().unwrap(),
            decoder: peer.decoder,
        };
        let (id, _) = reader.request().unwrap();
        let mut writer = Peer {
            stream: peer.stream,
            decoder: Decoder::new(),
        };
        // A guest that reads nothing until all its frames have been taken.
        for _ in 0..FRAMES {
            writer.send(Header::credit(id, Channel::Input), &0_u32.to_le_bytes());
            writer.data(id, Channel::Stdout, &[1; 1000], false);
        }
        let mut taken = 0;
        while taken < WINDOW_BYTES as usize {
            taken += reader.next().unwrap().1.len();
        }
        writer.reply(id, &Ok(Reply::Done));
    });
    let request = Request::JobAttach {
        job: JobId(1),
        offset: None,
        sends_events: false,
    };
    let id = link.open(&request).unwrap();
    link.send_input(id, &vec![0; WINDOW_BYTES as usize])
        .unwrap();
    let mut taken = 0;
    loop {
        match link.recv(id, Some(soon())).unwrap() {
            Incoming::Data { bytes, .. } => taken += bytes.len(),
            Incoming::Reply(reply) => break assert_eq!(reply, Ok(Reply::Done)),
        }
    }
    assert_eq!(taken, FRAMES * 1000);
    link.release(id);
    guest.join().unwrap();
}

#[test]
fn a_dropped_request_is_cancelled_and_its_data_does_not_pile_up() {
    let (link, guest) = link(|mut peer| {
        let (id, _) = peer.request().unwrap();
        // Sends until the cancellation arrives, over several windows.
        let mut window = glovebox_proto::SendWindow::new();
        let mut is_cancelled = false;
        let mut sent = 0_u32;
        let mut pings = Vec::new();
        while sent < 4 * WINDOW_BYTES || !is_cancelled {
            if window.room() >= 1000 {
                window.spend(1000);
                peer.data(id, Channel::Stdout, &[1; 1000], false);
                sent += 1000;
                continue;
            }
            let (header, payload) = peer.next().unwrap();
            match header.kind {
                FrameKind::Cancel => is_cancelled = true,
                FrameKind::Credit => {
                    window
                        .credit(u32::from_le_bytes(payload.try_into().unwrap()))
                        .unwrap();
                }
                FrameKind::Request => pings.push(header.id),
                kind => panic!("{kind:?}"),
            }
        }
        peer.reply(id, &Err(Fault::failed(Code::Cancelled, "cancelled")));
        for id in pings {
            peer.reply(id, &Ok(Reply::Done));
        }
        echo(peer);
    });
    let id = link.open(&Request::Exec(Exec::new(["yes"]))).unwrap();
    assert!(matches!(
        link.recv(id, Some(soon())).unwrap(),
        Incoming::Data { .. }
    ));
    link.release(id);
    assert!(call(&link, &ping(1)).is_ok());
    assert!(lock(&link.shared).exchanges.is_empty());
    drop(link);
    guest.join().unwrap();
}

/// Every violation by a guest ends the link with a `protocol` fault and has no other effect.
#[test]
fn violations_end_the_link() {
    type Offence = (&'static str, fn(&mut Peer, RequestId));
    let offences: [Offence; 9] = [
        ("unknown request", |peer, id| {
            peer.reply(RequestId(id.0 + 100), &Ok(Reply::Done));
        }),
        ("data on a foreign channel", |peer, id| {
            peer.data(id, Channel::Content, b"x", false);
        }),
        ("input from the guest", |peer, id| {
            peer.data(id, Channel::Input, b"x", false);
        }),
        ("overrun", |peer, id| {
            for _ in 0..=4 {
                peer.data(id, Channel::Stdout, &vec![0; 128 << 10], false);
            }
        }),
        ("data after its end", |peer, id| {
            peer.data(id, Channel::Stdout, b"x", true);
            peer.data(id, Channel::Stdout, b"x", false);
        }),
        ("credit nobody spent", |peer, id| {
            peer.send(Header::credit(id, Channel::Input), &1_u32.to_le_bytes());
        }),
        ("a request", |peer, id| {
            peer.send(Header::control(FrameKind::Cancel, id, 0), &[]);
        }),
        ("a reply that is none", |peer, id| {
            peer.send(Header::control(FrameKind::Reply, id, 3), &[0xff; 3]);
        }),
        ("garbage", |peer, _| {
            peer.stream.write_all(&[0xff; HEADER_BYTES]).unwrap();
        }),
    ];
    for (what, offend) in offences {
        let (link, guest) = link(move |mut peer| {
            let (id, _) = peer.request().unwrap();
            offend(&mut peer, id);
            // The peer stays until the host closes the link: the violation alone must end it.
            while peer.next().is_some() {}
        });
        // Never read, so that the guest gets no credit. The loss still reaches every caller.
        link.open(&Request::Exec(Exec::new(["x"]))).unwrap();
        let fault = call(&link, &Request::Facts).unwrap_err();
        assert_eq!(fault.code, Code::Protocol, "{what}: {fault}");
        assert_eq!(fault.class, glovebox_proto::Class::Lost, "{what}");
        drop(link);
        guest.join().unwrap();
    }
}

#[test]
fn single_bytes_cost_no_more_than_whole_frames() {
    let (link, guest) = link(|mut peer| {
        let (id, _) = peer.request().unwrap();
        for _ in 0..10_000 {
            peer.data(id, Channel::Stdout, b"x", false);
            peer.data(id, Channel::Stdout, b"", false);
        }
        peer.reply(id, &Ok(Reply::Done));
    });
    let id = link
        .open(&Request::JobAttach {
            job: JobId(1),
            offset: None,
            sends_events: false,
        })
        .unwrap();
    let other = link.open(&Request::Facts).unwrap();
    // Waiting for another request makes this thread read everything.
    assert!(
        link.recv(other, Some(Instant::now() + Duration::from_millis(300)))
            .is_err()
    );
    assert!(lock(&link.shared).exchanges[&id].pieces() < 10);
    link.release(id);
    drop(link);
    guest.join().unwrap();
}

#[test]
fn strangers_are_refused_by_name() {
    let speak = |bytes: Vec<u8>| {
        let (ours, theirs) = sockets();
        File::from(theirs.try_clone().unwrap())
            .write_all(&bytes)
            .unwrap();
        let result = greet_over(ours);
        drop(theirs);
        result.unwrap_err()
    };
    let frame = |hello: &Hello| {
        let payload = encode(hello).unwrap();
        let header = Header::control(FrameKind::Hello, RequestId(0), payload.len() as u32);
        [encode_header(header).to_vec(), payload].concat()
    };
    let newer = Hello {
        version: 99,
        ..Hello::new(Role::Guest, &[])
    };
    let fault = speak(frame(&newer));
    assert_eq!(fault.code, Code::Protocol);
    assert!(fault.message.contains("version 99"), "{fault}");
    assert_eq!(
        speak(frame(&Hello::new(Role::Host, &[]))).code,
        Code::Protocol
    );
    assert_eq!(
        speak(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()).code,
        Code::Protocol
    );
    let request = encode_header(Header::control(FrameKind::Request, RequestId(1), 0)).to_vec();
    assert_eq!(speak(request).code, Code::Protocol);
}

#[test]
fn a_silent_peer_is_given_up_at_the_deadline() {
    let (ours, theirs) = sockets();
    let writer = ours.try_clone().unwrap();
    let fault = greet(
        ours,
        writer,
        &[],
        Instant::now() + Duration::from_millis(30),
    )
    .unwrap_err();
    assert_eq!(fault.code, Code::TimedOut);
    drop(theirs);

    let (ours, theirs) = sockets();
    drop(theirs);
    assert_eq!(greet_over(ours).unwrap_err().code, Code::LinkLost);
}

#[test]
fn bytes_read_early_count() {
    let (ours, theirs) = sockets();
    let payload = encode(&Hello::new(Role::Guest, &[])).unwrap();
    let mut bytes = encode_header(Header::control(
        FrameKind::Hello,
        RequestId(0),
        payload.len() as u32,
    ))
    .to_vec();
    bytes.extend_from_slice(&payload);
    let (early, late) = bytes.split_at(5);
    File::from(theirs.try_clone().unwrap())
        .write_all(late)
        .unwrap();
    let writer = ours.try_clone().unwrap();
    let greeted = greet(ours, writer, early, soon()).unwrap();
    assert_eq!(greeted.hello.role, Role::Guest);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any bytes after the handshake a caller gets an answer, and nothing panics.
    #[test]
    fn arbitrary_bytes_end_in_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (link, guest) = link(move |mut peer| {
            peer.request();
            let _ = peer.stream.write_all(&bytes);
        });
        let fault = call(&link, &Request::Facts).unwrap_err();
        prop_assert_eq!(fault.class, glovebox_proto::Class::Lost);
        guest.join().unwrap();
    }
}
