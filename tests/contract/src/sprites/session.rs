//! One exec session: a program, its input and output, and at most one client that is connected to
//! it.

use super::reply::now;
use super::store::{Machine, lock};
use axum::body::Bytes;
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, watch};

/// Most bytes of output in one frame.
const CHUNK_BYTES: usize = 32 << 10;
/// Bytes of output that a client gets which attaches.
const SCROLLBACK_BYTES: usize = 64 << 10;
/// How long output may stay open after the program has ended, because another process has it.
const DRAIN_WAIT: Duration = Duration::from_secs(1);

/// What a client asks to run.
#[derive(Debug, Clone)]
pub(super) struct ExecOrder {
    pub(super) argv: Vec<String>,
    pub(super) path: String,
    pub(super) env: Vec<(String, String)>,
    pub(super) dir: PathBuf,
    pub(super) has_stdin: bool,
    /// Rows and columns of a terminal.
    pub(super) tty: Option<(u16, u16)>,
}

/// From a client to the program.
#[derive(Debug)]
pub(super) enum Input {
    Bytes(Bytes),
    Eof,
    Resize { rows: u16, cols: u16 },
}

/// From the program to a client.
#[derive(Debug, Clone)]
pub(super) enum Output {
    Stdout(Bytes),
    Stderr(Bytes),
    Exit(u8),
}

/// A session that runs.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) pid: u32,
    pub(super) id: String,
    pub(super) command: String,
    pub(super) workdir: String,
    pub(super) tty: Option<(u16, u16)>,
    pub(super) created: String,
    pub(super) input: mpsc::Sender<Input>,
    client: Mutex<Option<mpsc::Sender<Output>>>,
    scrollback: Mutex<VecDeque<u8>>,
    exit: watch::Sender<Option<u8>>,
}

impl Session {
    /// Starts a program with its first client.
    pub(super) fn start(
        machine: &Arc<Machine>,
        order: &ExecOrder,
        client: mpsc::Sender<Output>,
    ) -> std::io::Result<Arc<Self>> {
        let (input, inputs) = mpsc::channel(4);
        let (exit, _) = watch::channel(None);
        let (child, ends) = match order.tty {
            None => spawn_piped(order)?,
            Some(size) => spawn_on_terminal(order, size)?,
        };
        let pid = child.id().unwrap_or_default();
        let session = Arc::new(Self {
            pid,
            id: pid.to_string(),
            command: order.argv.join(" "),
            workdir: order.dir.to_string_lossy().into_owned(),
            tty: order.tty,
            created: now(),
            input,
            client: Mutex::new(Some(client)),
            scrollback: Mutex::default(),
            exit,
        });
        lock(&machine.state)
            .sessions
            .insert(session.id.clone(), Arc::clone(&session));
        tokio::spawn(run(
            Arc::clone(machine),
            Arc::clone(&session),
            child,
            ends,
            inputs,
        ));
        Ok(session)
    }

    /// Connects a client in place of the present one, and returns the last output before it.
    pub(super) fn attach(&self, client: mpsc::Sender<Output>) -> Vec<u8> {
        *lock(&self.client) = Some(client);
        lock(&self.scrollback).iter().copied().collect()
    }

    /// Disconnects a client, if it is still the present one. False if it is not.
    pub(super) fn detach(&self, client: &mpsc::Sender<Output>) -> bool {
        let mut present = lock(&self.client);
        let is_present = present.as_ref().is_some_and(|one| one.same_channel(client));
        if is_present {
            *present = None;
        }
        is_present
    }

    pub(super) fn has_client(&self) -> bool {
        lock(&self.client).is_some()
    }

    pub(super) fn exit_code(&self) -> Option<u8> {
        *self.exit.borrow()
    }

    /// Waits for the end of the program. None if the time passes before.
    pub(super) async fn wait(&self, time: Duration) -> Option<u8> {
        let mut exit = self.exit.subscribe();
        let waited = tokio::time::timeout(time, exit.wait_for(Option::is_some)).await;
        waited.ok()?.ok().and_then(|code| *code)
    }

    /// Sends a signal to the process group of the program.
    pub(super) fn signal(&self, signal: Signal) {
        if self.exit_code().is_none()
            && let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw)
        {
            // The group may have ended in between.
            let _ = kill_process_group(pid, signal);
        }
    }

    async fn deliver(&self, output: Output) {
        if let Output::Stdout(bytes) = &output {
            let mut scrollback = lock(&self.scrollback);
            scrollback.extend(bytes);
            let excess = scrollback.len().saturating_sub(SCROLLBACK_BYTES);
            scrollback.drain(..excess);
        }
        let client = lock(&self.client).clone();
        if let Some(client) = client {
            // A client that has gone gets nothing more.
            let _ = client.send(output).await;
        }
    }
}

/// This side of a program's input and output.
enum Ends {
    Pipes(Option<ChildStdin>),
    Terminal(OwnedFd),
}

fn command(order: &ExecOrder, program: &str, args: &[String]) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(order.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&order.dir)
        .kill_on_drop(false);
    command
}

