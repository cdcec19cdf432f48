//! One command: a process of `bash`, its input, and everything that it has written.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin};
use tokio::sync::{Mutex, watch};

/// How long output is read after a command has ended; a process that it left may hold the pipe open
/// for ever.
const OUTPUT_AFTER_END: Duration = Duration::from_millis(200);

/// A command of a session.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) id: String,
    pub(super) text: String,
    pid: Pid,
    input: Mutex<Option<ChildStdin>>,
    was_killed: AtomicBool,
    state: watch::Sender<CommandState>,
}

/// What is known of a command.
#[derive(Debug, Default)]
pub(super) struct CommandState {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    /// None while it runs.
    pub(super) end: Option<CommandEnd>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandEnd {
    pub(super) status: &'static str,
    pub(super) exit_code: i32,
}

impl CommandState {
    pub(super) fn status(&self) -> &'static str {
        self.end.map_or("running", |end| end.status)
    }

    pub(super) fn exit_code(&self) -> Option<i32> {
        self.end.map(|end| end.exit_code)
    }
}

/// What a command is started with.
#[derive(Debug)]
pub(super) struct CommandSpec<'a> {
    pub(super) id: String,
    pub(super) text: String,
    pub(super) dir: &'a Path,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) hard_timeout: Option<Duration>,
    pub(super) end_kills_group: bool,
}

impl Command {
    pub(super) fn start(spec: CommandSpec<'_>) -> std::io::Result<Arc<Self>> {
        let mut child = tokio::process::Command::new("bash")
            .arg("-c")
            .arg(&spec.text)
            .current_dir(spec.dir)
            .env_clear()
            .envs(spec.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let pid = child
            .id()
            .and_then(|pid| Pid::from_raw(pid.cast_signed()))
            .ok_or_else(|| std::io::Error::other("the process has no id"))?;
        let command = Arc::new(Self {
            id: spec.id,
            text: spec.text,
            pid,
            input: Mutex::new(child.stdin.take()),
            was_killed: AtomicBool::new(false),
            state: watch::Sender::default(),
        });
        tokio::spawn(Arc::clone(&command).supervise(
            child,
            spec.hard_timeout,
            spec.end_kills_group,
        ));
        Ok(command)
    }

    async fn supervise(
        self: Arc<Self>,
        mut child: Child,
        hard_timeout: Option<Duration>,
        end_kills_group: bool,
    ) {
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        let reading = tokio::spawn({
            let command = Arc::clone(&self);
            async move {
                tokio::join!(
                    command.keep_output(stdout, |state| &mut state.stdout),
                    command.keep_output(stderr, |state| &mut state.stderr),
                )
            }
        });
        let limit = hard_timeout.unwrap_or(Duration::from_secs(u64::from(u32::MAX)));
        let waited = tokio::time::timeout(limit, child.wait()).await;
        let has_timed_out = waited.is_err();
        let status = if let Ok(status) = waited {
            status
        } else {
            // It may have ended in this moment.
            let _ = kill_process_group(self.pid, Signal::KILL);
            child.wait().await
        };
        if end_kills_group {
            // Nobody may be left in it.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        // The input's end is seen by what is left of the command.
        if let Ok(mut input) = self.input.try_lock() {
            *input = None;
        }
        // What has been written before the end must be there when the end is told.
        let aborter = reading.abort_handle();
        if tokio::time::timeout(OUTPUT_AFTER_END, reading)
            .await
            .is_err()
        {
            aborter.abort();
        }
        let end = CommandEnd {
            status: match () {
                () if has_timed_out => "timed_out",
                () if self.was_killed.load(Ordering::Relaxed) => "killed",
                () => "completed",
            },
            exit_code: status.map_or(-1, exit_code),
        };
        self.state.send_modify(|state| state.end = Some(end));
    }

    async fn keep_output(
        &self,
        pipe: Option<impl AsyncRead + Unpin>,
        part: fn(&mut CommandState) -> &mut Vec<u8>,
    ) {
        let Some(mut pipe) = pipe else { return };
        let mut piece = vec![0; 64 << 10];
        while let Ok(count @ 1..) = pipe.read(&mut piece).await {
            self.state
                .send_modify(|state| part(state).extend_from_slice(&piece[..count]));
        }
    }

    pub(super) fn state(&self) -> watch::Ref<'_, CommandState> {
        self.state.borrow()
    }

    pub(super) fn is_running(&self) -> bool {
        self.state().end.is_none()
    }

    /// Waits until `is_reached`, at most for `limit`.
    pub(super) async fn wait_for(
        &self,
        limit: Option<Duration>,
        is_reached: impl FnMut(&CommandState) -> bool,
    ) {
        let mut state = self.state.subscribe();
        let reached = state.wait_for(is_reached);
        match limit {
            // Both ends are answers.
            Some(limit) => drop(tokio::time::timeout(limit, reached).await),
            None => drop(reached.await),
        }
    }

    /// Writes to its standard input. False if that is closed.
    pub(super) async fn write(&self, bytes: &[u8]) -> bool {
        let mut input = self.input.lock().await;
        let Some(pipe) = input.as_mut() else {
            return false;
        };
        if !self.is_running() || pipe.write_all(bytes).await.is_err() || pipe.flush().await.is_err()
        {
            *input = None;
            return false;
        }
        true
    }

    /// Sends a signal to its process, or to its whole group.
    pub(super) fn kill(&self, signal: Signal, group: bool) {
        if self.is_running() {
            self.was_killed.store(true, Ordering::Relaxed);
            // It may have ended in this moment.
            let _ = if group {
                kill_process_group(self.pid, signal)
            } else {
                kill_process(self.pid, signal)
            };
        }
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| -status.signal().unwrap_or_default())
}
