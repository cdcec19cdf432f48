//! Files through the real guest: exact bytes, honest refusals, nothing that hangs.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod client;

use client::{Guest, sh};
use glovebox_proto::{
    Code, FileKind, OldContent, Reply, Request, Stat, WriteMode, WritePrecondition, limits,
};
use proptest::prelude::*;
use serde_bytes::ByteBuf;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

fn path(path: impl AsRef<OsStr>) -> ByteBuf {
    ByteBuf::from(path.as_ref().as_bytes())
}

fn write(to: impl AsRef<OsStr>, mode: WriteMode) -> Request {
    Request::FileWrite {
        path: path(to),
        mode,
        permissions: 0o640,
        make_parents: false,
    }
}

/// Writes over a file by what is known of it, and says what was there.
fn write_over(
    guest: &mut Guest,
    to: &str,
    known: WritePrecondition,
    content: &[u8],
) -> Result<OldContent, Code> {
    match guest.write_file(&write(to, WriteMode::ReplaceKnown(known)), content) {
        Ok(Reply::WrittenOver { old, bytes }) => {
            assert_eq!(bytes, content.len() as u64);
            Ok(old)
        }
        Ok(other) => panic!("{other:?}"),
        Err(fault) => Err(fault.code),
    }
}

fn stat(guest: &mut Guest, of: &str, follow: bool) -> Result<Stat, Code> {
    match guest.call(&Request::Stat {
        path: path(of),
        follow,
    }) {
        Ok(Reply::Stat(stat)) => Ok(stat),
        Ok(other) => panic!("{other:?}"),
        Err(fault) => Err(fault.code),
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn what_is_not_known_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(dir.path());
    let file = dir.path().join("file");
    let digest = |content: &[u8]| WritePrecondition::Digest(*blake3::hash(content).as_bytes());
    let content = |content: &[u8]| OldContent::Content(ByteBuf::from(content));
    let mut over = |known, content: &[u8]| write_over(&mut guest, "file", known, content);

    assert_eq!(
        over(WritePrecondition::Nothing, b"one"),
        Ok(OldContent::Nothing)
    );
    assert_eq!(
        over(WritePrecondition::Nothing, b"two"),
        Err(Code::UnseenContent)
    );
    assert_eq!(over(digest(b"zero"), b"two"), Err(Code::UnseenContent));
    assert_eq!(std::fs::read(&file).unwrap(), b"one");
    assert_eq!(over(digest(b"one"), b"two"), Ok(content(b"one")));
    // What is there already, and what is nothing, anybody may write over.
    assert_eq!(
        over(WritePrecondition::Nothing, b"two"),
        Ok(content(b"two"))
    );
    assert_eq!(over(WritePrecondition::Anything, b""), Ok(content(b"two")));
    assert_eq!(over(WritePrecondition::Nothing, b"three"), Ok(content(b"")));
    assert_eq!(
        over(WritePrecondition::Nothing, b"eerht"),
        Err(Code::UnseenContent)
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"three");

    // What is larger than is shown is replaced, known or not, but not given back.
    let large = vec![7; limits::MAX_OLD_BYTES as usize + 1];
    assert_eq!(
        over(WritePrecondition::Anything, &large),
        Ok(content(b"three"))
    );
    assert_eq!(
        over(WritePrecondition::Nothing, &large),
        Ok(OldContent::Unshown)
    );
    assert_eq!(over(digest(&large), b"four"), Ok(OldContent::Unshown));
    std::fs::write(&file, &large).unwrap();
    assert_eq!(
        over(WritePrecondition::Anything, b"five"),
        Ok(OldContent::Unshown)
    );
    // No more than is compared is read.
    let huge = std::fs::File::create(&file).unwrap();
    huge.set_len(limits::MAX_EDIT_BYTES + 1).unwrap();
    assert_eq!(over(digest(b""), b"six"), Err(Code::UnseenContent));
    assert_eq!(
        over(WritePrecondition::Anything, b"six"),
        Ok(OldContent::Unshown)
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"six");
    let names = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names, 1, "a refused write leaves nothing behind");
}

