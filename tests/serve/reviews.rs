//! Changes as a reviewer is shown them: only those are applied, and conflicts stand among them.

use crate::server::{Client, Server, recording};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use testkit::Person;

/// A session over the person's project that has made these calls, and the name of its sandbox.
fn worked(person: &Person, server: &Server) -> (Client, String, String) {
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "work" }));
    admin.follow_to_end(&id);
    let session = admin.get(&format!("/api/sessions/{id}")).expect(200).json();
    let sandbox = session["sandbox"].as_str().unwrap().to_owned();
    assert!(person.project().exists());
    (admin, id, sandbox)
}

fn serve(person: &Person, command: &str) -> Server {
    let model = recording(person, "work", &[("Bash", json!({ "command": command }))]);
    Server::start(person, &format!("--project . --model {model}"))
}

fn list(client: &Client, id: &str) -> Value {
    let list = client.get(&format!("/api/sessions/{id}/diff?format=json"));
    list.expect(200).json()
}

#[test]
fn apply_takes_only_the_changes_that_were_shown() {
    let person = Person::myself();
    person.write("project/both.txt", "before\n");
    let server = serve(&person, "echo after > both.txt; echo new > new.txt");
    let (admin, id, sandbox) = worked(&person, &server);
    let apply = format!("/api/sessions/{id}/apply");
    let project = person.project();
    let digest = || list(&admin, &id)["digest"].as_str().unwrap().to_owned();
    let patch = admin.get(&format!("/api/sessions/{id}/diff")).expect(200);
    assert_eq!(patch.header("etag").unwrap(), format!("\"{}\"", digest()));
    assert_eq!(digest(), digest());
    let in_sandbox = |command: &str| {
        let call = json!({ "tool": "Bash", "arguments": { "command": command } });
        let path = format!("/api/sandboxes/{sandbox}/call");
        admin.post(&path, &call).expect(200);
    };
    let mode = |mode| fs::Permissions::from_mode(mode);
    let changes: [(&str, &dyn Fn()); 5] = [
        ("the agent writes a file that was shown", &|| {
            in_sandbox("echo evil > new.txt");
        }),
        ("the agent makes it executable", &|| {
            in_sandbox("chmod +x new.txt");
        }),
        ("the agent writes another file", &|| {
            in_sandbox("echo more > more.txt");
        }),
        ("the project's file changes", &|| {
            fs::write(project.join("both.txt"), "before\nand mine\n").unwrap();
        }),
        ("the project's mode changes", &|| {
            fs::set_permissions(project.join("both.txt"), mode(0o755)).unwrap();
        }),
    ];
    for (name, change) in changes {
        let shown = digest();
        change();
        for body in [
            json!({ "digest": shown }),
            json!({ "digest": shown, "paths": ["new.txt"] }),
        ] {
            let refused = admin.post(&apply, &body).expect(409);
            assert_eq!(refused.code(), "changed", "{name}");
        }
        assert!(!project.join("new.txt").exists(), "{name}");
    }
    // What lies elsewhere in the project is not what was shown.
    let shown = digest();
    fs::write(project.join("other.txt"), "mine\n").unwrap();
    let body = json!({ "digest": shown, "paths": ["new.txt"] });
    admin.post(&apply, &body).expect(200);
    assert_eq!(fs::read(project.join("new.txt")).unwrap(), b"evil\n");
    // Programs may take whatever is there.
    admin.post(&apply, &json!({})).expect(200);
    assert_eq!(fs::read(project.join("more.txt")).unwrap(), b"more\n");
}

