//! Queries a sandbox for its files. One thread sends queries while another receives replies, so
//! that neither side blocks with a full buffer while the other waits for it.

use super::{SandboxRoot, protocol};
use crate::threads;
use glovebox_proto::tree::{GotItem, Packer, Packing, Unpacker, Want};
use glovebox_proto::{Channel, Code, Fault, Reply, Request};
use glovebox_sandbox::{Incoming, Input};
use serde_bytes::ByteBuf;

/// Number of bytes of queries that are sent at a time.
const SEND_BYTES: usize = 64 << 10;

/// Receiver of the replies.
// TRUST: the sandbox controls the replies. Every receiver accepts exactly one reply per query.
pub(super) trait Answers {
    /// Takes the next reply, or a part of it.
    fn take(&mut self, item: GotItem<'_>) -> Result<(), Fault>;
    /// Called after everything that has arrived so far was taken.
    fn pause(&mut self) -> Result<(), Fault>;
    /// Returns true if every query has its reply.
    fn is_complete(&self) -> bool;
}

/// Writer of queries.
pub(super) struct Questions<'a> {
    input: &'a Input,
    packer: Packer,
    out: Vec<u8>,
}

impl Questions<'_> {
    /// Queries one file.
    pub(super) fn ask(&mut self, want: &Want<'_>) -> Result<(), Fault> {
        self.packer.push(want, &mut self.out)?;
        if self.out.len() >= SEND_BYTES {
            self.input.send(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }
}

/// Sends the queries that `ask` makes, and passes the replies to `answers`.
pub(super) fn get(
    place: &SandboxRoot<'_>,
    packing: Packing,
    ask: impl FnOnce(&mut Questions<'_>) -> Result<(), Fault> + Send,
    answers: &mut impl Answers,
) -> Result<(), Fault> {
    let mut stream = place.sandbox.open(Request::TreeGet {
        path: ByteBuf::from(place.root),
        packing,
    })?;
    let input = stream.input();
    std::thread::scope(|scope| {
        let sender = threads::start(scope, || send(ask, &input))?;
        let mut unpacker = Unpacker::new();
        let result = loop {
            let bytes = match stream.recv() {
                Incoming::Data {
                    channel: Channel::Content,
                    bytes,
                    ..
                } => bytes,
                Incoming::Data { .. } => continue,
                Incoming::Reply(Ok(Reply::Tree(_)))
                    if unpacker.is_between_blocks() && answers.is_complete() =>
                {
                    break Ok(());
                }
                Incoming::Reply(Ok(_)) => break Err(protocol("did not answer all questions")),
                Incoming::Reply(Err(fault)) => break Err(fault),
            };
            let taken = take_all(&bytes, &mut unpacker, answers).and_then(|()| answers.pause());
            if let Err(fault) = taken {
                // The cancelled stream refuses further queries, which ends the sender.
                let _ = stream.cancel();
                break Err(fault);
            }
        };
        drop(stream);
        match (result, threads::end(sender)) {
            (Err(fault), Ok(Err(own))) if fault.code == Code::Cancelled => Err(own),
            (Err(fault), _) => Err(fault),
            (Ok(()), sent) => sent?,
        }
    })
}

fn take_all(
    bytes: &[u8],
    unpacker: &mut Unpacker,
    answers: &mut impl Answers,
) -> Result<(), Fault> {
    let mut input = bytes;
    while let Some(block) = unpacker
        .next_block(&mut input)
        .map_err(|error| protocol(&error.to_string()))?
    {
        for item in block.items::<GotItem<'_>>() {
            answers.take(item.map_err(|error| protocol(&error.to_string()))?)?;
        }
    }
    Ok(())
}

fn send(
    ask: impl FnOnce(&mut Questions<'_>) -> Result<(), Fault>,
    input: &Input,
) -> Result<(), Fault> {
    let send_all = || {
        let mut questions = Questions {
            input,
            // Queries are names of files, which are not worth compressing.
            packer: Packer::new(Packing::Stored)?,
            out: Vec::new(),
        };
        ask(&mut questions)?;
        questions.packer.seal(&mut questions.out)?;
        input.send(&questions.out)?;
        input.finish()
    };
    match send_all() {
        // The guest has ended the request; its reply has the reason.
        Err(fault) if fault.code == Code::JobEnded => Ok(()),
        Err(fault) => {
            let _ = input.cancel();
            Err(fault)
        }
        Ok(()) => Ok(()),
    }
}
