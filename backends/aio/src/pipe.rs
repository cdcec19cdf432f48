//! A command of the service as a byte stream: this module has one end of a local socket pair, the
//! caller the other.
//!
//! ```text
//! caller -- socket pair -- send_input ----- POST /v1/bash/write, one at a time --> its stdin
//!                       `- receive_output - POST /v1/bash/output, one pending <--- its stdout
//! ```
//!
//! Bytes are sent as lines (`glovebox_proto::encode_lines`), because the service accepts only text.

use crate::client::Client;
use crate::failure::ServiceError;
use crate::wire::{CommandInfo, Kill, Output, ReadOutput, WriteInput};
use glovebox_carrier::{Pipe, PipeEnd, runtime, show_message};
use glovebox_proto::resume::HEAD_BYTES;
use glovebox_proto::{Code, Fault, LinesDecoder, encode_lines};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

/// Time for which temporary failures of a request are retried, before the pipe ends and another one
/// is opened.
const PATIENCE: Duration = Duration::from_secs(3);
/// First and longest pause between two attempts of a request.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));
/// Maximum wait for the end of a command's output after its input is closed.
const LAST_OUTPUT: Duration = Duration::from_secs(5);
/// Pause after a response without output, so that a service that does not hold requests is not
/// polled without pause.
const IDLE_PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of bytes kept of a command's standard error, from its end.
const STDERR_TAIL_BYTES: usize = 600;

/// Sizes and times of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipeSizes {
    /// Maximum length of one request to the command, as lines, in bytes.
    pub batch: usize,
    /// Seconds for which the service may hold a request for output.
    pub wait: u32,
}

impl Default for PipeSizes {
    fn default() -> Self {
        Self {
            batch: 768 << 10,
            wait: 20,
        }
    }
}

/// Command of a session.
#[derive(Debug, Clone)]
pub(crate) struct RemoteCommand {
    pub(crate) session: String,
    pub(crate) id: String,
    /// True if the session stays when the pipe ends.
    pub(crate) keeps_session: bool,
}

/// End of a pipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PipeEnding {
    pub(crate) kind: EndingKind,
    /// Reason in one sentence, for people.
    pub(crate) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndingKind {
    /// The command ended with this code. None if the code is unknown.
    CommandEnded(Option<i64>),
    /// The pipe broke; another one may succeed.
    Broken,
}

impl PipeEnding {
    fn broken(reason: impl Into<String>) -> Self {
        Self {
            kind: EndingKind::Broken,
            reason: reason.into(),
        }
    }
}

/// Record of a pipe's end, for its owner and for the next attempt.
pub(crate) type SharedEnding = Arc<Mutex<Option<PipeEnding>>>;

#[derive(Debug)]
struct AioPipeEnd(SharedEnding);

impl PipeEnd for AioPipeEnd {
    fn reason(&self) -> Option<String> {
        let ending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ending.as_ref().map(|ending| ending.reason.clone())
    }
}

/// Returns the length of the longest prefix of `bytes` that may be sent again as a whole.
///
/// A request whose response was lost is sent again, so it must hold whole records of the carrier:
/// the guest drops repeated records, but half a record followed by its beginning would be read as
/// something else.
pub(crate) type Cut = fn(&[u8]) -> usize;

/// Implements [`Cut`] at the end of whole records.
pub(crate) fn whole_records(bytes: &[u8]) -> usize {
    let mut end = 0;
    // A record's header has kind, flags, and the length of its payload.
    while let Some([_, _, low, high, ..]) = bytes.get(end..) {
        let next = end + HEAD_BYTES + usize::from(u16::from_le_bytes([*low, *high]));
        if next > bytes.len() {
            break;
        }
        end = next;
    }
    end
}

/// Opens a pipe to a running command.
pub(crate) fn open(
    client: Client,
    command: RemoteCommand,
    sizes: PipeSizes,
    cut: Cut,
    ending: SharedEnding,
) -> Result<Pipe, Fault> {
    let failed = |error: std::io::Error| {
        Fault::failed(Code::Io, format!("cannot make a socket pair: {error}"))
    };
    let (theirs, ours) = StdStream::pair().map_err(failed)?;
    ours.set_nonblocking(true).map_err(failed)?;
    let writer: OwnedFd = theirs.try_clone().map_err(failed)?.into();
    let end = Box::new(AioPipeEnd(Arc::clone(&ending)));
    let handle = runtime::handle()?;
    let local = {
        // The socket must be registered with the reactor of that thread.
        let _guard = handle.enter();
        UnixStream::from_std(ours).map_err(failed)?
    };
    handle.spawn(carry(client, command, local, sizes, cut, ending));
    Ok(Pipe {
        reader: theirs.into(),
        writer,
        early: Vec::new(),
        end,
    })
}

