//! Users of one server who may run sandboxes, and try to reach each other or the operator.

use crate::server::{Client, PATIENCE, Server, token};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use testkit::{Person, wait_until};

/// A recording: a turn is a Bash command, or without one the end of the agent's work.
fn turns(person: &Person, name: &str, commands: &[Option<&str>]) -> String {
    let lines = commands.iter().enumerate().map(|(turn, command)| {
        let part = match command {
            Some(command) => json!({ "kind": "call", "id": format!("c{turn}"), "name": "Bash",
                "arguments": { "command": command } }),
            None => json!({ "kind": "text", "text": format!("done {turn}") }),
        };
        json!({ "type": "answered", "turn": turn + 1, "parts": [part] }).to_string()
    });
    let path = person.place().root().join(name);
    std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
    format!("replay:{}", path.display())
}

/// Waits for a question of a session, or for its end. Returns the question.
fn question(client: &Client, id: &str) -> Option<Value> {
    let mut found = None;
    let is_settled = wait_until(PATIENCE, || {
        let session = client.get(&format!("/api/sessions/{id}")).expect(200);
        let session = session.json();
        found = session["approvals"].get(0).cloned();
        found.is_some() || session["state"] != "running" && session["state"] != "queued"
    });
    assert!(is_settled, "{id} neither asks nor ends");
    found
}

/// Answers a question: the status.
fn answer(client: &Client, id: &str, question: &Value, word: &str) -> u16 {
    let body = json!({ "approval_id": question["id"], "answer": word });
    client
        .post(&format!("/api/sessions/{id}/approvals"), &body)
        .status
}

/// Texts of the results of a session's calls.
fn results(client: &Client, id: &str) -> Vec<String> {
    let events = client.follow_to_end(id);
    let ends = events.iter().filter(|event| event.kind == "call_finished");
    ends.map(|event| event.data["text"].as_str().unwrap().to_owned())
        .collect()
}

const GET_A: Option<&str> = Some("getent hosts a.test; exit 1");

#[test]
fn hosts_are_opened_by_administrators_only() {
    let person = Person::myself();
    let model = turns(&person, "hosts", &[GET_A, None, GET_A, None, None]);
    let server = Server::start(
        &person,
        &format!("--model {model} --net egress --allow b.test"),
    );
    let (admin, ann) = (server.admin(), server.client(&token(&person, "ann")));
    let task = json!({ "task": "x", "ask": true });
    // A user is not asked for himself.
    let id = ann.submit(&task);
    assert_eq!(question(&ann, &id), None);
    let told = results(&ann, &id);
    assert!(
        told[0].contains("the administrator opens hosts"),
        "{told:?}"
    );
    // An administrator who works in the session is asked, and nobody else answers for him.
    let message = json!({ "text": "again", "ask": true });
    let path = format!("/api/sessions/{id}/messages");
    admin.post(&path, &message).expect(202);
    let asked = question(&admin, &id).unwrap();
    assert_eq!(
        (&asked["tool"], &asked["summary"]),
        (&json!("host"), &json!("a.test"))
    );
    for word in ["allow", "deny"] {
        assert_eq!(answer(&ann, &id, &asked, word), 403);
    }
    assert_eq!(answer(&admin, &id, &asked, "allow_tool"), 400);
    assert_eq!(answer(&admin, &id, &asked, "allow"), 204);
    let told = results(&ann, &id);
    assert!(told[1].contains("the user has opened it now"), "{told:?}");
    // What was opened for the administrator's work is closed to the user after it.
    let session = ann.get(&format!("/api/sessions/{id}")).json();
    let sandbox = session["sandbox"].as_str().unwrap();
    let shown = person
        .line(&format!("net show {sandbox} --json"))
        .run()
        .expect_code(0)
        .out();
    assert!(
        shown.contains("b.test") && !shown.contains("a.test"),
        "{shown}"
    );
    // In a session of the administrator's own it stays open.
    let id = admin.submit(&task);
    let asked = question(&admin, &id).unwrap();
    assert_eq!(answer(&admin, &id, &asked, "allow"), 204);
    admin.follow_to_end(&id);
    let session = admin.get(&format!("/api/sessions/{id}")).json();
    let sandbox = session["sandbox"].as_str().unwrap();
    let shown = person.line(&format!("net show {sandbox}")).run();
    assert!(shown.expect_code(0).out().contains("a.test"));
}

