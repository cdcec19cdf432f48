//! Whole trees through the real guest: scanned, put and got exactly, beneath their root, without
//! traces of what was not finished.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod client;

use client::Guest;
use glovebox_proto::tree::{
    EntryKind, GotItem, Packer, Packing, PutItem, PutReceipt, ScanItem, TreeTotals, Unpacker, Want,
};
use glovebox_proto::{Channel, Code, Fault, Reply, Request, RequestId};
use serde_bytes::ByteBuf;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

const ENTRIES: u64 = 1_000_000;

fn scan_request(root: &str, max_entries: u64, max_depth: u32) -> Request {
    Request::TreeScan {
        path: ByteBuf::from(root),
        max_entries,
        max_depth,
        packing: Packing::Zstd,
    }
}

fn put_request(root: &str) -> Request {
    Request::TreePut {
        path: ByteBuf::from(root),
    }
}

fn get_request(root: &str, packing: Packing) -> Request {
    Request::TreeGet {
        path: ByteBuf::from(root),
        packing,
    }
}

fn totals(reply: Reply) -> TreeTotals {
    match reply {
        Reply::Tree(totals) => totals,
        other => panic!("{other:?}"),
    }
}

/// Every item of a stream, shown.
fn items(bytes: &[u8], mut take: impl FnMut(glovebox_proto::tree::Block<'_>)) {
    let mut unpacker = Unpacker::new();
    let mut input = bytes;
    while let Some(block) = unpacker.next_block(&mut input).unwrap() {
        take(block);
    }
    assert!(unpacker.is_between_blocks());
}

/// One line per entry: kind, path, and what else matters.
fn scan(guest: &mut Guest, request: &Request) -> Result<(Vec<String>, TreeTotals), Fault> {
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

fn pack(items: &[PutItem<'_>]) -> Vec<u8> {
    let mut packer = Packer::new(Packing::Zstd).unwrap();
    let mut out = Vec::new();
    for item in items {
        packer.push(item, &mut out).unwrap();
    }
    packer.seal(&mut out).unwrap();
    out
}

fn put(
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

fn file<'a>(path: &'a [u8], content: &'a [u8]) -> [PutItem<'a>; 3] {
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
type Got = Result<(Vec<u8>, bool), Code>;

/// Content by path, or the code of the failure.
fn get(
    guest: &mut Guest,
    root: &str,
    packing: Packing,
    wants: &[Want<'_>],
) -> Result<Vec<Got>, Fault> {
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

fn want(path: &[u8]) -> Want<'_> {
    Want {
        path,
        known: None,
        has_content: true,
    }
}

/// Names below a directory that a put might have left.
fn leftovers(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().unwrap().is_dir() {
            found.extend(leftovers(&entry.path()));
        } else if name.starts_with(".glovebox.") {
            found.push(name);
        }
    }
    found
}

#[test]
fn a_scan_tells_everything_in_order_and_opens_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    fs::create_dir_all(root.join("a/deep")).unwrap();
    fs::write(root.join("a/deep/file"), "12345").unwrap();
    fs::write(root.join("a-b"), "").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"odd\xff\n")), "x").unwrap();
    fs::set_permissions(root.join("a-b"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::hard_link(root.join("a/deep/file"), root.join("z")).unwrap();
    symlink("../nowhere", root.join("a/link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();

    let mut guest = Guest::start_in(root);
    let (lines, totals) = scan(&mut guest, &scan_request(".", ENTRIES, 128)).unwrap();
    assert_eq!(
        lines,
        [
            "dir a",
            "dir a/deep",
            "file a/deep/file 5 linked",
            "link a/link ../nowhere",
            "file a-b 0 x",
            "Fifo fifo",
            "file odd\\xff\\n 1",
            "Socket socket",
            "file z 5 linked",
        ]
    );
    assert_eq!(totals.entries, 9);
    let (lines, totals) = scan(&mut guest, &scan_request(".", ENTRIES, 1)).unwrap();
    assert!(
        lines.contains(&"missed a too-large".to_owned()),
        "{lines:?}"
    );
    assert_eq!(totals.failed, 1);
    let fault = scan(&mut guest, &scan_request(".", 8, 128)).unwrap_err();
    assert_eq!(fault.code, Code::TooLarge, "{fault}");
    let fault = scan(&mut guest, &scan_request("none", 8, 128)).unwrap_err();
    assert_eq!(fault.code, Code::NotFound, "{fault}");
}

#[test]
fn a_scan_is_sorted_and_complete_however_wide_and_deep() {
    let temp = tempfile::tempdir().unwrap();
    for number in 0..3000 {
        fs::write(temp.path().join(format!("f{}", number * 7919 % 3000)), "").unwrap();
    }
    let mut deep = temp.path().to_path_buf();
    for _ in 0..60 {
        deep.push("d");
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("c"), "").unwrap();
        fs::write(deep.join("e"), "").unwrap();
    }
    let mut guest = Guest::start_in(temp.path());
    let (lines, totals) = scan(&mut guest, &scan_request(".", ENTRIES, 128)).unwrap();
    assert_eq!(lines.len(), 3000 + 180);
    assert_eq!(totals.entries, 3180);
    let paths: Vec<Vec<&str>> = lines
        .iter()
        .map(|line| line.split(' ').nth(1).unwrap().split('/').collect())
        .collect();
    assert!(paths.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn what_is_put_is_there() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    let mut guest = Guest::start_in(root);
    let large: Vec<u8> = (0..700_000_u32).map(|n| (n * 31 % 253) as u8).collect();
    let mut list = vec![PutItem::Dir { path: b"d" }];
    list.push(PutItem::File {
        path: b"d/large",
        is_executable: true,
        mtime_ns: -1_500_000_000,
    });
    list.extend(large.chunks(100_000).map(PutItem::Chunk));
    list.push(PutItem::End {
        size: large.len() as u64,
        digest: *blake3::hash(&large).as_bytes(),
    });
    list.extend(file(b"d/\xff\n", b"odd"));
    list.push(PutItem::Link {
        path: b"d/link",
        target: b"/etc/passwd",
    });
    let (done, receipts) = put(&mut guest, "made/for/it", &list);
    assert_eq!(done.unwrap().entries, 4);
    assert_eq!(receipts.len(), 4);
    let made = root.join("made/for/it/d");
    assert!(fs::read(made.join("large")).unwrap() == large);
    let about = fs::metadata(made.join("large")).unwrap();
    assert_eq!(about.mode() & 0o111, 0o111 & !umask());
    assert_eq!((about.mtime(), about.mtime_nsec()), (-2, 500_000_000));
    assert_eq!(
        fs::read(made.join(OsStr::from_bytes(b"\xff\n"))).unwrap(),
        b"odd"
    );
    assert_eq!(
        fs::read_link(made.join("link")).unwrap(),
        Path::new("/etc/passwd")
    );
    let PutReceipt::Written {
        signature,
        is_settled,
    } = receipts[2]
    else {
        panic!("{receipts:?}");
    };
    let about = fs::metadata(made.join(OsStr::from_bytes(b"\xff\n"))).unwrap();
    assert_eq!((signature.ino, signature.size), (about.ino(), 3));
    assert_eq!(
        signature.ctime_ns,
        about.ctime() * 1_000_000_000 + about.ctime_nsec()
    );
    assert!(is_settled, "its time is long ago");

    // Once more over what is there, with every kind taking the place of another.
    let mut list = vec![
        PutItem::Delete { path: b"d/gone" },
        PutItem::Delete { path: b"d" },
        PutItem::Dir { path: b"d/link" },
        PutItem::Link {
            path: b"d/large",
            target: b"x",
        },
    ];
    list.extend(file(b"d/link/below", b"below"));
    list.extend(file(b"d/\xff\n", b"new"));
    let (done, receipts) = put(&mut guest, "made/for/it", &list);
    assert_eq!(done.unwrap().entries, 6);
    assert_eq!(receipts[..2], [PutReceipt::Done, PutReceipt::Kept]);
    assert_eq!(fs::read(made.join("link/below")).unwrap(), b"below");
    assert_eq!(fs::read_link(made.join("large")).unwrap(), Path::new("x"));
    assert_eq!(
        fs::read(made.join(OsStr::from_bytes(b"\xff\n"))).unwrap(),
        b"new"
    );
    assert_eq!(leftovers(root), [] as [&str; 0]);
}

fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.as_raw_mode()
}

#[test]
fn nothing_is_written_outside_the_root() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("root");
    let outside = temp.path().join("outside");
    fs::create_dir_all(root.join("dir")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    symlink("../outside", root.join("way")).unwrap();
    symlink("../../outside", root.join("dir/way")).unwrap();
    let mut guest = Guest::start_in(&root);
    for bad in [
        &b"../outside/new"[..],
        b"/tmp/new",
        b"dir/../../outside/new",
        b"way/new",
        b"dir/way/new",
        b"",
        b".",
        b"a//b",
        b"nul\0",
    ] {
        let (done, _) = put(&mut guest, ".", &file(bad, b"x"));
        assert!(done.is_err(), "{}", bad.escape_ascii());
        let (done, _) = put(&mut guest, ".", &[PutItem::Dir { path: bad }]);
        assert!(done.is_err(), "{}", bad.escape_ascii());
        let link = PutItem::Link {
            path: bad,
            target: b"x",
        };
        let (done, _) = put(&mut guest, ".", &[link]);
        assert!(done.is_err(), "{}", bad.escape_ascii());
    }
    for bad in [&b"way/kept"[..], b"dir/way/kept", b"../outside/kept"] {
        // What it was in is not there for a put that follows no links.
        let _ = put(&mut guest, ".", &[PutItem::Delete { path: bad }]);
        let content = get(&mut guest, ".", Packing::Stored, &[want(bad)]);
        assert!(
            content.is_err() || content.unwrap()[0].is_err(),
            "{}",
            bad.escape_ascii()
        );
    }
    let names: Vec<_> = fs::read_dir(&outside).unwrap().flatten().collect();
    assert_eq!(names.len(), 1);
    assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept");
    // Twin: a good path works, and a link that is in the way is replaced, not followed.
    let (done, _) = put(&mut guest, ".", &file(b"way", b"mine"));
    done.unwrap();
    assert_eq!(fs::read(root.join("way")).unwrap(), b"mine");
}

#[test]
fn what_arrives_damaged_or_out_of_order_is_not_put() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("old"), "old").unwrap();
    let mut guest = Guest::start_in(temp.path());
    let [begin, chunk, end] = file(b"old", b"new");
    let wrong = PutItem::End {
        size: 3,
        digest: [7; 32],
    };
    let short = PutItem::End {
        size: 2,
        digest: *blake3::hash(b"new").as_bytes(),
    };
    let (done, _) = put(&mut guest, ".", &[begin.clone(), chunk.clone(), wrong]);
    let fault = done.unwrap_err();
    assert!(fault.message.contains("`old`"), "{fault}");
    for bad in [
        &[begin.clone(), chunk.clone(), short][..],
        &[begin.clone(), chunk.clone()],
        &[begin.clone(), begin.clone()],
        std::slice::from_ref(&chunk),
        std::slice::from_ref(&end),
        &[begin.clone(), PutItem::Delete { path: b"old" }],
    ] {
        let (done, _) = put(&mut guest, ".", bad);
        assert!(done.is_err(), "{bad:?}");
    }
    for bytes in [
        &b"\xff\xff\xff\xff\xff\xff\xff\xff"[..],
        b"\x05\0\0",
        &pack(&[begin, chunk])[..9],
    ] {
        let id = guest.ask(&put_request("."));
        guest.send(id, bytes, true);
        assert!(guest.answer(id).is_err());
    }
    assert_eq!(fs::read(temp.path().join("old")).unwrap(), b"old");
    assert_eq!(leftovers(temp.path()), [] as [&str; 0]);
}

#[test]
fn what_was_done_before_a_failure_is_told() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir_all(temp.path().join("full/of")).unwrap();
    let mut guest = Guest::start_in(temp.path());
    let mut list = file(b"first", b"1").to_vec();
    list.extend(file(b"full", b"2"));
    let (done, receipts) = put(&mut guest, ".", &list);
    let fault = done.unwrap_err();
    assert_eq!(fault.code, Code::NotEmpty, "{fault}");
    assert!(fault.message.contains("`full`"), "{fault}");
    assert_eq!(receipts.len(), 1);
    assert_eq!(leftovers(temp.path()), [] as [&str; 0]);
}