/// Relays bytes until one side ends, then closes the session unless it stays.
async fn carry(
    client: Client,
    command: RemoteCommand,
    local: UnixStream,
    sizes: PipeSizes,
    cut: Cut,
    ending: SharedEnding,
) {
    let (from_host, mut to_host) = local.into_split();
    let mut input = Input {
        client: &client,
        command: &command,
        cut,
        batch: sizes.batch,
    };
    let reason = {
        let mut receiving = std::pin::pin!(receive_output(&client, &command, &mut to_host, sizes));
        tokio::select! {
            sent = input.send_all(from_host) => match sent {
                Ok(()) => None,
                // The command's last output tells why it accepts no input.
                Err(reason) => Some(match tokio::time::timeout(LAST_OUTPUT, &mut receiving).await {
                    Ok(Some(last)) => last,
                    Ok(None) | Err(_) => reason,
                }),
            },
            ended = &mut receiving => ended,
        }
    };
    // Record the reason before closing the socket: the caller looks for it when it reads the end.
    (*ending.lock().unwrap_or_else(PoisonError::into_inner)).clone_from(&reason);
    drop(to_host);
    let has_ended = matches!(
        &reason,
        Some(PipeEnding {
            kind: EndingKind::CommandEnded(_),
            ..
        })
    );
    if !has_ended && !command.keeps_session {
        // The command may have ended at this moment; closing the session suffices.
        let _ = client
            .kill(&Kill {
                session_id: &command.session,
                signal: "SIGTERM",
            })
            .await;
    }
    if has_ended || !command.keeps_session {
        // If that fails, `prune` finds the session by its name.
        let _ = client.close(&command.session).await;
    }
}

/// Direction from the caller to the command.
#[derive(Debug)]
struct Input<'a> {
    client: &'a Client,
    command: &'a RemoteCommand,
    cut: Cut,
    batch: usize,
}

impl Input<'_> {
    /// Sends the caller's bytes until it closes its end. Bytes that arrive during a request are
    /// sent together in the next one.
    async fn send_all(&mut self, mut from_host: OwnedReadHalf) -> Result<(), PipeEnding> {
        // Base64 encodes three bytes as four characters, and each line has two more.
        let max = self.batch / 4 * 3 - self.batch / 1024;
        let mut waiting: Vec<u8> = Vec::new();
        let mut is_open = true;
        loop {
            let ready = (self.cut)(&waiting[..waiting.len().min(max)]);
            if ready == 0 {
                if !is_open {
                    return Ok(());
                }
                is_open = from_host
                    .read_buf(&mut waiting)
                    .await
                    .is_ok_and(|count| count > 0);
                continue;
            }
            let rest = waiting.split_off(ready);
            let batch = std::mem::replace(&mut waiting, rest);
            let mut lines = Vec::new();
            encode_lines(&batch, &mut lines);
            let mut sending = std::pin::pin!(self.send(&lines));
            loop {
                tokio::select! {
                    sent = &mut sending => break sent?,
                    read = from_host.read_buf(&mut waiting), if is_open && waiting.len() < max => {
                        is_open = read.is_ok_and(|count| count > 0);
                    }
                }
            }
        }
    }

    /// Sends lines as one request, again if the response was lost: the guest drops repeated
    /// records.
    async fn send(&self, lines: &[u8]) -> Result<(), PipeEnding> {
        let Ok(input) = std::str::from_utf8(lines) else {
            return Err(PipeEnding::broken("the lines are not text"));
        };
        let request = WriteInput {
            session_id: &self.command.session,
            command_id: &self.command.id,
            input,
        };
        let mut patience = Patience::default();
        loop {
            match self.client.write(&request).await {
                Ok(()) => return Ok(()),
                Err(error) => patience.wait(&error).await?,
            }
        }
    }
}

