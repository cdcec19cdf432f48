//! Model server on loopback with scripted responses, in the wire formats of the providers.
//!
//! In: a script of [`Step`]s, one for each request. Out: an address for `*_BASE_URL`, and every
//! request that arrived, byte for byte. It speaks plain HTTP/1.1 on one connection per request, and
//! breaks off, refuses and delays as the script says.

mod wire;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Response of the server to one request.
#[derive(Debug, Clone)]
pub enum Step {
    /// Sends this text.
    Text(String),
    /// Sends a text and then these tool calls.
    Calls(String, Vec<Wanted>),
    /// Refuses with this status, and with `Retry-After` in seconds if given.
    Status(u16, Option<u64>),
    /// Refuses with this status and this message.
    Refuse(u16, String),
    /// Refuses with this status and this body.
    RefuseBody(u16, String),
    /// Sends the response of this step, without the token counts.
    Uncounted(Box<Self>),
    /// Starts to send this text and closes the connection in the middle.
    Cut(String),
    /// Starts to send a tool call and closes the connection in the middle of its arguments.
    CutCall(Wanted),
    /// Sends this text in pieces, with a pause before each.
    Drip(Vec<String>, Duration),
    /// Sends these bytes as the body of an event stream, and closes the connection.
    Raw(String),
    /// Sends these bytes, and keeps the connection open until the client closes it.
    Hold(String),
    /// Accepts the request and sends no event until the client closes the connection.
    Silence,
}

/// Tool call in a response of the model.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Name of the tool; `NAMESPACE/TOOL` for one of a group, in the format that has groups.
    pub tool: String,
    /// Arguments as text, which need not be JSON.
    pub arguments: String,
}

impl Wanted {
    /// Creates a call of `tool`.
    pub fn new(tool: &str, arguments: &str) -> Self {
        Self {
            tool: tool.to_owned(),
            arguments: arguments.to_owned(),
        }
    }
}

impl Step {
    /// Creates a step with one call and no text.
    pub fn call(tool: &str, arguments: &str) -> Self {
        Self::Calls(String::new(), vec![Wanted::new(tool, arguments)])
    }

    /// Creates a step with a text only.
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Request as it arrived.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Method and path.
    pub line: String,
    /// Header lines.
    pub headers: Vec<String>,
    /// Body of the request.
    pub body: String,
}

/// Wire format of a provider, chosen by the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Chat,
    Responses,
    Messages,
    Gemini,
}

/// The model server; it ends when dropped.
#[derive(Debug)]
pub struct ModelServer {
    port: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Function that chooses the response to a request.
type Reply = Box<dyn Fn(&Asked) -> Step + Send + Sync>;

struct Shared {
    steps: Mutex<std::collections::VecDeque<Step>>,
    /// Chooses the response instead of the steps. None for a server with steps.
    reply: Option<Reply>,
    asked: Mutex<Vec<Asked>>,
    /// Responses about the server itself, by path; these requests use no step and are not recorded.
    told: Mutex<std::collections::BTreeMap<String, Told>>,
    left: AtomicBool,
    is_over: AtomicBool,
}

impl ModelServer {
    /// Starts a server that plays `steps` in order; a request beyond the last gets status 400.
    ///
    /// # Panics
    /// There is no free port on loopback.
    pub fn start(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::open(steps.into_iter().collect(), None)
    }

    /// Starts a server that chooses each response by the request, for programs that send requests
    /// in an order of their own.
    ///
    /// # Panics
    /// There is no free port on loopback.
    pub fn replying(reply: impl Fn(&Asked) -> Step + Send + Sync + 'static) -> Self {
        Self::open(std::collections::VecDeque::new(), Some(Box::new(reply)))
    }

    #[expect(clippy::expect_used, reason = "a test cannot go on without its server")]
    fn open(steps: std::collections::VecDeque<Step>, reply: Option<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            steps: Mutex::new(steps),
            reply,
            asked: Mutex::new(Vec::new()),
            told: Mutex::default(),
            left: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("model".to_owned())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    if own.is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    let own = Arc::clone(&own);
                    // In a thread of its own: a silent response must not delay the next request.
                    let _ = std::thread::Builder::new().spawn(move || {
                        let _ = own.serve(&stream);
                    });
                }
            })
            .expect("a thread");
        Self {
            port,
            shared,
            thread: Some(thread),
        }
    }

    /// Responds with `body` to requests for `path`, without using a step. Such a request gets
    /// status 404 otherwise.
    #[must_use]
    pub fn telling(self, path: &str, body: &str) -> Self {
        self.shared.tell(path, Told::Body(body.to_owned()));
        self
    }

    /// Never responds to requests for `path`.
    #[must_use]
    pub fn silent_about(self, path: &str) -> Self {
        self.shared.tell(path, Told::Nothing);
        self
    }

    /// Returns the address, without a path.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns every request so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.lock_asked().clone()
    }

    /// Returns the number of requests so far.
    pub fn asked_count(&self) -> usize {
        self.shared.lock_asked().len()
    }

    /// Returns the number of steps that have not been used yet.
    pub fn steps_left(&self) -> usize {
        self.shared.lock_steps().len()
    }

    /// Returns true if a client has closed a connection before the end of a response.
    pub fn was_left(&self) -> bool {
        self.shared.left.load(Ordering::SeqCst)
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread, which blocks in accept(2).
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("steps", &self.steps)
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}

/// Response about the server itself.
#[derive(Debug, Clone)]
enum Told {
    Body(String),
    Nothing,
}

