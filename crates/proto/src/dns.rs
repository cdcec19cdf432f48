//! DNS questions and answers in one packet (RFC 1035, section 4). Two name servers use them: one in
//! the guest for sandboxes without network, one in the egress proxy.

use std::net::Ipv4Addr;

/// Largest packet that [`Question::parse`] accepts, in bytes.
pub const MAX_PACKET_BYTES: usize = 512;
const HEADER_BYTES: usize = 12;
/// Longest label and longest name, in bytes (RFC 1035, 2.3.4).
const MAX_LABEL_BYTES: usize = 63;
const MAX_NAME_BYTES: usize = 255;
/// Record type of IPv4 addresses and the internet class (RFC 1035, 3.2.2 and 3.2.4).
const TYPE_A: [u8; 2] = [0, 1];
const CLASS_IN: [u8; 2] = [0, 1];

/// Result of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerCode {
    /// The name exists; it need not have an address of the requested type.
    Found,
    /// The server cannot find out whether the name exists (SERVFAIL).
    ServerFailed,
    /// The name does not exist (NXDOMAIN).
    NoSuchName,
}

impl AnswerCode {
    /// Returns the RCODE (RFC 1035, 4.1.1).
    const fn code(self) -> u8 {
        match self {
            Self::Found => 0,
            Self::ServerFailed => 2,
            Self::NoSuchName => 3,
        }
    }
}

/// DNS query with exactly one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    id: [u8; 2],
    wants_recursion: bool,
    name: Vec<u8>,
    /// Name, type and class, as received.
    raw: Vec<u8>,
}

impl Question {
    /// Parses a packet that holds one standard query with one question. Returns `None` for every
    /// other packet.
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
        // Type and class, two bytes each, follow the name.
        let raw = packet.get(HEADER_BYTES..end.checked_add(4)?)?.to_vec();
        Some(Self {
            id: [header[0], header[1]],
            wants_recursion: flags & 1 != 0,
            name,
            raw,
        })
    }

    /// Returns the name as received, with dots between its labels. It may contain any bytes.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the response packet. It carries `address` only if the question asks for an IPv4
    /// address (type A, class IN). `ttl_secs` is the time to live of the address, in seconds.
    pub fn answer(&self, code: AnswerCode, address: Option<Ipv4Addr>, ttl_secs: u32) -> Vec<u8> {
        let asks_for_it = self.raw.ends_with(&[TYPE_A, CLASS_IN].concat());
        let address = address.filter(|_| asks_for_it);
        let mut answer = Vec::with_capacity(HEADER_BYTES + self.raw.len() + 16);
        answer.extend_from_slice(&self.id);
        // Flags: authoritative response; recursion desired as in the query, and available; then
        // RCODE. The counts that follow: one question, one or no answer.
        answer.extend_from_slice(&[0x84 | u8::from(self.wants_recursion), 0x80 | code.code()]);
        answer.extend_from_slice(&[0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0]);
        answer.extend_from_slice(&self.raw);
        if let Some(address) = address {
            // Name of the answer: a pointer to the name in the question (4.1.4).
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

/// Returns true if a name denotes the machine itself (`localhost`) or is made from an address
/// (`arpa`). A look-up of such a name does not show that a command wants the network.
pub fn is_local(name: &[u8]) -> bool {
    ["localhost", "arpa"].iter().any(|top| {
        let start = name.len().saturating_sub(top.len());
        let (before, end) = name.split_at(start);
        end.eq_ignore_ascii_case(top.as_bytes()) && before.last().is_none_or(|byte| *byte == b'.')
    })
}

/// Returns the name of the first question, with dots between its labels, and the offset behind it.
/// Compression pointers are refused: nothing precedes this name that they could point to.
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
        // For an IPv6 address or a text record: the name exists but has no such record.
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