#[test]
fn users_open_public_hosts_where_the_operator_says_so() {
    let person = Person::myself();
    let private = "exec 3<>/dev/tcp/10.0.0.5/8080; exit 1";
    let model = turns(&person, "public", &[Some(private), GET_A, None]);
    let server = Server::start(
        &person,
        &format!("--model {model} --net egress --allow b.test --users-open-hosts public"),
    );
    let ann = server.client(&token(&person, "ann"));
    let id = ann.submit(&json!({ "task": "x", "ask": true }));
    let asked = question(&ann, &id).unwrap();
    assert_eq!(asked["summary"], "a.test", "a private address is not asked");
    assert_eq!(answer(&ann, &id, &asked, "allow_tool"), 400);
    assert_eq!(answer(&ann, &id, &asked, "allow"), 204);
    let told = results(&ann, &id);
    assert!(told[1].contains("the user has opened it now"), "{told:?}");
    let bad = person
        .line("serve --users-open-hosts all")
        .run()
        .expect_code(2);
    assert!(bad.err().contains("public"), "{}", bad.err());
}

#[test]
fn no_request_takes_grants_secrets_or_a_network() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let description = server.admin().get("/api/openapi.json").expect(200).json();
    let mut names = Vec::new();
    for (name, schema) in description["components"]["schemas"].as_object().unwrap() {
        if name.ends_with("Request") || name.ends_with("Limits") {
            let fields = schema["properties"].as_object().into_iter().flatten();
            names.extend(fields.map(|(field, _)| format!("{name}.{field}")));
        }
    }
    assert!(names.contains(&"TaskRequest.task".to_owned()), "{names:?}");
    let words = [
        "host", "allow", "grant", "secret", "net", "mount", "env", "deny",
    ];
    for name in &names {
        let field = name.rsplit('.').next().unwrap();
        let mut parts = field.split('_');
        assert!(!parts.any(|part| words.contains(&part)), "{name}");
    }
    let task = json!({ "task": "x", "allow": ["10.0.0.5:8080"] });
    server.admin().post("/api/tasks", &task).expect(400);
}

