//! Per-channel credit: the number of bytes that a sender may send, and the time at which a receiver
//! returns room.

use crate::{WireError, limits::WINDOW_BYTES};

/// Sender's view of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendWindow {
    room: u32,
}

impl SendWindow {
    /// Creates the window of a new channel, with full room.
    pub const fn new() -> Self {
        Self { room: WINDOW_BYTES }
    }

    /// Returns the number of bytes that may be sent now.
    pub const fn room(&self) -> u32 {
        self.room
    }

    /// Records that `bytes` were sent.
    ///
    /// The caller must cut its frame so that `bytes <= self.room()`.
    pub fn spend(&mut self, bytes: u32) {
        debug_assert!(bytes <= self.room, "sender overran its own window");
        self.room = self.room.saturating_sub(bytes);
    }

    /// Adds credit that the receiver granted.
    ///
    /// # Errors
    /// [`WireError::WindowOverrun`] if the receiver grants more than was sent.
    pub fn credit(&mut self, bytes: u32) -> Result<(), WireError> {
        let room = u64::from(self.room) + u64::from(bytes);
        if room > u64::from(WINDOW_BYTES) {
            return Err(WireError::WindowOverrun(room - u64::from(WINDOW_BYTES)));
        }
        self.room = room as u32;
        Ok(())
    }
}

impl Default for SendWindow {
    fn default() -> Self {
        Self::new()
    }
}

/// Receiver's view of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecvWindow {
    room: u32,
    consumed: u32,
}

impl RecvWindow {
    /// Creates the window of a new channel, with full room.
    pub const fn new() -> Self {
        Self {
            room: WINDOW_BYTES,
            consumed: 0,
        }
    }

    /// Records that `bytes` arrived.
    ///
    /// # Errors
    /// [`WireError::WindowOverrun`] if the peer sent more than its room.
    pub fn arrived(&mut self, bytes: u32) -> Result<(), WireError> {
        match self.room.checked_sub(bytes) {
            Some(room) => {
                self.room = room;
                Ok(())
            }
            None => Err(WireError::WindowOverrun(u64::from(bytes - self.room))),
        }
    }

    /// Records that `bytes` were consumed. Returns the credit to send now, or `None` until a
    /// quarter of the window has accumulated, which is worth a frame.
    pub fn consumed(&mut self, bytes: u32) -> Option<u32> {
        self.consumed = self.consumed.saturating_add(bytes);
        (self.consumed >= WINDOW_BYTES / 4).then(|| {
            let credit = self.consumed;
            self.room += credit;
            self.consumed = 0;
            credit
        })
    }
}

impl Default for RecvWindow {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A sender that respects its window is never refused, for any sizes, and it can always
        /// continue once the receiver has consumed everything.
        #[test]
        fn windows_agree(sizes in proptest::collection::vec(1_u32..100_000, 1..200)) {
            let mut send = SendWindow::new();
            let mut recv = RecvWindow::new();
            for size in sizes {
                let now = size.min(send.room());
                prop_assert!(now > 0, "stuck with everything consumed");
                send.spend(now);
                recv.arrived(now).unwrap();
                if let Some(credit) = recv.consumed(now) {
                    send.credit(credit).unwrap();
                }
            }
        }
    }

    #[test]
    fn overruns_are_named() {
        let mut recv = RecvWindow::new();
        recv.arrived(WINDOW_BYTES).unwrap();
        assert_eq!(recv.arrived(3), Err(WireError::WindowOverrun(3)));
        let mut send = SendWindow::new();
        assert_eq!(send.credit(1), Err(WireError::WindowOverrun(1)));
    }
}