#[test]
fn writing_replaces_whole_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(dir.path());
    let file = dir.path().join("file");
    let content: Vec<u8> = (0..3_000_001_u32).map(|n| (n * 7 % 256) as u8).collect();
    let reply = guest
        .write_file(&write("file", WriteMode::Replace), &content)
        .unwrap();
    assert_eq!(
        reply,
        Reply::Written {
            bytes: content.len() as u64,
            is_new: true
        }
    );
    assert!(std::fs::read(&file).unwrap() == content);
    assert_eq!(mode(&file), 0o640);
    assert!(guest.read_file(b"file", 0, None).unwrap() == content);
    assert!(
        guest
            .read_file(b"file", 1_000_000, Some(1_500_000))
            .unwrap()
            == content[1_000_000..2_500_000]
    );
    assert_eq!(guest.read_file(b"file", 5_000_000, None).unwrap(), b"");
    assert_eq!(guest.read_file(b"file", 0, Some(0)).unwrap(), b"");

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let reply = guest
        .write_file(&write("file", WriteMode::Replace), b"short")
        .unwrap();
    assert_eq!(
        reply,
        Reply::Written {
            bytes: 5,
            is_new: false
        }
    );
    assert_eq!(
        (std::fs::read(&file).unwrap(), mode(&file)),
        (b"short".to_vec(), 0o755)
    );

    let reply = guest
        .write_file(&write("file", WriteMode::Append), b" and more")
        .unwrap();
    assert_eq!(
        reply,
        Reply::Written {
            bytes: 9,
            is_new: false
        }
    );
    assert_eq!(
        guest.read_file(b"file", 0, None).unwrap(),
        b"short and more"
    );
    let reply = guest
        .write_file(&write("log", WriteMode::Append), b"first")
        .unwrap();
    assert_eq!(
        reply,
        Reply::Written {
            bytes: 5,
            is_new: true
        }
    );
    assert_eq!(mode(&dir.path().join("log")), 0o640);

    let fault = guest
        .write_file(&write("file", WriteMode::CreateNew), b"x")
        .unwrap_err();
    assert_eq!(fault.code, Code::AlreadyExists);
    let reply = guest
        .write_file(&write("new", WriteMode::CreateNew), b"")
        .unwrap();
    assert_eq!(
        reply,
        Reply::Written {
            bytes: 0,
            is_new: true
        }
    );

    let deep = Request::FileWrite {
        path: path("a/b/c/file"),
        mode: WriteMode::Replace,
        permissions: 0o600,
        make_parents: true,
    };
    guest.write_file(&deep, b"deep").unwrap();
    assert_eq!(
        std::fs::read(dir.path().join("a/b/c/file")).unwrap(),
        b"deep"
    );
    assert_eq!(
        guest
            .write_file(&write("x/y/z", WriteMode::Replace), b"")
            .unwrap_err()
            .code,
        Code::NotFound
    );
    assert_eq!(
        guest
            .write_file(&write("a", WriteMode::Replace), b"")
            .unwrap_err()
            .code,
        Code::IsDirectory
    );
    assert_eq!(
        guest
            .write_file(&write("/", WriteMode::Replace), b"")
            .unwrap_err()
            .code,
        Code::IsDirectory
    );
    assert_eq!(
        guest
            .write_file(&write("file/x", WriteMode::Replace), b"")
            .unwrap_err()
            .code,
        Code::NotDirectory
    );

    // A link is written through.
    std::os::unix::fs::symlink("a/b/c/file", dir.path().join("link")).unwrap();
    guest
        .write_file(&write("link", WriteMode::Replace), b"through")
        .unwrap();
    assert!(dir.path().join("link").is_symlink());
    assert_eq!(
        std::fs::read(dir.path().join("a/b/c/file")).unwrap(),
        b"through"
    );
    std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
    assert_eq!(
        guest
            .write_file(&write("loop", WriteMode::Replace), b"")
            .unwrap_err()
            .code,
        Code::Io
    );

    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().as_bytes().starts_with(b".glovebox"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_has_the_name_of_a_file_to_come_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(dir.path());
    let taken = dir
        .path()
        .join(format!(".glovebox.{}.new", guest.child.id()));
    std::fs::write(&taken, "mine").unwrap();
    for (name, mode) in [("a", WriteMode::Replace), ("b", WriteMode::CreateNew)] {
        guest.write_file(&write(name, mode), b"content").unwrap();
        assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), b"content");
    }
    assert_eq!(std::fs::read(&taken).unwrap(), b"mine");
    // Also when it is one of ours: both are being written at the same time.
    std::fs::remove_file(&taken).unwrap();
    let ids = ["a", "c"].map(|name| {
        let id = guest.ask(&write(name, WriteMode::Replace));
        guest.send(id, name.as_bytes(), false);
        id
    });
    guest.listen(Duration::from_millis(50));
    assert!(taken.exists(), "the name is another than this test thinks");
    for (id, name) in ids.into_iter().zip(["a", "c"]) {
        guest.send(id, b"!", true);
        guest.answer(id).unwrap();
        let content = std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(content, format!("{name}!"));
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn readers_see_old_or_new() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(dir.path());
    let file = dir.path().join("file");
    std::fs::write(&file, "old").unwrap();
    let id = guest.ask(&write("file", WriteMode::Replace));
    guest.send(id, &vec![b'n'; 300_000], false);
    guest.listen(Duration::from_millis(100));
    assert_eq!(std::fs::read(&file).unwrap(), b"old");
    guest.cancel(id);
    assert_eq!(guest.answer(id).unwrap_err().code, Code::Cancelled);
    assert_eq!(std::fs::read(&file).unwrap(), b"old");
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "no temporary file is left"
    );
}

