//! Transfers in the event loop: performs the effects that their state machines return.

use super::EventLoop;
use crate::effect::Effect;
use crate::fault;
use crate::poll::Token;
use crate::requests::{PendingRequest, Requests};
use crate::transfers::StepOutcome;
use crate::tree;
use crate::tunnels::Tunnel;
use crate::workers::{DeferredCloses, Work};
use glovebox_proto::{Fault, RequestId};
use rustix::fd::OwnedFd;

impl EventLoop {
    /// Advances a transfer. During a freeze, transfers that change files wait.
    pub(super) fn advance_transfer(&mut self, id: RequestId) {
        if self.freeze.is_on() && self.requests.changes_files(id) {
            return;
        }
        let Requests { link, open, .. } = &mut self.requests;
        let effect = match open.get_mut(&id) {
            Some(PendingRequest::Read(reading)) => reading.next_step(id, link, &self.buffers),
            Some(PendingRequest::Write(writing)) => writing.next_step(id, link, &self.buffers),
            Some(PendingRequest::Tree(tree)) => tree.advance(id, link).map_step(on_worker),
            Some(PendingRequest::Tunnel(_)) => return self.advance_tunnel(id),
            _ => return,
        };
        self.apply(id, effect);
    }

    /// Performs the effect that a transfer has returned.
    fn apply(&mut self, id: RequestId, effect: Effect<Work<StepOutcome>>) {
        match effect {
            Effect::Wait => {}
            Effect::Again => self.requests.set_ready(id),
            Effect::Step(step) => {
                if let Err(fault) = self.workers.submit(id, step) {
                    self.requests.answer(id, &Err(fault));
                }
            }
            Effect::Answer(answer) => self.requests.answer(id, &answer),
        }
    }

    /// Takes the workers' results while the link has room.
    pub(super) fn take_results(&mut self) {
        while !self.requests.link.is_congested() {
            let Some((id, result)) = self.workers.result() else {
                return;
            };
            let outcome = match result {
                Ok(outcome) => outcome,
                Err(fault) => {
                    self.requests.answer(id, &Err(fault));
                    continue;
                }
            };
            self.book(id, outcome);
        }
    }

    fn book(&mut self, id: RequestId, outcome: StepOutcome) {
        let Requests { link, open, .. } = &mut self.requests;
        let pending = open.get_mut(&id);
        match outcome {
            StepOutcome::Answer(frames) => {
                self.requests.close(id);
                self.requests.link.frame_writer().push(&[&frames]);
            }
            StepOutcome::HalfAnswered => {}
            StepOutcome::Read(source, buffer) => {
                if let Some(PendingRequest::Read(reading)) = pending {
                    let effect = reading.was_read(id, link, source, &buffer);
                    self.apply(id, effect);
                }
                self.buffers.keep(buffer);
            }
            StepOutcome::Wrote(sink, buffer) => {
                if let Some(PendingRequest::Write(writing)) = pending {
                    let effect = writing.was_written(id, link, sink, buffer.len());
                    self.apply(id, effect);
                }
                self.buffers.keep(buffer);
            }
            StepOutcome::Tree(stepped) => {
                if let Some(PendingRequest::Tree(tree)) = pending {
                    let effect = tree.was_stepped(id, link, *stepped).map_step(on_worker);
                    self.apply(id, effect);
                }
            }
        }
    }

    /// Starts a connection to a server of the sandbox.
    ///
    /// # Errors
    /// As [`Tunnel::connect`].
    pub(super) fn connect(&mut self, id: RequestId, port: u16) -> Result<(), Fault> {
        let tunnel = Tunnel::connect(port)?;
        self.watch_tunnel(id, tunnel.socket())?;
        let tunnel = PendingRequest::Tunnel(Box::new(tunnel));
        self.requests.open.insert(id, tunnel);
        Ok(())
    }

    fn watch_tunnel(&self, id: RequestId, socket: &OwnedFd) -> Result<(), Fault> {
        self.poll
            .watch_stream(socket, Token::Tunnel(id))
            .map_err(|errno| fault::system(errno, "cannot watch a connection"))
    }

    /// Handles an event of a tunnel's socket.
    pub(super) fn tunnel_ready(&mut self, id: RequestId) {
        let Some(PendingRequest::Tunnel(tunnel)) = self.requests.open.get_mut(&id) else {
            return;
        };
        let is_new = match tunnel.socket_changed() {
            Ok(is_new) => is_new,
            Err(fault) => return self.requests.answer(id, &Err(fault)),
        };
        if is_new
            && let Some(PendingRequest::Tunnel(tunnel)) = self.requests.open.get(&id)
            && let Err(fault) = self.watch_tunnel(id, tunnel.socket())
        {
            return self.requests.answer(id, &Err(fault));
        }
        self.advance_tunnel(id);
    }

    /// Advances a tunnel that may have waited for credit, room or data.
    fn advance_tunnel(&mut self, id: RequestId) {
        let Requests { link, open, .. } = &mut self.requests;
        let Some(PendingRequest::Tunnel(tunnel)) = open.get_mut(&id) else {
            return;
        };
        match tunnel.advance(id, link, &mut self.scratch) {
            Effect::Wait => {}
            Effect::Again => self.requests.set_ready(id),
            Effect::Answer(answer) => self.requests.answer(id, &answer),
            Effect::Step(none) => match none {},
        }
    }
}

/// Wraps a step of a tree request as work for a worker.
fn on_worker(step: tree::Step) -> Work<StepOutcome> {
    Box::new(move |_: &mut DeferredCloses| Some(Ok(StepOutcome::Tree(Box::new(step())))))
}
