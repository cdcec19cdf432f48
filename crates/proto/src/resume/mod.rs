//! Byte stream that outlives the connections it travels over, as a state machine without I/O.
//!
//! It lies between frames and a carrier; neither knows of it. Each direction counts its bytes from
//! 0, as TCP does. Each side keeps the bytes that the peer has not acknowledged. When a pipe has
//! broken, the host opens another one, both sides report how much they have received, and the rest
//! is sent again. Bytes that arrive twice are dropped, so each byte reaches the other side exactly
//! once.
//!
//! ```text
//! host                               guest
//! HELLO key, session, received  ->                    first record of every pipe
//! DATA 0.., before an answer    ->                    on the first pipe only
//!                               <-   HELLO session, received      or REFUSE reason
//! DATA, ACK, PING               <->  DATA, ACK
//! END                           <->  END              no more bytes after this offset
//! ```
//!
//! An acknowledgement means that the local reader has taken the bytes. A side therefore never holds
//! more than [`MAX_UNACKNOWLEDGED_BYTES`] per direction, and a slow reader slows its producer.
//!
//! A record with a wrong offset, length or order ends the session. Neither side guesses or repairs.

mod record;
mod session;

pub use record::{
    HEAD_BYTES, Identity, MAX_RECORD_BYTES, RESUME_VERSION, Record, RecordDecoder, RecordError,
    Refusal, ResumeHello, encode_record,
};
pub use session::{BufferSizes, MAX_UNACKNOWLEDGED_BYTES, ResumeError, ResumeSession};

#[cfg(test)]
mod tests;
