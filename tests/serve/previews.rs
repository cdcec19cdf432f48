//! Programs of a sandbox in the browser of its user: who sees them, what reaches them, and what does not.

use crate::server::{Answer, Client, PATIENCE, Server, TOKEN, recording, token};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use testkit::{Person, has_program, skip, wait_until};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::{Message, WebSocket};

const APP: &str = include_str!("preview_app.py");
const PORT: u16 = 8123;
/// What a browser asks for.
const PAGE: (&str, &str) = ("accept", "text/html,*/*;q=0.8");

/// Previews of one session, whose agent has started the program.
struct Previews<'a> {
    server: &'a Server,
    session: String,
}

impl Previews<'_> {
    fn host_of(&self, port: u16) -> String {
        let (_, listens_at) = self.server.addr.rsplit_once(':').unwrap();
        format!("{port}-{}.localhost:{listens_at}", self.session)
    }

    fn host(&self) -> String {
        self.host_of(PORT)
    }

    /// Asks under the name of the preview.
    fn ask(&self, client: &Client, method: &str, path: &str, more: &[(&str, &str)]) -> Answer {
        let host = self.host();
        let mut headers = vec![("host", host.as_str())];
        headers.extend_from_slice(more);
        client.ask(method, path, &headers, b"")
    }

    /// Asks as a browser that has this cookie.
    fn get(&self, cookie: &str, path: &str) -> Answer {
        self.ask(&self.server.anybody(), "GET", path, &[("cookie", cookie)])
    }

    /// The path of an address that lets a browser in.
    fn login(&self, client: &Client, path: &str) -> String {
        let url = format!("/api/sessions/{}/previews", self.session);
        let made = client.post(&url, &json!({ "port": PORT, "path": path }));
        let made = made.expect(201).json();
        let url = made["url"].as_str().unwrap().to_owned();
        let prefix = format!("http://{}", self.host());
        url.strip_prefix(&prefix).unwrap().to_owned()
    }

    /// The cookie of a browser that `client` lets in.
    fn cookie(&self, client: &Client) -> String {
        let path = self.login(client, "/");
        let led = self
            .ask(&self.server.anybody(), "GET", &path, &[])
            .expect(303);
        cookie_of(&led)
    }
}

fn cookie_of(answer: &Answer) -> String {
    let set = answer.header("set-cookie").unwrap();
    set.split(';').next().unwrap().to_owned()
}

/// A model whose agent starts the program and ends.
fn starting_model(person: &Person) -> String {
    let command = format!("exec python3 app.py {PORT}");
    recording(
        person,
        "starts",
        &[
            ("Write", json!({ "path": "app.py", "content": APP })),
            ("Bash", json!({ "command": command, "background": true })),
        ],
    )
}

/// A session of `client` in which the program listens.
fn start<'a>(server: &'a Server, client: &Client) -> Previews<'a> {
    let session = client.submit(&json!({ "task": "start it" }));
    client.follow_to_end(&session);
    let path = format!("/api/sessions/{session}/ports");
    let listens = || {
        let ports = client.get(&path).expect(200).json();
        ports == json!({ "is_running": true, "ports": [{ "port": PORT, "address": "127.0.0.1" }] })
    };
    assert!(
        wait_until(PATIENCE, listens),
        "{}",
        client.get(&path).text()
    );
    Previews { server, session }
}

/// Headers that the program got, by name.
fn heard(answer: &Answer) -> Value {
    let said = answer.json();
    let pairs = said[1].as_array().unwrap().iter();
    let pairs = pairs.map(|pair| {
        let name = pair[0].as_str().unwrap().to_lowercase();
        (name, pair[1].clone())
    });
    Value::Object(pairs.collect())
}

