//! Questions for names and answers to them, as they travel in one packet (RFC 1035, 4): read and written by the name
//! servers of sandboxes, of which one lives inside and one outside.

use std::net::Ipv4Addr;

/// Largest question that is looked at.
pub const MAX_PACKET_BYTES: usize = 512;
const HEADER_BYTES: usize = 12;
/// Largest label and name (RFC 1035, 2.3.4).
const MAX_LABEL_BYTES: usize = 63;
const MAX_NAME_BYTES: usize = 255;
/// An address of version 4, and the internet (3.2.2, 3.2.4).
const TYPE_A: [u8; 2] = [0, 1];
const CLASS_IN: [u8; 2] = [0, 1];

/// What an answer says of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerCode {
    /// It exists, whether or not it has what was asked for.
    Found,
    /// It cannot be told.
    ServerFailed,
    /// It does not exist.
    NoSuchName,
}

impl AnswerCode {
    /// RCODE (4.1.1).
    const fn code(self) -> u8 {
        match self {
            Self::Found => 0,
            Self::ServerFailed => 2,
            Self::NoSuchName => 3,
        }
    }
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    id: [u8; 2],
    wants_recursion: bool,
    name: Vec<u8>,
    /// Name, type and class as they came.
    raw: Vec<u8>,
}

impl Question {
    /// The one question of a packet; `None` when it is no such packet.
    pub fn parse(packet: &[u8]) -> Option<Self> {
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
        let raw = packet.get(HEADER_BYTES..end.checked_add(4)?)?.to_vec();
        Some(Self {
            id: [header[0], header[1]],
            wants_recursion: flags & 1 != 0,
            name,
            raw,
        })
    }

    /// The name with dots between its labels, as it came: any bytes.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The packet that answers it. The address is given to who asked for one of version 4; `ttl_secs` is how long
    /// it holds.
    pub fn answer(&self, code: AnswerCode, address: Option<Ipv4Addr>, ttl_secs: u32) -> Vec<u8> {
        let asks_for_it = self.raw.ends_with(&[TYPE_A, CLASS_IN].concat());
        let address = address.filter(|_| asks_for_it);
        let mut answer = Vec::with_capacity(HEADER_BYTES + self.raw.len() + 16);
        answer.extend_from_slice(&self.id);
        // An authoritative response, recursion desired as asked and available; one question.
        answer.extend_from_slice(&[0x84 | u8::from(self.wants_recursion), 0x80 | code.code()]);
        answer.extend_from_slice(&[0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0]);
        answer.extend_from_slice(&self.raw);
        if let Some(address) = address {
            // A pointer to the name in the question (4.1.4).
            answer.extend_from_slice(&[0xc0, HEADER_BYTES as u8]);
            answer.extend_from_slice(&TYPE_A);
            answer.extend_from_slice(&CLASS_IN);
            answer.extend_from_slice(&ttl_secs.to_be_bytes());
            answer.extend_from_slice(&[0, 4]);
            answer.extend_from_slice(&address.octets());
        }
        answer
    }
}

/// Whether a name means the machine itself or is made from an address: no sign of a wish for the network.
pub fn is_local(name: &[u8]) -> bool {
    ["localhost", "arpa"].iter().any(|top| {
        let start = name.len().saturating_sub(top.len());
        let (before, end) = name.split_at(start);
        end.eq_ignore_ascii_case(top.as_bytes()) && before.last().is_none_or(|byte| *byte == b'.')
    })
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

    fn question(name: &str) -> Vec<u8> {
        let mut packet = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            packet.push(u8::try_from(label.len()).unwrap());
            packet.extend_from_slice(label.as_bytes());
        }
        packet.extend_from_slice(&[0, 0, 1, 0, 1]);
        packet
    }

    #[test]
    fn a_question_is_answered_with_no_such_name() {
        let asked = Question::parse(&question("registry.example.org")).unwrap();
        assert_eq!(asked.name(), b"registry.example.org");
        let answer = asked.answer(AnswerCode::NoSuchName, None, 5);
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
            Question::parse(&packet)
        };
        assert!(changed(0, 1).is_some(), "the id is the asker's");
        assert!(changed(2, 0x80).is_none(), "a response");
        assert!(changed(2, 0x28).is_none(), "an update");
        assert!(changed(5, 0).is_none(), "no question");
        assert!(changed(5, 2).is_none(), "two questions");
        assert!(changed(12, 0xc0).is_none(), "a pointer");
        assert!(changed(12, 60).is_none(), "a label beyond the end");
        for end in 0..good.len() {
            assert!(Question::parse(&good[..end]).is_none(), "{end} bytes");
        }
        let label = "x".repeat(63);
        let long = question(&[label.as_str(); 5].join("."));
        assert!(Question::parse(&long).is_none(), "a name beyond 255 bytes");
        let mut large = good;
        large.resize(MAX_PACKET_BYTES + 1, 0);
        assert!(
            Question::parse(&large).is_none(),
            "a packet beyond 512 bytes"
        );
    }

    #[test]
    fn an_address_is_given_to_who_asked_for_one() {
        let address = Ipv4Addr::new(198, 18, 0, 2);
        let packet = question("a.example");
        let answer = Question::parse(&packet)
            .unwrap()
            .answer(AnswerCode::Found, Some(address), 5);
        assert_eq!(answer[3] & 0x0f, 0);
        assert_eq!(answer[4..12], [0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(
            answer[packet.len()..],
            [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 198, 18, 0, 2]
        );
        // An address of version 6, or a text: the name is there, and has none.
        for kind in [28, 16, 65] {
            let mut other = packet.clone();
            let at = other.len() - 3;
            other[at] = kind;
            let answer =
                Question::parse(&other)
                    .unwrap()
                    .answer(AnswerCode::Found, Some(address), 5);
            assert_eq!(
                (answer[3] & 0x0f, answer[7], answer.len()),
                (0, 0, other.len())
            );
        }
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
            if let Some(question) = Question::parse(&packet) {
                let answer = question.answer(AnswerCode::NoSuchName, None, 0);
                prop_assert!(answer.len() <= packet.len());
                prop_assert!(question.name().len() <= MAX_NAME_BYTES);
            }
        }
    }
}
