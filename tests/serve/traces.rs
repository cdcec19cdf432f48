//! Traces of a server, as a collector gets them: the protobuf classes of OpenTelemetry read what was sent.
//!
//! The program has to be built with the feature `otlp`, as `cargo xtask test` builds it. One without it says that it sends
//! nothing, which is all that can be tried of it here.

use crate::server::{Client, PATIENCE, Server, token};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::{ModelServer, Person, Step, installed, wait_until};

const COLLECTOR: &str = include_str!("otlp_collector.py");
const LEFT_OUT: &str = "built without the feature `otlp`";
/// Status of a span that failed, in OTLP.
const ERROR: u64 = 2;

/// A collector on loopback; it ends when dropped.
struct Collector {
    child: Child,
    port: u64,
    batches: Arc<Mutex<Vec<Value>>>,
}

impl Collector {
    /// One that does so with batches. None, loudly, where the classes of OpenTelemetry are not installed.
    fn start(manner: &str) -> Option<Self> {
        let Some(python) = installed("otlp/bin/python3") else {
            testkit::skip_loudly(
                module_path!(),
                "needs opentelemetry-proto (Python) in the directory GLOVEBOX_TEST_CLIENTS",
            );
            return None;
        };
        let mut child = Command::new(python)
            .args(["-c", COLLECTOR, manner])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        let port = lines.next().unwrap()["port"].as_u64().unwrap();
        let batches = Arc::<Mutex<Vec<Value>>>::default();
        std::thread::spawn({
            let batches = Arc::clone(&batches);
            move || lines.for_each(|batch| batches.lock().unwrap().push(batch))
        });
        Some(Self {
            child,
            port,
            batches,
        })
    }

    fn endpoint(&self) -> (&'static str, String) {
        let url = format!("http://127.0.0.1:{}", self.port);
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    }

    fn batches(&self) -> Vec<Value> {
        self.batches.lock().unwrap().clone()
    }

    /// All spans so far.
    fn spans(&self) -> Vec<Value> {
        let mut spans = Vec::new();
        for batch in self.batches() {
            spans.extend(batch["spans"].as_array().unwrap().clone());
        }
        spans
    }

