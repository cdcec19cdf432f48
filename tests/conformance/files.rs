//! Files, through the guest.

use crate::Fixture;
use crate::commands::sh;
use glovebox_proto::{Code, Fault, FileKind, Reply, Request, WriteMode};
use glovebox_sandbox::{Incoming, Sandbox};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_bytes::ByteBuf;

fn path(path: impl AsRef<[u8]>) -> ByteBuf {
    ByteBuf::from(path.as_ref())
}

fn run(sandbox: &Sandbox, script: &str) -> Vec<u8> {
    let output = sandbox.exec(sh(script)).unwrap();
    assert_eq!(
        output.report.exit,
        glovebox_proto::Exit::Code(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

fn read(sandbox: &Sandbox, name: &[u8]) -> Vec<u8> {
    sandbox.read_file(name, 64 << 20).unwrap()
}

pub(crate) fn content_survives_the_round_trip(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let content = proptest::collection::vec(any::<u8>(), 0..5000);
    let mut runner = TestRunner::new(Config {
        cases: 24,
        ..Config::default()
    });
    let result = runner.run(&content, |content| {
        sandbox
            .write_file(b"some/dir/file", WriteMode::Replace, &content)
            .unwrap();
        prop_assert_eq!(&read(&sandbox, b"some/dir/file"), &content);
        // What commands see is the same file.
        prop_assert_eq!(&run(&sandbox, "cat some/dir/file"), &content);
        Ok(())
    });
    result.unwrap();
}

pub(crate) fn a_large_file_survives_the_round_trip(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let content: Vec<u8> = (0..20_000_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect();
    sandbox
        .write_file(b"large", WriteMode::Replace, &content)
        .unwrap();
    assert!(read(&sandbox, b"large") == content);
    assert_eq!(
        sandbox.read_file(b"large", 1000).unwrap_err().code,
        Code::TooLarge
    );

    let request = Request::FileRead {
        path: path("large"),
        offset: 12_345_678,
        max_bytes: Some(100_000),
    };
    let mut stream = sandbox.open(request).unwrap();
    let mut part = Vec::new();
    loop {
        match stream.recv() {
            Incoming::Data { bytes, .. } => part.extend(bytes),
            Incoming::Reply(reply) => {
                assert_eq!(
                    reply,
                    Ok(Reply::Read {
                        bytes: 100_000,
                        size: 20_000_000
                    })
                );
                break;
            }
        }
    }
    assert!(part == content[12_345_678..][..100_000]);
}

pub(crate) fn names_may_be_any_bytes(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let names: [&[u8]; 6] = [
        b"with space",
        b"new\nline",
        b"-rf",
        b"\xff\xfe",
        b"'quote\"$(x)`",
        b"*",
    ];
    for name in names {
        let full = [b"names/", name].concat();
        assert!(
            sandbox
                .write_file(&full, WriteMode::CreateNew, name)
                .unwrap()
        );
        assert_eq!(read(&sandbox, &full), name);
    }
    let (entries, more) = sandbox.list(b"names").unwrap();
    let mut sorted: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
    sorted.sort();
    assert_eq!(
        entries
            .into_iter()
            .map(|entry| entry.name.into_vec())
            .collect::<Vec<_>>(),
        sorted
    );
    assert_eq!(more, 0);
}

pub(crate) fn write_modes_differ(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    assert!(
        sandbox
            .write_file(b"f", WriteMode::CreateNew, b"one")
            .unwrap()
    );
    let taken = sandbox
        .write_file(b"f", WriteMode::CreateNew, b"two")
        .unwrap_err();
    assert_eq!(taken.code, Code::AlreadyExists);
    assert!(
        !sandbox
            .write_file(b"f", WriteMode::Append, b" more")
            .unwrap()
    );
    assert_eq!(read(&sandbox, b"f"), b"one more");
    run(&sandbox, "chmod 755 f");
    assert!(
        !sandbox
            .write_file(b"f", WriteMode::Replace, b"new")
            .unwrap()
    );
    assert_eq!(read(&sandbox, b"f"), b"new");
    assert_eq!(sandbox.stat(b"f", true).unwrap().permissions, 0o755);
    assert!(
        sandbox
            .write_file(b"empty", WriteMode::Replace, b"")
            .unwrap()
    );
    assert_eq!(sandbox.stat(b"empty", true).unwrap().size, 0);
    // Nothing unfinished stays beside what was written.
    assert_eq!(run(&sandbox, "ls -A"), b"empty\nf\n");
}

fn call(sandbox: &Sandbox, request: Request) -> Result<Reply, Fault> {
    sandbox.call(request)
}

pub(crate) fn directories_are_made_listed_moved_and_removed(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    let mkdir = |name: &str, make_parents| Request::Mkdir {
        path: path(name),
        permissions: 0o755,
        make_parents,
    };
    assert_eq!(
        call(&sandbox, mkdir("a/b", false)).unwrap_err().code,
        Code::NotFound
    );
    call(&sandbox, mkdir("a/b", true)).unwrap();
    call(&sandbox, mkdir("a/b", true)).unwrap();
    assert_eq!(
        call(&sandbox, mkdir("a", false)).unwrap_err().code,
        Code::AlreadyExists
    );
    run(
        &sandbox,
        "echo x > a/file && ln -s file a/link && mkfifo a/pipe",
    );

    let (entries, _) = sandbox.list(b"a").unwrap();
    let kinds: Vec<_> = entries
        .iter()
        .map(|entry| (&entry.name[..], entry.stat.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            (&b"b"[..], FileKind::Directory),
            (b"file", FileKind::File),
            (b"link", FileKind::Symlink),
            (b"pipe", FileKind::Fifo),
        ]
    );
    let Reply::List { entries, more } = call(
        &sandbox,
        Request::List {
            path: path("a"),
            max_entries: 3,
        },
    )
    .unwrap() else {
        panic!("not a list")
    };
    assert_eq!((entries.len(), more), (3, 1));
    assert_eq!(
        call(
            &sandbox,
            Request::ReadLink {
                path: path("a/link")
            }
        ),
        Ok(Reply::Link(path("file")))
    );
    assert_eq!(
        sandbox.stat(b"a/link", false).unwrap().kind,
        FileKind::Symlink
    );
    assert_eq!(sandbox.stat(b"a/link", true).unwrap().kind, FileKind::File);

    let rename = |from: &str, to: &str, replace| Request::Rename {
        from: path(from),
        to: path(to),
        replace,
    };
    call(&sandbox, rename("a/file", "moved", false)).unwrap();
    sandbox
        .write_file(b"other", WriteMode::Replace, b"y")
        .unwrap();
    assert_eq!(
        call(&sandbox, rename("other", "moved", false))
            .unwrap_err()
            .code,
        Code::AlreadyExists
    );
    call(&sandbox, rename("other", "moved", true)).unwrap();
    assert_eq!(read(&sandbox, b"moved"), b"y");

    let remove = |name: &str, recursive| Request::Remove {
        path: path(name),
        recursive,
    };
    assert_eq!(
        call(&sandbox, remove("a", false)).unwrap_err().code,
        Code::NotEmpty
    );
    call(&sandbox, remove("a", true)).unwrap();
    assert_eq!(
        call(&sandbox, remove("a", true)).unwrap_err().code,
        Code::NotFound
    );
    assert_eq!(run(&sandbox, "ls"), b"moved\n");
}

pub(crate) fn faults_name_the_reason(fixture: &Fixture) {
    let sandbox = fixture.sandbox();
    run(&sandbox, "mkdir d && mkfifo pipe && echo x > file");
    let reason = |name: &[u8]| sandbox.read_file(name, 100).unwrap_err().code;
    assert_eq!(reason(b"none"), Code::NotFound);
    assert_eq!(reason(b"d"), Code::IsDirectory);
    // Nobody writes to it: opening it the ordinary way would wait for ever.
    assert_eq!(reason(b"pipe"), Code::SpecialFile);
    assert_eq!(reason(b"/dev/zero"), Code::SpecialFile);
    assert_eq!(reason(b"file/below"), Code::NotDirectory);
    assert_eq!(reason(b""), Code::InvalidArgument);
    assert_eq!(reason(b"nul\0"), Code::InvalidArgument);
    assert_eq!(reason(&vec![b'x'; 5000]), Code::TooLarge);
    let into = |name: &[u8]| {
        sandbox
            .write_file(name, WriteMode::Replace, b"x")
            .unwrap_err()
            .code
    };
    assert_eq!(into(b"d"), Code::IsDirectory);
    assert_eq!(into(b"pipe"), Code::SpecialFile);
    let fault = sandbox.stat(b"no/such/path", true).unwrap_err();
    assert!(fault.message.contains("no/such/path"), "{fault}");
    assert!(sandbox.ping().is_ok());
}
