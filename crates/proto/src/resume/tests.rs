//! Tests of two sides of a session over pipes that break anywhere: each byte arrives once, in
//! order.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Duration;

const IDENTITY: Identity = Identity {
    session: [1; 16],
    key: [2; 32],
};
const SIZES: BufferSizes = BufferSizes {
    unacknowledged: 64,
    record: 7,
};
const KEEP: Duration = Duration::from_mins(2);

fn host() -> ResumeSession {
    ResumeSession::host(IDENTITY, KEEP, SIZES)
}

/// Returns the byte of a direction's stream at an offset. Neighbours differ, and so do directions.
fn byte_at(direction: u8, offset: usize) -> u8 {
    (offset % 251) as u8 ^ direction
}

/// Side of a session with its local stream.
struct Side {
    session: ResumeSession,
    direction: u8,
    written: usize,
    taken: Vec<u8>,
}

impl Side {
    fn new(session: ResumeSession, direction: u8) -> Self {
        Self {
            session,
            direction,
            written: 0,
            taken: Vec::new(),
        }
    }

    fn write(&mut self, count: usize) {
        let count = count.min(self.session.outgoing_room());
        let bytes: Vec<u8> = (self.written..self.written + count)
            .map(|offset| byte_at(self.direction, offset))
            .collect();
        self.session.push_outgoing(&bytes);
        self.written += count;
    }

    fn take(&mut self, count: usize) {
        let bytes = self.session.incoming();
        assert!(
            bytes.len() <= SIZES.unacknowledged,
            "more than the peer may send"
        );
        let count = count.min(bytes.len());
        self.taken.extend_from_slice(&bytes[..count]);
        self.session.consume(count);
    }
}

/// Both sides, and the pipe between them if there is one.
struct World {
    host: Side,
    guest: Side,
    to_guest: VecDeque<u8>,
    to_host: VecDeque<u8>,
    /// Present until the guest has read the HELLO of the pipe.
    greeting: Option<RecordDecoder>,
    has_pipe: bool,
}

impl World {
    fn new() -> Self {
        Self {
            host: Side::new(host(), 0),
            guest: Side::new(ResumeSession::guest(SIZES), 0x80),
            to_guest: VecDeque::new(),
            to_host: VecDeque::new(),
            greeting: None,
            has_pipe: false,
        }
    }

    fn connect(&mut self) {
        self.cut();
        self.host.session.begin_pipe();
        self.greeting = Some(RecordDecoder::new());
        self.has_pipe = true;
    }

    fn cut(&mut self) {
        self.to_guest.clear();
        self.to_host.clear();
        self.host.session.end_pipe();
        self.guest.session.end_pipe();
        self.has_pipe = false;
    }

    fn fill(&mut self, budget: usize) {
        let mut wire = Vec::new();
        self.host.session.fill_wire(&mut wire, budget);
        self.to_guest.extend(wire);
        let mut wire = Vec::new();
        self.guest.session.fill_wire(&mut wire, budget);
        self.to_host.extend(wire);
    }

    fn deliver_to_guest(&mut self, count: usize) {
        let count = count.min(self.to_guest.len());
        let bytes: Vec<u8> = self.to_guest.drain(..count).collect();
        let Some(mut decoder) = self.greeting.take() else {
            self.guest.session.receive(&bytes).unwrap();
            return;
        };
        decoder.push(&bytes);
        let hello = match decoder.next_record().unwrap() {
            Some(Record::Hello(hello)) => hello,
            Some(other) => panic!("{other:?} came first"),
            None => {
                self.greeting = Some(decoder);
                return;
            }
        };
        self.guest.session.accept(&hello, decoder).unwrap();
        self.guest.session.receive(&[]).unwrap();
    }

    fn deliver_to_host(&mut self, count: usize) {
        let count = count.min(self.to_host.len());
        let bytes: Vec<u8> = self.to_host.drain(..count).collect();
        self.host.session.receive(&bytes).unwrap();
    }