/// Runs statements on the server's database, while no server runs: what they select.
fn in_database(person: &Person, statements: &str) -> String {
    let file = person.place().state().join("server/server.db");
    let program = "import sqlite3, sys\n\
        db = sqlite3.connect(sys.argv[1])\n\
        for sql in sys.argv[2].split(';'): print(db.execute(sql).fetchall())\n\
        db.commit()";
    let ran = Command::new("python3")
        .args(["-c", program])
        .arg(file)
        .arg(statements)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn a_session_whose_beginning_is_not_known_takes_no_changes_back() {
    let person = Person::myself();
    person.write("srv/known.txt", "theirs\n");
    let dir = person.place().root().join("srv").canonicalize().unwrap();
    let model = turns(&person, "rows", &[Some("echo mine > known.txt"), None]);
    let args = format!("--model {model} --source lib={}:ro", dir.display());
    let ann = token(&person, "ann --scope run --scope apply");
    let server = Server::start(&person, &args);
    let client = server.client(&ann);
    let task = json!({ "task": "x", "workspace": { "source": "lib" } });
    let ids = [client.submit(&task), client.submit(&task)];
    for id in &ids {
        client.follow_to_end(id);
    }
    assert_eq!(server.end(), Some(0));
    // As a server leaves it that is killed between two writes; and as a later version writes it.
    let [absent, unknown] = &ids;
    in_database(
        &person,
        &format!(
            "DELETE FROM workspace WHERE session = '{absent}';\
             UPDATE workspace SET kind = 'moon' WHERE session = '{unknown}'"
        ),
    );
    let server = Server::start(&person, &args);
    let client = server.client(&ann);
    for id in &ids {
        let session = client.get(&format!("/api/sessions/{id}")).json();
        assert_eq!(session["takes_changes"], false, "{session}");
        let refused = client.post(&format!("/api/sessions/{id}/apply"), &json!({}));
        assert_eq!(refused.expect(403).code(), "permission-denied");
        let patch = client.get(&format!("/api/sessions/{id}/diff")).expect(200);
        assert!(patch.text().contains("+mine"), "{}", patch.text());
    }
    let kept = std::fs::read_to_string(dir.join("known.txt")).unwrap();
    assert_eq!(kept, "theirs\n");
}

#[test]
fn rows_of_what_was_never_made_go_with_the_next_start() {
    let person = Person::myself();
    let model = turns(&person, "rows", &[None]);
    let args = format!("--model {model}");
    let server = Server::start(&person, &args);
    let kept = server.admin().submit(&json!({ "task": "x" }));
    server.admin().follow_to_end(&kept);
    assert_eq!(server.end(), Some(0));
    in_database(
        &person,
        "INSERT INTO owner VALUES ('session', 's-none', 'ann', 1);\
         INSERT INTO workspace VALUES ('s-none', 'project', '');\
         INSERT INTO request VALUES ('ann', 'k', x'00', 's-none', 0);\
         INSERT INTO owner VALUES ('sandbox', 'none', 'ann', 0)",
    );
    let server = Server::start(&person, &args);
    server
        .admin()
        .get(&format!("/api/sessions/{kept}"))
        .expect(200);
    assert_eq!(server.end(), Some(0));
    let left = in_database(
        &person,
        "SELECT count(*) FROM owner WHERE user = 'ann';SELECT count(*) FROM request;\
         SELECT session FROM workspace",
    );
    assert_eq!(left, format!("[(0,)]\n[(0,)]\n[('{kept}',)]\n"));
    // Rows of another layout are not guessed at.
    in_database(&person, "PRAGMA user_version = 1000");
    let refused = person.line("serve --listen 127.0.0.1:0").run();
    let said = refused.expect_code(1).err();
    assert!(said.contains("made by another version"), "{said}");
}

/// Starts a sandbox, runs a command in it and stops it, so that its caches are kept. Returns what the command said.
fn in_new_sandbox(person: &Person, client: &Client, command: &str) -> String {
    let made = client.post("/api/sandboxes", &json!({})).expect(201).json();
    let name = made["id"].as_str().unwrap();
    let call = json!({ "tool": "Bash", "arguments": { "command": command } });
    let called = client.post(&format!("/api/sandboxes/{name}/call"), &call);
    let text = called.expect(200).json()["text"]
        .as_str()
        .unwrap()
        .to_owned();
    person.line(&format!("stop {name}")).run().expect_code(0);
    text
}

#[test]
fn caches_and_build_output_of_one_user_are_no_others() {
    let person = Person::myself();
    person.write("project/Cargo.toml", "[package]\nname = \"p\"\n");
    person.write("project/.gitignore", "/target\n");
    let made = person.program("git").args(["init", "-q"]).status().unwrap();
    assert!(made.success());
    let server = Server::start(&person, "--project . --cache");
    let [ann, bob] = ["ann", "bob"].map(|name| server.client(&token(&person, name)));
    let plant = "set -e; mkdir -p target/debug ~/.npm/_cacache; \
                 echo planted | tee target/debug/x ~/.npm/_cacache/x";
    assert!(in_new_sandbox(&person, &ann, plant).contains("planted"));
    let look = "cat target/debug/x ~/.npm/_cacache/x";
    let seen = in_new_sandbox(&person, &bob, look);
    assert!(!seen.contains("planted"), "{seen}");
    // Her own are there again.
    let seen = in_new_sandbox(&person, &ann, look);
    assert_eq!(seen.matches("planted").count(), 2, "{seen}");
    // And the machine's user has neither.
    let ran = person
        .script("run -q --cache --apply never", &format!("{look}; true"))
        .run();
    assert!(!ran.out().contains("planted"), "{ran}");
}

/// A text that is a module of both languages: as TypeScript it declares a tool more.
const IN_BOTH: &str = r#"
import { tool } from "ai";
import { z } from "zod";
const any = { description: "t", inputSchema: z.object({}), execute: () => 1 };
export const both = tool({ description: "t", inputSchema: z.object({}), execute: () => 1 });
export const typed = tool<any>({ description: "t", inputSchema: z.object({}), execute: () => 1 });
"#;

/// Uploads a text. Returns names of its tools, after its digest.
fn upload(client: &Client, language: &str, headers: &[(&str, &str)]) -> (String, Vec<String>) {
    let path = format!("/api/bundles?language={language}");
    let put = client.ask("PUT", &path, headers, IN_BOTH.as_bytes());
    described(&put.expect(200).json())
}

fn described(bundle: &Value) -> (String, Vec<String>) {
    let tools = bundle["tools"].as_array().unwrap().iter();
    let names = tools.map(|tool| tool["name"].as_str().unwrap().to_owned());
    (bundle["hash"].as_str().unwrap().to_owned(), names.collect())
}

#[test]
fn a_bundle_is_in_the_language_in_which_its_own_user_uploaded_it() {
    let person = Person::myself();
    let server = Server::start(&person, "");
    let [ann, bob] = ["ann", "bob"].map(|name| server.client(&token(&person, name)));
    let (hash, of_ann) = upload(&ann, "javascript", &[]);
    let (_, of_bob) = upload(&bob, "typescript", &[]);
    assert_eq!(of_ann, ["both"]);
    assert_eq!(of_bob, ["both", "typed"]);
    let path = format!("/api/bundles/{hash}");
    let shown = |client: &Client| described(&client.get(&path).expect(200).json()).1;
    assert_eq!((shown(&ann), shown(&bob)), (of_ann, of_bob.clone()));
    let call = |client: &Client| {
        let body = json!({ "bundle": hash, "tool": "typed", "arguments": {} });
        client.post("/api/tool", &body).status
    };
    assert_eq!((call(&ann), call(&bob)), (404, 200));
    // A second upload says it anew, and one user's deletion takes nothing from another.
    upload(&ann, "typescript", &[]);
    assert_eq!(shown(&ann), of_bob);
    ann.delete(&path).expect(204);
    assert_eq!(shown(&bob), of_bob);
}

/// Base64 as a header or a flag has it.
fn base64(person: &Person, bytes: &[u8]) -> String {
    let file = person.write("bytes", bytes);
    let encoded = Command::new("base64")
        .arg("-w0")
        .arg(file)
        .output()
        .unwrap();
    String::from_utf8(encoded.stdout).unwrap()
}

#[test]
fn a_stored_bundle_needs_a_signature_of_its_own_user_and_of_todays_keys() {
    use rcgen::{PublicKeyData as _, SigningKey as _};
    let person = Person::myself();
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let key = base64(&person, &pair.subject_public_key_info());
    let signature = base64(&person, &pair.sign(IN_BOTH.as_bytes()).unwrap());
    let signed = [("glovebox-signature", signature.as_str())];
    let users = ["ann", "bob"].map(|name| token(&person, name));
    // Both have it since a time without keys; then ann signs hers.
    let server = Server::start(&person, "");
    let (hash, _) = upload(&server.client(&users[0]), "javascript", &[]);
    upload(&server.client(&users[1]), "javascript", &[]);
    assert_eq!(server.end(), Some(0));
    let path = format!("/api/bundles/{hash}");
    let call = json!({ "bundle": hash, "tool": "both", "arguments": {} });
    let server = Server::start(&person, &format!("--bundle-key ops={key}"));
    let [ann, bob] = [0, 1].map(|at| server.client(&users[at]));
    assert_eq!(ann.get(&path).expect(403).code(), "unsigned");
    upload(&ann, "javascript", &signed);
    let shown = ann.get(&path).expect(200).json();
    assert_eq!(shown["signed_by"], "ops");
    ann.post("/api/tool", &call).expect(200);
    let refused = bob.post("/api/tool", &call).expect(403);
    assert_eq!(refused.code(), "unsigned");
    assert_eq!(server.end(), Some(0));
    // The key that holds at this start decides.
    let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let other = base64(&person, &other.subject_public_key_info());
    for (flag, status) in [(other, 403), (key, 200)] {
        let server = Server::start(&person, &format!("--bundle-key ops={flag}"));
        let ann = server.client(&users[0]);
        ann.post("/api/tool", &call).expect(status);
        assert_eq!(server.end(), Some(0));
    }
}

/// A connection that has made one request and stays: the status of the answer.
fn hold(server: &Server, token: &str) -> (TcpStream, u16) {
    let mut connection = TcpStream::connect(&server.addr).unwrap();
    let head = format!(
        "GET /api/quotas HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\r\n",
        server.addr
    );
    connection.write_all(head.as_bytes()).unwrap();
    let mut beginning = [0; 12];
    connection.read_exact(&mut beginning).unwrap();
    let status = std::str::from_utf8(&beginning[9..]).unwrap();
    (connection, status.parse().unwrap())
}

#[test]
fn connections_of_one_user_leave_those_of_others() {
    let person = Person::myself();
    let server = Server::start(&person, "--model demo");
    let (of_ann, bob) = (token(&person, "ann"), server.client(&token(&person, "bob")));
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..256 {
        let (connection, status) = hold(&server, &of_ann);
        // Too many requests in a second are refused, on a connection that has its place.
        assert!(matches!(status, 200 | 429), "{status}");
        held.push(connection);
    }
    assert_eq!(hold(&server, &of_ann).1, 503);
    for other in [&bob, &server.admin()] {
        other.get("/api/quotas").expect(200);
    }
    held.truncate(250);
    assert!(wait_until(PATIENCE, || hold(&server, &of_ann).1 == 200));
    drop(held);
    assert_eq!(server.end(), Some(0));
}