#[test]
fn special_files_are_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(dir.path());
    guest.run(sh("mkfifo fifo")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let begin = Instant::now();
    for special in ["fifo", "socket", "/dev/zero", "/dev/null", "/dev/tty"] {
        let fault = guest
            .read_file(special.as_bytes(), 0, Some(100))
            .unwrap_err();
        assert_eq!(fault.code, Code::SpecialFile, "{special}");
        for mode in [WriteMode::Replace, WriteMode::Append] {
            let fault = guest.write_file(&write(special, mode), b"x").unwrap_err();
            assert_eq!(fault.code, Code::SpecialFile, "{special}");
        }
    }
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert!(
        std::fs::symlink_metadata(dir.path().join("fifo"))
            .unwrap()
            .file_type()
            .is_fifo()
    );
    assert_eq!(
        guest.read_file(b".", 0, None).unwrap_err().code,
        Code::IsDirectory
    );
    assert_eq!(
        guest.read_file(b"missing", 0, None).unwrap_err().code,
        Code::NotFound
    );
    // Files of /proc have no size and still have content.
    let status = guest.read_file(b"/proc/self/status", 0, None).unwrap();
    assert!(status.starts_with(b"Name:"));
}

#[test]
fn looking_around() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(dir.path());
    std::fs::write(dir.path().join("file"), "12345").unwrap();
    std::os::unix::fs::symlink("file", dir.path().join("link")).unwrap();
    let seen = stat(&mut guest, "file", false).unwrap();
    assert_eq!((seen.kind, seen.size, seen.links), (FileKind::File, 5, 1));
    assert!(seen.mtime_ns > 1_600_000_000_000_000_000);
    assert_eq!(
        stat(&mut guest, "link", false).unwrap().kind,
        FileKind::Symlink
    );
    assert_eq!(stat(&mut guest, "link", true).unwrap().kind, FileKind::File);
    assert_eq!(
        stat(&mut guest, "/dev/null", true).unwrap().kind,
        FileKind::CharDevice
    );
    assert_eq!(stat(&mut guest, "nothing", true), Err(Code::NotFound));
    assert_eq!(
        guest
            .call(&Request::ReadLink { path: path("link") })
            .unwrap(),
        Reply::Link(path("file"))
    );
    let fault = guest
        .call(&Request::ReadLink { path: path("file") })
        .unwrap_err();
    assert_eq!(fault.code, Code::InvalidArgument);
    let fault = guest
        .call(&Request::Stat {
            path: ByteBuf::from("a\0b"),
            follow: true,
        })
        .unwrap_err();
    assert_eq!(fault.code, Code::InvalidArgument);
    let fault = guest
        .call(&Request::Stat {
            path: ByteBuf::from(vec![b'x'; 4096]),
            follow: true,
        })
        .unwrap_err();
    assert_eq!(fault.code, Code::TooLarge);

    for n in 0..300 {
        std::fs::write(dir.path().join(format!("n{n:03}")), "").unwrap();
    }
    let list = |guest: &mut Guest, max_entries| match guest
        .call(&Request::List {
            path: path("."),
            max_entries,
        })
        .unwrap()
    {
        Reply::List { entries, more } => (entries, more),
        other => panic!("{other:?}"),
    };
    let (entries, more) = list(&mut guest, 10_000);
    assert_eq!((entries.len(), more), (302, 0));
    assert!(entries.is_sorted_by(|a, b| a.name < b.name));
    let (entries, more) = list(&mut guest, 4);
    assert_eq!(more, 298);
    let names: Vec<_> = entries.iter().map(|entry| &entry.name[..]).collect();
    assert_eq!(names, [&b"file"[..], b"link", b"n000", b"n001"]);
    assert_eq!(list(&mut guest, 0).1, 302);
    let fault = guest
        .call(&Request::List {
            path: path("file"),
            max_entries: 1,
        })
        .unwrap_err();
    assert_eq!(fault.code, Code::NotDirectory);
}

