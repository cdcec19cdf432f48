//! Terminal of a sandbox over a WebSocket.
//!
//! ```text
//! client -> binary  input
//!           text    {"resize":{"cols":C,"rows":R}}
//! server -> binary  output
//!           text    {"exit":{"code":0,"signal":null}}
//!           text    {"error":{...}} as in every other response
//! ```
//!
//! After `exit` or `error` the server closes the connection. When either end closes, the shell and
//! everything that it started is terminated. The server buffers little for a slow client: programs
//! block until the client has read.

use super::auth::Shared;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::last_use::LastUse;
use super::principal::Principal;
use super::query::in_words;
use super::{on_session, sandboxes};
use crate::store::Scope;
use crate::work::{App, OpenTerminal};
use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use glovebox_proto::{Code, Exit, ExitReport, Fault, WindowSize};
use glovebox_session::work::{TerminalEvent, TerminalInput};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use utoipa::{IntoParams, ToSchema};

/// Maximum length of a client's message, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// Maximum bytes that wait to be sent.
const MAX_BUFFER_BYTES: usize = 1 << 20;
/// Maximum number of pieces in each channel between the connection and the sandbox.
const PIECES: usize = 4;
/// Maximum number of lines and of columns of the window.
const MAX_CELLS: u16 = 1000;
/// Maximum time for a client to take a message.
const SLOW: Duration = Duration::from_mins(1);
/// Interval of pings when there is no output.
const PING: Duration = Duration::from_secs(20);
const STACK_BYTES: usize = 256 << 10;

/// The window.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TerminalSize {
    /// Columns, 80 without it.
    #[serde(default = "usual_cols")]
    #[param(minimum = 1, maximum = 1000)]
    cols: u16,
    /// Lines, 24 without it.
    #[serde(default = "usual_rows")]
    #[param(minimum = 1, maximum = 1000)]
    rows: u16,
}

const fn usual_cols() -> u16 {
    80
}

const fn usual_rows() -> u16 {
    24
}

impl TerminalSize {
    fn check(self) -> ApiResult<WindowSize> {
        let Self { cols, rows } = self;
        for (field, value) in [("cols", cols), ("rows", rows)] {
            if !(1..=MAX_CELLS).contains(&value) {
                return Err(ApiError::invalid(
                    format!("`{field}` is not between 1 and {MAX_CELLS}"),
                    "give the size of the window in characters",
                ));
            }
        }
        Ok(WindowSize { rows, cols })
    }
}

/// Text message of a client.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientMessage {
    resize: TerminalSize,
}

/// Text message with the end of the shell.
#[derive(Debug, Serialize)]
struct ExitMessage {
    exit: ShellExit,
}

#[derive(Debug, Serialize)]
struct ShellExit {
    code: Option<i32>,
    signal: Option<i32>,
}

/// A shell in the sandbox of a session, over a WebSocket. Binary messages are bytes of the terminal in both directions;
/// text messages are JSON: `{"resize":{"cols":C,"rows":R}}` from the client, `{"exit":{"code":N,"signal":null}}` or
/// `{"error":{...}}` as the server's last.
#[utoipa::path(
    get, path = "/api/sessions/{id}/terminal", tag = "sessions", operation_id = "session_terminal",
    params(("id" = String, Path, description = "Its name"), TerminalSize),
    responses((status = 101, description = "The WebSocket is open"),
        (status = "4XX", description = "Refused, not there, or no WebSocket", body = ErrorBody),
        (status = 502, description = "The sandbox was lost", body = ErrorBody))
)]
pub(super) async fn of_session(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    size: Result<Query<TerminalSize>, QueryRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let (size, upgrade) = (parse_size(size)?, parse_upgrade(upgrade)?);
    let user = principal.name.clone();
    let opening = on_session(&shared, principal, id, Scope::Run, move |app, id| {
        let name = app.session_sandbox(id)?;
        Ok(app.open_terminal(&user, &name, size)?)
    });
    Ok(answer(&shared, upgrade, opening.await?))
}

/// A shell in a sandbox, over a WebSocket; as that of a session.
#[utoipa::path(
    get, path = "/api/sandboxes/{id}/terminal", tag = "sandboxes", operation_id = "sandbox_terminal",
    params(("id" = String, Path, description = "Its name"), TerminalSize),
    responses((status = 101, description = "The WebSocket is open"),
        (status = "4XX", description = "Refused, not there, or no WebSocket", body = ErrorBody),
        (status = 502, description = "The sandbox was lost", body = ErrorBody))
)]
pub(super) async fn of_sandbox(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    size: Result<Query<TerminalSize>, QueryRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let (size, upgrade) = (parse_size(size)?, parse_upgrade(upgrade)?);
    let user = principal.name.clone();
    let opening = sandboxes::on_sandbox(&shared, principal, id, Scope::Run, move |app, name| {
        Ok(app.open_terminal(&user, name, size)?)
    });
    Ok(answer(&shared, upgrade, opening.await?))
}

