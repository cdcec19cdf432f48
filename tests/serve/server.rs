//! A server at a free port of this machine, and a client of it.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use testkit::Person;
use ureq::http::{Request, Response};
use ureq::{Agent, Body};

/// The administrator's token.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A server. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) addr: String,
    stderr: mpsc::Receiver<String>,
    lines: Arc<Mutex<Vec<String>>>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// The code of an error.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }

    /// What an error says to a person: what was wrong, and what to do about it.
    pub(crate) fn words(&self) -> String {
        let error = &self.json()["error"];
        let said = [&error["message"], &error["remedy"]];
        let said: Vec<&str> = said.into_iter().filter_map(Value::as_str).collect();
        said.join("\n")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(one, _)| one.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        let body = String::from_utf8_lossy(&self.body).into_owned();
        assert_eq!(self.status, status, "{body}");
        self
    }
}

/// A recording of answers that call tools, ended by words.
pub(crate) fn recording(person: &Person, name: &str, calls: &[(&str, Value)]) -> String {
    let mut lines: Vec<Value> = Vec::new();
    for (turn, (tool, arguments)) in calls.iter().enumerate() {
        let call = json!({ "kind": "call", "id": format!("c{turn}"), "name": tool, "arguments": arguments });
        lines.push(json!({ "type": "answered", "turn": turn + 1, "parts": [call] }));
    }
    for turn in 0..4 {
        let text = json!({ "kind": "text", "text": format!("done {turn}") });
        let turn = calls.len() + 1 + turn;
        lines.push(json!({ "type": "answered", "turn": turn, "parts": [text] }));
    }
    let path = person.place().root().join(name);
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    format!("replay:{}", path.display())
}

/// Makes a token for a user, with these arguments of `glovebox token create`.
pub(crate) fn token(person: &Person, args: &str) -> String {
    let made = person
        .line(&format!("token create {args} --json"))
        .run()
        .expect_code(0);
    let made: Value = serde_json::from_str(&made.out()).unwrap();
    made["data"]["token"].as_str().unwrap().to_owned()
}

impl Server {
    /// Serves for `person`; the current directory is a project, which is not served unless `args` say so.
    pub(crate) fn start(person: &Person, args: &str) -> Self {
        Self::start_at(person, "127.0.0.1:0", args)
    }

    pub(crate) fn start_at(person: &Person, addr: &str, args: &str) -> Self {
        Self::start_at_with(person, addr, args, &[])
    }

    /// Serves with further variables.
    pub(crate) fn start_with(person: &Person, args: &str, env: &[(&str, String)]) -> Self {
        Self::start_at_with(person, "127.0.0.1:0", args, env)
    }

    /// Serves at an address with further variables.
    pub(crate) fn start_at_with(
        person: &Person,
        addr: &str,
        args: &str,
        env: &[(&str, String)],
    ) -> Self {
        let walls = if args.contains("--unsafe-local") || args.contains("--backend") {
            ""
        } else {
            "--no-toolchains"
        };
        let mut call = person
            .line(&format!("serve --listen {addr} {walls} {args}"))
            .env("GLOVEBOX_SERVER_TOKEN", TOKEN);
        for (name, value) in env {
            call = call.env(name, value);
        }
        Self::spawn(call.command, args.contains("--log-format json"))
    }

    /// Serves under a umask, as a unit of systemd with `UMask=` does.
    pub(crate) fn start_under_umask(person: &Person, mask: &str, args: &str) -> Self {
        let mut command = person.program("sh");
        command
            .args(["-c", &format!("umask {mask}; exec \"$@\""), "sh"])
            .arg(person.binary())
            .args(["serve", "--listen", "127.0.0.1:0", "--no-toolchains"])
            .args(args.split_whitespace())
            .env("GLOVEBOX_SERVER_TOKEN", TOKEN);
        Self::spawn(command, false)
    }

    /// Serves with the program at another path.
    pub(crate) fn start_program(person: &Person, program: &std::path::Path, args: &str) -> Self {
        let mut command = person.program(program);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--no-toolchains"])
            .args(args.split_whitespace())
            .env("GLOVEBOX_SERVER_TOKEN", TOKEN);
        Self::spawn(command, false)
    }

