//! Asking a sandbox for the digests of files that their signatures cannot tell from others.

use super::spool::{Spool, Spooled};
use super::{Place, protocol};
use crate::{Digest, RelPath};
use glovebox_proto::tree::{GotItem, Packer, Packing, Signature, Unpacker, Want};
use glovebox_proto::{Channel, Code, Fault, Reply, Request};
use glovebox_sandbox::{Incoming, Input};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::path::Path;

/// Bytes sent at a time.
const SEND_BYTES: usize = 64 << 10;

/// A file of the sandbox, read for its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) size: u64,
    pub(super) digest: Digest,
    /// Its signature, if that will prove the same content later.
    pub(super) signature: Option<Signature>,
}

/// Asks for the digests of `wanted`; `None` for a file that could not be read. `each` hears of the
/// number of files now and then, and may stop it.
// TRUST: the guest's words about its own files; exactly one answer per question is taken.
pub(super) fn ask(
    place: &Place<'_>,
    wanted: &Spooled<RelPath>,
    count: u64,
    spool_dir: &Path,
    each: &mut dyn FnMut(u64) -> Result<(), Fault>,
) -> Result<Spooled<Option<Told>>, Fault> {
    let mut told = Spool::unnamed(spool_dir)?;
    if count == 0 {
        return told.finish();
    }
    let mut stream = place.sandbox.open(Request::TreeGet {
        path: ByteBuf::from(place.root),
        packing: Packing::Stored,
    })?;
    let input = stream.input();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(wanted, &input));
        let mut unpacker = Unpacker::new();
        let mut answers = 0;
        let result = loop {
            let bytes = match stream.recv() {
                Incoming::Data {
                    channel: Channel::Content,
                    bytes,
                    ..
                } => bytes,
                Incoming::Data { .. } => continue,
                Incoming::Reply(Ok(Reply::Tree(_)))
                    if unpacker.is_between_blocks() && answers == count =>
                {
                    break Ok(());
                }
                Incoming::Reply(Ok(_)) => break Err(protocol("did not answer all questions")),
                Incoming::Reply(Err(fault)) => break Err(fault),
            };
            let taken = take(&bytes, &mut unpacker, &mut told, &mut answers, count)
                .and_then(|()| each(answers));
            if let Err(fault) = taken {
                // The sender hears of it by being refused.
                let _ = stream.cancel();
                break Err(fault);
            }
        };
        drop(stream);
        match (result, sender.join()) {
            (Err(fault), Ok(Err(own))) if fault.code == Code::Cancelled => Err(own),
            (Err(fault), _) => Err(fault),
            (Ok(()), Ok(sent)) => sent,
            (Ok(()), Err(_)) => Err(Fault::failed(Code::Internal, "the sending thread ended")),
        }
    })?;
    told.finish()
}

fn take(
    bytes: &[u8],
    unpacker: &mut Unpacker,
    told: &mut Spool<Option<Told>>,
    answers: &mut u64,
    count: u64,
) -> Result<(), Fault> {
    let mut input = bytes;
    while let Some(block) = unpacker
        .next_block(&mut input)
        .map_err(|error| protocol(&error.to_string()))?
    {
        for item in block.items::<GotItem<'_>>() {
            if *answers == count {
                return Err(protocol("answers what it was not asked"));
            }
            *answers += 1;
            match item.map_err(|error| protocol(&error.to_string()))? {
                GotItem::End {
                    signature,
                    is_settled,
                    size,
                    digest,
                    has_content: false,
                } => told.push(&Some(Told {
                    size,
                    digest,
                    signature: is_settled.then_some(signature),
                }))?,
                GotItem::Failed { .. } => told.push(&None)?,
                GotItem::Chunk(_) | GotItem::End { .. } => {
                    return Err(protocol("sends content it was not asked for"));
                }
            }
        }
    }
    Ok(())
}

fn send(wanted: &Spooled<RelPath>, input: &Input) -> Result<(), Fault> {
    let result = send_all(wanted, input);
    if result.is_err() {
        // Already given up, or about to be.
        let _ = input.cancel();
    }
    match result {
        // Its answer says why.
        Err(fault) if fault.code == Code::JobEnded => Ok(()),
        other => other,
    }
}

fn send_all(wanted: &Spooled<RelPath>, input: &Input) -> Result<(), Fault> {
    let mut packer = Packer::new(Packing::Stored)?;
    let mut out = Vec::new();
    let mut paths = wanted.read();
    while let Some(path) = paths.next()? {
        let want = Want {
            path: path.as_bytes(),
            known: None,
            has_content: false,
        };
        packer.push(&want, &mut out)?;
        if out.len() >= SEND_BYTES {
            input.send(&out)?;
            out.clear();
        }
    }
    packer.seal(&mut out)?;
    input.send(&out)?;
    input.finish()
}