#[test]
fn making_renaming_removing() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(dir.path());
    let mkdir = |name: &str, make_parents| Request::Mkdir {
        path: path(name),
        permissions: 0o775,
        make_parents,
    };
    let rename = |from: &str, to: &str, replace| Request::Rename {
        from: path(from),
        to: path(to),
        replace,
    };
    let remove = |name: &str, recursive| Request::Remove {
        path: path(name),
        recursive,
    };
    let code = |guest: &mut Guest, request: &Request| guest.call(request).unwrap_err().code;

    guest.call(&mkdir("d", false)).unwrap();
    assert_eq!(mode(&dir.path().join("d")), 0o775);
    assert_eq!(code(&mut guest, &mkdir("d", false)), Code::AlreadyExists);
    guest.call(&mkdir("d", true)).unwrap();
    assert_eq!(code(&mut guest, &mkdir("p/q", false)), Code::NotFound);
    guest.call(&mkdir("p/q/r", true)).unwrap();
    std::fs::write(dir.path().join("f"), "f").unwrap();
    std::fs::write(dir.path().join("g"), "g").unwrap();
    assert_eq!(code(&mut guest, &mkdir("f", true)), Code::AlreadyExists);

    assert_eq!(
        code(&mut guest, &rename("f", "g", false)),
        Code::AlreadyExists
    );
    guest.call(&rename("f", "g", true)).unwrap();
    assert_eq!(std::fs::read(dir.path().join("g")).unwrap(), b"f");
    guest.call(&rename("g", "p/h", false)).unwrap();
    assert_eq!(code(&mut guest, &rename("g", "x", false)), Code::NotFound);

    assert_eq!(code(&mut guest, &remove("nothing", true)), Code::NotFound);
    assert_eq!(code(&mut guest, &remove("p", false)), Code::NotEmpty);
    guest.call(&remove("d", false)).unwrap();
    std::os::unix::fs::symlink("/etc", dir.path().join("p/etc")).unwrap();
    guest.call(&remove("p", true)).unwrap();
    assert!(Path::new("/etc/passwd").exists(), "links are not followed");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn deep_and_wide_trees_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(dir.path());
    // Deeper than any path can name: built by moving down step by step.
    let script = "mkdir -p deep && cd -P deep && i=0 && while [ $i -lt 4096 ]; do mkdir x && cd -P x && i=$((i+1)); done; \
                  : > file; pwd -P | wc -c";
    let perl = "my $i=0; mkdir 'deep'; chdir 'deep'; while($i<4096){mkdir 'x'; chdir 'x'; open(F,'>','f'); close F; $i++}";
    let made = guest.run(glovebox_proto::Exec::new(["perl", "-e", perl]));
    if !made.is_ok_and(|ran| ran.code() == 0) {
        guest.run(sh(script)).unwrap();
    }
    let wide = dir.path().join("deep/wide");
    for n in 0..300 {
        let sub = wide.join(format!("d{n}"));
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::write(sub.join("f"), "").unwrap();
    }
    let reply = guest.call(&Request::Remove {
        path: path("deep"),
        recursive: true,
    });
    assert_eq!(reply.unwrap(), Reply::Done);
    assert!(!dir.path().join("deep").exists());
    assert!(guest.status_kib("VmHWM") < 16 << 10);
}