impl Shared {
    fn tell(&self, path: &str, told: Told) {
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(path.to_owned(), told);
    }

    /// Responds to a request about the server itself. Returns true if it was one. A server with a
    /// reply function has none.
    fn tells(&self, line: &str, mut out: &TcpStream) -> std::io::Result<bool> {
        let path = line.split(' ').nth(1).unwrap_or_default();
        let is_about_itself = line.starts_with("GET ") || path == "/api/show";
        if self.reply.is_some() || !is_about_itself {
            return Ok(false);
        }
        let told = {
            let all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            all.get(path).cloned()
        };
        match told {
            None => refuse(out, 404, None, "not found")?,
            Some(Told::Body(body)) => refuse_body(out, 200, "", &body)?,
            Some(Told::Nothing) => {
                let _ = out.read(&mut [0]);
            }
        }
        Ok(true)
    }

    fn lock_asked(&self) -> std::sync::MutexGuard<'_, Vec<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_steps(&self) -> std::sync::MutexGuard<'_, std::collections::VecDeque<Step>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        let mut headers = Vec::new();
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let header = header.trim_end().to_owned();
            if header.is_empty() {
                break;
            }
            let lower = header.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            headers.push(header);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        if self.tells(&line, stream)? {
            return Ok(());
        }
        let format = if line.contains("/chat/completions") {
            Format::Chat
        } else if line.contains("/responses") {
            Format::Responses
        } else if line.contains("/messages") {
            Format::Messages
        } else {
            Format::Gemini
        };
        let asked = Asked {
            line: line.trim_end().to_owned(),
            headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        };
        let step = match &self.reply {
            Some(reply) => reply(&asked),
            None => self
                .lock_steps()
                .pop_front()
                .unwrap_or_else(|| Step::Refuse(400, "the script is over".to_owned())),
        };
        let turn = {
            let mut all = self.lock_asked();
            all.push(asked);
            all.len()
        };
        let told = Self::play(stream, format, step, turn);
        if told.is_err() {
            self.left.store(true, Ordering::SeqCst);
        }
        told
    }

    fn play(mut out: &TcpStream, format: Format, step: Step, turn: usize) -> std::io::Result<()> {
        match step {
            Step::Status(status, after) => refuse(out, status, after, "as the script says"),
            Step::Refuse(status, words) => refuse(out, status, None, &words),
            Step::RefuseBody(status, body) => refuse_body(out, status, "", &body),
            Step::Uncounted(step) => {
                let (pieces, calls) = match *step {
                    Step::Text(text) => (vec![text], Vec::new()),
                    Step::Calls(text, calls) => (vec![text], calls),
                    other => return Self::play(out, format, other, turn),
                };
                begin(out)?;
                let events = wire::answer(format, turn, &pieces, &calls);
                out.write_all(wire::without_usage(&events).as_bytes())
            }
            Step::Text(text) => {
                begin(out)?;
                // In two pieces, so that the client must join them.
                let half = (0..=text.len() / 2)
                    .rev()
                    .find(|&at| text.is_char_boundary(at))
                    .unwrap_or(0);
                let (first, second) = text.split_at(half);
                let pieces = [first, second].map(str::to_owned);
                out.write_all(wire::answer(format, turn, &pieces, &[]).join("").as_bytes())
            }
            Step::Calls(text, calls) => {
                begin(out)?;
                out.write_all(
                    wire::answer(format, turn, &[text], &calls)
                        .join("")
                        .as_bytes(),
                )
            }
            Step::Cut(text) => {
                begin(out)?;
                let events = wire::answer(format, turn, &[text], &[]);
                out.write_all(events[..wire::words_end(format)].join("").as_bytes())
            }
            Step::CutCall(call) => {
                begin(out)?;
                let whole = wire::answer(format, turn, &[], &[call]).join("");
                let half = whole
                    .find("arguments\":\"{")
                    .or_else(|| whole.find("partial_json"))
                    .unwrap_or(40);
                let at = (half + 20).min(whole.len());
                out.write_all(&whole.as_bytes()[..at])
            }
            Step::Drip(pieces, pause) => {
                begin(out)?;
                for event in wire::answer(format, turn, &pieces, &[]) {
                    std::thread::sleep(pause);
                    out.write_all(event.as_bytes())?;
                    out.flush()?;
                }
                Ok(())
            }
            Step::Raw(body) => {
                begin(out)?;
                out.write_all(body.as_bytes())
            }
            Step::Hold(body) => {
                begin(out)?;
                out.write_all(body.as_bytes())?;
                wait_until_left(out)
            }
            Step::Silence => {
                begin(out)?;
                wait_until_left(out)
            }
        }
    }
}

fn wait_until_left(mut out: &TcpStream) -> std::io::Result<()> {
    match out.read(&mut [0]) {
        Ok(0) | Err(_) => Err(std::io::ErrorKind::ConnectionAborted.into()),
        Ok(_) => Ok(()),
    }
}

fn begin(mut out: &TcpStream) -> std::io::Result<()> {
    out.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
    )
}

fn refuse(out: &TcpStream, status: u16, after: Option<u64>, words: &str) -> std::io::Result<()> {
    let body = serde_json::json!({ "error": { "message": words, "type": "scripted" } }).to_string();
    let after = after.map_or_else(String::new, |secs| format!("retry-after: {secs}\r\n"));
    refuse_body(out, status, &after, &body)
}

fn refuse_body(mut out: &TcpStream, status: u16, after: &str, body: &str) -> std::io::Result<()> {
    write!(
        out,
        "HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{after}connection: close\r\n\r\n{body}",
        body.len()
    )
}