    /// Exchanges records until neither side has output.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let before = (self.host.taken.len(), self.guest.taken.len());
            for side in [&mut self.host, &mut self.guest] {
                side.take(usize::MAX);
                if side.session.has_unacknowledged_input() {
                    side.session.request_ack();
                }
            }
            self.fill(100);
            let is_quiet = self.to_guest.is_empty() && self.to_host.is_empty();
            self.deliver_to_guest(usize::MAX);
            self.deliver_to_host(usize::MAX);
            if is_quiet && before == (self.host.taken.len(), self.guest.taken.len()) {
                return;
            }
        }
        panic!("the two sides talk without end");
    }

    /// Sends pending records into a pipe that breaks, and again over the next one.
    fn lose_what_is_due(&mut self) {
        self.fill(1000);
        self.connect();
        self.settle();
    }

    /// Connects again, ends both streams, and checks the bytes that arrived.
    fn finish(mut self) {
        self.connect();
        self.settle();
        self.host.session.end_outgoing();
        self.lose_what_is_due();
        assert!(self.guest.session.is_incoming_ended());
        self.guest.session.end_outgoing();
        self.lose_what_is_due();
        for (from, to) in [(&self.host, &self.guest), (&self.guest, &self.host)] {
            let sent: Vec<u8> = (0..from.written)
                .map(|offset| byte_at(from.direction, offset))
                .collect();
            assert_eq!(to.taken, sent);
            assert!(from.session.is_finished(), "{:?}", from.session);
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    HostWrites(usize),
    GuestWrites(usize),
    HostTakes(usize),
    GuestTakes(usize),
    Fill(usize),
    ToGuest(usize),
    ToHost(usize),
    Ack,
    Ping,
    Cut,
    Connect,
    /// A DATA record that the guest has already received comes again.
    Repeat(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1_usize..50).prop_map(Step::HostWrites),
        3 => (1_usize..50).prop_map(Step::GuestWrites),
        3 => (1_usize..50).prop_map(Step::HostTakes),
        3 => (1_usize..50).prop_map(Step::GuestTakes),
        6 => (1_usize..60).prop_map(Step::Fill),
        6 => (1_usize..60).prop_map(Step::ToGuest),
        6 => (1_usize..60).prop_map(Step::ToHost),
        1 => Just(Step::Ack),
        1 => Just(Step::Ping),
        1 => Just(Step::Cut),
        2 => Just(Step::Connect),
        1 => (0_usize..200, 1_usize..20).prop_map(|(at, len)| Step::Repeat(at, len)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn streams_arrive_exactly_once_over_any_cuts(steps in proptest::collection::vec(step(), 0..200)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::HostWrites(count) => world.host.write(count),
                Step::GuestWrites(count) => world.guest.write(count),
                Step::HostTakes(count) => world.host.take(count),
                Step::GuestTakes(count) => world.guest.take(count),
                Step::Fill(budget) => world.fill(budget),
                Step::ToGuest(count) => world.deliver_to_guest(count),
                Step::ToHost(count) => world.deliver_to_host(count),
                Step::Ack => world.guest.session.request_ack(),
                Step::Ping => world.host.session.request_ping(),
                Step::Cut => world.cut(),
                Step::Connect => world.connect(),
                Step::Repeat(at, len) => {
                    let has_come = world.guest.taken.len() + world.guest.session.incoming().len();
                    // Only between records, and only once the guest accepts records.
                    if world.guest.session.is_open() && world.to_guest.is_empty() && at < has_come {
                        let bytes: Vec<u8> = (at..(at + len).min(has_come))
                            .map(|offset| byte_at(0, offset))
                            .collect();
                        let mut wire = Vec::new();
                        encode_record(&Record::Data { offset: at as u64, bytes: &bytes }, &mut wire);
                        world.to_guest.extend(wire);
                    }
                }
            }
        }
        world.finish();
    }

    #[test]
    fn any_bytes_give_records_or_an_error_within_bounds(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 0..40),
    ) {
        let mut session = host();
        session.begin_pipe();
        session.fill_wire(&mut Vec::new(), 1);
        session.receive(&greeting_of_guest(0)).unwrap();
        for piece in &pieces {
            if session.receive(piece).is_err() {
                break;
            }
            prop_assert!(session.incoming().len() <= pieces.len() * 64);
        }
    }
}