#[test]
fn slow_clients_hold_no_threads() {
    let dir = tempfile::tempdir().unwrap();
    let mut guest = Guest::start_in(dir.path());
    std::fs::write(dir.path().join("big"), vec![1; 4 << 20]).unwrap();
    guest.gives_credit = false;
    let read = Request::FileRead {
        path: path("big"),
        offset: 0,
        max_bytes: None,
    };
    let stuck: Vec<_> = (0..20).map(|_| guest.ask(&read)).collect();
    let open: Vec<_> = (0..20)
        .map(|n| guest.ask(&write(format!("w{n}"), WriteMode::Replace)))
        .collect();
    guest.listen(Duration::from_millis(300));
    assert_eq!(stat(&mut guest, "big", true).unwrap().size, 4 << 20);
    for id in stuck.into_iter().chain(open) {
        guest.cancel(id);
        assert_eq!(guest.answer(id).unwrap_err().code, Code::Cancelled);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn full_disk_is_told_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "none"])
        .arg(dir.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        if testkit::is_root() {
            testkit::skip!("cannot mount a tmpfs");
        }
        testkit::skip_because!(testkit::SkipReason::needs_root("to mount a tmpfs"));
    }
    let mut guest = Guest::start_in(dir.path());
    std::fs::write(dir.path().join("file"), "old").unwrap();
    let fault = guest
        .write_file(&write("file", WriteMode::Replace), &vec![1; 3 << 20])
        .unwrap_err();
    assert_eq!(fault.code, Code::NoSpace);
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    drop(guest);
    assert!(
        std::process::Command::new("umount")
            .arg(dir.path())
            .status()
            .unwrap()
            .success()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Names are bytes: anything but `/` and NUL goes through everything.
    #[test]
    fn names_are_bytes(
        name in proptest::collection::vec(prop_oneof![1_u8..b'/', b'0'..], 1..200),
        content in proptest::collection::vec(any::<u8>(), 0..300_000),
    ) {
        prop_assume!(name != b"." && name != b"..");
        let dir = tempfile::tempdir().unwrap();
        let mut guest = Guest::start_in(dir.path());
        let request = Request::FileWrite {
            path: ByteBuf::from(name.clone()), mode: WriteMode::CreateNew, permissions: 0o600, make_parents: true,
        };
        guest.write_file(&request, &content).unwrap();
        prop_assert!(std::fs::read(dir.path().join(OsStr::from_bytes(&name))).unwrap() == content);
        prop_assert!(guest.read_file(&name, 0, None).unwrap() == content);
        match guest.call(&Request::List { path: path("."), max_entries: 10 }).unwrap() {
            Reply::List { entries, .. } => prop_assert_eq!(&entries[0].name[..], &name[..]),
            other => panic!("{other:?}"),
        }
        guest.call(&Request::Remove { path: ByteBuf::from(name.clone()), recursive: false }).unwrap();
        prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
