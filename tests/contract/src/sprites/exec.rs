//! Exec sessions: opened and attached to over WebSocket, listed and killed over HTTP.

use super::reply::{Parameters, Reply, answer, events, now, read_body, read_duration, refuse};
use super::rest::no_sprite;
use super::session::{ExecOrder, Input, Output, Session};
use super::store::{Machine, lock};
use super::{Service, Shared};
use axum::body::Bytes;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::time::{interval, sleep, timeout};

type Pairs = Query<Vec<(String, String)>>;
type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

/// Parameters of the contract.
const PARAMETERS: &[&str] = &[
    "cmd",
    "path",
    "env",
    "dir",
    "tty",
    "rows",
    "cols",
    "stdin",
    "max_run_after_disconnect",
    "detachable",
    "id",
    "cc",
];
/// Time between two messages that keep a client from taking silence for an end.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// How long a client may take to end its connection after the exit.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// A connection that is about to be one of a session.
enum Target {
    New(Box<ExecOrder>),
    Attach(Arc<Session>),
}

/// Facts of a connection that outlive the request.
struct Connection {
    service: Arc<Service>,
    machine: Arc<Machine>,
    target: Target,
    run_after_disconnect: Duration,
    /// Bytes that a client sends by mistake as its first frame.
    ignored_first: Option<&'static [u8]>,
}