/// Receives output until the command ends. None if the caller has closed its end.
async fn receive_output(
    client: &Client,
    command: &RemoteCommand,
    to_host: &mut OwnedWriteHalf,
    sizes: PipeSizes,
) -> Option<PipeEnding> {
    let mut decoder = LinesDecoder::new();
    let mut stderr = Vec::new();
    let mut bytes = Vec::new();
    let (mut offset, mut stderr_offset) = (0, 0);
    let mut patience = Patience::default();
    loop {
        let request = ReadOutput {
            session_id: &command.session,
            command_id: Some(&command.id),
            offset,
            stderr_offset,
            wait: true,
            wait_timeout: f64::from(sizes.wait),
        };
        let asked = Instant::now();
        let output = match client.output(&request).await {
            Ok(output) => output,
            Err(error) => match patience.wait(&error).await {
                Ok(()) => continue,
                Err(ending) => return Some(ending),
            },
        };
        patience = Patience::default();
        if let Err(reason) = check_offset(offset, &output) {
            return Some(PipeEnding::broken(reason));
        }
        (offset, stderr_offset) = (output.offset, output.stderr_offset);
        stderr.extend_from_slice(output.stderr.as_bytes());
        stderr.drain(..stderr.len().saturating_sub(STDERR_TAIL_BYTES));
        let decoded = decoder.push(output.stdout.as_bytes(), &mut bytes);
        to_host.write_all(&bytes).await.ok()?;
        bytes.clear();
        if let Err(noise) = decoded {
            return Some(PipeEnding::broken(noise.to_string()));
        }
        let is_silent = output.stdout.is_empty() && output.stderr.is_empty();
        match &output.command {
            // Without output only: one response may not hold all of it.
            Some(info) if !info.is_running() && is_silent => {
                return Some(command_ended(client, info, &stderr));
            }
            _ => {}
        }
        if is_silent && asked.elapsed() < IDLE_PAUSE {
            tokio::time::sleep(IDLE_PAUSE).await;
        }
    }
}

/// Checks that no output is missing or repeated.
// TRUST: an offset decides what is read next; a wrong one ends the pipe, and the carrier checks
// offsets of its own behind it.
fn check_offset(before: u64, output: &Output) -> Result<(), String> {
    let is_plain = output.stdout.is_ascii();
    let expected = before + output.stdout.len() as u64;
    if is_plain && output.offset != expected || output.offset < before {
        return Err(format!(
            "the service's output goes from {before} to {} with {} bytes",
            output.offset,
            output.stdout.len()
        ));
    }
    Ok(())
}

fn command_ended(client: &Client, info: &CommandInfo, stderr: &[u8]) -> PipeEnding {
    let mut reason = match info.exit_code {
        Some(code) if info.status == "completed" => {
            format!("the guest's command ended with exit code {code}")
        }
        _ => format!(
            "the guest's command ended: {}",
            show_message(info.status.as_bytes())
        ),
    };
    let said = client.show(&String::from_utf8_lossy(stderr));
    if !said.is_empty() {
        reason = format!("{reason}: {said}");
    }
    PipeEnding {
        kind: EndingKind::CommandEnded(info.exit_code),
        reason,
    }
}

fn ending_of(error: &ServiceError) -> PipeEnding {
    PipeEnding::broken(format!("AIO Sandbox: {}", error.reason()))
}

/// Attempts of one request.
#[derive(Debug, Default)]
struct Patience {
    first_failure: Option<Instant>,
    pause: Option<Duration>,
}

impl Patience {
    /// Waits before the next attempt.
    ///
    /// # Errors
    /// The pipe's end, for an error that is permanent or has lasted too long.
    async fn wait(&mut self, error: &ServiceError) -> Result<(), PipeEnding> {
        let since = *self.first_failure.get_or_insert_with(Instant::now);
        let (shortest, longest) = PAUSES;
        let pause = self
            .pause
            .map_or(shortest, |pause| (pause * 2).min(longest));
        self.pause = Some(pause);
        let pause = error.retry_after().unwrap_or(pause);
        if !error.is_passing() || since.elapsed() + pause > PATIENCE {
            return Err(ending_of(error));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_cut_after_whole_records() {
        let record = |len: u16| {
            let mut record = vec![2, 0];
            record.extend_from_slice(&len.to_le_bytes());
            record.extend(std::iter::repeat_n(7, 8 + usize::from(len)));
            record
        };
        let bytes = [record(0), record(5), record(300)].concat();
        let ends = [0, 12, 29, bytes.len()];
        for len in 0..=bytes.len() {
            let expected = ends
                .iter()
                .copied()
                .filter(|end| *end <= len)
                .max()
                .unwrap();
            assert_eq!(whole_records(&bytes[..len]), expected, "{len}");
        }
    }
}
