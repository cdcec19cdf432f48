//! The audit log as administrators read it: over the API and by a command.

use crate::server::{Server, token};
use serde_json::{Value, json};
use testkit::Person;

/// Entries of a text with one JSON object a line.
fn entries(text: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

#[test]
fn the_audit_log_is_read_by_time_and_user() {
    let person = Person::myself();
    let server = Server::start(&person, "--model demo");
    let [ann, bob] = ["ann", "bob"].map(|name| server.client(&token(&person, name)));
    for client in [&ann, &bob, &ann] {
        let _ = client.submit(&json!({ "task": "x" }));
    }
    // Only administrators read it.
    ann.get("/api/audit").expect(403);
    let answer = server.admin().get("/api/audit").expect(200);
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    let all = entries(&answer.text());
    let tasks = |user: &str| {
        let is_task = |one: &&Value| one["action"] == "POST /api/tasks" && one["user"] == user;
        all.iter().filter(is_task).count()
    };
    assert_eq!((tasks("ann"), tasks("bob")), (2, 1));
    let times: Vec<u64> = all
        .iter()
        .map(|one| one["at_unix_ms"].as_u64().unwrap())
        .collect();
    assert!(times.is_sorted());

    let last = times.last().unwrap();
    let of_ann = server
        .admin()
        .get(&format!("/api/audit?user=ann&until_unix_ms={last}"));
    let of_ann = entries(&of_ann.expect(200).text());
    assert!(!of_ann.is_empty() && of_ann.iter().all(|one| one["user"] == "ann"));
    server.admin().get("/api/audit?users=ann").expect(400);

    // The command reads the same while the server runs, and afterwards.
    let printed = |args: &str| {
        entries(
            &person
                .line(&format!("audit {args}"))
                .run()
                .expect_code(0)
                .out(),
        )
    };
    assert!(printed("").len() >= all.len());
    assert!(
        printed("--since 1h --user bob")
            .iter()
            .all(|one| one["user"] == "bob")
    );
    assert!(!printed("--since 1h --user bob").is_empty());
    assert!(printed("--until 2020-01-01T00:00:00Z").is_empty());
    assert_eq!(server.end(), Some(0));
    assert!(printed("--since 1h").len() >= all.len());
    let wrong = person.line("audit --since yesterday").run().expect_code(2);
    assert!(
        wrong.err().contains("is no time, such as 2026-"),
        "{}",
        wrong.err()
    );
}
