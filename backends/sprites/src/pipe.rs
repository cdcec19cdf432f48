//! An exec session of a Sprite as one local socket.
//!
//! ```text
//! caller == socket pair == task == WebSocket == program in the Sprite
//! ```
//!
//! Bytes of the socket become frames of standard input, frames of standard output become bytes of
//! the socket. The task holds one frame in each direction at most, so a side that does not read
//! slows the other one down. It ends with the program, with the connection, and when the caller
//! closes the socket; the reason is known before the socket ends.

use crate::client::Client;
use crate::failure::{CallFailure, reason};
use crate::http::{Call, within};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use glovebox_carrier::{PipeEnd, runtime, show_message};
use glovebox_proto::{Code, Fault, visible};
use reqwest::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use reqwest::{Method, Response, StatusCode, Upgraded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, interval_at, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

/// First bytes of binary frames without a terminal.
mod stream_id {
    pub(super) const STDIN: u8 = 0;
    pub(super) const STDOUT: u8 = 1;
    pub(super) const STDERR: u8 = 2;
    pub(super) const EXIT: u8 = 3;
    pub(super) const STDIN_EOF: u8 = 4;
}

/// Maximum number of bytes of standard input in one frame.
const CHUNK_BYTES: usize = 64 << 10;
/// Maximum length of a message of the service, in bytes.
const MAX_MESSAGE_BYTES: usize = 10 << 20;
/// Maximum number of bytes kept of standard error, from its end.
const STDERR_BYTES: usize = 600;
/// Maximum time to tell the service that a session has ended.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// Interval between two checks whether a caller that sends no further bytes has hung up.
const HANGUP_PAUSE: Duration = Duration::from_millis(100);

/// Program to run in a Sprite, without a terminal and with standard input.
#[derive(Debug, Clone)]
pub struct ExecRequest<'a> {
    /// Program and arguments.
    pub argv: &'a [&'a str],
    /// Time for which the program continues after its connection has ended, as a duration of Go:
    /// `60s`, or `0` for no limit.
    pub run_after_disconnect: &'a str,
    /// Times of pings and of the timeout of a silent connection.
    pub times: ExecTimes,
}

/// Times of a connection without traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecTimes {
    /// Pause between two pings.
    pub ping: Duration,
    /// Silence after which the connection counts as broken.
    pub silent: Duration,
}

impl Default for ExecTimes {
    fn default() -> Self {
        Self {
            ping: Duration::from_secs(15),
            silent: Duration::from_secs(45),
        }
    }
}

/// Running exec session. Dropping `socket` and all its copies, or `end`, closes it.
#[derive(Debug)]
pub struct ExecPipe {
    /// Standard input and output of the program.
    pub socket: OwnedFd,
    /// The session behind the socket.
    pub end: ExecEnd,
}

/// Session behind an [`ExecPipe`]. Its last bytes are sent after it is dropped; a process that is
/// about to exit waits for them with [`await_goodbyes`].
#[derive(Debug)]
pub struct ExecEnd {
    shared: Arc<Mutex<Session>>,
    /// Dropping it tells the task that the session is not needed any longer.
    _close: oneshot::Sender<()>,
}

/// Number of sessions that were dropped and are not closed yet.
static LEAVING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// Waits until every dropped session of this process has sent its last bytes, for `time` at most.
/// Otherwise they are lost when the process exits, and a guest is not told to end.
pub fn await_goodbyes(time: Duration) {
    let (count, changed) = &LEAVING;
    let leaving = count.lock().unwrap_or_else(PoisonError::into_inner);
    // Sessions that take longer are abandoned by the exit.
    let _ = changed.wait_timeout_while(leaving, time, |leaving| *leaving > 0);
}

impl Drop for ExecEnd {
    fn drop(&mut self) {
        let mut session = lock(&self.shared);
        if !session.is_closed {
            session.is_leaving = true;
            *LEAVING.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        }
    }
}

/// Marks a session as closed.
fn close(shared: &Mutex<Session>) {
    let mut session = lock(shared);
    session.is_closed = true;
    if session.is_leaving {
        let (count, changed) = &LEAVING;
        *count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        changed.notify_all();
    }
}

