//! The requests of trees from a host's side: what is asked and sent, and what came of it.

use super::client::Guest;
use glovebox_proto::tree::{
    EntryKind, GotItem, Packer, Packing, PutItem, PutReceipt, ScanItem, TreeTotals, Unpacker, Want,
};
use glovebox_proto::{Channel, Code, Fault, Reply, Request};
use serde_bytes::ByteBuf;
use std::fs;
use std::path::Path;

pub(crate) const ENTRIES: u64 = 1_000_000;

pub(crate) fn scan_request(root: &str, max_entries: u64, max_depth: u32) -> Request {
    Request::TreeScan {
        path: ByteBuf::from(root),
        max_entries,
        max_depth,
        packing: Packing::Zstd,
    }
}

pub(crate) fn put_request(root: &str) -> Request {
    Request::TreePut {
        path: ByteBuf::from(root),
    }
}

pub(crate) fn get_request(root: &str, packing: Packing) -> Request {
    Request::TreeGet {
        path: ByteBuf::from(root),
        packing,
    }
}

pub(crate) fn totals(reply: Reply) -> TreeTotals {
    match reply {
        Reply::Tree(totals) => totals,
        other => panic!("{other:?}"),
    }
}

/// Every item of a stream, shown.
pub(crate) fn items(bytes: &[u8], mut take: impl FnMut(glovebox_proto::tree::Block<'_>)) {
    let mut unpacker = Unpacker::new();
    let mut input = bytes;
    while let Some(block) = unpacker.next_block(&mut input).unwrap() {
        take(block);
    }
    assert!(unpacker.is_between_blocks());
}

/// One line per entry: kind, path, and what else matters.
pub(crate) fn scan(
    guest: &mut Guest,
    request: &Request,
) -> Result<(Vec<String>, TreeTotals), Fault> {
    let id = guest.ask(request);
    let reply = guest.answer(id);
    let bytes = guest.take(id, Channel::Content);
    let mut lines = Vec::new();
    items(&bytes, |block| {
        for item in block.items::<ScanItem<'_>>() {
            lines.push(match item.unwrap() {
                ScanItem::Entry(entry) => {
                    let path = entry.path.escape_ascii().to_string();
                    match entry.kind {
                        EntryKind::File {
                            signature,
                            is_linked,
                        } => format!(
                            "file {path} {}{}{}",
                            signature.size,
                            if signature.is_executable() { " x" } else { "" },
                            if is_linked { " linked" } else { "" }
                        ),
                        EntryKind::Dir => format!("dir {path}"),
                        EntryKind::Link { target } => {
                            format!("link {path} {}", target.escape_ascii())
                        }
                        EntryKind::Special(kind) => format!("{kind:?} {path}"),
                    }
                }
                ScanItem::Missed { path, code } => format!("missed {} {code}", path.escape_ascii()),
            });
        }
    });
    reply.map(|reply| (lines, totals(reply)))
}

pub(crate) fn pack(items: &[PutItem<'_>]) -> Vec<u8> {
    let mut packer = Packer::new(Packing::Zstd).unwrap();
    let mut out = Vec::new();
    for item in items {
        packer.push(item, &mut out).unwrap();
    }
    packer.seal(&mut out).unwrap();
    out
}

pub(crate) fn put(
    guest: &mut Guest,
    root: &str,
    items_put: &[PutItem<'_>],
) -> (Result<TreeTotals, Fault>, Vec<PutReceipt>) {
    let id = guest.ask(&put_request(root));
    guest.send(id, &pack(items_put), true);
    let reply = guest.answer(id);
    let bytes = guest.take(id, Channel::Content);
    let mut receipts = Vec::new();
    items(&bytes, |block| {
        receipts.extend(block.items::<PutReceipt>().map(Result::unwrap));
    });
    (reply.map(totals), receipts)
}

pub(crate) fn file<'a>(path: &'a [u8], content: &'a [u8]) -> [PutItem<'a>; 3] {
    [
        PutItem::File {
            path,
            is_executable: false,
            mtime_ns: 1_000_000_000_000_000_001,
        },
        PutItem::Chunk(content),
        PutItem::End {
            size: content.len() as u64,
            digest: *blake3::hash(content).as_bytes(),
        },
    ]
}

/// Content and whether it was sent, or why not.
pub(crate) type GotContent = Result<(Vec<u8>, bool), Code>;

/// Content by path, or the code of the failure.
pub(crate) fn get(
    guest: &mut Guest,
    root: &str,
    packing: Packing,
    wants: &[Want<'_>],
) -> Result<Vec<GotContent>, Fault> {
    let mut packer = Packer::new(Packing::Stored).unwrap();
    let mut list = Vec::new();
    for want in wants {
        packer.push(want, &mut list).unwrap();
    }
    packer.seal(&mut list).unwrap();
    let id = guest.ask(&get_request(root, packing));
    guest.send(id, &list, true);
    let reply = guest.answer(id);
    let bytes = guest.take(id, Channel::Content);
    let mut found = Vec::new();
    let mut content = Vec::new();
    items(&bytes, |block| {
        for item in block.items::<GotItem<'_>>() {
            match item.unwrap() {
                GotItem::Chunk(bytes) => content.extend_from_slice(bytes),
                GotItem::End {
                    digest,
                    size,
                    has_content,
                    ..
                } => {
                    let content = std::mem::take(&mut content);
                    if has_content {
                        assert_eq!(size, content.len() as u64);
                        assert_eq!(*blake3::hash(&content).as_bytes(), digest);
                    }
                    found.push(Ok((content, has_content)));
                }
                GotItem::Failed { code, message } => {
                    assert!(!message.is_empty());
                    content.clear();
                    found.push(Err(code));
                }
            }
        }
    });
    reply.map(|_| found)
}

pub(crate) fn want(path: &[u8]) -> Want<'_> {
    Want {
        path,
        known: None,
        has_content: true,
    }
}

/// Names below a directory that a put might have left.
pub(crate) fn leftovers(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().unwrap().is_dir() {
            found.extend(leftovers(&entry.path()));
        }
        if name.starts_with(".glovebox.") {
            found.push(name);
        }
    }
    found
}
