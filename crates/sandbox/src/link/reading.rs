//! Reading by the leader: reads the stream once and distributes the frames. The rest of a large
//! frame whose content is collected is read directly into its buffer; all other bytes pass through
//! the decoder's buffer.

use super::{Link, gone, lock, wire_fault};
use glovebox_jail::program::read_more;
use glovebox_proto::{Channel, Decoder, Fault, Header, RequestId};
use rustix::io::Errno;

impl Link {
    /// Reads what has arrived, at most the rest of a frame and one buffer, and distributes it. The
    /// caller must be the leader.
    pub(super) fn read(&self) -> Result<(), Fault> {
        let mut decoder = lock(&self.incoming);
        let mut credits = Vec::new();
        if !self.read_to_place(&mut decoder, &mut credits)? {
            self.give_all(credits);
            return Ok(());
        }
        match rustix::io::read(&self.reader, decoder.space()) {
            Ok(0) => return Err(cut_off(&decoder)),
            Ok(count) => decoder.filled(count),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(gone(&format!(": {errno}"))),
        }
        let mut shared = lock(&self.shared);
        let shared_ref = &mut *shared;
        loop {
            match decoder.next_piece() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    shared_ref
                        .hand_out(frame, &mut credits)
                        .map_err(|error| wire_fault(&error))?;
                }
                Err(error) => return Err(wire_fault(&error)),
            }
        }
        drop(shared);
        drop(decoder);
        self.give_all(credits);
        Ok(())
    }

    /// Reads the rest of a large frame directly into the buffer that collects it. Returns false if
    /// some of it is still to come; then nothing else can be read.
    fn read_to_place(
        &self,
        decoder: &mut Decoder,
        credits: &mut Vec<(u32, Channel, u32)>,
    ) -> Result<bool, Fault> {
        let Some(rest) = decoder.rest() else {
            return Ok(true);
        };
        let mut shared = lock(&self.shared);
        let Some(exchange) = shared.exchanges.get_mut(&rest.id.0) else {
            return Ok(true);
        };
        let Some(place) = exchange.place(rest.channel, rest.len) else {
            return Ok(true);
        };
        // The read does not block, so the lock is held only for the time of copying.
        let count = match read_more(&self.reader, place, rest.len as usize) {
            Ok(0) => return Err(cut_off(decoder)),
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(errno) => return Err(gone(&format!(": {errno}"))),
        };
        let Some(piece) = decoder.passed_by(count) else {
            return Err(crate::fault::internal("more was read than was to come"));
        };
        let credit = exchange
            .placed(piece.channel, piece.len, piece.is_last)
            .map_err(|error| wire_fault(&error))?;
        credits.extend(credit.map(|bytes| (piece.id.0, piece.channel, bytes)));
        Ok(piece.len == rest.len)
    }

    /// Sends credit for requests whose data is not taken piece by piece. Does not wait, because the
    /// leader must continue reading.
    fn give_all(&self, credits: Vec<(u32, Channel, u32)>) {
        if credits.is_empty() {
            return;
        }
        let mut outgoing = lock(&self.outgoing);
        for (id, channel, bytes) in credits {
            let header = Header::credit(RequestId(id), channel);
            let _ = outgoing.send(&self.writer, header, &u32::to_le_bytes(bytes));
        }
    }
}

/// Returns the fault for the end of the stream.
fn cut_off(decoder: &Decoder) -> Fault {
    if decoder.is_mid_frame() {
        gone(" in the middle of a message")
    } else {
        gone("")
    }
}

#[cfg(test)]
mod tests;