impl ExecEnd {
    /// Returns the exit code of the program. None until it has ended and the service has reported
    /// it.
    pub fn exit_code(&self) -> Option<u8> {
        lock(&self.shared).exit_code
    }

    /// Returns the end of the program's standard error, on one line.
    pub fn stderr_tail(&self) -> String {
        lock(&self.shared).stderr_tail()
    }
}

impl PipeEnd for ExecEnd {
    fn reason(&self) -> Option<String> {
        let session = lock(&self.shared);
        let ended = session.ended.clone()?;
        let tail = session.stderr_tail();
        Some(if tail.is_empty() {
            ended
        } else {
            format!("{ended}, saying: {tail}")
        })
    }
}

/// State of a session that both sides share.
#[derive(Debug, Default)]
struct Session {
    stderr: VecDeque<u8>,
    exit_code: Option<u8>,
    ended: Option<String>,
    /// True after the task has finished.
    is_closed: bool,
    /// True if the caller dropped the session before that.
    is_leaving: bool,
}

impl Session {
    fn push_stderr(&mut self, bytes: &[u8]) {
        let from = bytes.len().saturating_sub(STDERR_BYTES);
        self.stderr.extend(&bytes[from..]);
        let excess = self.stderr.len().saturating_sub(STDERR_BYTES);
        self.stderr.drain(..excess);
    }

    fn stderr_tail(&self) -> String {
        // TRUST: these bytes come from inside the Sprite; control bytes could drive a terminal.
        let bytes: Vec<u8> = self.stderr.iter().copied().collect();
        let lines: Vec<String> = bytes
            .split(|byte| matches!(byte, b'\n' | b'\r'))
            .map(|line| visible::line(line.trim_ascii()))
            .filter(|line| !line.is_empty())
            .collect();
        lines.join("; ")
    }
}

fn lock(shared: &Mutex<Session>) -> MutexGuard<'_, Session> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// Starts a program in a Sprite and connects to it. Blocks until the service has opened the
    /// session, which takes as long as the Sprite needs to wake up.
    pub fn exec(
        &self,
        sprite: &str,
        request: &ExecRequest<'_>,
        deadline: Instant,
    ) -> Result<ExecPipe, Fault> {
        self.try_exec(sprite, request, deadline)
            .map_err(Fault::from)
    }

    /// Makes one attempt of [`Client::exec`]. The failure has the data for a retry.
    pub(crate) fn try_exec(
        &self,
        sprite: &str,
        request: &ExecRequest<'_>,
        deadline: Instant,
    ) -> Result<ExecPipe, CallFailure> {
        let mut call = Call::new(
            Method::GET,
            &[sprite, "exec"],
            format!("open an exec session of the Sprite `{sprite}`"),
        );
        for word in request.argv {
            call.query.push(("cmd", (*word).to_owned()));
        }
        call.query.push(("stdin", "true".to_owned()));
        call.query.push(("tty", "false".to_owned()));
        call.query.push((
            "max_run_after_disconnect",
            request.run_after_disconnect.to_owned(),
        ));
        let http = Arc::clone(self.http());
        let times = request.times;
        runtime::run(async move {
            let key = generate_key();
            let headers = upgrade_headers(&key)?;
            let response = within(&call.what, deadline, http.open_once(&call, &headers)).await??;
            check_upgrade(&call.what, &response, &key)?;
            let upgraded = within(&call.what, deadline, response.upgrade())
                .await?
                .map_err(|error| CallFailure::transport(&call.what, &error.without_url()))?;
            let socket = WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config()));
            start(socket.await, times).map_err(CallFailure::from)
        })?
    }
}

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(CHUNK_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES))
}

