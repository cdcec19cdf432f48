//! What is given up, cut off, large, or never listened to leaves nothing behind and stops nothing else.

use super::asking::{
    ENTRIES, file, get_request, leftovers, pack, put_request, scan, scan_request, totals, want,
};
use super::client::Guest;
use glovebox_proto::tree::{Packer, Packing, PutItem};
use glovebox_proto::{Code, Request, RequestId};
use serde_bytes::ByteBuf;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

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

/// Starts a put of a directory that has one file whole and another one open, and waits until it is there
/// under its temporary name.
fn half_a_directory(guest: &mut Guest, root: &Path) -> RequestId {
    let id = guest.ask(&put_request("."));
    let path = b"new/dir".as_slice();
    let mut items = vec![PutItem::Dir { path: b"new" }, PutItem::Dir { path }];
    items.extend(file(b"new/dir/whole", b"whole"));
    let [begin, ..] = file(b"new/half", b"");
    items.extend([begin, PutItem::Chunk(&[7; 1000])]);
    guest.send(id, &pack(&items), false);
    let deadline = Instant::now() + Duration::from_secs(10);
    let is_begun = || {
        let names = leftovers(root);
        let name = names.first()?;
        root.join(name).join("half").exists().then_some(())
    };
    while is_begun().is_none() {
        assert!(Instant::now() < deadline, "the put does not begin");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(!root.join("new").exists(), "it is seen before it is whole");
    let (lines, _) = scan(guest, &scan_request(".", ENTRIES, 10)).unwrap();
    assert!(lines.iter().all(|line| !line.contains("half")), "{lines:?}");
    id
}

/// What is left of it when it is given up.
fn assert_whole_part(root: &Path) {
    assert_eq!(leftovers(root), [""; 0]);
    assert_eq!(fs::read(root.join("new/dir/whole")).unwrap(), b"whole");
    assert!(!root.join("new/half").exists());
}

#[test]
fn a_directory_takes_its_place_with_what_is_whole_in_it_however_it_ends() {
    let temp = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(temp.path());
    let id = half_a_directory(&mut guest, temp.path());
    guest.cancel(id);
    assert_eq!(guest.answer(id).unwrap_err().code, Code::Cancelled);
    assert_whole_part(temp.path());
    fs::remove_dir_all(temp.path().join("new")).unwrap();

    half_a_directory(&mut guest, temp.path());
    guest.stream.shutdown(std::net::Shutdown::Both).unwrap();
    guest.await_exit();
    assert_whole_part(temp.path());
}

#[test]
fn what_is_made_in_the_place_of_a_directory_meanwhile_is_not_touched() {
    let temp = tempfile::tempdir().unwrap();
    let (root, new) = (temp.path(), temp.path().join("new"));
    let mut guest = Guest::start_in(root);
    let end = |guest: &mut Guest, id| {
        let digest = *blake3::hash(&[7; 1000]).as_bytes();
        guest.send(id, &pack(&[PutItem::End { size: 1000, digest }]), true);
        guest.answer(id)
    };
    let id = half_a_directory(&mut guest, root);
    fs::create_dir(&new).unwrap();
    fs::write(new.join("own"), "own").unwrap();
    let fault = end(&mut guest, id).unwrap_err();
    assert_eq!(
        (fault.code, fault.is_retryable),
        (Code::Busy, true),
        "{fault}"
    );
    assert_eq!(leftovers(root), [""; 0]);
    assert_eq!(fs::read_dir(&new).unwrap().count(), 1);

    // What holds nothing gives way, as it would have before.
    fs::remove_dir_all(&new).unwrap();
    let in_place: [fn(&Path); 2] = [
        |path| fs::create_dir(path).unwrap(),
        |path| std::os::unix::fs::symlink("/etc", path).unwrap(),
    ];
    for make in in_place {
        let id = half_a_directory(&mut guest, root);
        make(&new);
        end(&mut guest, id).unwrap();
        assert_eq!(fs::read(new.join("half")).unwrap(), [7; 1000]);
        assert!(!new.is_symlink());
        fs::remove_dir_all(&new).unwrap();
    }
    assert_eq!(fs::read_dir(root).unwrap().count(), 0);
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
