//! Whole trees, through the guest.

use crate::Fixture;
use glovebox_proto::tree::{
    EntryKind, GotItem, Packer, Packing, PutItem, PutReceipt, ScanItem, Unpacker, Want,
};
use glovebox_proto::{Class, Code, Fault, Reply, Request};
use glovebox_sandbox::{Incoming, Sandbox};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;

fn pack<T: Serialize>(items: &[T]) -> Vec<u8> {
    let mut packer = Packer::new(Packing::Zstd).unwrap();
    let mut out = Vec::new();
    for item in items {
        packer.push(item, &mut out).unwrap();
    }
    packer.seal(&mut out).unwrap();
    out
}

/// Sends what there is to send, and hands every block that comes back to `take`.
fn ask(
    sandbox: &Sandbox,
    request: Request,
    input: &[u8],
    mut take: impl FnMut(glovebox_proto::tree::Block<'_>),
) -> Result<Reply, Fault> {
    let has_input = !matches!(request, Request::TreeScan { .. });
    let mut stream = sandbox.open(request)?;
    let feed = stream.input();
    std::thread::scope(|scope| {
        if has_input {
            // Input that is not taken is explained by the answer.
            scope.spawn(move || feed.send(input).and_then(|()| feed.finish()));
        }
        let mut unpacker = Unpacker::new();
        loop {
            match stream.recv() {
                Incoming::Data { bytes, .. } => {
                    let mut input = bytes.as_slice();
                    while let Some(block) = unpacker.next_block(&mut input).unwrap() {
                        take(block);
                    }
                }
                Incoming::Reply(reply) => return reply,
            }
        }
    })
}

fn owned<T: DeserializeOwned>(block: glovebox_proto::tree::Block<'_>) -> Vec<T> {
    block.items::<T>().map(Result::unwrap).collect()
}

fn put(sandbox: &Sandbox, root: &str, items: &[PutItem<'_>]) -> Result<Vec<PutReceipt>, Fault> {
    let request = Request::TreePut {
        path: ByteBuf::from(root),
    };
    let mut receipts = Vec::new();
    let reply = ask(sandbox, request, &pack(items), |block| {
        receipts.extend(owned::<PutReceipt>(block));
    });
    reply.map(|_| receipts)
}

fn file<'a>(path: &'a [u8], content: &'a [u8]) -> Vec<PutItem<'a>> {
    let mut items = vec![PutItem::File {
        path,
        is_executable: content.starts_with(b"#!"),
        mtime_ns: 1_234_567_890_000_000_000,
    }];
    items.extend(content.chunks(100_000).map(PutItem::Chunk));
    items.push(PutItem::End {
        size: content.len() as u64,
        digest: *blake3::hash(content).as_bytes(),
    });
    items
}

fn scan(sandbox: &Sandbox, root: &str) -> Result<Vec<String>, Fault> {
    let request = Request::TreeScan {
        path: ByteBuf::from(root),
        max_entries: 10_000,
        max_depth: 64,
        packing: Packing::Zstd,
    };
    let mut lines = Vec::new();
    let reply = ask(sandbox, request, &[], |block| {
        for item in block.items::<ScanItem<'_>>() {
            let ScanItem::Entry(entry) = item.unwrap() else {
                panic!("something was missed");
            };
            let kind = match entry.kind {
                EntryKind::File { signature, .. } => format!(
                    "file {} {}",
                    signature.size,
                    if signature.is_executable() { "x" } else { "-" }
                ),
                EntryKind::Dir => "dir".to_owned(),
                EntryKind::Link { target } => format!("-> {}", target.escape_ascii()),
                EntryKind::Special(kind) => format!("{kind:?}"),
            };
            lines.push(format!("{} {kind}", entry.path.escape_ascii()));
        }
    });
    reply.map(|_| lines)
}

fn get(sandbox: &Sandbox, root: &str, paths: &[&[u8]]) -> Vec<Result<Vec<u8>, Code>> {
    let wants: Vec<Want<'_>> = paths
        .iter()
        .map(|path| Want {
            path,
            known: None,
            has_content: true,
        })
        .collect();
    let request = Request::TreeGet {
        path: ByteBuf::from(root),
        packing: Packing::Zstd,
    };
    let (mut found, mut content) = (Vec::new(), Vec::new());
    ask(sandbox, request, &pack(&wants), |block| {
        for item in block.items::<GotItem<'_>>() {
            match item.unwrap() {
                GotItem::Chunk(bytes) => content.extend_from_slice(bytes),
                GotItem::End { digest, .. } => {
                    assert_eq!(*blake3::hash(&content).as_bytes(), digest);
                    found.push(Ok(std::mem::take(&mut content)));
                }
                GotItem::Failed { code, .. } => found.push(Err(code)),
            }
        }
    })
    .unwrap();
    found
}

