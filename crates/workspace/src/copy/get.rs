//! Asking a sandbox about its files: questions go out on one thread while answers come in on another,
//! so that neither side waits for the other with full hands.

use super::{SandboxRoot, protocol};
use crate::threads;
use glovebox_proto::tree::{GotItem, Packer, Packing, Unpacker, Want};
use glovebox_proto::{Channel, Code, Fault, Reply, Request};
use glovebox_sandbox::{Incoming, Input};
use serde_bytes::ByteBuf;

/// Bytes of questions sent at a time.
const SEND_BYTES: usize = 64 << 10;

/// Whoever takes the answers.
// TRUST: what arrives is a sandbox's; each taker accepts exactly one answer per question.
pub(super) trait Answers {
    /// Takes the next answer, or a part of it.
    fn take(&mut self, item: GotItem<'_>) -> Result<(), Fault>;
    /// Everything that has arrived so far was taken.
    fn pause(&mut self) -> Result<(), Fault>;
    /// Whether every question has its answer.
    fn is_complete(&self) -> bool;
}

/// The questions on their way.
pub(super) struct Questions<'a> {
    input: &'a Input,
    packer: Packer,
    out: Vec<u8>,
}

impl Questions<'_> {
    /// Asks for one file.
    pub(super) fn ask(&mut self, want: &Want<'_>) -> Result<(), Fault> {
        self.packer.push(want, &mut self.out)?;
        if self.out.len() >= SEND_BYTES {
            self.input.send(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }
}

/// Sends what `ask` asks, and gives `answers` what comes back.
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
                // The sender hears of it by being refused.
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
            // Names of files: not worth compressing.
            packer: Packer::new(Packing::Stored)?,
            out: Vec::new(),
        };
        ask(&mut questions)?;
        questions.packer.seal(&mut questions.out)?;
        input.send(&questions.out)?;
        input.finish()
    };
    match send_all() {
        // Its answer says why.
        Err(fault) if fault.code == Code::JobEnded => Ok(()),
        Err(fault) => {
            let _ = input.cancel();
            Err(fault)
        }
        Ok(()) => Ok(()),
    }
}