/// The whole way: the owner opens an address once and has a cookie that is good for this preview; the program gets no
/// login of this server and believes that it is met at its own address.
#[test]
fn a_program_of_a_session_is_shown_to_its_user_and_hears_no_login() {
    if !has_program("python3") {
        skip!("python3 is not installed");
    }
    Person::each(|person| {
        let server = Server::start(person, &format!("--model {}", starting_model(person)));
        let ann = server.client(&token(person, "ann --scope run"));
        let anybody = server.anybody();
        let previews = start(&server, &ann);

        let path = previews.login(&ann, "/page?a=1");
        let led = previews.ask(&anybody, "GET", &path, &[]).expect(303);
        assert_eq!(led.header("location"), Some("/page?a=1"));
        let set = led.header("set-cookie").unwrap();
        assert!(
            set.contains("; HttpOnly; SameSite=Lax;") && !set.contains("Domain"),
            "{set}"
        );
        let cookie = cookie_of(&led);
        let again = previews.ask(&anybody, "GET", &path, &[]).expect(401);
        assert_eq!(again.code(), "permission-denied");

        let both = format!("{cookie}; glovebox=x; mine=1");
        let origin = format!("http://{}", previews.host());
        let headers = [
            ("cookie", both.as_str()),
            ("origin", &origin),
            ("authorization", "Basic YTpi"),
            ("x-forwarded-for", "203.0.113.7"),
        ];
        let shown = previews
            .ask(&anybody, "GET", "/page?a=1", &headers)
            .expect(200);
        assert_eq!(shown.json()[0], "/page?a=1");
        let got = heard(&shown);
        let inside = format!("localhost:{PORT}");
        assert_eq!(got["host"], inside);
        assert_eq!(got["origin"], format!("http://{inside}"));
        assert_eq!(got["glovebox-preview-origin"], origin);
        assert_eq!(
            (&got["cookie"], &got["authorization"]),
            (&json!("mine=1"), &json!("Basic YTpi"))
        );
        assert_eq!(got["x-forwarded-for"], Value::Null);

        // A token in a header lets in as well, and goes no further; with the cookie neither.
        for headers in [&[][..], &[("cookie", cookie.as_str())]] {
            let got = heard(&previews.ask(&ann, "GET", "/", headers).expect(200));
            assert_eq!(
                (&got["authorization"], &got["cookie"]),
                (&Value::Null, &Value::Null)
            );
        }

        let odd = previews.get(&cookie, "/odd").expect(302);
        assert_eq!(
            odd.header("location"),
            Some(format!("{origin}/next").as_str())
        );
        let set: Vec<&str> = odd
            .headers
            .iter()
            .filter(|(name, _)| name == "set-cookie")
            .map(|(_, value)| value.as_str())
            .collect();
        assert_eq!(set, ["mine=1; Path=/"]);
        for name in [
            "clear-site-data",
            "strict-transport-security",
            "content-security-policy",
        ] {
            assert_eq!(odd.header(name), None, "{name}");
        }

        // The interface's link leads to an address of the same kind.
        let link = format!("/api/sessions/{}/previews/{PORT}", previews.session);
        let led = ann.get(&link).expect(303);
        assert!(
            led.header("location")
                .unwrap()
                .starts_with(&format!("{origin}/.glovebox/login?code="))
        );

        let audit = person.place().state().join("server/audit.jsonl");
        let audit = std::fs::read_to_string(audit).unwrap();
        let logins = audit
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let logins: Vec<Value> = logins
            .filter(|line| line["action"] == "preview login")
            .collect();
        let object = format!("{PORT}-{}", previews.session);
        assert!(
            logins.iter().all(|line| line["object"] == object),
            "{logins:?}"
        );
        let told = |line: &Value| (line["user"].clone(), line["decision"].clone());
        assert_eq!(told(&logins[0]), (json!("ann"), json!("allowed")));
        assert_eq!(told(&logins[1]), (json!("?"), json!("refused")));
        let metrics = server.admin().get("/metrics").expect(200).text();
        for line in [
            "glovebox_preview_logins_total{outcome=\"ok\"} 1",
            "glovebox_preview_logins_total{outcome=\"error\"} 1",
            "glovebox_preview_requests_total{outcome=\"ok\"} 4",
        ] {
            assert!(
                metrics.lines().any(|one| one == line),
                "{line} in:\n{metrics}"
            );
        }
    });
}