pub(crate) fn a_tree_put_is_scanned_and_got_back(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let large: Vec<u8> = (0..1_500_000_u32).map(|n| (n * 31 % 251) as u8).collect();
    let mut items = vec![PutItem::Dir { path: b"d" }];
    items.extend(file(b"d/large", &large));
    items.extend(file(b"d/odd\xff\n", b"#!odd"));
    items.push(PutItem::Link {
        path: b"link",
        target: b"d/large",
    });
    assert_eq!(put(&sandbox, "tree", &items).unwrap().len(), 4);
    assert_eq!(
        scan(&sandbox, "tree").unwrap(),
        [
            "d dir",
            "d/large file 1500000 -",
            "d/odd\\xff\\n file 5 x",
            "link -> d/large"
        ]
    );
    let got = get(
        &sandbox,
        "tree",
        &[b"d/large", b"d/odd\xff\n", b"none", b"link", b"d"],
    );
    assert!(got[0].as_deref() == Ok(&large));
    assert_eq!(got[1].as_deref(), Ok(&b"#!odd"[..]));
    assert_eq!(got[2], Err(Code::NotFound));
    assert!(got[3].is_err() && got[4].is_err(), "{:?}", &got[3..]);

    let mut items = vec![
        PutItem::Delete { path: b"link" },
        PutItem::Delete { path: b"d" },
    ];
    items.extend(file(b"d/large", b"small now"));
    let receipts = put(&sandbox, "tree", &items).unwrap();
    assert_eq!(receipts[..2], [PutReceipt::Done, PutReceipt::Kept]);
    assert_eq!(
        sandbox.read_file(b"tree/d/large", 100).unwrap(),
        b"small now"
    );
    assert_eq!(scan(&sandbox, "none").unwrap_err().code, Code::NotFound);
}

pub(crate) fn a_put_stays_beneath_its_root(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let way = PutItem::Link {
        path: b"way",
        target: b"../outside",
    };
    put(&sandbox, "root", &[way]).unwrap();
    put(&sandbox, "outside", &file(b"kept", b"kept")).unwrap();
    for bad in [
        &b"way/new"[..],
        b"../outside/new",
        b"/tmp/new",
        b"..",
        b"a/../b",
    ] {
        let fault = put(&sandbox, "root", &file(bad, b"x")).unwrap_err();
        assert_eq!(fault.class, Class::Failed, "{fault}");
    }
    assert_eq!(scan(&sandbox, "outside").unwrap(), ["kept file 4 -"]);
}

pub(crate) fn tree_requests_can_be_given_up(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    for _ in 0..3 {
        let mut stream = sandbox
            .open(Request::TreePut {
                path: ByteBuf::from("tree"),
            })
            .unwrap();
        let begun = &file(b"half", &[7; 1000])[..2];
        stream.send(&pack(begun)).unwrap();
        stream.cancel().unwrap();
        let reply = loop {
            if let Incoming::Reply(reply) = stream.recv() {
                break reply;
            }
        };
        assert_eq!(reply.unwrap_err().code, Code::Cancelled);
    }
    // Made or not, there is nothing in it.
    assert_eq!(scan(&sandbox, "tree").unwrap_or_default(), [] as [&str; 0]);
    sandbox.ping().unwrap();
}
