//! The name server of a sandbox without network: it says at once that no name exists.
//!
//! Without an answer programs wait for one and try again, some of them for more than a minute. In: DNS questions
//! (RFC 1035) that commands send to 127.0.0.1:53. Out: NXDOMAIN to each that is well-formed; what is not is dropped.
//! Nothing is forwarded. It remembers how many names were asked for and which was the last, so that a command that
//! fails can be told what it missed.

use glovebox_proto::visible;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::net::UdpSocket;

/// Largest question that is looked at; larger ones are cut by the kernel and dropped.
const MAX_PACKET_BYTES: usize = 512;
/// Questions answered before the guest looks at its other work again.
const MAX_TURN: usize = 32;
const HEADER_BYTES: usize = 12;
/// Largest label and name (RFC 1035, 2.3.4).
const MAX_LABEL_BYTES: usize = 63;
const MAX_NAME_BYTES: usize = 255;
/// Most characters of a name that are kept, escaped.
const MAX_SHOWN_CHARS: usize = 128;

/// What was asked until some moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AskedCount {
    questions: u64,
    names: u64,
}

/// What was asked since a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskedNames {
    /// How many names; at least one.
    pub(crate) count: u64,
    /// The last of them, printable.
    pub(crate) last: String,
}

/// The name server.
#[derive(Debug)]
pub(crate) struct Resolver {
    socket: UdpSocket,
    asked: AskedCount,
    last: Vec<u8>,
}

impl Resolver {
    /// Serves on a bound, non-blocking UDP socket.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            socket: socket.into(),
            asked: AskedCount::default(),
            last: Vec::new(),
        }
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Answers what has arrived, up to a bound: a command that floods the socket keeps the guest from nothing.
    pub(crate) fn answer_questions(&mut self) {
        let mut packet = [0_u8; MAX_PACKET_BYTES + 1];
        for _ in 0..MAX_TURN {
            let Ok((length, from)) = self.socket.recv_from(&mut packet) else {
                return;
            };
            // TRUST: any command can send anything here; what is not a question is dropped.
            let Some((answer, name)) = packet.get(..length).and_then(answer_question) else {
                continue;
            };
            self.note(&name);
            // An asker that has gone, or whose queue is full, asks again.
            let _ = self.socket.send_to(&answer, from);
        }
    }

    fn note(&mut self, name: &[u8]) {
        if is_local(name) {
            return;
        }
        self.asked.questions += 1;
        // A program asks twice for one name: for its addresses of either kind.
        if self.last != name {
            self.asked.names += 1;
            self.last.clear();
            self.last.extend_from_slice(name);
        }
    }

    pub(crate) const fn asked(&self) -> AskedCount {
        self.asked
    }

    /// What was asked since then, if anything was.
    pub(crate) fn asked_since(&self, then: AskedCount) -> Option<AskedNames> {
        (self.asked.questions > then.questions).then(|| AskedNames {
            count: (self.asked.names - then.names).max(1),
            last: visible::line(&self.last)
                .chars()
                .take(MAX_SHOWN_CHARS)
                .collect(),
        })
    }
}

/// Whether a name means the machine itself or is made from an address: no sign of a wish for the network.
fn is_local(name: &[u8]) -> bool {
    ["localhost", "arpa"].iter().any(|top| {
        let start = name.len().saturating_sub(top.len());
        let (before, end) = name.split_at(start);
        end.eq_ignore_ascii_case(top.as_bytes()) && before.last().is_none_or(|byte| *byte == b'.')
    })
}

/// NXDOMAIN to one question, and the name in it; `None` when this is no such packet.
fn answer_question(packet: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    if packet.len() > MAX_PACKET_BYTES {
        return None;
    }
    let header: &[u8; HEADER_BYTES] = packet.first_chunk()?;
    let (flags, count) = (header[2], &header[4..6]);
    let is_response = flags & 0x80 != 0;
    let is_plain_query = flags & 0x78 == 0;
    if is_response || !is_plain_query || count != [0, 1] {
        return None;
    }
    let (name, end) = read_name(packet)?;
    // The kind and the class of what is asked for follow the name.
    let question = packet.get(HEADER_BYTES..end.checked_add(4)?)?;
    let mut answer = Vec::with_capacity(HEADER_BYTES + question.len());
    answer.extend_from_slice(&header[..2]);
    // An authoritative response, recursion desired as asked and available; NXDOMAIN; one question and nothing else.
    answer.extend_from_slice(&[0x84 | (flags & 1), 0x83, 0, 1, 0, 0, 0, 0, 0, 0]);
    answer.extend_from_slice(question);
    Some((answer, name))
}

