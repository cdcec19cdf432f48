//! Tests: collected content is complete, in order and within the caller's bound, whichever way it
//! is read.

use super::*;
use crate::link::Incoming;
use crate::link::WaitFailure;
use crate::link::tests::{Peer, call, link, ping, soon};
use glovebox_proto::limits::MAX_DATA_BYTES;
use glovebox_proto::{Code, FrameKind, Reply, Request, SendWindow, encode_header};
use serde_bytes::ByteBuf;
use std::io::Write as _;

fn wanted() -> Request {
    Request::FileRead {
        path: ByteBuf::from("f"),
        offset: 0,
        max_bytes: None,
    }
}

fn byte(at: usize) -> u8 {
    (at / 3 + at / 70_000) as u8
}

fn end(total: usize) -> Reply {
    let bytes = total as u64;
    Reply::Read { bytes, size: bytes }
}

/// Collects at most `max_bytes` until the reply.
fn gather(link: &Link, max_bytes: u64) -> Result<Vec<u8>, Fault> {
    let id = link.open_gathering(&wanted(), max_bytes)?;
    let answered = loop {
        match link.recv(id, Some(soon())).map_err(WaitFailure::into_fault) {
            Ok(Incoming::Data { .. }) => {}
            Ok(Incoming::Reply(reply)) => break reply,
            Err(fault) => break Err(fault),
        }
    };
    let content = link.gathered(id);
    link.release(id);
    answered.map(|_| content)
}

/// Sends content in frames of the given lengths, repeatedly, as far as there is credit. Answers
/// pings in between.
fn serve(mut peer: Peer, total: usize, lengths: &[usize]) {
    let id = loop {
        match peer.request().unwrap() {
            (id, Request::FileRead { .. }) => break id,
            (id, _) => peer.reply(id, &Ok(Reply::Pong(ByteBuf::from(vec![9])))),
        }
    };
    let mut window = SendWindow::new();
    let mut sent = 0;
    let mut lengths = lengths.iter().cycle();
    while sent < total {
        let count = (*lengths.next().unwrap()).min(total - sent);
        while (window.room() as usize) < count {
            let (header, payload) = peer.next().unwrap();
            match header.kind {
                FrameKind::Credit => {
                    let bytes = u32::from_le_bytes(payload.try_into().unwrap());
                    window.credit(bytes).unwrap();
                }
                FrameKind::Request => {
                    peer.reply(header.id, &Ok(Reply::Pong(ByteBuf::from(vec![9]))));
                }
                other => panic!("{other:?}"),
            }
        }
        window.spend(count as u32);
        let bytes: Vec<u8> = (sent..sent + count).map(byte).collect();
        peer.data(id, Channel::Content, &bytes, false);
        sent += count;
    }
    peer.reply(id, &Ok(end(total)));
    while let Some((id, _)) = peer.request() {
        peer.reply(id, &Ok(Reply::Pong(ByteBuf::from(vec![9]))));
    }
}

#[test]
fn content_is_whole_whatever_it_is_cut_into() {
    const LARGE: usize = MAX_DATA_BYTES as usize;
    const TOTAL: usize = (9 << 20) + 5;
    for lengths in [
        &[LARGE][..],
        &[1, LARGE, 0, 5000, LARGE],
        &[70_000, 16_384, 16_383, 40_000],
        &[4096],
    ] {
        let served = lengths.to_vec();
        let (link, guest) = link(move |peer| serve(peer, TOTAL, &served));
        std::thread::scope(|scope| {
            // Other threads use the link at the same time.
            scope.spawn(|| {
                for _ in 0..20 {
                    assert!(call(&link, &ping(9)).is_ok());
                }
            });
            let content = gather(&link, TOTAL as u64).unwrap();
            assert_eq!(content.len(), TOTAL);
            let wrong = content
                .iter()
                .enumerate()
                .find(|(at, found)| byte(*at) != **found);
            assert_eq!(wrong, None, "{lengths:?}");
        });
        drop(link);
        guest.join().unwrap();
    }
}

/// Returns the fault for a violation by the guest after the beginning of a frame that is so long
/// that its rest is read into the collecting buffer.
fn fault_of(max_bytes: u64, guest: impl FnOnce(&mut Peer, RequestId) + Send + 'static) -> Fault {
    let (link, guest) = link(move |mut peer| {
        let (id, _) = peer.request().unwrap();
        guest(&mut peer, id);
        // Until the host closes the link.
        while peer.next().is_some() {}
    });
    let fault = gather(&link, max_bytes).unwrap_err();
    drop(link);
    guest.join().unwrap();
    fault
}

#[test]
fn more_than_was_asked_for_ends_the_link() {
    let fault = fault_of(200_000, |peer, id| {
        peer.data(id, Channel::Content, &vec![1; 100_000], false);
        peer.data(id, Channel::Content, &vec![1; 100_001], false);
    });
    assert_eq!(fault.code, Code::Protocol, "{fault}");
}

#[test]
fn a_long_frame_on_a_foreign_channel_ends_the_link() {
    let fault = fault_of(u64::MAX, |peer, id| {
        peer.data(id, Channel::Stdout, &vec![1; 100_000], false);
    });
    assert_eq!(fault.code, Code::Protocol, "{fault}");
}

#[test]
fn nothing_may_follow_the_end_of_a_long_frame() {
    let fault = fault_of(u64::MAX, |peer, id| {
        peer.data(id, Channel::Content, &vec![1; 100_000], true);
        peer.data(id, Channel::Content, &vec![1; 100_000], false);
    });
    assert_eq!(fault.code, Code::Protocol, "{fault}");
}

#[test]
fn a_stream_that_ends_in_a_long_frame_is_cut_off() {
    let (link, guest) = link(|mut peer| {
        let (id, _) = peer.request().unwrap();
        let header = Header::data(id, Channel::Content, MAX_DATA_BYTES, false);
        peer.stream.write_all(&encode_header(header)).unwrap();
        peer.stream.write_all(&vec![1; 100_000]).unwrap();
    });
    let fault = gather(&link, u64::MAX).unwrap_err();
    assert_eq!(fault.code, Code::LinkLost);
    assert!(fault.message.contains("in the middle"), "{fault}");
    drop(link);
    guest.join().unwrap();
}