#[test]
fn conflicts_are_listed_with_both_versions_and_solved_one_by_one() {
    let person = Person::myself();
    for name in ["mine.txt", "gone.txt", "kept.txt"] {
        person.write(format!("project/{name}"), "base\n");
    }
    person.write("project/marked.txt", "a\nb\nc\n");
    person.write("project/dir/data.bin", b"\0base");
    let project = person.project();
    let git = |args: &[&str]| {
        let user = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        let mut git = Command::new("git");
        let git = git.arg("-C").arg(&project).args(user).args(args);
        assert!(git.output().unwrap().status.success(), "{args:?}");
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-qm", "base"]);
    let server = serve(
        &person,
        "echo agent > mine.txt; rm gone.txt; printf 'a\\nagent\\nc\\n' > marked.txt; printf '\\0agent' > dir/data.bin",
    );
    let (admin, id, _) = worked(&person, &server);
    for name in ["mine.txt", "gone.txt"] {
        fs::write(project.join(name), "person\n").unwrap();
    }
    fs::write(project.join("marked.txt"), "a\nperson\nc\n").unwrap();
    fs::write(project.join("dir/data.bin"), b"\0person").unwrap();
    let shown = list(&admin, &id);
    assert_eq!(shown["last_apply"], Value::Null);
    let facts = |name: &str| {
        let conflicts = shown["conflicts"].as_array().unwrap();
        let found = conflicts.iter().find(|one| one["path"] == name).unwrap();
        let keys = ["reason", "is_text", "project_bytes", "sandbox_bytes"];
        keys.map(|key| found[key].clone())
    };
    let changed = json!("changed-on-host");
    let all = (json!(true), json!(7), json!(6));
    assert_eq!(facts("mine.txt"), [changed.clone(), all.0, all.1, all.2]);
    let gone = [
        json!("deleted-in-sandbox"),
        json!(true),
        json!(7),
        Value::Null,
    ];
    assert_eq!(facts("gone.txt"), gone);
    let binary = [changed, json!(false), json!(7), json!(6)];
    assert_eq!(facts("dir/data.bin"), binary);
    let version = |path: &str, side: &str| {
        let answer = admin.get(&format!("/api/sessions/{id}/conflicts/{path}?side={side}"));
        (answer.status, answer.text())
    };
    for (path, side, text) in [
        ("mine.txt", "base", "base\n"),
        ("mine.txt", "project", "person\n"),
        ("mine.txt", "sandbox", "agent\n"),
        ("gone.txt", "project", "person\n"),
        ("dir/data.bin", "sandbox", "\0agent"),
    ] {
        assert_eq!(version(path, side), (200, text.to_owned()), "{path} {side}");
    }
    // A deleted version, a file without a conflict, and paths that lead out.
    for (path, side, status) in [
        ("gone.txt", "sandbox", 404),
        ("kept.txt", "project", 404),
        ("none.txt", "project", 404),
        ("%2e%2e/secret", "project", 400),
        ("%2fetc%2fpasswd", "project", 400),
        ("mine.txt", "other", 400),
    ] {
        assert_eq!(version(path, side).0, status, "{path} {side}");
    }

    let apply = |body: &Value| {
        let answer = admin.post(&format!("/api/sessions/{id}/apply"), body);
        answer.expect(200).json()["outcome"].clone()
    };
    let read = |name: &str| fs::read_to_string(project.join(name)).unwrap();
    apply(&json!({ "conflicts": { "mine.txt": "theirs", "marked.txt": "markers" } }));
    assert_eq!(read("mine.txt"), "agent\n");
    assert_eq!(read("mine.txt.orig"), "person\n");
    assert_eq!(read("gone.txt"), "person\n", "not named: it stays");
    assert_eq!(read("dir/data.bin"), "\0person");
    assert_eq!(read("dir/data.bin.theirs"), "\0agent");
    assert!(read("marked.txt").contains("person\n") && read("marked.txt").contains("agent\n"));
    let shown = list(&admin, &id);
    assert_eq!(shown["last_apply"]["counts"]["conflicts"], 3, "{shown}");
    let conflicts = shown["conflicts"].as_array().unwrap().iter();
    let open: Vec<&Value> = conflicts.map(|one| &one["path"]).collect();
    assert_eq!(open, ["dir/data.bin", "gone.txt"], "these are still open");
    // The sandbox's versions can be taken later, of what an earlier Apply has settled too.
    for name in ["gone.txt", "marked.txt", "dir/data.bin"] {
        apply(&json!({ "paths": [name], "conflicts": { name: "theirs" } }));
    }
    assert!(!project.join("gone.txt").exists());
    assert_eq!(read("marked.txt"), "a\nagent\nc\n");
    assert_eq!(read("dir/data.bin"), "\0agent");
    assert_eq!(list(&admin, &id)["conflicts"], json!([]));
    let wrong = json!({ "conflicts": { "../x": "theirs" } });
    let path = format!("/api/sessions/{id}/apply");
    admin.post(&path, &wrong).expect(400);
    admin
        .post(&path, &json!({ "conflicts": { "a": "ours" } }))
        .expect(400);
}
