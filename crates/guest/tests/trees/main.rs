//! Whole trees through the real guest: scanned, put and got exactly, beneath their root, without
//! traces of what was not finished.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod asking;
#[path = "../client/mod.rs"]
mod client;
mod ending;

use asking::{ENTRIES, file, get, leftovers, pack, put, put_request, scan, scan_request, want};
use client::Guest;
use glovebox_proto::Code;
use glovebox_proto::tree::{Packing, PutItem, PutReceipt, Want};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

fn make_fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
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
    make_fifo(&root.join("fifo"));
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
    make_fifo(&root.join("fifo"));
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