    /// Waits for a span with this name and this attribute.
    #[track_caller]
    fn span(&self, name: &str, attribute: &str, value: &Value) -> Value {
        let find = || {
            let mut spans = self.spans().into_iter();
            spans.find(|span| span["name"] == name && span["attributes"][attribute] == *value)
        };
        assert!(
            wait_until(PATIENCE, || find().is_some()),
            "no `{name}` with {attribute} {value} in {:#?}",
            self.spans()
        );
        find().unwrap()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server with these variables; none, loudly, where its program sends no traces, which it has to say then.
fn traced(person: &Person, args: &str, env: &[(&str, String)]) -> Option<Server> {
    let server = Server::start_with(person, &format!("--log-format json {args}"), env);
    let lines = server.lines();
    let warnings = lines.iter().filter(|line| line.contains(LEFT_OUT)).count();
    let is_begun = lines.iter().any(|line| line.contains("spans are sent"));
    // Either it sends them, or it says once that it does not.
    assert_eq!(warnings, usize::from(!is_begun), "{lines:?}");
    if warnings > 0 {
        testkit::skip_loudly(module_path!(), "the program is built without traces");
        return None;
    }
    Some(server)
}

fn quickly() -> (&'static str, String) {
    ("OTEL_BSP_SCHEDULE_DELAY", "100".to_owned())
}

fn submit(client: &Client, request_id: &str, task: &str) -> String {
    let headers = [
        ("content-type", "application/json"),
        ("x-request-id", request_id),
    ];
    let task = json!({ "task": task }).to_string();
    let answer = client.ask("POST", "/api/tasks", &headers, task.as_bytes());
    let answer = answer.expect(202).json();
    answer["session_id"].as_str().unwrap().to_owned()
}

/// Whether a span is a part of another one, in place and in time.
#[track_caller]
fn assert_inside(inner: &Value, outer: &Value) {
    assert_eq!(
        (&inner["parent"], &inner["trace"]),
        (&outer["id"], &outer["trace"]),
        "{inner:#}\n{outer:#}"
    );
    let time = |span: &Value, which: &str| span[which].as_u64().unwrap();
    assert!(
        time(outer, "start") <= time(inner, "start")
            && time(inner, "start") <= time(inner, "end")
            && time(inner, "end") <= time(outer, "end"),
        "{inner:#}\n{outer:#}"
    );
}

#[test]
fn spans_nest_from_the_session_to_its_calls_and_have_nothing_that_is_confided() {
    const PLANTED: &str = "planted-60c2d7e1";
    const KEY: &str = "planted-key-9a41f0b6";
    let Some(collector) = Collector::start("take") else {
        return;
    };
    let person = Person::myself();
    let command = json!({ "command": format!("echo {PLANTED} | tee {PLANTED}.txt; exit 3") });
    let model = ModelServer::start([
        Step::call("Bash", &command.to_string()),
        Step::call(
            "Read",
            &json!({ "path": format!("{PLANTED}/none") }).to_string(),
        ),
        Step::text(PLANTED),
    ]);
    let ann = token(&person, "ann --scope run");
    let env = [
        collector.endpoint(),
        quickly(),
        ("OTEL_EXPORTER_OTLP_HEADERS", format!("x-key={KEY}%21")),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip".to_owned()),
        ("OTEL_SERVICE_NAME", "agents".to_owned()),
        ("OPENAI_BASE_URL", model.url()),
        ("OPENAI_API_KEY", KEY.to_owned()),
    ];
    let args = "--log-level debug --model openai/gpt-test";
    let Some(server) = traced(&person, args, &env) else {
        return;
    };
    let client = server.client(&ann);
    let id = submit(&client, "ann-1.2_3", PLANTED);
    client.follow_to_end(&id);
    client
        .get(&format!("/api/sessions/{id}/files/{PLANTED}.none"))
        .expect(404);
    let made = client.post("/api/sandboxes", &json!({})).expect(201).json();
    let sandbox = json!(made["id"].as_str().unwrap());
    let call = json!({ "tool": "Bash", "arguments": command });
    client
        .post(
            &format!("/api/sandboxes/{}/call", made["id"].as_str().unwrap()),
            &call,
        )
        .expect(200);

    // The request, and the session that follows from it.
    let request = collector.span("POST /api/tasks", "request_id", &json!("ann-1.2_3"));
    let attributes = &request["attributes"];
    assert_eq!(request["kind"], 2, "{request:#}");
    for (name, value) in [
        ("http.request.method", json!("POST")),
        ("http.route", json!("/api/tasks")),
        ("http.response.status_code", json!(202)),
        ("user", json!("ann")),
    ] {
        assert_eq!(attributes[name], value, "{request:#}");
    }
    let session = collector.span("invoke_agent", "session_id", &json!(id));
    assert_eq!(session["parent"], "");
    assert_ne!(session["trace"], request["trace"]);
    let link = json!([{ "trace": request["trace"], "id": request["id"] }]);
    assert_eq!(session["links"], link, "{session:#}");
    assert_eq!(session["attributes"]["glovebox.ending"], "completed");

    // Its sandbox, turns, answers and calls.
    let own = |name: &str| {
        let of_trace = |span: &Value| span["trace"] == session["trace"] && span["name"] == name;
        let mut own: Vec<Value> = collector.spans().into_iter().filter(of_trace).collect();
        own.sort_by_key(|span| span["start"].as_u64());
        own
    };
    let starts = own("start_sandbox");
    assert_eq!(starts.len(), 1);
    assert_inside(&starts[0], &session);
    assert!(
        starts[0]["attributes"]["sandbox"].is_string(),
        "{starts:#?}"
    );
    let (turns, answers) = (own("turn"), own("chat gpt-test"));
    assert_eq!(
        (turns.len(), answers.len()),
        (3, 3),
        "{:#?}",
        collector.spans()
    );
    for (turn, answer) in turns.iter().zip(&answers) {
        assert_inside(turn, &session);
        assert_eq!(turn["attributes"]["session_id"], json!(id));
        assert_inside(answer, turn);
        let attributes = &answer["attributes"];
        assert_eq!(attributes["gen_ai.provider.name"], "openai", "{answer:#}");
        assert_eq!(attributes["gen_ai.usage.input_tokens"], 100, "{answer:#}");
        assert_eq!(attributes["gen_ai.usage.output_tokens"], 10, "{answer:#}");
        assert_ne!(answer["status"], ERROR, "{answer:#}");
    }
    let (bash, read) = (own("execute_tool Bash"), own("execute_tool Read"));
    assert_eq!((bash.len(), read.len()), (1, 1));
    for (call, turn, outcome) in [
        (&bash[0], &turns[0], "error"),
        (&read[0], &turns[1], "not-found"),
    ] {
        assert_inside(call, turn);
        let attributes = &call["attributes"];
        assert_eq!(attributes["glovebox.outcome"], outcome, "{call:#}");
        assert_eq!(attributes["glovebox.placement"], "sandbox", "{call:#}");
        assert_eq!(attributes["call_id"], attributes["gen_ai.tool.call.id"]);
        assert!(attributes["call_id"].is_string(), "{call:#}");
        assert_eq!(call["status"], ERROR, "{call:#}");
    }

    // What a request does itself is inside of it.
    let status = "http.response.status_code";
    let request = collector.span("POST /api/sandboxes", status, &json!(201));
    assert_inside(
        &collector.span("start_sandbox", "sandbox", &sandbox),
        &request,
    );
    let request = collector.span("POST /api/sandboxes/{id}/call", "sandbox", &sandbox);
    assert_inside(
        &collector.span("execute_tool Bash", "sandbox", &sandbox),
        &request,
    );
    // A route as it is declared, where the path has the name of a file.
    collector.span("GET /api/sessions/{id}/files/{*path}", status, &json!(404));

    // What was sent, and to where; and what the log tells of it.
    let text = server.lines().join("\n");
    assert!(!text.contains(KEY), "{text}");
    assert_eq!(server.end(), Some(0));
    for batch in collector.batches() {
        assert_eq!(batch["path"], "/v1/traces");
        assert_eq!(batch["headers"]["x-key"], format!("{KEY}!"));
        assert_eq!(batch["headers"]["content-encoding"], "gzip");
        assert_eq!(batch["resource"]["service.name"], "agents");
        let sent = json!([batch["resource"], batch["spans"]]).to_string();
        for secret in [PLANTED, KEY, crate::server::TOKEN, &ann] {
            assert!(!sent.contains(secret), "{sent}");
        }
        for span in batch["spans"].as_array().unwrap() {
            assert_eq!(span["events"], 0, "{span:#}");
        }
    }
}

#[test]
fn a_collector_that_hangs_or_refuses_holds_nobody_up_and_what_is_lost_is_counted() {
    for manner in ["hang", "refuse"] {
        let Some(collector) = Collector::start(manner) else {
            return;
        };
        let person = Person::myself();
        let model = ModelServer::start([Step::text("done"), Step::text("done")]);
        let env = [
            collector.endpoint(),
            quickly(),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "300".to_owned()),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "2".to_owned()),
            ("OPENAI_BASE_URL", model.url()),
            ("OPENAI_API_KEY", "key".to_owned()),
        ];
        let Some(server) = traced(&person, "--model openai/gpt-test", &env) else {
            return;
        };
        let admin = server.admin();
        for _ in 0..2 {
            let id = submit(&admin, "r1", "x");
            let events = admin.follow_to_end(&id);
            assert_eq!(events.last().unwrap().data["ending"], "completed");
        }
        // More at once than there is room for.
        for _ in 0..20 {
            admin.get("/health/live").expect(200);
        }
        let dropped = || admin.metric("glovebox_trace_spans_dropped_total");
        assert!(wait_until(PATIENCE, || dropped() > 20), "{}", dropped());
        let warnings = || {
            let lines = server.lines();
            let told = |line: &&String| line.contains("the collector does not take all spans");
            lines.iter().filter(told).count()
        };
        assert!(wait_until(PATIENCE, || warnings() > 0));
        let before = collector.batches().len();
        assert!(wait_until(PATIENCE, || {
            admin.get("/health/live").expect(200);
            collector.batches().len() > before + 1
        }));
        assert_eq!(warnings(), 1, "{manner}: {:?}", server.lines());
        drop(server);
    }
}