    fn spawn(mut command: Command, is_json: bool) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (tell, stderr) = mpsc::channel();
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        std::thread::spawn({
            let lines = Arc::clone(&lines);
            move || {
                for line in said.map_while(Result::ok) {
                    lines.lock().unwrap().push(line.clone());
                    let _ = tell.send(line);
                }
            }
        });
        let mut server = Self {
            child,
            addr: String::new(),
            stderr,
            lines,
        };
        let line = server.told(if is_json {
            "\"listening\""
        } else {
            "serving at http"
        });
        let addr = line.split("://").nth(1).unwrap();
        let addr = addr.split('"').next().unwrap();
        addr.clone_into(&mut server.addr);
        server
    }

    /// All lines on standard error so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Waits for a line on standard error that has this in it.
    pub(crate) fn told(&self, part: &str) -> String {
        loop {
            let line = self.stderr.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|error| panic!("{error}: no line with `{part}`"));
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Memory of its process, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse().unwrap()
    }

    /// How many descriptors its process has open.
    pub(crate) fn descriptors(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        open.unwrap().count()
    }

    /// Asks it to end as a service manager does, and waits until it has.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.ask_to_end();
        self.child.wait().unwrap().code()
    }

    /// Asks it to end, and does not wait.
    pub(crate) fn ask_to_end(&mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    }

    /// Sends a head, then spaces until the server has had enough: its answer.
    pub(crate) fn raw(&self, head: &str) -> String {
        let mut stream = TcpStream::connect(&self.addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        while stream.write_all(&[b' '; 4096]).is_ok() {
            stream.set_nonblocking(true).unwrap();
            let has_answered = stream.peek(&mut [0]).is_ok();
            stream.set_nonblocking(false).unwrap();
            if has_answered {
                break;
            }
        }
        let mut answer = [0; 4096];
        let count = stream.read(&mut answer).unwrap_or_default();
        String::from_utf8_lossy(&answer[..count]).into_owned()
    }

    /// A client with this token.
    pub(crate) fn client(&self, token: &str) -> Client {
        Client {
            agent: agent(),
            base: format!("http://{}", self.addr),
            token: Some(token.to_owned()),
        }
    }

    /// The administrator.
    pub(crate) fn admin(&self) -> Client {
        self.client(TOKEN)
    }

    /// Somebody.
    pub(crate) fn anybody(&self) -> Client {
        Client {
            token: None,
            ..self.client("")
        }
    }

    /// Somebody without a token who asks at the root of the server's host, whatever its base path.
    pub(crate) fn anybody_at_root(&self) -> Client {
        let host = self.addr.split('/').next().unwrap_or_default();
        Client {
            base: format!("http://{host}"),
            ..self.anybody()
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn agent() -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        // A server may close a connection that rests just when it is used again.
        .max_idle_connections(0)
        .timeout_global(Some(PATIENCE * 2))
        .proxy(None);
    config.build().into()
}

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    agent: Agent,
    base: String,
    token: Option<String>,
}

impl Client {
    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response<Body> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let sent = if body.is_empty() && matches!(method, "GET" | "DELETE") {
            self.agent.run(request.body(()).unwrap())
        } else {
            self.agent.run(request.body(body).unwrap())
        };
        sent.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut response = self.send(method, path, headers, body);
        let all = response.headers().iter();
        Answer {
            status: response.status().as_u16(),
            headers: all
                .map(|(name, value)| {
                    (
                        name.to_string(),
                        value.to_str().unwrap_or_default().to_owned(),
                    )
                })
                .collect(),
            body: response
                .body_mut()
                .with_config()
                .limit(1 << 30)
                .read_to_vec()
                .unwrap(),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"")
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.ask("DELETE", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        let json = [("content-type", "application/json")];
        self.ask("POST", path, &json, body.to_string().as_bytes())
    }

    /// The number of one line of the metrics, by its name and labels; 0 where there is none yet.
    #[track_caller]
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics").expect(200).text();
        let mut lines = text.lines();
        let number = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        number.map_or(0, |number| number.trim().parse().unwrap())
    }

    /// Asks without a look at what comes of it.
    pub(crate) fn attempt(&self, path: &str, body: &Value) {
        let mut request = Request::builder()
            .method("POST")
            .uri(format!("{}{path}", self.base));
        request = request.header("content-type", "application/json");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = body.to_string();
        let sent = self.agent.run(request.body(body.as_bytes()).unwrap());
        let _ = sent.map(|answer| read_all(answer.into_body().into_reader()));
    }

    /// Submits a task: the session's name.
    #[track_caller]
    pub(crate) fn submit(&self, task: &Value) -> String {
        let answer = self.post("/api/tasks", task).expect(202).json();
        answer["session_id"].as_str().unwrap().to_owned()
    }

    /// Follows a session from after an event, until `stop` says so or the stream ends.
    pub(crate) fn follow(
        &self,
        id: &str,
        after: Option<&str>,
        mut stop: impl FnMut(&Event) -> bool,
    ) -> Vec<Event> {
        let headers: Vec<(&str, &str)> = after.iter().map(|id| ("last-event-id", *id)).collect();
        let path = format!("/api/sessions/{id}/events");
        let response = self.send("GET", &path, &headers, b"");
        if response.status() == 204 {
            return Vec::new();
        }
        assert_eq!(response.status(), 200);
        let mut events = Vec::new();
        let mut event = Event::default();
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let line = line.unwrap();
            match line.split_once(": ") {
                Some(("event", kind)) => kind.clone_into(&mut event.kind),
                Some(("id", id)) => id.clone_into(&mut event.id),
                Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                _ if line.is_empty() && !event.id.is_empty() => {
                    let is_enough = stop(&event);
                    events.push(std::mem::take(&mut event));
                    if is_enough {
                        return events;
                    }
                }
                _ => {}
            }
        }
        events
    }

    /// The first events of another stream: type and data.
    pub(crate) fn follow_path(&self, path: &str, count: usize) -> Vec<(String, Value)> {
        let response = self.send("GET", path, &[], b"");
        assert_eq!(response.status(), 200);
        let (mut events, mut kind) = (Vec::new(), String::new());
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let line = line.unwrap();
            match line.split_once(": ") {
                Some(("event", word)) => word.clone_into(&mut kind),
                Some(("data", data)) => {
                    let data = serde_json::from_str(data).unwrap();
                    events.push((std::mem::take(&mut kind), data));
                }
                _ => {}
            }
            if events.len() == count {
                break;
            }
        }
        events
    }

    /// Follows a session to its end.
    pub(crate) fn follow_to_end(&self, id: &str) -> Vec<Event> {
        self.follow(id, None, |_| false)
    }

    /// Waits until a session stands so.
    #[track_caller]
    pub(crate) fn await_state(&self, id: &str, state: &str) -> Value {
        let mut last = Value::Null;
        let is_there = testkit::wait_until(PATIENCE, || {
            last = self.get(&format!("/api/sessions/{id}")).json();
            last["state"] == state
        });
        assert!(is_there, "not {state}: {last}");
        last
    }
}

/// One event of a stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

/// All that a reader gets.
pub(crate) fn read_all(mut from: impl std::io::Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    bytes
}