fn spawn_piped(order: &ExecOrder) -> std::io::Result<(Child, Ends)> {
    let spawn = |mut command: Command| {
        let input = if order.has_stdin {
            Stdio::piped()
        } else {
            Stdio::null()
        };
        command
            .process_group(0)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    };
    let direct = command(order, &order.path, &order.argv[1..]);
    let mut child = match spawn(direct) {
        Ok(child) => child,
        Err(error) => {
            // A program that cannot run ends as one that a shell could not run.
            let code = match error.kind() {
                std::io::ErrorKind::NotFound => "127",
                _ => "126",
            };
            let script = "echo \"exec: $1: $2\" >&2; exit \"$0\"".to_owned();
            let words = ["-c".to_owned(), script, code.to_owned(), order.path.clone()];
            let mut args = words.to_vec();
            args.push(error.to_string());
            spawn(command(order, "/bin/sh", &args))?
        }
    };
    let input = child.stdin.take();
    Ok((child, Ends::Pipes(input)))
}

fn spawn_on_terminal(order: &ExecOrder, size: (u16, u16)) -> std::io::Result<(Child, Ends)> {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&controller)?;
    unlockpt(&controller)?;
    let path = ptsname(&controller, Vec::new())?;
    let user = File::options()
        .read(true)
        .write(true)
        .open(std::ffi::OsStr::from_bytes(path.to_bytes()))?;
    set_size(&controller, size)?;
    // `setsid -c` makes the terminal the controlling one, which takes a system call in the child.
    let mut args = vec!["-c".to_owned(), order.path.clone()];
    args.extend_from_slice(&order.argv[1..]);
    let child = command(order, "setsid", &args)
        .stdin(Stdio::from(user.try_clone()?))
        .stdout(Stdio::from(user.try_clone()?))
        .stderr(Stdio::from(user))
        .spawn()?;
    Ok((child, Ends::Terminal(controller)))
}

fn set_size(controller: &OwnedFd, (rows, cols): (u16, u16)) -> std::io::Result<()> {
    let size = Winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(controller, size)?)
}

/// Carries input and output until the program has ended, all output before its exit code.
async fn run(
    machine: Arc<Machine>,
    session: Arc<Session>,
    mut child: Child,
    ends: Ends,
    mut inputs: mpsc::Receiver<Input>,
) {
    let mut readers = Vec::new();
    let writer = match ends {
        Ends::Pipes(mut input) => {
            if let Some(stdout) = child.stdout.take() {
                let session = Arc::clone(&session);
                readers.push(tokio::spawn(pass_on(session, stdout, Output::Stdout)));
            }
            if let Some(stderr) = child.stderr.take() {
                let session = Arc::clone(&session);
                readers.push(tokio::spawn(pass_on(session, stderr, Output::Stderr)));
            }
            tokio::spawn(async move {
                while let Some(order) = inputs.recv().await {
                    let is_done = match (order, &mut input) {
                        // A program that reads no more gets no more.
                        (Input::Bytes(bytes), Some(pipe)) => pipe.write_all(&bytes).await.is_err(),
                        (order, _) => matches!(order, Input::Eof),
                    };
                    if is_done {
                        input = None;
                    }
                }
            })
        }
        Ends::Terminal(controller) => {
            let controller = Arc::new(controller);
            let (sender, mut chunks) = mpsc::channel(4);
            let ours = Arc::clone(&controller);
            std::thread::spawn(move || read_terminal(&ours, &sender));
            let reading = Arc::clone(&session);
            readers.push(tokio::spawn(async move {
                while let Some(bytes) = chunks.recv().await {
                    reading.deliver(Output::Stdout(bytes)).await;
                }
            }));
            tokio::task::spawn_blocking(move || write_terminal(&controller, &mut inputs))
        }
    };
    let status = child.wait().await;
    for reader in readers {
        let abort = reader.abort_handle();
        if tokio::time::timeout(DRAIN_WAIT, reader).await.is_err() {
            abort.abort();
        }
    }
    writer.abort();
    let code = status.map_or(255, exit_code);
    // The session is out of the list before its client hears of the end.
    lock(&machine.state).sessions.remove(&session.id);
    session.exit.send_replace(Some(code));
    session.deliver(Output::Exit(code)).await;
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    u8::try_from(code.unwrap_or(255)).unwrap_or(255)
}

async fn pass_on(
    session: Arc<Session>,
    mut source: impl AsyncRead + Unpin,
    frame: fn(Bytes) -> Output,
) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = source.read(&mut buffer).await {
        let bytes = Bytes::copy_from_slice(&buffer[..count]);
        session.deliver(frame(bytes)).await;
    }
}

fn read_terminal(controller: &OwnedFd, chunks: &mpsc::Sender<Bytes>) {
    let Ok(mut file) = controller.try_clone().map(File::from) else {
        return;
    };
    let mut buffer = vec![0; CHUNK_BYTES];
    // The last process that has the terminal ends it with EIO.
    while let Ok(count @ 1..) = file.read(&mut buffer) {
        let bytes = Bytes::copy_from_slice(&buffer[..count]);
        if chunks.blocking_send(bytes).is_err() {
            return;
        }
    }
}

fn write_terminal(controller: &OwnedFd, inputs: &mut mpsc::Receiver<Input>) {
    let Ok(mut file) = controller.try_clone().map(File::from) else {
        return;
    };
    while let Some(order) = inputs.blocking_recv() {
        let done = match order {
            Input::Bytes(bytes) => file.write_all(&bytes),
            Input::Resize { rows, cols } => set_size(controller, (rows, cols)),
            Input::Eof => Ok(()),
        };
        if done.is_err() {
            return;
        }
    }
}
