//! Name server of a sandbox without network: it answers at once that no name exists.
//!
//! Without an answer programs wait and try again, some of them for more than a minute. In: DNS
//! questions (RFC 1035) that commands send to 127.0.0.1:53. Out: NXDOMAIN for each well-formed
//! question; all others are dropped. Nothing is forwarded. The server counts the names and
//! remembers the last one, so that the report of a failed command can name it.

use glovebox_proto::dns::{AnswerCode, MAX_PACKET_BYTES, Question, is_local};
use glovebox_proto::visible;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::net::UdpSocket;

/// Maximum number of questions answered before the event loop continues.
const MAX_TURN: usize = 32;
/// Maximum number of characters kept of an escaped name.
const MAX_SHOWN_CHARS: usize = 128;

/// Counts of questions and names at some moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AskedCount {
    questions: u64,
    names: u64,
}

/// Names looked up since a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskedNames {
    /// Number of names, at least one.
    pub(crate) count: u64,
    /// The last name, escaped for display.
    pub(crate) last: String,
}

/// Name server on a UDP socket.
#[derive(Debug)]
pub(crate) struct Resolver {
    socket: UdpSocket,
    asked: AskedCount,
    last: Vec<u8>,
}

impl Resolver {
    /// Creates a server on a bound, non-blocking UDP socket.
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

    /// Answers questions that have arrived, up to a bound, so that a command that floods the socket
    /// cannot hold up the guest.
    pub(crate) fn answer_questions(&mut self) {
        let mut packet = [0_u8; MAX_PACKET_BYTES + 1];
        for _ in 0..MAX_TURN {
            let Ok((length, from)) = self.socket.recv_from(&mut packet) else {
                return;
            };
            // TRUST: any command can send anything here; a packet that is not a question is
            // dropped.
            let Some(question) = packet.get(..length).and_then(Question::parse) else {
                continue;
            };
            self.note(question.name());
            let answer = question.answer(AnswerCode::NoSuchName, None, 0);
            // A client whose queue is full, or that has exited, gets no answer; the former asks
            // again.
            let _ = self.socket.send_to(&answer, from);
        }
    }

    fn note(&mut self, name: &[u8]) {
        if is_local(name) {
            return;
        }
        self.asked.questions += 1;
        // A program asks twice for one name: for IPv4 and for IPv6 addresses.
        if self.last != name {
            self.asked.names += 1;
            self.last.clear();
            self.last.extend_from_slice(name);
        }
    }

    pub(crate) const fn asked(&self) -> AskedCount {
        self.asked
    }

    /// Returns the names looked up since `then`; `None` if there were none.
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

#[cfg(test)]
mod tests {
    use super::*;
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
}
