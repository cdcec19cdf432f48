//! `glovebox mcp --http` at a free port of this machine, and requests byte by byte.

use crate::pipe::introduction;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use testkit::Person;

/// What the clients of a site show.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A server. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) child: Child,
    pub(crate) addr: String,
    stderr: mpsc::Receiver<String>,
}

/// What a client says first, as a request.
pub(crate) fn hello() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": introduction() })
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The message that it carries, as JSON or in a stream.
    pub(crate) fn message(&self) -> Value {
        let begin = self.body.find("{\"").unwrap_or(0);
        let mut messages = serde_json::Deserializer::from_str(&self.body[begin..]).into_iter();
        messages
            .next()
            .and_then(Result::ok)
            .unwrap_or_else(|| panic!("no message: {self:?}"))
    }
}

impl Site {
    pub(crate) fn open(person: &Person, args: &str) -> Self {
        Self::open_with(person, args, Some(TOKEN))
    }

    pub(crate) fn open_with(person: &Person, args: &str, token: Option<&str>) -> Self {
        let mut call = person.line(&format!("mcp --http 127.0.0.1:0 {args}"));
        if let Some(token) = token {
            call = call.env("GLOVEBOX_MCP_TOKEN", token);
        }
        call.command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = call.command.spawn().unwrap();
        let (tell, stderr) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let mut site = Self {
            child,
            addr: String::new(),
            stderr,
        };
        let line = site.told("serving at http://");
        let url = line.split("http://").nth(1).unwrap();
        url.trim_end_matches("/mcp").clone_into(&mut site.addr);
        site
    }

    /// Waits for a line on standard error that has this in it.
    pub(crate) fn told(&self, part: &str) -> String {
        loop {
            let line = self.stderr.recv_timeout(Duration::from_secs(30));
            let line = line.unwrap_or_else(|error| panic!("{error}: no line with `{part}`"));
            if line.contains(part) {
                return line;
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.addr).unwrap();
        let wait = Some(Duration::from_mins(1));
        stream.set_read_timeout(wait).unwrap();
        stream.set_write_timeout(wait).unwrap();
        stream
    }

    /// The head of a good request, without what `but` replaces.
    pub(crate) fn head(&self, method: &str, length: usize, but: &[(&str, &str)]) -> String {
        let bearer = format!("Bearer {TOKEN}");
        let mut headers: Vec<(&str, &str)> = vec![
            ("Host", &self.addr),
            ("Authorization", &bearer),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        for (name, value) in but {
            headers.retain(|(known, _)| known != name);
            if !value.is_empty() {
                headers.push((name, value));
            }
        }
        let mut head = format!("{method} /mcp HTTP/1.1\r\nContent-Length: {length}\r\n");
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head + "\r\n"
    }

    /// Introduces a client.
    pub(crate) fn hello(&self, but: &[(&str, &str)]) -> Answer {
        self.post(&hello(), but)
    }

    /// Posts a message and reads the answer up to the message it carries.
    pub(crate) fn post(&self, message: &Value, but: &[(&str, &str)]) -> Answer {
        self.post_bytes(message.to_string().as_bytes(), but)
    }

    /// Posts these bytes.
    pub(crate) fn post_bytes(&self, body: &[u8], but: &[(&str, &str)]) -> Answer {
        let mut stream = self.connect();
        let head = self.head("POST", body.len(), but);
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        read(stream)
    }

    /// Introduces itself; the header that names the session.
    pub(crate) fn session(&self) -> String {
        let answer = self.hello(&[]);
        assert_eq!(answer.status, 200, "{answer:?}");
        let id = answer
            .head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("mcp-session-id: ")
                    .map(str::to_owned)
            })
            .unwrap();
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.post(&ready, &[("Mcp-Session-Id", &id)]).status, 202);
        id
    }

    /// Calls a tool; its answer.
    pub(crate) fn call(&self, session: &str, tool: &str, arguments: &Value) -> Answer {
        self.post(&call(tool, arguments), &[("Mcp-Session-Id", session)])
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A call of a tool.
pub(crate) fn call(tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params })
}

/// An answer: its head, and its body up to the message with a result or to its end.
pub(crate) fn read(stream: TcpStream) -> Answer {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let before = head.len();
        // A connection that is closed without an answer gives an empty one.
        if reader.read_line(&mut head).unwrap_or(0) == 0 || head.len() == before {
            break;
        }
    }
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let length = head.to_ascii_lowercase().lines().find_map(|line| {
        line.strip_prefix("content-length: ")
            .and_then(|n| n.parse::<usize>().ok())
    });
    let mut body = String::new();
    if let Some(length) = length {
        let mut bytes = vec![0; length];
        let _ = reader.read_exact(&mut bytes);
        body = String::from_utf8_lossy(&bytes).into_owned();
    } else {
        let is_done = |body: &str| body.contains("\"result\"") || body.contains("\"error\"");
        while !is_done(&body) && reader.read_line(&mut body).unwrap_or(0) > 0 {}
    }
    Answer {
        status: status.unwrap_or(0),
        head,
        body,
    }
}