/// Returns the headers of a WebSocket handshake (RFC 6455, 4.1). The connection below it, with TLS,
/// proxy and certificate check, is that of every other request.
fn upgrade_headers(key: &str) -> Result<HeaderMap, Fault> {
    let key = HeaderValue::try_from(key)
        .map_err(|_| Fault::failed(Code::Internal, "the key of a WebSocket fits into no header"))?;
    Ok(HeaderMap::from_iter([
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
        (SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")),
        (SEC_WEBSOCKET_KEY, key),
    ]))
}

fn check_upgrade(what: &str, response: &Response, key: &str) -> Result<(), CallFailure> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let why = format!("{} instead of a WebSocket", response.status().as_u16());
        return Err(CallFailure::answer(what, &why));
    }
    let accept = response.headers().get(SEC_WEBSOCKET_ACCEPT);
    if accept.is_none_or(|accept| accept.as_bytes() != derive_accept_key(key.as_bytes()).as_bytes())
    {
        return Err(CallFailure::answer(
            what,
            "its handshake is of another WebSocket",
        ));
    }
    Ok(())
}

/// Starts the task between a WebSocket and a new socket pair.
fn start(socket: WebSocketStream<Upgraded>, times: ExecTimes) -> Result<ExecPipe, Fault> {
    let io = |error: std::io::Error| {
        Fault::failed(Code::Io, format!("cannot make a socket pair: {error}"))
    };
    let (ours, theirs) = StdUnixStream::pair().map_err(io)?;
    ours.set_nonblocking(true).map_err(io)?;
    let (reader, writer) = UnixStream::from_std(ours).map_err(io)?.into_split();
    let shared = Arc::new(Mutex::new(Session::default()));
    let (close, closed) = oneshot::channel();
    tokio::spawn(carry(
        socket,
        reader,
        writer,
        Arc::clone(&shared),
        times,
        closed,
    ));
    Ok(ExecPipe {
        socket: OwnedFd::from(theirs),
        end: ExecEnd {
            shared,
            _close: close,
        },
    })
}

type Outgoing = SplitSink<WebSocketStream<Upgraded>, Message>;
type Arriving = SplitStream<WebSocketStream<Upgraded>>;

async fn carry(
    socket: WebSocketStream<Upgraded>,
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
    shared: Arc<Mutex<Session>>,
    times: ExecTimes,
    closed: oneshot::Receiver<()>,
) {
    let (mut outgoing, mut arriving) = socket.split();
    let mut writer = writer;
    let ended = tokio::select! {
        ended = receive(&mut arriving, &mut writer, &shared, times.silent) => ended,
        () = send(&mut outgoing, &reader, times.ping) => None,
        () = abandon(closed) => None,
    };
    // Record the reason before closing the socket: its reader looks for it at the end.
    lock(&shared).ended = ended.or_else(|| Some("the session was closed here".to_owned()));
    drop((reader, writer));
    let goodbye = Message::Close(Some(CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    }));
    let farewell = async {
        let is_sent = outgoing.send(goodbye).await.is_ok();
        // Closing a connection with unread bytes resets it, and the last bytes sent are lost; so
        // read until the peer closes.
        while is_sent && matches!(arriving.next().await, Some(Ok(_))) {}
    };
    // If the service is unreachable or does not read, it learns of the end by its own timeouts.
    let _ = timeout(CLOSE_WAIT, farewell).await;
    close(&shared);
}

/// Waits until the session is not needed any longer, and then until its last bytes have been sent:
/// they may tell the program to end.
async fn abandon(closed: oneshot::Receiver<()>) {
    // No value is ever sent; the channel ends with its sender.
    let _ = closed.await;
    sleep(CLOSE_WAIT).await;
}