pub(super) async fn open_or_list(
    State(service): Shared,
    Path(name): Path<String>,
    Query(pairs): Pairs,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Reply {
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    if !headers.contains_key("upgrade") {
        return match Parameters::read(&service, pairs, &[]) {
            Ok(_) => list(&machine),
            Err(reply) => *reply,
        };
    }
    let parameters = match Parameters::read(&service, pairs, PARAMETERS) {
        Ok(parameters) => parameters,
        Err(reply) => return *reply,
    };
    if let Some(id) = parameters.get("id") {
        let id = id.to_owned();
        return attach_to(service, machine, &id, &headers, upgrade).await;
    }
    let argv = parameters.all("cmd");
    if argv.is_empty() {
        return refuse(400, "missing_cmd", "cmd is missing");
    }
    let is_tty = parameters.is_set("tty") || parameters.is_set("detachable");
    let size = |name: &str, default: u16| match parameters.get(name) {
        None => Some(default),
        Some(text) => text.parse().ok(),
    };
    let (Some(rows), Some(cols)) = (size("rows", 24), size("cols", 80)) else {
        return service.violation("rows or cols is no number");
    };
    let asked = parameters.get("max_run_after_disconnect");
    let default = if is_tty { "0" } else { "10s" };
    let Some(run_after_disconnect) = read_duration(asked.unwrap_or(default)) else {
        return service.violation("max_run_after_disconnect is no duration");
    };
    if service.options.refuse_forever && !is_tty && run_after_disconnect.is_zero() {
        return refuse(
            400,
            "bad_request",
            "a session without a terminal needs a time",
        );
    }
    let home = machine.home();
    let dir = parameters
        .get("dir")
        .map_or_else(|| home.clone(), PathBuf::from);
    let path = std::env::var("PATH").unwrap_or_default();
    let mut env = vec![
        ("PATH".to_owned(), path),
        ("HOME".to_owned(), home.to_string_lossy().into_owned()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ];
    if is_tty {
        env.push(("TERM".to_owned(), "xterm".to_owned()));
    }
    for pair in parameters.all("env") {
        let Some((name, value)) = pair.split_once('=') else {
            return service.violation("env has no `=`");
        };
        env.push((name.to_owned(), value.to_owned()));
    }
    let order = ExecOrder {
        path: parameters.get("path").unwrap_or(&argv[0]).to_owned(),
        has_stdin: is_tty || parameters.is_set("stdin"),
        tty: is_tty.then_some((rows, cols)),
        argv,
        env,
        dir,
    };
    let connection = Connection {
        machine,
        target: Target::New(Box::new(order)),
        run_after_disconnect,
        ignored_first: None,
        service,
    };
    accept(connection, upgrade).await
}

pub(super) async fn attach(
    State(service): Shared,
    Path((name, id)): Path<(String, String)>,
    Query(pairs): Pairs,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Reply {
    if let Err(reply) = Parameters::read(&service, pairs, PARAMETERS) {
        return *reply;
    }
    match service.store.get(&name) {
        Some(machine) => attach_to(service, machine, &id, &headers, upgrade).await,
        None => no_sprite(),
    }
}

async fn attach_to(
    service: Arc<Service>,
    machine: Arc<Machine>,
    id: &str,
    headers: &HeaderMap,
    upgrade: Upgrade,
) -> Reply {
    let Some(session) = lock(&machine.state).sessions.get(id).cloned() else {
        return refuse(404, "not_found", &format!("session not found: {id}"));
    };
    let agent = headers
        .get("user-agent")
        .and_then(|agent| agent.to_str().ok());
    let is_python = agent.is_some_and(|agent| agent.starts_with("sprites-py/"));
    let connection = Connection {
        service,
        machine,
        // sprites-py 0.7.2 ends the input before it knows that the session has a terminal (S11).
        ignored_first: (is_python && session.tty.is_some()).then_some(b"\x04"),
        target: Target::Attach(session),
        run_after_disconnect: Duration::ZERO,
    };
    accept(connection, upgrade).await
}

async fn accept(connection: Connection, upgrade: Upgrade) -> Reply {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => return refuse(400, "bad_request", &rejection.body_text()),
    };
    sleep(Duration::from_millis(connection.service.options.wake_ms)).await;
    upgrade.on_upgrade(|socket| serve(socket, connection))
}

async fn serve(socket: WebSocket, connection: Connection) {
    let (sender, mut output) = mpsc::channel(4);
    let (mut outgoing, mut arriving) = socket.split();
    let mut scrollback = Vec::new();
    let session = match connection.target {
        Target::New(ref order) => {
            match Session::start(&connection.machine, order, sender.clone()) {
                Ok(session) => session,
                Err(error) => {
                    let frame = close_frame(1011, &error.to_string());
                    // The client may have gone already.
                    let _ = outgoing.send(Message::Close(Some(frame))).await;
                    return;
                }
            }
        }
        Target::Attach(ref session) => {
            scrollback = session.attach(sender.clone());
            Arc::clone(session)
        }
    };
    let service = &connection.service;
    let has_ended = tokio::select! {
        ended = send_output(&mut outgoing, &session, scrollback, &mut output, service) => ended,
        () = take_input(&mut arriving, &session, connection.ignored_first, service) => false,
        () = service.cut.notified() => false,
    };
    if has_ended {
        if !service.options.drop_after_exit {
            let drain = async { while let Some(Ok(_)) = arriving.next().await {} };
            let _ = timeout(CLOSE_WAIT, drain).await;
        }
        return;
    }
    // From here on nobody takes output, so a program that writes must not wait for it.
    drop(output);
    // The connection ends at once: what follows may take as long as the program.
    drop((outgoing, arriving));
    if !session.detach(&sender) {
        return;
    }
    connection.machine.remember_processes();
    if service.options.sessions_end {
        session.signal(Signal::KILL);
    } else if !connection.run_after_disconnect.is_zero() {
        let time = connection.run_after_disconnect;
        if session.wait(time).await.is_none() && !session.has_client() {
            session.signal(Signal::KILL);
        }
    }
}

fn close_frame(code: u16, reason: &str) -> CloseFrame {
    CloseFrame {
        code,
        reason: reason.chars().take(100).collect::<String>().into(),
    }
}

/// Sends output until the program has ended. False if the client has gone before.
async fn send_output(
    outgoing: &mut SplitSink<WebSocket, Message>,
    session: &Session,
    scrollback: Vec<u8>,
    output: &mut mpsc::Receiver<Output>,
    service: &Service,
) -> bool {
    let (rows, cols) = session.tty.unwrap_or((0, 0));
    let created = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let info = json!({
        "type": "session_info",
        "session_id": session.id,
        "command": session.command,
        "created": created.as_secs(),
        "cols": cols,
        "rows": rows,
        "is_owner": true,
        "tty": session.tty.is_some(),
    });
    let is_tty = session.tty.is_some();
    let frame = |stream: u8, bytes: &[u8]| {
        let mut frame = Vec::with_capacity(1 + bytes.len());
        if !is_tty {
            frame.push(stream);
        }
        frame.extend_from_slice(bytes);
        Message::Binary(frame.into())
    };
    let mut first = vec![Message::Text(info.to_string().into())];
    if !scrollback.is_empty() {
        first.push(frame(1, &scrollback));
    }
    for message in first {
        if outgoing.send(message).await.is_err() {
            return false;
        }
    }
    let mut heartbeat = interval(HEARTBEAT);
    heartbeat.tick().await;
    loop {
        let message = tokio::select! {
            next = output.recv() => match next {
                Some(Output::Stdout(bytes)) => frame(1, &bytes),
                Some(Output::Stderr(bytes)) => frame(2, &bytes),
                Some(Output::Exit(code)) => {
                    return send_exit(outgoing, is_tty, code, service.options.drop_after_exit).await;
                }
                None => return false,
            },
            _ = heartbeat.tick() => Message::Text(r#"{"type":"heartbeat"}"#.into()),
        };
        if outgoing.send(message).await.is_err() {
            return false;
        }
    }
}

async fn send_exit(
    outgoing: &mut SplitSink<WebSocket, Message>,
    is_tty: bool,
    code: u8,
    is_abrupt: bool,
) -> bool {
    let exit = if is_tty {
        Message::Text(
            json!({"type": "exit", "exit_code": code})
                .to_string()
                .into(),
        )
    } else {
        Message::Binary(vec![3, code].into())
    };
    if outgoing.send(exit).await.is_ok() && !is_abrupt {
        // One client takes the exit code of a terminal from this code alone.
        let number = if is_tty && code != 0 { 4000 } else { 1000 };
        let close = Message::Close(Some(close_frame(number, "")));
        let _ = outgoing.send(close).await;
    }
    true
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Order {
    Resize { cols: u16, rows: u16 },
    Signal { signal: String },
}

/// Takes what a client sends until it has gone.
async fn take_input(
    arriving: &mut SplitStream<WebSocket>,
    session: &Session,
    ignored_first: Option<&[u8]>,
    service: &Service,
) {
    let mut ignored = ignored_first;
    while let Some(Ok(message)) = arriving.next().await {
        let input = match message {
            Message::Binary(bytes) if ignored.take() == Some(&bytes[..]) => continue,
            Message::Binary(bytes) if session.tty.is_some() => Input::Bytes(bytes),
            Message::Binary(bytes) => match bytes.first() {
                Some(0) => Input::Bytes(bytes.slice(1..)),
                Some(4) if bytes.len() == 1 => Input::Eof,
                first => {
                    service.note_refusal(&format!("frame of the stream {first:?}"));
                    continue;
                }
            },
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(Order::Resize { cols, rows }) => Input::Resize { rows, cols },
                Ok(Order::Signal { signal }) => {
                    if let Some(signal) = read_signal(&signal) {
                        session.signal(signal);
                    }
                    continue;
                }
                Err(_) => {
                    service.note_refusal(&format!("text frame {text}"));
                    continue;
                }
            },
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => continue,
        };
        // Where the program has ended, what is still sent to it is lost, as on the service.
        let _ = session.input.send(input).await;
    }
}

fn read_signal(name: &str) -> Option<Signal> {
    match name.strip_prefix("SIG").unwrap_or(name) {
        "INT" => Some(Signal::INT),
        "TERM" => Some(Signal::TERM),
        "HUP" => Some(Signal::HUP),
        "KILL" => Some(Signal::KILL),
        "QUIT" => Some(Signal::QUIT),
        "USR1" => Some(Signal::USR1),
        "USR2" => Some(Signal::USR2),
        _ => None,
    }
}

fn list(machine: &Machine) -> Reply {
    let state = lock(&machine.state);
    let sessions: Vec<Value> = state
        .sessions
        .values()
        .map(|session| {
            json!({
                "id": session.id,
                "command": session.command,
                "workdir": session.workdir,
                "created": session.created,
                "bytes_per_second": 0,
                "is_active": session.has_client(),
                "last_activity": now(),
                "tty": session.tty.is_some(),
            })
        })
        .collect();
    answer(200, &json!({"count": sessions.len(), "sessions": sessions}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KillBody {
    signal: Option<String>,
    timeout: Option<u64>,
}

pub(super) async fn kill(
    State(service): Shared,
    Path((name, id)): Path<(String, String)>,
    Query(pairs): Pairs,
    body: Bytes,
) -> Reply {
    let parameters = match Parameters::read(&service, pairs, &["signal", "timeout"]) {
        Ok(parameters) => parameters,
        Err(reply) => return *reply,
    };
    let body: KillBody = match read_body(&service, &body) {
        Ok(body) => body,
        Err(reply) => return *reply,
    };
    let word = body.signal.as_deref().or_else(|| parameters.get("signal"));
    let word = word.unwrap_or("SIGTERM").to_owned();
    let time = match (body.timeout, parameters.get("timeout")) {
        (Some(seconds), _) => Some(Duration::from_secs(seconds)),
        (None, Some(text)) => read_duration(text),
        (None, None) => Some(Duration::from_secs(10)),
    };
    let (Some(signal), Some(time)) = (read_signal(&word), time) else {
        return service.violation("signal or timeout is none");
    };
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    let Some(session) = lock(&machine.state).sessions.get(&id).cloned() else {
        return refuse(404, "not_found", &format!("session not found: {id}"));
    };
    machine.remember_processes();
    session.signal(signal);
    let mut told = vec![json!({
        "type": "signal",
        "message": format!("Signaling {word} to process group {}", session.pid),
        "signal": word,
        "pid": session.pid,
    })];
    let mut code = session.wait(time).await;
    if code.is_some() {
        told.push(json!({"type": "exited", "message": "Process exited"}));
    } else {
        told.push(json!({"type": "timeout", "message": "Process did not exit in time"}));
        session.signal(Signal::KILL);
        code = session.wait(Duration::from_secs(5)).await;
        told.push(json!({"type": "killed", "message": "Process was killed"}));
    }
    told.push(json!({"type": "complete", "exit_code": code.unwrap_or(137)}));
    events(&told)
}
