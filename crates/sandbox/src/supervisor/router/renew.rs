//! Request of the supervisor itself, between those of its clients.

use super::Router;
use crate::fault;
use crate::link::{until, wire_fault};
use glovebox_proto::{Code, Fault, FrameKind, Header, Reply, Request, RequestId, decode, encode};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::time::{Duration, Instant};

impl Router {
    /// Tells the guest that its mounts have been exchanged, and waits for its reply. Precondition:
    /// no request is open.
    pub(crate) fn renew(&mut self, wait: Duration) -> Result<(), Fault> {
        let lost = |errno: Errno| super::gone(&format!(": {errno}"));
        let deadline = Some(Instant::now() + wait);
        let payload = encode(&Request::Renew)?;
        let id = self.next_id();
        let header = Header::control(FrameKind::Request, id, payload.len() as u32);
        self.to_guest
            .send(&self.writer, header, &payload)
            .map_err(lost)?;
        loop {
            if let Some(frame) = self
                .decoder
                .next_frame()
                .map_err(|error| wire_fault(&error))?
            {
                // TRUST: no other request is open, so no other frame may come.
                if frame.header.kind != FrameKind::Reply || frame.header.id != id {
                    return Err(fault::internal("the guest answers what nobody asked"));
                }
                let reply = decode::<Result<Reply, Fault>>(frame.payload, "reply")
                    .map_err(|error| wire_fault(&error))?;
                return match reply? {
                    Reply::Done => Ok(()),
                    _ => Err(fault::internal("the guest answers something else")),
                };
            }
            let left = until(deadline).map_err(|_| {
                Fault::failed(
                    Code::TimedOut,
                    "the guest did not look up its mounts in time",
                )
            })?;
            let mut fds = [PollFd::new(&self.reader, PollFlags::IN)];
            match poll(&mut fds, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(lost(errno)),
            }
            self.to_guest.flush(&self.writer).map_err(lost)?;
            match rustix::io::read(&self.reader, self.decoder.space()) {
                Ok(0) => return Err(super::gone("")),
                Ok(count) => self.decoder.filled(count),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(lost(errno)),
            }
        }
    }

    /// Returns an id that no open request has.
    pub(super) fn next_id(&mut self) -> RequestId {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if self.last_id != 0 && !self.routes.contains_key(&self.last_id) {
                return RequestId(self.last_id);
            }
        }
    }
}