#[test]
fn the_end_of_a_server_does_not_wait_for_a_collector_that_hangs() {
    let Some(collector) = Collector::start("hang") else {
        return;
    };
    let person = Person::myself();
    let patiently = ("OTEL_EXPORTER_OTLP_TIMEOUT", "60000".to_owned());
    let env = [collector.endpoint(), quickly(), patiently];
    let Some(server) = traced(&person, "", &env) else {
        return;
    };
    server.anybody().get("/health/live").expect(200);
    assert!(wait_until(PATIENCE, || !collector.batches().is_empty()));
    let begun = Instant::now();
    assert_eq!(server.end(), Some(0));
    // Two seconds for traces, where a batch alone may take sixty; the rest is the server's own end.
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn spans_that_wait_are_sent_at_the_end_and_those_that_are_not_sampled_never() {
    let Some(collector) = Collector::start("take") else {
        return;
    };
    let person = Person::myself();
    // Longer than the test.
    let rarely = ("OTEL_BSP_SCHEDULE_DELAY", "300000".to_owned());
    let Some(server) = traced(&person, "", &[collector.endpoint(), rarely.clone()]) else {
        return;
    };
    server.anybody().get("/health/live").expect(200);
    assert!(collector.batches().is_empty());
    assert_eq!(server.end(), Some(0));
    collector.span("GET /health/live", "http.response.status_code", &json!(200));

    let before = collector.batches().len();
    let never = ("OTEL_TRACES_SAMPLER", "always_off".to_owned());
    let env = [collector.endpoint(), rarely, never];
    let server = traced(&person, "", &env).unwrap();
    server.anybody().get("/health/live").expect(200);
    assert_eq!(server.end(), Some(0));
    assert_eq!(collector.batches().len(), before);
}

#[test]
fn a_variable_that_cannot_be_understood_keeps_the_server_from_starting() {
    let person = Person::myself();
    let closed = [(
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "http://127.0.0.1:9".to_owned(),
    )];
    if traced(&person, "", &closed).is_none() {
        return;
    }
    let said = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://:0"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "hush"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
    ]
    .map(|(name, value)| {
        let mut call = person
            .line("serve --listen 127.0.0.1:0")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9");
        call = call.env(name, value);
        let ran = call.run().expect_code(2);
        assert!(!ran.err().contains("hush"), "{ran}");
        ran.failure(person.place().root())
    });
    insta::assert_snapshot!(said.join("\n\n"), @"
    error: the variable OTEL_EXPORTER_OTLP_ENDPOINT begins with neither http:// nor https://
    hint: set it to the address of a collector, such as http://localhost:4318, or unset it

    error: the variable OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is no address: empty host
    hint: set it to the address of a collector, such as http://localhost:4318, or unset it

    error: the variable OTEL_EXPORTER_OTLP_PROTOCOL names another protocol
    hint: set it to `http/protobuf`, whose port is usually 4318, or unset it

    error: the variable OTEL_EXPORTER_OTLP_HEADERS has an entry that is not NAME=VALUE, its number 1
    hint: set it to NAME=VALUE,NAME=VALUE, with %2C for a comma in a value, or unset it

    error: the variable OTEL_TRACES_SAMPLER names another sampler
    hint: set it to `always_on`, `always_off`, `traceidratio`, or one of them after `parentbased_`, or unset it
    ");
}
