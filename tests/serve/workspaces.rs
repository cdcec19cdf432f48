//! What sessions begin with, where their changes may go, and what is left when they are gone.

use crate::server::{Server, recording, token};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use testkit::Person;

/// A model that reads `known.txt` and writes `made.txt`.
fn model(person: &Person) -> String {
    recording(
        person,
        "work",
        &[(
            "Bash",
            json!({ "command": "cat known.txt; echo made > made.txt; echo more >> known.txt" }),
        )],
    )
}

/// Directories of the server's own that sessions and sandboxes work over.
fn workspaces(person: &Person) -> Vec<PathBuf> {
    let dir = person.place().state().join("server/workspaces");
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let own = entries.filter(|entry| entry.file_name() != "probe");
    own.map(|entry| entry.path()).collect()
}

#[test]
fn a_task_works_on_the_source_that_it_names_and_changes_come_back_where_they_may() {
    let person = Person::myself();
    for name in ["app", "lib"] {
        person.write(format!("srv/{name}/known.txt"), format!("{name}'s\n"));
    }
    let srv = person.place().root().join("srv").canonicalize().unwrap();
    person.write(
        "home/.config/glovebox/glovebox.toml",
        format!(
            "[serve.sources]\nlib = '{}:ro'\napp = '/nowhere'\n",
            srv.join("lib").display()
        ),
    );
    let model = model(&person);
    let app_dir = srv.join("app");
    let source = format!("--model {model} --source app={}", app_dir.display());
    let server = Server::start(&person, &source);
    let admin = server.admin();
    let ann = server.client(&token(&person, "ann --scope run --scope apply"));

    let listed = |client: &crate::server::Client| {
        client.get("/api/sources").expect(200).json()["sources"].clone()
    };
    // Names are for everybody, places for who runs the server.
    let names = json!([
        { "name": "app", "is_read_only": false },
        { "name": "lib", "is_read_only": true },
    ]);
    let mut of_ann = listed(&ann);
    of_ann
        .as_array_mut()
        .unwrap()
        .sort_by_key(|one| one["name"].to_string());
    assert_eq!(of_ann, names);
    let of_admin = listed(&admin).to_string();
    assert!(of_admin.contains(app_dir.to_str().unwrap()), "{of_admin}");

    let refused = ann.post(
        "/api/tasks",
        &json!({ "task": "x", "workspace": { "source": "ap" } }),
    );
    insta::assert_snapshot!(refused.expect(404).words(), @"
    there is no source `ap`
    name one of: app, lib
    ");
    let wrong = ann.post(
        "/api/tasks",
        &json!({ "task": "x", "workspace": { "sauce": "app" } }),
    );
    insta::assert_snapshot!(wrong.expect(400).words(), @"
    `workspace` is wrong: unknown variant `sauce`, expected `source` or `upload` at line 1 column 32
    /api/openapi.json describes what can be asked for
    ");

    let begin = |name: &str| {
        let id = ann.submit(&json!({ "task": "work", "workspace": { "source": name } }));
        let events = ann.follow_to_end(&id);
        assert_eq!(
            events.last().unwrap().data["ending"],
            "completed",
            "{events:?}"
        );
        let called = events.iter().find(|event| event.kind == "call_finished");
        let text = called.unwrap().data["text"].as_str().unwrap().to_owned();
        assert!(text.contains(&format!("{name}'s")), "{text}");
        id
    };
    let id = begin("app");
    let session = ann.get(&format!("/api/sessions/{id}")).json();
    assert_eq!(session["workspace"], json!({ "source": "app" }));
    assert_eq!(session["takes_changes"], true);
    assert!(
        !app_dir.join("made.txt").exists(),
        "nothing is taken over yet"
    );
    ann.post(&format!("/api/sessions/{id}/apply"), &json!({}))
        .expect(200);
    assert_eq!(fs::read(app_dir.join("made.txt")).unwrap(), b"made\n");
    assert_eq!(
        fs::read(app_dir.join("known.txt")).unwrap(),
        b"app's\nmore\n"
    );

    // What takes no changes back is worked on all the same, and gives a patch.
    let id = begin("lib");
    let path = format!("/api/sessions/{id}");
    assert_eq!(ann.get(&path).json()["takes_changes"], false);
    let refused = ann.post(&format!("{path}/apply"), &json!({})).expect(403);
    assert_eq!(refused.code(), "read-only");
    let told = refused.words().replace(&id, "[SESSION]");
    insta::assert_snapshot!(told, @"
    the source `lib` takes no changes back
    take the changes along as a patch, GET /api/sessions/{id}/diff, or all files, GET /api/sessions/{id}/workspace
    ");
    let patch = ann.get(&format!("{path}/diff")).expect(200).text();
    assert!(patch.contains("+++ b/made.txt"), "{patch}");
    // A copy of the session is held to the same.
    let fork = ann
        .post(&format!("{path}/fork"), &json!({}))
        .expect(201)
        .json();
    let fork = fork["session_id"].as_str().unwrap();
    let refused = ann.post(&format!("/api/sessions/{fork}/apply"), &json!({}));
    assert_eq!(refused.expect(403).code(), "read-only");
    let sessions = |client: &crate::server::Client| {
        let list = client.get("/api/sessions").json();
        list["sessions"].as_array().unwrap().len()
    };
    let before = sessions(&ann);
    let task = json!({ "task": "x", "apply": true, "workspace": { "source": "lib" } });
    assert_eq!(
        ann.post("/api/tasks", &task).expect(403).code(),
        "read-only"
    );
    assert_eq!(sessions(&ann), before, "what is refused begins nothing");
    assert_eq!(fs::read_dir(srv.join("lib")).unwrap().count(), 1);
    assert_eq!(fs::read(srv.join("lib/known.txt")).unwrap(), b"lib's\n");

    // A session goes on where it is.
    let task = json!({ "task": "x", "session_id": id, "workspace": { "source": "app" } });
    ann.post("/api/tasks", &task).expect(400);
}

/// Whoever runs the server decides anew with each start where changes may go.
#[test]
fn a_source_that_is_no_longer_named_takes_nothing() {
    let person = Person::myself();
    person.write("srv/app/known.txt", "app's\n");
    let dir = person.place().root().join("srv/app");
    let model = model(&person);
    let named = format!("--model {model} --source app={}", dir.display());
    let server = Server::start(&person, &named);
    let id = server
        .admin()
        .submit(&json!({ "task": "work", "workspace": { "source": "app" } }));
    server.admin().follow_to_end(&id);
    server.end();
    let apply = format!("/api/sessions/{id}/apply");
    person.write("srv/other/known.txt", "other's\n");
    let other = person.place().root().join("srv/other");
    for (args, code) in [
        (format!("--model {model}"), "permission-denied"),
        (
            format!("--model {model} --source app={}", other.display()),
            "permission-denied",
        ),
        (format!("{named}:ro"), "read-only"),
    ] {
        let server = Server::start(&person, &args);
        let refused = server.admin().post(&apply, &json!({})).expect(403);
        assert_eq!(refused.code(), code, "{args}");
        server.end();
    }
    assert!(!dir.join("made.txt").exists() && !other.join("made.txt").exists());
    let server = Server::start(&person, &named);
    server.admin().post(&apply, &json!({})).expect(200);
    assert!(dir.join("made.txt").exists());
}

#[test]
fn sources_that_cannot_be_served_keep_the_server_from_starting() {
    let person = Person::myself();
    let file = person.write("srv/file", "");
    let dir = file.parent().unwrap().display().to_string();
    let file = file.display();
    let said = [
        "--source app".to_owned(),
        format!("--source ../app={dir}"),
        format!("--source app={dir}/none"),
        format!("--source app={file}"),
        format!("--source app={dir} --source app={dir}"),
        format!("--source app={dir}:ro --unsafe-local"),
    ]
    .map(|args| {
        let line = format!("serve --listen 127.0.0.1:0 {args}");
        let refused = person.line(&line).run();
        assert_ne!(refused.code, 0, "{args}: {refused}");
        refused.failure(person.place().root())
    });
    insta::assert_snapshot!(said.join("\n\n"), @r#"
    error: --source: `app` is not NAME=DIR
    hint: `glovebox serve --help` shows the flags and examples

    error: --source: `../app` is no name of a source: use up to 64 letters, digits, `-`, `_` and `.`
    hint: `glovebox serve --help` shows the flags and examples

    error: cannot open the source app [ROOT]/srv/none: No such file or directory

    error: the source app [ROOT]/srv/file is not a directory
    hint: name a directory with --source NAME=DIR

    error: the source `app` is named twice
    hint: name each source once

    error: the source app is to take no changes, and tools would write to it directly
    hint: serve without --unsafe-local and without `workspace = "live"`, or leave `:ro` out
    "#);
}

/// A directory that the server makes goes with the last session or sandbox over it, however that ends.
#[test]
fn no_empty_workspace_is_left_behind() {
    let person = Person::myself();
    let model = model(&person);
    let args = format!("--model {model}");
    let server = Server::start(&person, &args);
    let admin = server.admin();
    let start = || -> String {
        let started = admin.post("/api/sandboxes", &json!({})).expect(201).json();
        started["id"].as_str().unwrap().to_owned()
    };
    let (one, other) = (start(), start());
    assert_eq!(workspaces(&person).len(), 2);
    admin.delete(&format!("/api/sandboxes/{one}")).expect(204);
    assert_eq!(workspaces(&person).len(), 1);

    // Of a session and its fork the last takes the directory along.
    let id = admin.submit(&json!({ "task": "work" }));
    admin.follow_to_end(&id);
    let fork = admin.post(&format!("/api/sessions/{id}/fork"), &json!({}));
    let fork = fork.expect(201).json()["session_id"].clone();
    let fork = fork.as_str().unwrap();
    assert_eq!(workspaces(&person).len(), 2);
    admin.delete(&format!("/api/sessions/{id}")).expect(204);
    assert_eq!(workspaces(&person).len(), 2, "the fork works over it");
    let file = admin.get(&format!("/api/sessions/{fork}/files/made.txt"));
    assert_eq!(file.expect(200).text(), "made\n");
    admin.delete(&format!("/api/sessions/{fork}")).expect(204);
    assert_eq!(workspaces(&person).len(), 1);

    // What a server that was killed has left goes when the next one starts; what is used stays.
    drop(server);
    let kept = workspaces(&person).remove(0);
    fs::create_dir(kept.with_file_name("w-left")).unwrap();
    let server = Server::start(&person, &args);
    assert_eq!(workspaces(&person), [kept]);
    let admin = server.admin();
    admin.delete(&format!("/api/sandboxes/{other}")).expect(204);
    assert_eq!(workspaces(&person), Vec::<PathBuf>::new());
    let _: Value = admin.get("/api/sandboxes").expect(200).json();
}