fn parse_size(size: Result<Query<TerminalSize>, QueryRejection>) -> ApiResult<WindowSize> {
    let Query(size) = size.map_err(|error| {
        ApiError::invalid(in_words(&error), "send ?cols=80&rows=24, or nothing")
    })?;
    size.check()
}

fn parse_upgrade(
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<WebSocketUpgrade> {
    let upgrade = upgrade.map_err(|error| {
        let message = format!("this is no request for a WebSocket: {}", error.body_text());
        ApiError::invalid(message, "connect with a client of WebSockets (RFC 6455)")
    })?;
    Ok(upgrade
        .max_message_size(MAX_MESSAGE_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(MAX_BUFFER_BYTES))
}

fn answer(shared: &Shared, upgrade: WebSocketUpgrade, terminal: OpenTerminal) -> Response {
    let app = Arc::clone(&shared.app);
    upgrade.on_upgrade(move |socket| carry(app, terminal, socket))
}

/// Connects a terminal with a WebSocket until the shell or the client ends, it is idle, or the
/// server ends.
async fn carry(app: Arc<App>, terminal: OpenTerminal, socket: WebSocket) {
    let (mut sink, mut source) = socket.split();
    let keyboard = terminal.terminal.input();
    let (events, mut shown) = channel(PIECES);
    let (words, typed) = channel(PIECES);
    let started = start("terminal output", move || read_out(terminal, &events)).and_then(|()| {
        let keyboard = keyboard.clone();
        start("terminal input", move || type_in(&keyboard, typed))
    });
    if let Err(error) = started {
        let fault = Fault::failed(Code::Busy, format!("no thread can begin: {error}"));
        close_with_error(&mut sink, fault.retryable()).await;
        return;
    }
    let last_use = LastUse::now();
    let ended = tokio::select! {
        ended = show(&mut sink, &mut shown, &last_use) => ended,
        refused = listen(&mut source, &words, &last_use) => Some(TerminalEnd::Refused(refused)),
        () = last_use.wait_for_idle(app.config.idle) => Some(TerminalEnd::Idle),
        () = app.end.cancelled() => Some(TerminalEnd::Server),
    };
    keyboard.hang_up();
    // Closing the channels ends the two threads, which block on them.
    drop((shown, words));
    let Some(ended) = ended else { return };
    let closing = close(&mut sink, ended);
    // A client that does not take the last messages has gone.
    let _ = tokio::time::timeout(PING, closing).await;
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.stack_size(STACK_BYTES).spawn(work).map(drop)
}

/// Passes output of the terminal to `events`, as fast as it is taken. Returning ends the shell.
fn read_out(mut open: OpenTerminal, events: &Sender<TerminalEvent>) {
    loop {
        let event = open.terminal.next_event();
        let is_end = matches!(event, TerminalEvent::Ended(_));
        if events.blocking_send(event).is_err() || is_end {
            return;
        }
    }
}

/// Input of a client.
#[derive(Debug)]
enum ClientAction {
    Type(Bytes),
    Resize(WindowSize),
}

/// Sends the client's input to the shell. Blocks while the shell takes none, which in turn stops
/// reading from the client.
fn type_in(keyboard: &TerminalInput, mut actions: Receiver<ClientAction>) {
    while let Some(action) = actions.blocking_recv() {
        let done = match action {
            ClientAction::Type(bytes) => keyboard.send(&bytes),
            ClientAction::Resize(size) => keyboard.resize(size),
        };
        // The output thread reports the end of the shell.
        if done.is_err() {
            return;
        }
    }
}

/// Reason for which a terminal ends.
#[derive(Debug)]
enum TerminalEnd {
    /// The shell ended or was lost.
    Shell(Result<ExitReport, Fault>),
    /// The client left, or sent the invalid message of which the reason is given.
    Refused(Option<String>),
    /// The terminal was idle for too long.
    Idle,
    /// The server ends.
    Server,
}

/// Sends output to the client until the shell ends. None if the client has gone or takes no
/// messages.
async fn show(
    sink: &mut SplitSink<WebSocket, Message>,
    shown: &mut Receiver<TerminalEvent>,
    last_use: &LastUse,
) -> Option<TerminalEnd> {
    loop {
        let message = tokio::select! {
            event = shown.recv() => match event? {
                TerminalEvent::Output(bytes) => {
                    last_use.touch();
                    Message::Binary(bytes.into())
                }
                TerminalEvent::Ended(ended) => return Some(TerminalEnd::Shell(ended)),
            },
            () = tokio::time::sleep(PING) => Message::Ping(Bytes::new()),
        };
        let sent = tokio::time::timeout(SLOW, sink.send(message)).await;
        sent.ok()?.ok()?;
    }
}

/// Reads the client's input, as fast as the shell takes it, until the client leaves. Returns the
/// reason if the client sent an invalid message.
async fn listen(
    source: &mut SplitStream<WebSocket>,
    words: &Sender<ClientAction>,
    last_use: &LastUse,
) -> Option<String> {
    loop {
        // Room first: while the shell takes no input, the client is not read, and TCP slows it
        // down.
        let Ok(place) = words.reserve().await else {
            // The shell has ended; `show` returns its end.
            std::future::pending::<()>().await;
            return None;
        };
        let action = match source.next().await? {
            Ok(Message::Binary(bytes)) => ClientAction::Type(bytes),
            Ok(Message::Text(text)) => match parse_message(&text) {
                Ok(size) => ClientAction::Resize(size),
                Err(error) => return Some(error),
            },
            Ok(Message::Ping(_) | Message::Pong(_)) => continue,
            Ok(Message::Close(_)) | Err(_) => return None,
        };
        last_use.touch();
        place.send(action);
    }
}

fn parse_message(text: &str) -> Result<WindowSize, String> {
    let message: ClientMessage = serde_json::from_str(text)
        .map_err(|error| format!("not a message of a terminal's client: {error}"))?;
    let size = message.resize.check();
    size.map_err(|error| error.fault.message)
}

async fn close(sink: &mut SplitSink<WebSocket, Message>, end: TerminalEnd) {
    match end {
        TerminalEnd::Shell(Ok(report)) => {
            let (code, signal) = match report.exit {
                Exit::Code(code) => (Some(code), None),
                Exit::Signal(signal) => (None, Some(signal)),
            };
            let exit = ShellExit { code, signal };
            let reason = match (code, signal) {
                (Some(code), _) => format!("exit {code}"),
                (_, signal) => format!("signal {}", signal.unwrap_or_default()),
            };
            let text = serde_json::to_string(&ExitMessage { exit }).unwrap_or_default();
            let _ = sink.send(Message::Text(text.into())).await;
            close_as(sink, close_code::NORMAL, reason).await;
        }
        TerminalEnd::Shell(Err(fault)) => close_with_error(sink, fault).await,
        TerminalEnd::Refused(None) => close_as(sink, close_code::NORMAL, String::new()).await,
        TerminalEnd::Refused(Some(message)) => {
            let fault = Fault::failed(Code::InvalidArgument, message)
                .remedy(r#"send {"resize":{"cols":80,"rows":24}}, and what is typed as binary"#);
            tell_error(sink, fault).await;
            close_as(sink, close_code::POLICY, "not understood".to_owned()).await;
        }
        TerminalEnd::Idle => {
            let reason = "nobody has used it".to_owned();
            close_as(sink, close_code::NORMAL, reason).await;
        }
        TerminalEnd::Server => {
            close_as(sink, close_code::AWAY, "the server ends".to_owned()).await;
        }
    }
}

async fn close_with_error(sink: &mut SplitSink<WebSocket, Message>, fault: Fault) {
    let code = fault.code.as_str().to_owned();
    tell_error(sink, fault).await;
    close_as(sink, close_code::ERROR, code).await;
}

async fn tell_error(sink: &mut SplitSink<WebSocket, Message>, fault: Fault) {
    let body = ErrorBody::from(fault);
    let text = serde_json::to_string(&body).unwrap_or_default();
    let _ = sink.send(Message::Text(text.into())).await;
}

async fn close_as(sink: &mut SplitSink<WebSocket, Message>, code: u16, reason: String) {
    let reason = reason.into();
    let frame = CloseFrame { code, reason };
    let _ = sink.send(Message::Close(Some(frame))).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_bounded_and_nothing_else_is_understood() {
        let size = parse_message(r#"{"resize":{"cols":132,"rows":50}}"#).unwrap();
        assert_eq!((size.cols, size.rows), (132, 50));
        for wrong in [
            "",
            "{}",
            r#"{"resize":{"cols":0,"rows":24}}"#,
            r#"{"resize":{"cols":80,"rows":1001}}"#,
            r#"{"resize":{"cols":80,"rows":70000}}"#,
            r#"{"resize":{"cols":80},"more":1}"#,
            r#"{"type":"ls"}"#,
        ] {
            parse_message(wrong).unwrap_err();
        }
    }
}