/// Nobody else sees it, by any way in; and what is another's is answered as what is not there.
#[test]
fn a_preview_is_for_its_user_and_its_own_page() {
    if !has_program("python3") {
        skip!("python3 is not installed");
    }
    let person = Person::myself();
    let server = Server::start(&person, &format!("--model {}", starting_model(&person)));
    let ann = server.client(&token(&person, "ann --scope run"));
    let bob = server.client(&token(&person, "bob --scope run"));
    let reader = server.client(&token(&person, "reader --scope read --scope admin"));
    let anybody = server.anybody();
    let previews = start(&server, &ann);
    let absent = Previews {
        server: &server,
        session: "s-0000000000".to_owned(),
    };

    let named = [("x-request-id", "the-same")];
    for path in ["ports", "previews/80"] {
        let path = |id: &str| format!("/api/sessions/{id}/{path}");
        let (one, other) = (path(&previews.session), path(&absent.session));
        let ask = |path: &str| bob.ask("GET", path, &named, b"").expect(404);
        let (one, other) = (ask(&one), ask(&other));
        let hidden = one.text().replace(&previews.session, &absent.session);
        assert_eq!(hidden, other.text());
    }
    let post = format!("/api/sessions/{}/previews", previews.session);
    bob.post(&post, &json!({ "port": PORT })).expect(404);
    let one = previews.ask(&bob, "GET", "/", &named).expect(404);
    let other = absent.ask(&bob, "GET", "/", &named).expect(404);
    assert_eq!(
        one.text().replace(&previews.session, &absent.session),
        other.text()
    );
    for client in [&anybody, &server.client("0123456789abcdef0123456789abcdeX")] {
        let one = previews.ask(client, "GET", "/", &named).expect(401);
        assert_eq!(
            one.text(),
            absent.ask(client, "GET", "/", &named).expect(401).text()
        );
    }
    // An administrator sees it.
    previews.ask(&server.admin(), "GET", "/", &[]).expect(200);
    previews.ask(&reader, "GET", "/", &[]).expect(200);
    let only_reads = server.client(&token(&person, "ann2 --scope read"));
    only_reads.post(&post, &json!({ "port": PORT })).expect(403);

    // A cookie is good for one preview and for nothing else.
    let cookie = previews.cookie(&ann);
    previews.get(&cookie, "/").expect(200);
    let with = [("cookie", cookie.as_str())];
    absent.ask(&anybody, "GET", "/", &with).expect(401);
    let host = previews.host_of(PORT + 1);
    let other = [("host", host.as_str()), with[0]];
    anybody.ask("GET", "/", &other, b"").expect(401);
    anybody.ask("GET", "/api/sessions", &with, b"").expect(401);
    let interface = server.admin().post("/api/login", &json!({})).expect(303);
    previews.get(&cookie_of(&interface), "/").expect(401);
    // A code is worthless once it was shown to another preview.
    let code = previews.login(&ann, "/");
    absent.ask(&anybody, "GET", &code, &[]).expect(401);
    previews.ask(&anybody, "GET", &code, &[]).expect(401);

    // Pages of other origins do not ask in the user's name.
    let evil = ("origin", "http://8000-s-evil.localhost:1");
    for (method, more, status) in [
        ("GET", vec![("referer", "http://evil.example/")], 403),
        ("GET", vec![("sec-fetch-site", "same-site")], 403),
        ("GET", vec![evil], 403),
        ("POST", vec![evil], 403),
        ("POST", vec![], 403),
        (
            "GET",
            vec![
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "document"),
            ],
            200,
        ),
    ] {
        let mut headers = vec![with[0]];
        headers.extend(more);
        previews.ask(&anybody, method, "/", &headers).expect(status);
    }
    assert!(open_socket(&previews, &[with[0], evil]).is_none());

    // Names that are no preview's are nobody's.
    let (_, listens_at) = server.addr.rsplit_once(':').unwrap();
    for host in [
        format!("x-{}.localhost:{listens_at}", previews.session),
        format!("{PORT}-{}.localhost", previews.session),
        format!("{PORT}-{}.evil.test:{listens_at}", previews.session),
    ] {
        let refused = server.admin().ask("GET", "/", &[("host", &host)], b"");
        assert_eq!(refused.expect(421).code(), "permission-denied", "{host}");
    }
    // The cookie ends with the token that it was given for.
    previews.get(&cookie, "/").expect(200);
    person.line("token revoke ann").run().expect_code(0);
    previews.get(&cookie, "/").expect(401);
}

