//! Events of a running job, on [`crate::Channel::Content`] of the request that started or follows
//! it.

use crate::{JobId, WireError};

/// Size of an encoded event in bytes.
pub const EVENT_BYTES: usize = 9;

const BEGAN: u8 = 1;
const INPUT_TAKEN: u8 = 2;
const STOPPED: u8 = 3;

/// Event of a job. The guest sends events if [`crate::Exec::sends_events`] is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The command runs as this job. Sent first, and once.
    Began(JobId),
    /// Total number of bytes of lent input that the command has read.
    InputTaken(u64),
    /// This signal stopped the command. After SIGTSTP or SIGSTOP it runs again once it receives
    /// SIGCONT. After SIGTTIN or SIGTTOU it also needs its terminal, and has the foreground when it
    /// is continued.
    Stopped(i32),
}

impl Event {
    /// Encodes the event: one byte for the kind, then its number in little-endian order.
    pub fn encode(self) -> [u8; EVENT_BYTES] {
        let (kind, number) = match self {
            Self::Began(JobId(id)) => (BEGAN, u64::from(id)),
            Self::InputTaken(total) => (INPUT_TAKEN, total),
            Self::Stopped(signal) => (STOPPED, u64::from(signal.unsigned_abs())),
        };
        let mut bytes = [0; EVENT_BYTES];
        bytes[0] = kind;
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn decode([kind, number @ ..]: [u8; EVENT_BYTES]) -> Result<Self, WireError> {
        let number = u64::from_le_bytes(number);
        let bad = |detail: String| WireError::BadPayload {
            what: "event",
            detail,
        };
        match kind {
            BEGAN => u32::try_from(number)
                .map(|id| Self::Began(JobId(id)))
                .map_err(|_| bad(format!("job {number}"))),
            INPUT_TAKEN => Ok(Self::InputTaken(number)),
            STOPPED => i32::try_from(number)
                .ok()
                .filter(|signal| (1..=64).contains(signal))
                .map(Self::Stopped)
                .ok_or_else(|| bad(format!("signal {number}"))),
            other => Err(bad(format!("kind {other}"))),
        }
    }
}

/// Decoder of events that arrive in pieces of any size.
#[derive(Debug, Default)]
pub struct EventDecoder {
    /// Beginning of an incomplete event.
    rest: Vec<u8>,
}

impl EventDecoder {
    /// Adds bytes and returns the events that they complete.
    ///
    /// # Errors
    /// [`WireError::BadPayload`] for an unknown kind or a number out of range.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Vec<Event>, WireError> {
        // TRUST: `bytes` are bounded by the channel's window; the kept rest is shorter than one
        // event.
        self.rest.extend_from_slice(bytes);
        let (whole, rest) = self.rest.as_chunks::<EVENT_BYTES>();
        let events = whole.iter().map(|event| Event::decode(*event)).collect();
        self.rest = rest.to_vec();
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoder_returns_encoded_events_for_any_split() {
        let events = [
            Event::Began(JobId(7)),
            Event::InputTaken(u64::MAX),
            Event::Stopped(20),
        ];
        let bytes = events.map(Event::encode).concat();
        for split in 0..=bytes.len() {
            let mut decoder = EventDecoder::default();
            let mut seen = decoder.decode(&bytes[..split]).unwrap();
            seen.extend(decoder.decode(&bytes[split..]).unwrap());
            assert_eq!(seen, events);
        }
    }

    #[test]
    fn decoder_refuses_unknown_events() {
        assert!(EventDecoder::default().decode(&[9; EVENT_BYTES]).is_err());
        let signal = [STOPPED, 65, 0, 0, 0, 0, 0, 0, 0];
        assert!(EventDecoder::default().decode(&signal).is_err());
        let job = [BEGAN, 0, 0, 0, 0, 1, 0, 0, 0];
        assert!(EventDecoder::default().decode(&job).is_err());
    }
}
