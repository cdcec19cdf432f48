//! Workspaces that users upload as an archive, and take along as one.

use crate::server::{Answer, Client, Server, recording, token};
use crate::small_disk::SmallDisk;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::{Person, SkipReason, TarBuilder, has_program, skip, skip_because, wait_until};

const WORKSPACES: &str = "/api/workspaces";

fn put(client: &Client, archive: &[u8]) -> Answer {
    client.ask("PUT", WORKSPACES, &[], archive)
}

#[track_caller]
fn upload(client: &Client, archive: &[u8]) -> String {
    let view = put(client, archive).expect(201).json();
    view["id"].as_str().unwrap().to_owned()
}

fn uploads_dir(person: &Person) -> PathBuf {
    person.place().state().join("server/uploads")
}

/// What is in the directory of uploads.
fn kept(person: &Person) -> usize {
    fs::read_dir(uploads_dir(person)).map_or(0, Iterator::count)
}

/// A program with what it reads.
fn tree() -> Vec<u8> {
    TarBuilder::new()
        .dir("./")
        .header(b'0', 0o4755, "./bin/run", "", 30)
        .raw(b"#!/bin/sh\ncat data/input echo\n")
        .raw(&[0; 512 - 30])
        .file("data/input", b"input\n")
        .link("echo", "data/input")
        .file("gone", b"x")
        .finish()
}

/// The files of an archive, unpacked by a tar that is not ours: mode and content.
fn unpack(person: &Person, archive: &[u8]) -> BTreeMap<String, (u32, String)> {
    let dir = person.place().root().join("unpacked");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).unwrap();
    let mut tar = Command::new("tar")
        .args(["-xzpf", "-", "-C"])
        .arg(&dir)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    tar.stdin.take().unwrap().write_all(archive).unwrap();
    assert!(tar.wait().unwrap().success());
    let mut found = BTreeMap::new();
    list(&dir, &dir, &mut found);
    found
}

