//! One connected client of a supervisor.

use crate::link::Outgoing;
use glovebox_proto::Decoder;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Most bytes kept for a client that does not read. Windows keep a reading client far below it.
const MAX_QUEUED_BYTES: usize = 48 << 20;

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) socket: OwnedFd,
    pub(super) decoder: Decoder,
    pub(super) outgoing: Outgoing,
    /// The guest's id by the client's.
    pub(super) ids: HashMap<u32, u32>,
    pub(super) has_greeted: bool,
    pub(super) since: Instant,
    /// Nothing more can be said to it or heard from it.
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

    /// Reads once; an end or error breaks the connection.
    pub(super) fn read(&mut self) {
        match rustix::io::read(&self.socket, self.decoder.space()) {
            Ok(0) => self.is_broken = true,
            Ok(count) => self.decoder.filled(count),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.is_broken = true,
        }
    }
}
