//! What a server tells about the machine and its sandboxes, and about itself.

use crate::server::{Server, TOKEN, recording};
use serde_json::{Value, json};
use testkit::Person;

const PLANTED: &str = "planted-secret-4711";

fn await_captured(server: &Server) -> Value {
    let admin = server.admin();
    let mut last = Value::Null;
    let is_there = testkit::wait_until(crate::server::PATIENCE, || {
        last = admin.get("/api/environment").expect(200).json();
        last["state"] != "starting"
    });
    assert!(is_there, "{last}");
    last
}

/// Requirements R184 to R191: typed facts, never variables; whoever comes gets the newest at once.
#[test]
fn the_environment_is_told_without_secrets() {
    let person = Person::myself();
    // In the sandbox by its name, and in the server's own environment.
    let model = recording(&person, "look", &[("Bash", json!({ "command": "true" }))]);
    let variables = [
        ("PLANTED_KEY", PLANTED.to_owned()),
        ("USER", "ann".to_owned()),
        ("HOSTNAME", "build-1".to_owned()),
    ];
    let args = format!("--env PLANTED_KEY --model {model}");
    let server = Server::start_with(&person, &args, &variables);
    let snapshot = await_captured(&server);
    assert_eq!(snapshot["state"], "ready", "{snapshot}");
    assert_eq!(snapshot["host"]["user"], "ann");
    assert_eq!(snapshot["host"]["hostname"], "build-1");
    assert!(
        snapshot["sandbox"]["kernel"]
            .as_str()
            .unwrap()
            .starts_with("Linux ")
    );
    assert!(!snapshot["captured_at"].as_str().unwrap().is_empty());

    let admin = server.admin();
    let events = admin.follow_path("/api/status/events", 2);
    let kinds: Vec<&str> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["status", "environment"]);
    assert_eq!(events[0].1["type"], "status");
    assert_eq!(events[1].1["host"], snapshot["host"]);

    let id = admin.submit(&json!({ "task": "look" }));
    let told = format!("{:?}", admin.follow_to_end(&id));
    let again = admin
        .post("/api/environment", &json!({}))
        .expect(200)
        .text();
    let metrics = admin.get("/metrics").text();
    let ready = admin.get("/health/ready").text();
    for text in [
        &snapshot.to_string(),
        &format!("{events:?}"),
        &told,
        &again,
        &metrics,
        &ready,
    ] {
        assert!(!text.contains(PLANTED), "{text}");
        assert!(!text.contains(TOKEN), "{text}");
    }
    server.anybody().get("/api/environment").expect(401);
    server.anybody().get("/api/status/events").expect(401);
}

/// The files in `examples/` name only metrics that there are.
#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_are_there() {
    let person = Person::myself();
    let model = recording(&person, "fail", &[("Bash", json!({ "command": "exit 1" }))]);
    let server = Server::start(&person, &format!("--model {model}"));
    let admin = server.admin();
    let id = admin.submit(&json!({ "task": "fail" }));
    admin.follow_to_end(&id);
    // A family without a value is not printed: a call that fails counts as an error of a sandbox.
    let made = admin.post("/api/sandboxes", &json!({})).expect(201).json();
    let sandbox = format!("/api/sandboxes/{}", made["id"].as_str().unwrap());
    admin.post(
        &format!("{sandbox}/call"),
        &json!({ "tool": "Nothing", "arguments": {} }),
    );
    let metrics = admin.get("/metrics").expect(200).text();
    admin.delete(&sandbox).expect(204);
    let is_described = |name: &str| {
        let family = ["_total", "_bucket", "_sum", "_count"]
            .into_iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(name);
        let help = format!("# HELP {family} ");
        metrics.lines().any(|line| line.starts_with(&help))
    };
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/monitoring");
    for file in ["grafana-dashboard.json", "prometheus-alerts.yml"] {
        let text = std::fs::read_to_string(format!("{dir}/{file}")).unwrap();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: Vec<&str> = words.filter(|word| word.starts_with("glovebox_")).collect();
        assert!(named.len() > 3, "{file}: {named:?}");
        for name in named {
            assert!(
                is_described(name),
                "{file} names {name}, which is not in:\n{metrics}"
            );
        }
    }
    let dashboard = std::fs::read_to_string(format!("{dir}/grafana-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() >= 6);
}

#[test]
fn server_under_a_strict_umask_runs_sessions() {
    for mask in ["077", "027"] {
        let person = Person::myself();
        let look = "umask; : > made; stat -c %a made";
        let model = recording(&person, "look", &[("Bash", json!({ "command": look }))]);
        let server = Server::start_under_umask(&person, mask, &format!("--model {model}"));
        assert_eq!(await_captured(&server)["state"], "ready", "umask {mask}");
        let admin = server.admin();
        let id = admin.submit(&json!({ "task": "look" }));
        let events = admin.follow_to_end(&id);
        let ended = events.iter().rfind(|event| event.kind == "ended").unwrap();
        assert_eq!(ended.data["ending"], "completed", "{ended:?}");
        // Whose umask the server has is the operator's matter, and not the sessions'.
        let told = format!("{events:?}");
        assert!(told.contains("0022") && told.contains("644"), "{told}");
    }
}