fn greeting_of_guest(received: u64) -> Vec<u8> {
    encoded(&Record::Hello(ResumeHello {
        identity: Identity {
            key: [0; 32],
            ..IDENTITY
        },
        received,
        keep_ms: 0,
    }))
}

fn encoded(record: &Record<'_>) -> Vec<u8> {
    let mut wire = Vec::new();
    encode_record(record, &mut wire);
    wire
}

/// Returns a host with a pipe to a guest that has received `sent` bytes.
fn open_host(sent: usize) -> ResumeSession {
    let mut session = host();
    session.begin_pipe();
    session.push_outgoing(&vec![0; sent]);
    session.fill_wire(&mut Vec::new(), usize::MAX);
    session.receive(&greeting_of_guest(0)).unwrap();
    session
}

#[test]
fn a_pipe_cut_at_any_byte_loses_and_repeats_nothing() {
    let script = |cut: usize| {
        let mut world = World::new();
        world.host.write(20);
        world.guest.write(13);
        let mut carried = 0;
        world.connect();
        for _ in 0..6 {
            world.fill(1000);
            for _ in 0..20 {
                if carried == cut {
                    world.connect();
                }
                carried += 1;
                world.deliver_to_guest(1);
                world.deliver_to_host(1);
            }
            world.guest.take(5);
            world.host.take(5);
            world.guest.write(2);
        }
        world.finish();
    };
    (0..130).for_each(script);
}

#[test]
fn first_pipe_carries_data_behind_the_greeting_and_a_later_one_does_not() {
    let mut session = host();
    session.push_outgoing(b"frame");
    session.begin_pipe();
    let mut wire = Vec::new();
    session.fill_wire(&mut wire, 1000);
    assert!(wire.ends_with(b"frame"));
    session.receive(&greeting_of_guest(5)).unwrap();
    session.push_outgoing(b"second");
    session.begin_pipe();
    wire.clear();
    session.fill_wire(&mut wire, 1000);
    assert!(!wire.ends_with(b"second"));
    assert!(!session.has_output());
    wire.clear();
    session.receive(&greeting_of_guest(5)).unwrap();
    assert!(session.has_output());
    session.fill_wire(&mut wire, 1000);
    assert!(wire.ends_with(b"second"));
}