fn open_socket(
    previews: &Previews<'_>,
    headers: &[(&'static str, &str)],
) -> Option<WebSocket<TcpStream>> {
    let url = format!("ws://{}/socket", previews.host());
    let mut request = url.into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(&previews.server.addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    tungstenite::client(request, stream)
        .ok()
        .map(|(socket, _)| socket)
}

/// Bodies come as they are sent, in both directions, and a WebSocket is one.
#[test]
fn a_preview_streams_and_speaks_websocket() {
    if !has_program("python3") {
        skip!("python3 is not installed");
    }
    let person = Person::myself();
    let server = Server::start(&person, &format!("--model {}", starting_model(&person)));
    let admin = server.admin();
    let previews = start(&server, &admin);
    let cookie = previews.cookie(&admin);

    let mut stream = TcpStream::connect(&server.addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let host = previews.host();
    let head = format!(
        "GET /stream HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut got = String::new();
    while !got.contains("first\n") {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "{got}");
        got.push_str(std::str::from_utf8(&piece[..count]).unwrap());
    }
    assert!(!got.contains("second"), "{got}");
    previews.get(&cookie, "/go").expect(200);
    stream.read_to_string(&mut got).unwrap();
    assert!(got.contains("second\n"), "{got}");

    let large = previews.get(&cookie, "/large").expect(200);
    assert_eq!(large.body.len(), 32 << 20);
    let body = vec![7; 8 << 20];
    let host = previews.host();
    let sent = admin
        .ask("POST", "/", &[("host", &host)], &body)
        .expect(200);
    assert_eq!(sent.json()[0], body.len());

    let origin = format!("http://{host}");
    let headers = [("cookie", cookie.as_str()), ("origin", origin.as_str())];
    let mut socket = open_socket(&previews, &headers).unwrap();
    for words in ["over", "and over"] {
        socket.send(Message::Text(words.into())).unwrap();
        assert_eq!(socket.read().unwrap(), Message::Text(words.into()));
    }
    socket.close(None).unwrap();
    while socket.read().is_ok() {}
    // The end of the sandbox ends what is open.
    let mut socket = open_socket(&previews, &headers).unwrap();
    admin
        .delete(&format!("/api/sessions/{}", previews.session))
        .expect(204);
    assert!(socket.read().is_err());
    let gone = previews.get(&cookie, "/").expect(404);
    assert_eq!(gone.code(), "not-found");
}

/// What keeps a preview from being shown is said, as a page to browsers, and nothing is started for it.
#[test]
fn why_there_is_no_preview_is_said() {
    if !has_program("python3") {
        skip!("python3 is not installed");
    }
    let person = Person::myself();
    let server = Server::start(
        &person,
        &format!("--idle 2s --model {}", starting_model(&person)),
    );
    let admin = server.admin();
    let previews = start(&server, &admin);
    let ask = |port: u16, path: &str, more: &[(&str, &str)]| {
        let host = previews.host_of(port);
        let mut headers = vec![("host", host.as_str())];
        headers.extend_from_slice(more);
        admin.ask("GET", path, &headers, b"")
    };
    let nothing = ask(81, "/", &[]).expect(502);
    assert_eq!(nothing.code(), "not-found");
    assert_eq!(nothing.json()["error"]["details"]["ports"], json!([PORT]));
    let page = ask(81, "/", &[PAGE]).expect(502);
    let text = page.text();
    assert!(
        text.contains("nothing listens on port 81") && text.contains(&PORT.to_string()),
        "{text}"
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    for path in ["/garbage", "/head"] {
        assert_eq!(
            ask(PORT, path, &[]).expect(502).code(),
            "protocol",
            "{path}"
        );
    }
    let begun = Instant::now();
    assert_eq!(ask(PORT, "/slow", &[]).expect(504).code(), "timed-out");
    assert!(begun.elapsed() < Duration::from_secs(20));
    // This server's own paths reach no program.
    ask(PORT, "/.glovebox/other", &[]).expect(404);

    let session = admin
        .get(&format!("/api/sessions/{}", previews.session))
        .json();
    let name = session["sandbox"].as_str().unwrap();
    person.line(&format!("stop {name}")).run().expect_code(0);
    let stopped = ask(PORT, "/", &[]).expect(409);
    assert_eq!(stopped.code(), "sandbox-not-running");
    let ports = format!("/api/sessions/{}/ports", previews.session);
    let listed = admin.get(&ports).expect(200).json();
    assert_eq!(listed, json!({ "is_running": false, "ports": [] }));
    let listed = person.line("list --json").run().expect_code(0).out();
    assert!(!listed.contains("\"ready\""), "{listed}");

    let told = [
        json!({ "port": 0 }),
        json!({ "port": 65536 }),
        json!({ "port": 80, "path": "//evil.test/" }),
        json!({ "port": 80, "path": "/\\evil.test/" }),
        json!({ "port": 80, "to": "/" }),
    ]
    .map(|body| {
        let url = format!("/api/sessions/{}/previews", previews.session);
        let refused = admin.post(&url, &body);
        assert!((400..=422).contains(&refused.status), "{refused:?}");
        refused.words()
    });
    let told = told.join("\n\n").replace(&previews.session, "[SESSION]");
    insta::assert_snapshot!(told, @"
    port 0 of `[SESSION]` has no preview
    name a port from 1 to 65535; names with `_` cannot be part of a host's name

    `port` is wrong: invalid value: integer `65536`, expected u16 at line 1 column 13
    /api/openapi.json describes what can be asked for

    `path` is not a path of at most 2048 characters, as it stands in an address
    begin it with one `/`, and encode what is not plain

    `path` is not a path of at most 2048 characters, as it stands in an address
    begin it with one `/`, and encode what is not plain

    `to` is wrong: unknown field `to`, expected `port` or `path` at line 1 column 15
    /api/openapi.json describes what can be asked for
    ");
}

/// A page that opens all it can leaves the user's other previews and other users their places.
#[test]
fn connections_of_a_preview_are_bounded() {
    if !has_program("python3") {
        skip!("python3 is not installed");
    }
    let person = Person::myself();
    let server = Server::start(&person, &format!("--model {}", starting_model(&person)));
    let admin = server.admin();
    let previews = start(&server, &admin);
    let host = previews.host();
    let head =
        format!("GET /slow HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    let waiting: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.addr).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    let is_full = || previews.ask(&admin, "GET", "/", &[]).status == 429;
    assert!(wait_until(PATIENCE, is_full), "no place is ever refused");
    let refused = previews.ask(&admin, "GET", "/", &[]).expect(429);
    assert_eq!(refused.code(), "busy");
    let ann = server.client(&token(&person, "ann --scope admin"));
    previews.ask(&ann, "GET", "/", &[]).expect(200);
    drop(waiting);
    let is_free = || previews.ask(&admin, "GET", "/", &[]).status == 200;
    assert!(wait_until(PATIENCE, is_free), "places are left");
}

/// A sandbox without a session has previews as well, and a deployment names its own domain.
#[test]
fn a_sandbox_has_previews_below_the_domain_of_the_server() {
    if !has_program("python3") {
        skip!("python3 is not installed");
    }
    let person = Person::myself();
    let server = Server::start(&person, "--preview-domain https://Previews.example.com");
    let admin = server.admin();
    let started = admin.post("/api/sandboxes", &json!({})).expect(201).json();
    let name = started["id"].as_str().unwrap();
    let call = |tool: &str, arguments: Value| {
        let path = format!("/api/sandboxes/{name}/call");
        let body = json!({ "tool": tool, "arguments": arguments });
        admin.post(&path, &body).expect(200);
    };
    call("Write", json!({ "path": "app.py", "content": APP }));
    let command = format!("exec python3 app.py {PORT}");
    call("Bash", json!({ "command": command, "background": true }));
    let listens = || {
        let ports = admin.get(&format!("/api/sandboxes/{name}/ports")).json();
        ports["ports"][0]["port"] == PORT
    };
    assert!(wait_until(PATIENCE, listens));
    let made = admin.post(
        &format!("/api/sandboxes/{name}/previews"),
        &json!({ "port": PORT }),
    );
    let made = made.expect(201).json();
    let host = format!("{PORT}-{name}.previews.example.com");
    let url = made["url"].as_str().unwrap();
    let path = url.strip_prefix(&format!("https://{host}")).unwrap();
    let host = ("host", host.as_str());
    let led = server.anybody().ask("GET", path, &[host], b"").expect(303);
    let set = led.header("set-cookie").unwrap();
    assert!(
        set.starts_with("__Host-glovebox-preview=") && set.ends_with("; Secure"),
        "{set}"
    );
    let cookie = cookie_of(&led);
    let with = [host, ("cookie", cookie.as_str())];
    server.anybody().ask("GET", "/", &with, b"").expect(200);

    let wrong = person
        .line("serve --listen 127.0.0.1:0 --preview-domain 127.0.0.1")
        .run();
    let told = wrong.expect_code(2).failure(person.place().root());
    insta::assert_snapshot!(told, @"
    error: --preview-domain: an address has no names below it
    hint: write previews.example.com, with :PORT unless it is the usual one, and with https:// before it where a proxy with TLS is
    ");
}
