//! State that the threads of one link share: open requests, the leader, and waiting threads.

use super::exchange::Exchange;
use super::spin::SpinPolicy;
use glovebox_proto::{Channel, Fault, FrameKind, FrameRef, Header, Reply, WireError, decode};
use std::collections::HashMap;
use std::thread::Thread;

#[derive(Debug, Default)]
pub(super) struct LinkState {
    pub(super) exchanges: HashMap<u32, Exchange>,
    pub(super) last_id: u32,
    pub(super) has_leader: bool,
    pub(super) waiters: Vec<Waiter>,
    pub(super) last_token: u64,
    pub(super) lost: Option<Fault>,
    pub(super) spin_policy: SpinPolicy,
}

/// Thread that waits for an event of a request.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) token: u64,
    pub(super) request: u32,
    pub(super) thread: Thread,
}

impl LinkState {
    pub(super) fn free_id(&mut self) -> u32 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if self.last_id != 0 && !self.exchanges.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    pub(super) fn remember(&mut self, request: u32) -> u64 {
        self.last_token += 1;
        let token = self.last_token;
        self.waiters.push(Waiter {
            token,
            request,
            thread: std::thread::current(),
        });
        token
    }

    pub(super) fn forget(&mut self, token: Option<u64>) {
        if let Some(token) = token {
            self.waiters.retain(|waiter| waiter.token != token);
        }
    }

    pub(super) fn leave(&mut self) {
        self.has_leader = false;
        self.pass_on();
    }

    /// Wakes a waiting thread if there is no leader.
    pub(super) fn pass_on(&self) {
        if !self.has_leader
            && let Some(waiter) = self.waiters.first()
        {
            waiter.thread.unpark();
        }
    }

    pub(super) fn hand_out(
        &mut self,
        frame: FrameRef<'_>,
        credits: &mut Vec<(u32, Channel, u32)>,
    ) -> Result<(), WireError> {
        // TRUST: the guest chose the id. It must be that of an open request.
        let id = frame.header.id.0;
        let Some(exchange) = self.exchanges.get_mut(&id) else {
            return Err(WireError::BadHeader("frame for a request that is not open"));
        };
        let Header {
            kind,
            channel,
            is_last,
            ..
        } = frame.header;
        match kind {
            FrameKind::Data => {
                let credit = exchange.data(channel, frame.payload, is_last)?;
                credits.extend(credit.map(|bytes| (id, channel, bytes)));
            }
            FrameKind::Credit => exchange.credit(channel, frame.credit()?)?,
            FrameKind::Reply => {
                let reply: Result<Reply, Fault> = decode(frame.payload, "reply")?;
                exchange.answer(reply)?;
                if exchange.is_abandoned {
                    self.exchanges.remove(&id);
                }
            }
            FrameKind::Hello | FrameKind::Request | FrameKind::Cancel => {
                return Err(WireError::BadHeader("a frame kind only a host sends"));
            }
        }
        for waiter in self.waiters.iter().filter(|waiter| waiter.request == id) {
            waiter.thread.unpark();
        }
        Ok(())
    }
}