/// The name of the first question with dots between its labels, and where it ends. Pointers have no place there.
fn read_name(packet: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut name = Vec::new();
    let mut at = HEADER_BYTES;
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        if length > MAX_LABEL_BYTES {
            return None;
        }
        if !name.is_empty() {
            name.push(b'.');
        }
        name.extend_from_slice(packet.get(at..at + length)?);
        at += length;
        if name.len() > MAX_NAME_BYTES {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn question(name: &str) -> Vec<u8> {
        let mut packet = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            packet.push(u8::try_from(label.len()).unwrap());
            packet.extend_from_slice(label.as_bytes());
        }
        packet.extend_from_slice(&[0, 0, 1, 0, 1]);
        packet
    }

    fn resolver() -> (Resolver, UdpSocket) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let asker = UdpSocket::bind("127.0.0.1:0").unwrap();
        asker.connect(socket.local_addr().unwrap()).unwrap();
        asker
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        (Resolver::new(socket.into()), asker)
    }

    #[test]
    fn a_question_is_answered_with_no_such_name() {
        let (answer, name) = answer_question(&question("registry.example.org")).unwrap();
        assert_eq!(name, b"registry.example.org");
        assert_eq!(answer[..2], [7, 9], "the same id");
        assert_eq!(answer[2] & 0x81, 0x81, "a response, recursion as desired");
        assert_eq!(answer[3] & 0x0f, 3, "NXDOMAIN");
        assert_eq!(answer[4..12], [0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(answer[12..], question("registry.example.org")[12..]);
    }

    #[test]
    fn what_is_no_question_is_dropped() {
        let good = question("a.b");
        let changed = |at: usize, byte: u8| {
            let mut packet = good.clone();
            packet[at] = byte;
            answer_question(&packet)
        };
        assert!(changed(0, 1).is_some(), "the id is the asker's");
        assert!(changed(2, 0x80).is_none(), "a response");
        assert!(changed(2, 0x28).is_none(), "an update");
        assert!(changed(5, 0).is_none(), "no question");
        assert!(changed(5, 2).is_none(), "two questions");
        assert!(changed(12, 0xc0).is_none(), "a pointer");
        assert!(changed(12, 60).is_none(), "a label beyond the end");
        for end in 0..good.len() {
            assert!(answer_question(&good[..end]).is_none(), "{end} bytes");
        }
        let label = "x".repeat(63);
        let long = question(&[label.as_str(); 5].join("."));
        assert!(answer_question(&long).is_none(), "a name beyond 255 bytes");
        let mut large = good;
        large.resize(MAX_PACKET_BYTES + 1, 0);
        assert!(
            answer_question(&large).is_none(),
            "a packet beyond 512 bytes"
        );
    }

    #[test]
    fn names_are_counted_and_the_last_is_printable() {
        let (mut resolver, asker) = resolver();
        let ask = |resolver: &mut Resolver, name: &str| {
            // On the loopback interface what was sent has arrived.
            asker.send(&question(name)).unwrap();
            resolver.answer_questions();
            let mut answer = [0_u8; 1024];
            let length = asker.recv(&mut answer).unwrap();
            assert_eq!(answer[12..length], question(name)[12..]);
        };
        let begin = resolver.asked();
        ask(&mut resolver, "one.example");
        ask(&mut resolver, "one.example");
        let middle = resolver.asked();
        ask(&mut resolver, "t\u{1b}wo.example");
        ask(&mut resolver, "localhost");
        ask(&mut resolver, "1.0.0.127.in-addr.arpa");
        let all = resolver.asked_since(begin).unwrap();
        assert_eq!(all.count, 2);
        assert!(all.last.ends_with("wo.example"), "{all:?}");
        assert!(!all.last.contains('\u{1b}'), "{all:?}");
        assert_eq!(resolver.asked_since(middle).unwrap().count, 1);
        assert_eq!(resolver.asked_since(resolver.asked()), None);
    }

    #[test]
    fn a_name_asked_for_again_counts_for_who_asks() {
        let (mut resolver, _) = resolver();
        resolver.note(b"one.example");
        let then = resolver.asked();
        assert_eq!(resolver.asked_since(then), None);
        resolver.note(b"one.example");
        assert_eq!(resolver.asked_since(then).unwrap().count, 1);
    }

    #[test]
    fn local_names_are_told_apart() {
        for name in ["localhost", "LOCALHOST", "a.localhost", "x.ip6.arpa"] {
            assert!(is_local(name.as_bytes()), "{name}");
        }
        for name in ["", "notlocalhost", "localhost.org", "arpa.example"] {
            assert!(!is_local(name.as_bytes()), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_packet_is_answered_at_length(packet in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Some((answer, name)) = answer_question(&packet) {
                prop_assert!(answer.len() <= packet.len());
                prop_assert!(name.len() <= MAX_NAME_BYTES);
            }
        }
    }
}
