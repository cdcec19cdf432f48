//! Bytes of a broken or hostile carrier: through the lines, and through both sides of a session that resumes. Records
//! that are honest come first, so that the search begins behind the greeting. Never is more held than a side may send.
#![no_main]

use glovebox_proto::resume::{
    BufferSizes, Identity, MAX_UNACKNOWLEDGED_BYTES, Record, RecordDecoder, ResumeHello,
    ResumeSession, encode_record,
};
use glovebox_proto::{LinesDecoder, encode_lines};
use libfuzzer_sys::fuzz_target;
use std::time::Duration;

const HELLO: ResumeHello = ResumeHello {
    identity: Identity {
        session: [1; 16],
        key: [2; 32],
    },
    received: 0,
    keep_ms: 1000,
};

fuzz_target!(|input: (Vec<u8>, Vec<Vec<u8>>)| {
    let (sent, pieces) = input;
    let mut decoder = LinesDecoder::new();
    let (mut lines, mut bytes) = (Vec::new(), Vec::new());
    encode_lines(&sent, &mut lines);
    decoder.push(&lines, &mut bytes).unwrap();
    assert_eq!(bytes, sent);
    for piece in &pieces {
        if decoder.push(piece, &mut bytes).is_err() {
            break;
        }
    }

    let mut host = ResumeSession::host(
        HELLO.identity,
        Duration::from_secs(1),
        BufferSizes::default(),
    );
    host.begin_pipe();
    let mut greeting = Vec::new();
    encode_record(&Record::Hello(HELLO), &mut greeting);
    host.receive(&greeting).unwrap();
    let mut guest = ResumeSession::guest(BufferSizes::default());
    guest.accept(&HELLO, RecordDecoder::new()).unwrap();
    for mut session in [host, guest] {
        let room = session.outgoing_room();
        session.push_outgoing(&sent[..sent.len().min(room)]);
        let mut wire = Vec::new();
        for piece in &pieces {
            wire.clear();
            session.fill_wire(&mut wire, 4096);
            if session.receive(piece).is_err() {
                break;
            }
            assert!(session.incoming().len() <= MAX_UNACKNOWLEDGED_BYTES);
            session.consume(piece.len() / 2);
        }
    }
});