/// Relays frames until the program or the connection ends, and returns the reason. None if the
/// caller has closed its end.
async fn receive(
    arriving: &mut Arriving,
    writer: &mut OwnedWriteHalf,
    shared: &Mutex<Session>,
    silent: Duration,
) -> Option<String> {
    loop {
        let message = match timeout(silent, arriving.next()).await {
            Err(_) => return Some(format!("nothing came from the service for {silent:?}")),
            Ok(None) => return Some("the connection to the service ended".to_owned()),
            Ok(Some(Err(Error::ConnectionClosed))) => {
                return Some("the service closed the session".to_owned());
            }
            Ok(Some(Err(error))) => {
                return Some(format!(
                    "the connection to the service broke: {}",
                    reason(&error)
                ));
            }
            Ok(Some(Ok(message))) => message,
        };
        match message {
            Message::Binary(frame) => match frame.split_first() {
                Some((&stream_id::STDOUT, bytes)) => writer.write_all(bytes).await.ok()?,
                Some((&stream_id::STDERR, bytes)) => lock(shared).push_stderr(bytes),
                Some((&stream_id::EXIT, code)) => {
                    return Some(set_exit_code(shared, code.first().copied().unwrap_or(0)));
                }
                // Later versions of the service may have further streams.
                _ => {}
            },
            Message::Text(text) => {
                if let Some(code) = exit_code(&text) {
                    return Some(set_exit_code(shared, code));
                }
            }
            Message::Close(frame) => {
                let words = frame.map(|frame| {
                    let said = show_message(frame.reason.as_bytes());
                    format!(" ({} {said})", u16::from(frame.code))
                });
                return Some(format!(
                    "the service closed the session{}",
                    words.unwrap_or_default()
                ));
            }
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

fn set_exit_code(shared: &Mutex<Session>, code: u8) -> String {
    lock(shared).exit_code = Some(code);
    format!("the program in the Sprite ended with code {code}")
}

/// Returns the exit code in a text frame that reports the end of the program. None for any other
/// frame.
fn exit_code(text: &str) -> Option<u8> {
    let event: serde_json::Value = serde_json::from_str(text).ok()?;
    if event.get("type")?.as_str()? != "exit" {
        return None;
    }
    let code = event.get("exit_code").and_then(serde_json::Value::as_u64);
    Some(code.map_or(0, |code| u8::try_from(code).unwrap_or(u8::MAX)))
}

/// Relays bytes of the caller until it has closed its socket. Closing only its output ends the
/// program's input. If the connection fails, [`receive`] reports the reason.
async fn send(outgoing: &mut Outgoing, reader: &OwnedReadHalf, ping: Duration) {
    // Not at once: a service that ends a connection with an unread ping also discards its own last
    // bytes.
    let mut ticks = interval_at(tokio::time::Instant::now() + ping, ping);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = interval(HANGUP_PAUSE);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut frame = vec![0; 1 + CHUNK_BYTES];
    let mut is_at_end = false;
    loop {
        let message = tokio::select! {
            readable = reader.readable(), if !is_at_end => {
                if readable.is_err() {
                    return;
                }
                match reader.try_read(&mut frame[1..]) {
                    Ok(0) => {
                        if has_hung_up(reader) {
                            return;
                        }
                        is_at_end = true;
                        Message::Binary(vec![stream_id::STDIN_EOF].into())
                    }
                    Ok(count) => {
                        frame[0] = stream_id::STDIN;
                        Message::Binary(frame[..=count].to_vec().into())
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                    Err(_) => return,
                }
            }
            _ = looks.tick(), if is_at_end => {
                if has_hung_up(reader) {
                    return;
                }
                continue;
            }
            _ = ticks.tick() => Message::Ping(Vec::new().into()),
        };
        if outgoing.send(message).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Returns true if the caller has closed both directions; a caller that has closed its output only
/// may still read.
fn has_hung_up(reader: &OwnedReadHalf) -> bool {
    let stream: &UnixStream = reader.as_ref();
    let mut fds = [PollFd::new(stream, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stderr_keeps_its_end_on_one_visible_line() {
        let mut session = Session::default();
        session.push_stderr(&[b'x'; 5000]);
        session.push_stderr(b"\nsh: 1: \x1b[1mno\r\n");
        assert_eq!(session.stderr.len(), STDERR_BYTES);
        let tail = session.stderr_tail();
        assert!(tail.ends_with("xx; sh: 1: \\x1b[1mno"), "{tail}");
    }

    #[test]
    fn exit_is_the_only_text_frame_that_counts() {
        assert_eq!(exit_code(r#"{"type":"exit","exit_code":3}"#), Some(3));
        assert_eq!(exit_code(r#"{"type":"exit"}"#), Some(0));
        assert_eq!(exit_code(r#"{"type":"session_info","exit_code":3}"#), None);
        assert_eq!(exit_code("{"), None);
    }
}