fn list(top: &Path, dir: &Path, found: &mut BTreeMap<String, (u32, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(top).unwrap().display().to_string();
        let meta = path.symlink_metadata().unwrap();
        if meta.is_symlink() {
            let target = fs::read_link(&path).unwrap().display().to_string();
            found.insert(name, (0, target));
        } else if meta.is_dir() {
            list(top, &path, found);
        } else {
            let mode = meta.permissions().mode() & 0o7777;
            found.insert(name, (mode, fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn an_uploaded_workspace_begins_sessions_and_is_taken_along_as_it_became() {
    if !has_program("tar") {
        skip!("needs tar");
    }
    Person::each(|person| {
        let model = recording(
            person,
            "work",
            &[(
                "Bash",
                json!({ "command": "bin/run; rm gone; mkdir -p new; echo made > new/a; mkfifo pipe; ln -s /etc out" }),
            )],
        );
        let server = Server::start(person, &format!("--model {model}"));
        let admin = server.admin();
        let view = put(&admin, &tree()).expect(201).json();
        assert_eq!(
            (
                &view["files"],
                &view["directories"],
                &view["links"],
                &view["bytes"]
            ),
            (&json!(3), &json!(2), &json!(1), &json!(37)),
            "{view}"
        );
        let id = view["id"].as_str().unwrap();
        let listed = admin.get(WORKSPACES).expect(200).json();
        assert_eq!(listed["workspaces"], json!([view]));

        let begin = || {
            let task = json!({ "task": "work", "workspace": { "upload": id } });
            let session = admin.submit(&task);
            let events = admin.follow_to_end(&session);
            let called = events.iter().find(|event| event.kind == "call_finished");
            let text = called.unwrap().data["text"].as_str().unwrap().to_owned();
            // As it was packed, and not as an earlier session left it.
            assert_eq!(text.matches("input").count(), 2, "{text}");
            session
        };
        let (session, other) = (begin(), begin());
        let shown = admin.get(&format!("/api/sessions/{session}")).json();
        assert_eq!(shown["workspace"], json!({ "upload": id }));
        let path = |what: &str| format!("/api/sessions/{session}/{what}");
        let patch = admin.get(&path("diff")).expect(200).text();
        assert!(
            patch.contains("+++ b/new/a") && patch.contains("--- a/gone"),
            "{patch}"
        );
        let refused = admin.post(&path("apply"), &json!({})).expect(403);
        assert_eq!(refused.code(), "read-only");
        let apply = json!({ "task": "x", "apply": true, "workspace": { "upload": id } });
        assert_eq!(
            admin.post("/api/tasks", &apply).expect(403).code(),
            "read-only"
        );

        let archive = admin.get(&path("workspace")).expect(200);
        assert_eq!(archive.header("content-type"), Some("application/gzip"));
        let name = format!("attachment; filename=\"{session}.tar.gz\"");
        assert_eq!(archive.header("content-disposition"), Some(name.as_str()));
        assert_eq!(
            archive.header("glovebox-left-out"),
            Some("2"),
            "a FIFO, a link"
        );
        let found = unpack(person, &archive.body);
        let script = "#!/bin/sh\ncat data/input echo\n";
        let expected = [
            ("bin/run", 0o755, script),
            ("data/input", 0o644, "input\n"),
            ("echo", 0, "data/input"),
            ("new/a", 0o644, "made\n"),
        ];
        let expected =
            expected.map(|(name, mode, text)| (name.to_owned(), (mode, text.to_owned())));
        assert_eq!(found, BTreeMap::from(expected));
        // What is taken along can be brought again.
        let again = upload(&admin, &archive.body);
        admin.delete(&format!("{WORKSPACES}/{again}")).expect(204);

        let refused = admin.delete(&format!("{WORKSPACES}/{id}")).expect(409);
        assert_eq!(refused.code(), "conflict");
        for session in [&session, &other] {
            admin
                .delete(&format!("/api/sessions/{session}"))
                .expect(204);
        }
        assert_eq!(kept(person), 1, "an upload outlives its sessions");
        admin.delete(&format!("{WORKSPACES}/{id}")).expect(204);
        admin.delete(&format!("{WORKSPACES}/{id}")).expect(404);
        assert_eq!(kept(person), 0);
    });
}

/// Each archive that breaks a rule is refused under its own word and leaves nothing; the one beside it is taken. The whole
/// table of rules is in `crates/workspace/src/archive/tests.rs`.
#[test]
fn a_hostile_archive_is_refused_by_name_and_leaves_nothing() {
    let person = Person::myself();
    let server = Server::start(&person, "--max-upload-bytes 1MiB");
    let admin = server.admin();
    let tar = TarBuilder::new;
    let deep = |depth: usize| {
        let path = vec!["d"; depth].join("/");
        tar().record("path", &path).file("d", b"").finish()
    };
    let whole = tar().file("a", b"1").finish();
    let large = |bytes: usize| tar().file("a", &vec![b'x'; bytes]).finish();
    let canary = person.write("canary", "untouched");
    let out = canary.display().to_string();
    let cases = [
        (
            400,
            "archive-format",
            b"PK\x03\x04 is a zip file".to_vec(),
            whole.clone(),
        ),
        (400, "archive-cut", whole[..512].to_vec(), whole.clone()),
        (
            400,
            "archive-absolute-path",
            tar().file(&out, b"x").finish(),
            tar().file(&out[1..], b"x").finish(),
        ),
        (
            400,
            "archive-parent-path",
            tar().file("../canary", b"x").finish(),
            tar().file("...", b"x").finish(),
        ),
        (
            400,
            "archive-bad-name",
            tar().file("a//b", b"").finish(),
            deep(2),
        ),
        (400, "archive-too-deep", deep(65), deep(64)),
        (
            400,
            "archive-beneath-file",
            tar().link("l", "..").file("l/canary", b"x").finish(),
            tar().dir("l").file("l/canary", b"x").finish(),
        ),
        (
            400,
            "archive-duplicate",
            tar().file("a", b"1").file("a", b"2").finish(),
            tar().file("a", b"1").file("b", b"2").finish(),
        ),
        (
            400,
            "archive-special-file",
            tar().entry(b'3', "null", "", b"").finish(),
            tar().entry(b'0', "null", "", b"").finish(),
        ),
        (
            400,
            "archive-hard-link",
            tar().entry(b'1', "a", &out, b"").finish(),
            tar().file("b", b"").entry(b'1', "a", "b", b"").finish(),
        ),
        (
            400,
            "archive-link-leads-out",
            tar().link("a", &out).finish(),
            tar().link("a", &out[1..]).finish(),
        ),
        (
            400,
            "archive-git",
            tar().file(".git", b"gitdir: /srv").finish(),
            tar().file(".gitignore", b"x").finish(),
        ),
        (
            413,
            "archive-too-large",
            large((1 << 20) + 1),
            large(1 << 20),
        ),
    ];
    for (status, code, hostile, twin) in cases {
        let refused = put(&admin, &hostile).expect(status);
        assert_eq!(refused.code(), code);
        let error = refused.json()["error"].clone();
        assert!(error["remedy"].is_string(), "{error}");
        assert_eq!(kept(&person), 0, "{code} leaves something");
        let id = upload(&admin, &twin);
        admin.delete(&format!("{WORKSPACES}/{id}")).expect(204);
    }
    assert_eq!(fs::read(&canary).unwrap(), b"untouched");
    assert_eq!(admin.get(WORKSPACES).json()["workspaces"], json!([]));
    // No body at all, and the forms that a client tries first.
    assert_eq!(put(&admin, b"").expect(400).code(), "archive-format");
    let form = b"--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n".repeat(20);
    let refused = put(&admin, &form).expect(400);
    insta::assert_snapshot!(refused.words(), @"
    the archive is neither tar nor tar.gz
    send a tar archive, plain or gzipped, as the body and nothing around it
    ");
}

#[test]
fn uploads_are_of_their_users_and_count_for_them() {
    let person = Person::myself();
    let model = recording(&person, "none", &[]);
    let server = Server::start(
        &person,
        &format!("--model {model} --max-upload-bytes 64KiB --max-upload-bytes-per-user 100KiB"),
    );
    let client = |args: &str| server.client(&token(&person, args));
    let (ann, bob) = (client("ann --scope run"), client("bob --scope run"));
    let eve = client("eve --scope read");
    assert_eq!(put(&eve, &tree()).expect(403).code(), "permission-denied");
    assert_eq!(put(&server.anybody(), &tree()).status, 401);

    let large = TarBuilder::new().file("a", &vec![0; 60 << 10]).finish();
    let id = upload(&ann, &large);
    let path = format!("{WORKSPACES}/{id}");
    // What is another's is answered as what is not there.
    assert_eq!(bob.get(WORKSPACES).json()["workspaces"], json!([]));
    bob.delete(&path).expect(404);
    for workspace in [id.as_str(), "u-none", "../workspaces"] {
        let task = json!({ "task": "x", "workspace": { "upload": workspace } });
        assert_eq!(
            bob.post("/api/tasks", &task).expect(404).code(),
            "not-found"
        );
    }
    assert_eq!(bob.get("/api/sessions").json()["sessions"], json!([]));
    let seen = server.admin().get(WORKSPACES).json();
    assert_eq!(seen["workspaces"][0]["user"], "ann");

    let used = |client: &Client| client.get("/api/quotas").json()["upload_bytes"].clone();
    let (bytes, most) = ((60 << 10) + 4096, 100 << 10);
    assert_eq!(used(&ann), json!({ "used": bytes, "limit": most }));
    assert_eq!(used(&bob)["used"], 0);
    let refused = put(&ann, &large).expect(413);
    assert_eq!(refused.code(), "upload-quota");
    insta::assert_snapshot!(refused.words(), @"
    the uploads of this user would have more than 102400 bytes together
    remove one that is no longer needed: DELETE /api/workspaces/{id}
    ");
    // Small files are not free either.
    let many = (0..10).fold(TarBuilder::new(), |tar, n| tar.file(&n.to_string(), b""));
    assert_eq!(put(&ann, &many.finish()).expect(413).code(), "upload-quota");
    assert_eq!(kept(&person), 1);
    upload(&bob, &large);
    ann.delete(&path).expect(204);
    upload(&ann, &large);
}

/// A client that goes away in the middle leaves nothing, and no place taken.
#[test]
fn a_cut_upload_leaves_nothing() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let admin = server.admin();
    let archive = TarBuilder::new().file("a", &vec![7; 300_000]).finish();
    let head = |body: &str| {
        format!(
            "PUT {WORKSPACES} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n{body}\r\n\r\n",
            server.addr,
            crate::server::TOKEN
        )
    };
    for (body, chunk) in [
        (format!("Content-Length: {}", archive.len()), ""),
        ("Transfer-Encoding: chunked".to_owned(), "493E0\r\n"),
    ] {
        let mut stream = TcpStream::connect(&server.addr).unwrap();
        stream.write_all(head(&body).as_bytes()).unwrap();
        stream.write_all(chunk.as_bytes()).unwrap();
        stream.write_all(&archive[..200_000]).unwrap();
        // It is on its way.
        assert!(wait_until(Duration::from_secs(20), || kept(&person) == 1));
        let busy = put(&admin, &archive).expect(429);
        assert_eq!(busy.code(), "busy");
        drop(stream);
        assert!(wait_until(Duration::from_secs(20), || kept(&person) == 0));
    }
    // One that says no more and stays waits for the end of its archive in vain, when that is complete before the body is.
    let mut stream = TcpStream::connect(&server.addr).unwrap();
    let length = format!("Content-Length: {}", archive.len() - 1024);
    stream.write_all(head(&length).as_bytes()).unwrap();
    stream.write_all(&archive[..archive.len() - 1024]).unwrap();
    let mut answer = [0; 4096];
    let count = stream.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    assert!(
        answer.contains("400") && answer.contains("archive-cut"),
        "{answer}"
    );
    assert_eq!(kept(&person), 0);
    upload(&admin, &archive);
}

#[test]
fn a_full_disk_refuses_an_upload_and_leaves_nothing_of_it() {
    let person = Person::myself();
    let dir = uploads_dir(&person);
    fs::create_dir_all(&dir).unwrap();
    let state = person.place().state();
    for dir in [&dir, &state.join("server"), &state] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
    }
    if !person.is_root() {
        skip_because!(SkipReason::needs_root("to mount a small file system"));
    }
    let Some(_disk) = SmallDisk::mount(&dir, "2m") else {
        skip!("needs a tmpfs that can be mounted");
    };
    let server = Server::start(&person, "");
    let admin = server.admin();
    let large = TarBuilder::new().file("a", &vec![7; 4 << 20]).finish();
    let refused = put(&admin, &large).expect(507);
    assert_eq!(refused.code(), "no-space");
    assert_eq!(kept(&person), 0);
    upload(&admin, &tree());
    assert_eq!(kept(&person), 1);
}

#[test]
fn an_upload_goes_when_nobody_uses_it_and_outlives_the_server_until_then() {
    let person = Person::myself();
    let model = recording(&person, "none", &[]);
    let args = format!("--model {model}");
    let server = Server::start(&person, &args);
    let (used, unused) = (
        upload(&server.admin(), &tree()),
        upload(&server.admin(), &tree()),
    );
    let task = json!({ "task": "x", "workspace": { "upload": used } });
    let session = server.admin().submit(&task);
    server.admin().follow_to_end(&session);
    drop(server);

    // What was about to arrive when the server was killed is no upload.
    fs::create_dir(uploads_dir(&person).join("incoming-0")).unwrap();
    let server = Server::start(&person, &args);
    assert_eq!(kept(&person), 2);
    let ids = |client: &Client| -> Vec<Value> {
        let list = client.get(WORKSPACES).json();
        let list = list["workspaces"].as_array().unwrap().iter();
        list.map(|one| one["id"].clone()).collect()
    };
    assert_eq!(ids(&server.admin()).len(), 2);
    drop(server);

    let server = Server::start(&person, &format!("{args} --upload-ttl 1s"));
    let admin = server.admin();
    let patience = Duration::from_secs(20);
    assert!(
        wait_until(patience, || ids(&admin) == [json!(used)]),
        "{unused}"
    );
    assert!(wait_until(patience, || kept(&person) == 1));
    // As long as there is a session over it, it stays.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(ids(&admin), [json!(used)]);
    admin
        .delete(&format!("/api/sessions/{session}"))
        .expect(204);
    assert!(wait_until(patience, || kept(&person) == 0));
    assert!(ids(&admin).is_empty());
}