#[test]
fn unacknowledged_bytes_are_bounded() {
    let mut session = open_host(SIZES.unacknowledged);
    assert_eq!(session.outgoing_room(), 0);
    session
        .receive(&encoded(&Record::Ack { received: 10 }))
        .unwrap();
    assert_eq!(session.outgoing_room(), 10);

    let mut session = open_host(0);
    let mut offset = 0;
    let bytes = vec![0; MAX_RECORD_BYTES];
    let error = loop {
        let record = Record::Data {
            offset,
            bytes: &bytes,
        };
        match session.receive(&encoded(&record)) {
            Ok(()) => offset += bytes.len() as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error, ResumeError::Overrun);
    assert_eq!(offset, MAX_UNACKNOWLEDGED_BYTES as u64);
}

#[test]
fn wrong_offsets_and_turns_end_the_session() {
    let data = |offset| {
        encoded(&Record::Data {
            offset,
            bytes: b"x",
        })
    };
    let cases: [(&str, Vec<u8>, ResumeError); 9] = [
        (
            "gap",
            data(1),
            ResumeError::Gap {
                expected: 0,
                offset: 1,
            },
        ),
        (
            "offset that overflows",
            data(u64::MAX),
            ResumeError::Gap {
                expected: 0,
                offset: u64::MAX,
            },
        ),
        (
            "acknowledgement beyond what was sent",
            encoded(&Record::Ack { received: 4 }),
            ResumeError::AckBeyondSent {
                received: 4,
                sent: 3,
            },
        ),
        (
            "end beyond what came",
            encoded(&Record::End { offset: 1 }),
            ResumeError::Gap {
                expected: 0,
                offset: 1,
            },
        ),
        (
            "end before what came",
            [data(0), encoded(&Record::End { offset: 0 })].concat(),
            ResumeError::OutOfTurn("an end before bytes that came"),
        ),
        (
            "data after the end",
            [encoded(&Record::End { offset: 0 }), data(0)].concat(),
            ResumeError::OutOfTurn("data after the end"),
        ),
        (
            "second greeting",
            greeting_of_guest(0),
            ResumeError::OutOfTurn("a greeting"),
        ),
        (
            "late refusal",
            encoded(&Record::Refuse(Refusal::Gone)),
            ResumeError::OutOfTurn("a refusal"),
        ),
        (
            "unknown kind",
            vec![9; HEAD_BYTES],
            ResumeError::Record(RecordError::UnknownKind(9)),
        ),
    ];
    for (name, wire, expected) in cases {
        assert_eq!(open_host(3).receive(&wire), Err(expected), "{name}");
    }
}

#[test]
fn a_new_pipe_to_something_else_is_not_taken() {
    let reconnect = |wire: &[u8]| {
        let mut session = open_host(3);
        session
            .receive(&encoded(&Record::Ack { received: 2 }))
            .unwrap();
        session.begin_pipe();
        session.receive(wire).unwrap_err()
    };
    let other = encoded(&Record::Hello(ResumeHello {
        identity: Identity {
            session: [9; 16],
            ..IDENTITY
        },
        received: 3,
        keep_ms: 0,
    }));
    assert_eq!(reconnect(&other), ResumeError::AnotherPeer);
    assert_eq!(reconnect(&greeting_of_guest(1)), ResumeError::AckWithdrawn);
    assert_eq!(
        reconnect(&greeting_of_guest(4)),
        ResumeError::AckBeyondSent {
            received: 4,
            sent: 3
        }
    );
    for refusal in [
        Refusal::Version,
        Refusal::Stranger,
        Refusal::Offset,
        Refusal::Gone,
    ] {
        let wire = encoded(&Record::Refuse(refusal));
        assert_eq!(reconnect(&wire), ResumeError::Refused(refusal));
    }
    assert_eq!(
        reconnect(&encoded(&Record::Ping)),
        ResumeError::OutOfTurn("a record before the greeting")
    );
}

#[test]
fn a_guest_takes_the_key_of_its_first_host_only() {
    let greeting = |identity, received| ResumeHello {
        identity,
        received,
        keep_ms: 1500,
    };
    let mut guest = ResumeSession::guest(BufferSizes::default());
    let take = |guest: &mut ResumeSession, identity, received| {
        guest.accept(&greeting(identity, received), RecordDecoder::new())
    };
    assert_eq!(take(&mut guest, IDENTITY, 1), Err(Refusal::Offset));
    assert_eq!(take(&mut guest, IDENTITY, 0), Ok(()));
    assert_eq!(guest.keep(), Duration::from_millis(1500));
    for stranger in [
        Identity {
            key: [3; 32],
            ..IDENTITY
        },
        Identity {
            session: [3; 16],
            ..IDENTITY
        },
    ] {
        assert_eq!(take(&mut guest, stranger, 0), Err(Refusal::Stranger));
        assert!(guest.is_open(), "the pipe before goes on");
    }
    assert_eq!(take(&mut guest, IDENTITY, 0), Ok(()));
}

#[test]
fn records_that_a_carrier_sends_twice_change_nothing() {
    let mut host = host();
    host.push_outgoing(b"frames");
    host.end_outgoing();
    host.begin_pipe();
    let mut wire = Vec::new();
    host.fill_wire(&mut wire, 1000);
    let mut decoder = RecordDecoder::new();
    decoder.push(&wire.repeat(2));
    let Ok(Some(Record::Hello(hello))) = decoder.next_record() else {
        panic!("no greeting");
    };
    let mut guest = ResumeSession::guest(SIZES);
    guest.accept(&hello, decoder).unwrap();
    guest.receive(&[]).unwrap();
    guest.receive(&wire).unwrap();
    assert_eq!(guest.incoming(), b"frames");

    let mut other = hello;
    other.identity.key = [9; 32];
    let stranger = encoded(&Record::Hello(other));
    assert_eq!(
        guest.receive(&stranger),
        Err(ResumeError::OutOfTurn("a greeting"))
    );
}

#[test]
fn the_key_leaves_the_host_in_its_greeting_only() {
    let mut guest = ResumeSession::guest(BufferSizes::default());
    let hello = ResumeHello {
        identity: IDENTITY,
        received: 0,
        keep_ms: 1,
    };
    guest.accept(&hello, RecordDecoder::new()).unwrap();
    let mut wire = Vec::new();
    guest.fill_wire(&mut wire, 1000);
    assert!(!wire.windows(32).any(|window| window == IDENTITY.key));
    assert!(!format!("{guest:?}").contains("2, 2, 2"));
}

#[test]
fn heads_with_wrong_fields_are_refused() {
    let mut head = encoded(&Record::Ping);
    head[1] = 1;
    let flagged = head.clone();
    head[1] = 0;
    head[4] = 1;
    let with_offset = head;
    let mut long = encoded(&Record::Data {
        offset: 0,
        bytes: b"x",
    });
    long[2..4].copy_from_slice(&(MAX_RECORD_BYTES as u16 + 1).to_le_bytes());
    let mut empty = long.clone();
    empty[2..4].fill(0);
    let mut short = greeting_of_guest(0);
    short[2..4].copy_from_slice(&10_u16.to_le_bytes());
    for (name, wire) in [
        ("flag", flagged),
        ("offset of a ping", with_offset),
        ("length", long),
        ("empty data", empty),
        ("short greeting", short),
    ] {
        let mut decoder = RecordDecoder::new();
        decoder.push(&wire);
        let result = decoder.next_record().map(|_| ());
        assert_eq!(result, Err(RecordError::BadHead), "{name}");
    }
    let mut newer = greeting_of_guest(0);
    newer[HEAD_BYTES] = 2;
    let mut decoder = RecordDecoder::new();
    decoder.push(&newer);
    let result = decoder.next_record().map(|_| ());
    assert_eq!(result, Err(RecordError::Version(2)));
}

#[test]
fn a_ping_is_answered_and_taken_bytes_are_acknowledged_in_bulk() {
    let mut session = open_host(0);
    assert!(!session.has_output());
    session.receive(&encoded(&Record::Ping)).unwrap();
    let mut wire = Vec::new();
    session.fill_wire(&mut wire, 1000);
    assert_eq!(wire, encoded(&Record::Ack { received: 0 }));

    let bytes = vec![0; MAX_RECORD_BYTES];
    for number in 0..8 {
        assert!(!session.has_output());
        let offset = number * bytes.len() as u64;
        let record = Record::Data {
            offset,
            bytes: &bytes,
        };
        session.receive(&encoded(&record)).unwrap();
        session.consume(bytes.len());
    }
    wire.clear();
    session.fill_wire(&mut wire, 1000);
    let received = 8 * bytes.len() as u64;
    assert_eq!(wire, encoded(&Record::Ack { received }));
}
