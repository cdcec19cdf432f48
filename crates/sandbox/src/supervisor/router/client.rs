//! Client that is connected to a supervisor.

use crate::link::Outgoing;
use glovebox_proto::Decoder;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Maximum number of bytes queued for a client that does not read. A client that reads stays far
/// below it because of its windows.
const MAX_QUEUED_BYTES: usize = 48 << 20;

/// Connection of a client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) socket: OwnedFd,
    pub(super) decoder: Decoder,
    pub(super) outgoing: Outgoing,
    /// Ids of the guest's requests by the client's ids.
    pub(super) ids: HashMap<u32, u32>,
    pub(super) has_greeted: bool,
    pub(super) since: Instant,
    /// True if the connection is to be dropped.
    pub(super) is_broken: bool,
}

impl Client {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            decoder: Decoder::new(),
            outgoing: Outgoing::default(),
            ids: HashMap::new(),
            has_greeted: false,
            since: Instant::now(),
            is_broken: false,
        }
    }

    pub(super) fn send(&mut self, header: glovebox_proto::Header, payload: &[u8]) {
        if self.is_broken {
            return;
        }
        let sent = self.outgoing.send(&self.socket, header, payload);
        self.is_broken = sent.is_err() || self.outgoing.len() > MAX_QUEUED_BYTES;
    }

    pub(super) fn flush(&mut self) {
        if self.outgoing.flush(&self.socket).is_err() {
            self.is_broken = true;
        }
    }

    /// Reads once. The end or an error marks the connection as broken.
    pub(super) fn read(&mut self) {
        match rustix::io::read(&self.socket, self.decoder.space()) {
            Ok(0) => self.is_broken = true,
            Ok(count) => self.decoder.filled(count),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.is_broken = true,
        }
    }
}