#[test]
fn what_is_wanted_comes_and_what_is_known_does_not() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    let large: Vec<u8> = (0..900_000_u32).map(|n| (n * 31 % 251) as u8).collect();
    fs::write(root.join("large"), &large).unwrap();
    fs::write(root.join("small"), "small").unwrap();
    fs::write(root.join("empty"), "").unwrap();
    symlink("small", root.join("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let mut guest = Guest::start_in(root);
    let known = Some((5, *blake3::hash(b"small").as_bytes()));
    let other = Some((5, *blake3::hash(b"other").as_bytes()));
    let wants = [
        want(b"large"),
        want(b"none"),
        want(b"fifo"),
        want(b"link"),
        want(b"empty"),
        Want {
            path: b"small",
            known,
            has_content: true,
        },
        Want {
            path: b"small",
            known: other,
            has_content: true,
        },
        Want {
            path: b"small",
            known: None,
            has_content: false,
        },
        want(b"."),
    ];
    for packing in [Packing::Stored, Packing::Zstd] {
        let fault = get(&mut guest, ".", packing, &wants).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{fault}");
        let found = get(&mut guest, ".", packing, &wants[..8]).unwrap();
        assert_eq!(
            found,
            [
                Ok((large.clone(), true)),
                Err(Code::NotFound),
                Err(Code::SpecialFile),
                Err(Code::SpecialFile),
                Ok((Vec::new(), true)),
                Ok((Vec::new(), false)),
                Ok((b"small".to_vec(), true)),
                Ok((Vec::new(), false)),
            ]
        );
    }
}

/// Starts a put that has a file open, and waits until it is there under its temporary name.
fn half_a_put(guest: &mut Guest, root: &Path) -> RequestId {
    let id = guest.ask(&put_request("."));
    let [begin, ..] = file(b"half", b"");
    guest.send(id, &pack(&[begin, PutItem::Chunk(&[7; 1000])]), false);
    let deadline = Instant::now() + Duration::from_secs(10);
    while leftovers(root).is_empty() {
        assert!(Instant::now() < deadline, "the put does not begin");
        std::thread::sleep(Duration::from_millis(2));
    }
    id
}

#[test]
fn a_cancelled_put_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(temp.path());
    for _ in 0..20 {
        let id = half_a_put(&mut guest, temp.path());
        guest.cancel(id);
        assert_eq!(guest.answer(id).unwrap_err().code, Code::Cancelled);
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_lost_link_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        let mut guest = Guest::start_in(temp.path());
        half_a_put(&mut guest, temp.path());
        guest.stream.shutdown(std::net::Shutdown::Both).unwrap();
        guest.await_exit();
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
    }
}

