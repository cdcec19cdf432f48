//! Receipts of the guest, and the decisions that wait for them, both in order.

use super::manifest::{Line, LineKind};
use super::protocol;
use crate::{RelPath, base};
use glovebox_proto::tree::{PutReceipt, Unpacker};
use glovebox_proto::{Channel, Fault, Reply};
use glovebox_sandbox::{Incoming, Stream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

/// Decisions for the manifest and the index, in order.
#[derive(Debug)]
pub(super) enum ReceiptDecision {
    /// Unchanged files.
    Same(Vec<Line>),
    One(Box<PendingDecision>),
}

/// A decision about one path.
#[derive(Debug)]
pub(super) struct PendingDecision {
    pub(super) line: Option<Line>,
    pub(super) index: Option<(RelPath, base::Signature)>,
    /// True if an item was sent for it, so that the guest must confirm it.
    pub(super) awaits_receipt: bool,
}

/// Message of the guest.
#[derive(Debug)]
pub(super) enum GuestAnswer {
    Receipt(PutReceipt),
    End(Result<(), Fault>),
}

/// Receipts of the guest, in order.
#[derive(Debug)]
pub(super) struct Receipts {
    heard: Receiver<GuestAnswer>,
}

/// A receipt.
#[derive(Debug)]
pub(super) struct Receipt(PutReceipt);

impl Receipt {
    /// Adds the guest's information to a line. Fails with `Code::Protocol` if the receipt is of
    /// another kind.
    pub(super) fn complete(&self, line: &mut Line) -> Result<(), Fault> {
        match (&mut line.kind, &self.0) {
            (
                LineKind::File { inside, .. },
                PutReceipt::Written {
                    signature,
                    is_settled,
                },
            ) => {
                *inside = is_settled.then_some(*signature);
                Ok(())
            }
            (LineKind::Dir | LineKind::Link { .. }, PutReceipt::Done) => Ok(()),
            _ => Err(protocol("sends a receipt of another kind")),
        }
    }
}

impl Receipts {
    pub(super) fn new(heard: Receiver<GuestAnswer>) -> Self {
        Self { heard }
    }

    /// Waits for the next receipt; `None` if none arrives within `wait`.
    pub(super) fn next(&mut self, wait: Duration) -> Result<Option<Receipt>, Fault> {
        match self.heard.recv_timeout(wait) {
            Ok(GuestAnswer::Receipt(receipt)) => Ok(Some(Receipt(receipt))),
            Ok(GuestAnswer::End(Err(fault))) => Err(fault),
            Ok(GuestAnswer::End(Ok(()))) => Err(protocol("ended a put before everything was done")),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(protocol("stopped answering")),
        }
    }

    /// Waits for the end of the request, after the last receipt.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        match self.heard.recv() {
            Ok(GuestAnswer::End(result)) => result,
            Ok(GuestAnswer::Receipt(_)) => {
                Err(protocol("sends more receipts than it was sent items"))
            }
            Err(_) => Err(protocol("stopped answering")),
        }
    }
}

/// Receives the guest's receipts from the stream.
// TRUST: the channel is bounded; a guest that sends too many receipts blocks.
pub(super) fn receive(mut stream: Stream, heard: &SyncSender<GuestAnswer>) -> Result<(), Fault> {
    let mut unpacker = Unpacker::new();
    let result = loop {
        match stream.recv() {
            Incoming::Data {
                channel: Channel::Content,
                bytes,
                ..
            } => {
                let mut input = bytes.as_slice();
                while let Some(block) = unpacker
                    .next_block(&mut input)
                    .map_err(|error| protocol(&error.to_string()))?
                {
                    for receipt in block.items::<PutReceipt>() {
                        let receipt = receipt.map_err(|error| protocol(&error.to_string()))?;
                        if heard.send(GuestAnswer::Receipt(receipt)).is_err() {
                            // The push has failed, and the receipts are not needed.
                            return Ok(());
                        }
                    }
                }
            }
            Incoming::Data { .. } => {}
            Incoming::Reply(Ok(Reply::Tree(_))) => break Ok(()),
            Incoming::Reply(Ok(_)) => break Err(protocol("ended a put in the wrong way")),
            Incoming::Reply(Err(fault)) => break Err(fault),
        }
    };
    let _ = heard.send(GuestAnswer::End(result));
    Ok(())
}