#[test]
fn scans_and_gets_can_be_given_up_at_any_time() {
    let temp = tempfile::tempdir().unwrap();
    for number in 0..2000 {
        fs::write(temp.path().join(format!("{number}")), [1; 3000]).unwrap();
    }
    let mut guest = Guest::start_in(temp.path());
    for pause_us in [0, 100, 500, 2000] {
        let scan = guest.ask(&scan_request(".", ENTRIES, 10));
        let get = guest.ask(&get_request(".", Packing::Zstd));
        let mut packer = Packer::new(Packing::Stored).unwrap();
        let mut list = Vec::new();
        for number in 0..2000 {
            let name = number.to_string();
            packer.push(&want(name.as_bytes()), &mut list).unwrap();
        }
        packer.seal(&mut list).unwrap();
        guest.send(get, &list, false);
        std::thread::sleep(Duration::from_micros(pause_us));
        guest.cancel(scan);
        guest.cancel(get);
        assert_eq!(guest.answer(get).unwrap_err().code, Code::Cancelled);
        // The scan may have been quicker.
        let _ = guest.answer(scan);
    }
}

#[test]
fn a_large_file_passes_in_bounded_memory() {
    let temp = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(temp.path());
    let idle = guest.status_kib("VmRSS");
    let size = 256 << 20;
    let piece: Vec<u8> = (0..100_000_u32).map(|n| (n * 31 % 251) as u8).collect();
    let id = guest.ask(&put_request("."));
    let mut packer = Packer::new(Packing::Zstd).unwrap();
    let mut out = Vec::new();
    let mut hasher = blake3::Hasher::new();
    packer.push(&file(b"large", b"")[0], &mut out).unwrap();
    let mut left: usize = size;
    while left > 0 {
        let count = left.min(piece.len());
        packer
            .push(&PutItem::Chunk(&piece[..count]), &mut out)
            .unwrap();
        hasher.update(&piece[..count]);
        left -= count;
        guest.send(id, &std::mem::take(&mut out), false);
    }
    let digest = *hasher.finalize().as_bytes();
    let end = PutItem::End {
        size: size as u64,
        digest,
    };
    packer.push(&end, &mut out).unwrap();
    packer.seal(&mut out).unwrap();
    guest.send(id, &out, true);
    assert_eq!(totals(guest.answer(id).unwrap()).bytes, size as u64);

    guest.keeps_data = false;
    let id = guest.ask(&get_request(".", Packing::Stored));
    let mut list = Vec::new();
    packer.push(&want(b"large"), &mut list).unwrap();
    packer.seal(&mut list).unwrap();
    guest.send(id, &list, true);
    assert_eq!(totals(guest.answer(id).unwrap()).bytes, size as u64);
    let peak = guest.status_kib("VmHWM");
    assert!(peak < 16 << 10, "the guest took {peak} KiB");
    let after = guest.status_kib("VmRSS");
    assert!(after < idle + 1500, "{idle} KiB before, {after} KiB after");
}

#[test]
fn a_host_that_gives_no_credit_and_no_input_stops_nothing_else() {
    let temp = tempfile::tempdir().unwrap();
    for number in 0..30_000 {
        fs::write(
            temp.path().join(format!("file-with-a-long-name-{number}")),
            "",
        )
        .unwrap();
    }
    let mut guest = Guest::start_in(temp.path());
    guest.gives_credit = false;
    let stored = Request::TreeScan {
        path: ByteBuf::from("."),
        max_entries: ENTRIES,
        max_depth: 10,
        packing: Packing::Stored,
    };
    let open: Vec<RequestId> = (0..20)
        .flat_map(|_| [guest.ask(&stored), guest.ask(&put_request("."))])
        .collect();
    guest.listen(Duration::from_millis(500));
    let begin = Instant::now();
    guest.call(&Request::Ping(ByteBuf::from("x"))).unwrap();
    let list = Request::List {
        path: ByteBuf::from("/"),
        max_entries: 10,
    };
    guest.call(&list).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(5));
    let held = guest.status_kib("VmRSS");
    assert!(held < 64 << 10, "{held} KiB for 40 requests");
    for id in open {
        guest.cancel(id);
        assert!(guest.answer(id).is_err());
    }
}
