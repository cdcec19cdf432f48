//! `/v1/bash/*`: sessions, and commands in them. Every command is a new process; a session keeps a
//! directory only.

use super::SharedService;
use super::command::{Command, CommandSpec};
use super::envelope::{Strict, failure, success};
use axum::extract::{Path as UrlPath, State};
use axum::response::Response;
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_id: Mutex<BTreeMap<String, Session>>,
    next_id: AtomicU64,
}

#[derive(Debug)]
struct Session {
    dir: PathBuf,
    created_at: SystemTime,
    last_used_at: SystemTime,
    command_count: usize,
    /// Commands with their output. Empty once it is closed.
    commands: Vec<Arc<Command>>,
    is_closed: bool,
}

impl Sessions {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Session>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_id(&self, kind: &str) -> String {
        format!("{kind}-{}", self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn forget_all(&self) {
        self.all().clear();
    }

    /// The command `id` of a session, or its latest one.
    fn command(&self, session: &str, id: Option<&str>) -> Result<Arc<Command>, String> {
        let mut all = self.all();
        let Some(found) = all.get_mut(session).filter(|session| !session.is_closed) else {
            return Err(format!("Session not found: {session}"));
        };
        found.last_used_at = SystemTime::now();
        let mut commands = found.commands.iter().rev();
        let command = match id {
            Some(id) => commands.find(|command| command.id == id),
            None => commands.next(),
        };
        command
            .cloned()
            .ok_or_else(|| "Command not found".to_owned())
    }
}

impl Session {
    fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            created_at: SystemTime::now(),
            last_used_at: SystemTime::now(),
            command_count: 0,
            commands: Vec::new(),
            is_closed: false,
        }
    }

    fn describe(&self, id: &str) -> Value {
        let current = self
            .commands
            .iter()
            .rev()
            .find(|command| command.is_running());
        json!({
            "session_id": id,
            "status": if self.is_closed { "closed" } else { "ready" },
            "working_dir": self.dir,
            "created_at": date_time(self.created_at),
            "last_used_at": date_time(self.last_used_at),
            "current_command": current.map(|command| &command.text),
            "command_count": self.command_count,
        })
    }
}

/// A time as RFC 3339 has it.
fn date_time(at: SystemTime) -> String {
    let at = time::UtcDateTime::from(at);
    let (hour, minute, second, micros) = at.as_hms_micro();
    format!(
        "{}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z",
        at.date()
    )
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exec {
    session_id: Option<String>,
    command: String,
    exec_dir: Option<PathBuf>,
    env: Option<BTreeMap<String, String>>,
    #[serde(default)]
    async_mode: bool,
    timeout: Option<f64>,
    hard_timeout: Option<f64>,
    #[serde(default = "default_output_length")]
    max_output_length: usize,
}

fn default_output_length() -> usize {
    50_000
}

pub(super) async fn exec_command(
    State(service): State<SharedService>,
    Strict(request): Strict<Exec>,
) -> Response {
    let session_id = request
        .session_id
        .filter(|id| !id.is_empty())
        .unwrap_or_else(|| service.sessions.new_id("session"));
    let mut environment: BTreeMap<String, String> = ["PATH", "USER", "LANG"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
        .collect();
    environment.insert(
        "HOME".to_owned(),
        service.dir.to_string_lossy().into_owned(),
    );
    if let Some(key) = service.api_key() {
        environment.insert("SANDBOX_API_KEY".to_owned(), key);
    }
    environment.extend(request.env.unwrap_or_default());
    let started = {
        let mut all = service.sessions.all();
        let session = all
            .entry(session_id.clone())
            .or_insert_with(|| Session::new(&service.dir));
        if session.is_closed {
            return failure(&format!("Session is closed: {session_id}"), &Value::Null);
        }
        if let Some(dir) = request.exec_dir {
            session.dir = dir;
        }
        session.last_used_at = SystemTime::now();
        session.command_count += 1;
        let started = Command::start(CommandSpec {
            id: service.sessions.new_id("command"),
            text: request.command,
            dir: &session.dir,
            environment,
            hard_timeout: request.hard_timeout.map(seconds),
            end_kills_group: service.end_kills_group,
        });
        if let Ok(command) = &started {
            session.commands.push(Arc::clone(command));
        }
        started
    };
    let command = match started {
        Ok(command) => command,
        Err(error) => return failure(&error.to_string(), &Value::Null),
    };
    if !request.async_mode {
        command
            .wait_for(request.timeout.map(seconds), |state| state.end.is_some())
            .await;
    }
    let state = command.state();
    let shown =
        |output: &[u8]| (!request.async_mode).then(|| truncate(output, request.max_output_length));
    success(&json!({
        "session_id": session_id,
        "command_id": command.id,
        "command": command.text,
        "status": state.status(),
        "stdout": shown(&state.stdout),
        "stderr": shown(&state.stderr),
        "exit_code": state.exit_code(),
        "offset": if request.async_mode { 0 } else { state.stdout.len() },
        "stderr_offset": if request.async_mode { 0 } else { state.stderr.len() },
    }))
}

/// Seconds of a request. One that is no time is none at all.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Output without its middle if it is longer than `max` characters. 0: no limit.
fn truncate(output: &[u8], max: usize) -> String {
    let text = String::from_utf8_lossy(output);
    let count = text.chars().count();
    if max == 0 || count <= max {
        return text.into_owned();
    }
    let head: String = text.chars().take(max / 2).collect();
    let tail: String = text.chars().skip(count - max / 2).collect();
    format!(
        "{head}\n... [{} characters truncated] ...\n{tail}",
        count - max / 2 * 2
    )
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadOutput {
    session_id: String,
    command_id: Option<String>,
    #[serde(default)]
    offset: usize,
    #[serde(default)]
    stderr_offset: usize,
    #[serde(default)]
    wait: bool,
    #[serde(default = "default_wait")]
    wait_timeout: f64,
}

fn default_wait() -> f64 {
    30.0
}

pub(super) async fn read_output(
    State(service): State<SharedService>,
    Strict(request): Strict<ReadOutput>,
) -> Response {
    let found = service
        .sessions
        .command(&request.session_id, request.command_id.as_deref());
    let command = match found {
        Ok(command) => command,
        Err(refusal) => return failure(&refusal, &Value::Null),
    };
    if request.wait {
        command
            .wait_for(Some(seconds(request.wait_timeout)), |state| {
                state.end.is_some()
                    || state.stdout.len() > request.offset
                    || state.stderr.len() > request.stderr_offset
            })
            .await;
    }
    let state = command.state();
    let new = |output: &[u8], offset: usize| {
        let from = offset.min(output.len());
        let to = from.saturating_add(service.answer_limit).min(output.len());
        (String::from_utf8_lossy(&output[from..to]).into_owned(), to)
    };
    let (stdout, offset) = new(&state.stdout, request.offset);
    let (stderr, stderr_offset) = new(&state.stderr, request.stderr_offset);
    success(&json!({
        "session_id": request.session_id,
        "stdout": stdout,
        "stderr": stderr,
        "offset": offset,
        "stderr_offset": stderr_offset,
        "command": {
            "command_id": command.id,
            "command": command.text,
            "status": state.status(),
            "exit_code": state.exit_code(),
        },
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteInput {
    session_id: String,
    command_id: Option<String>,
    input: String,
}

pub(super) async fn write_input(
    State(service): State<SharedService>,
    Strict(request): Strict<WriteInput>,
) -> Response {
    match service
        .sessions
        .command(&request.session_id, request.command_id.as_deref())
    {
        Ok(command) if command.write(request.input.as_bytes()).await => success(&Value::Null),
        Ok(_) => failure("No running command to write to", &Value::Null),
        Err(refusal) => failure(&refusal, &Value::Null),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kill {
    session_id: String,
    signal: Option<String>,
}

pub(super) async fn kill_command(
    State(service): State<SharedService>,
    Strict(request): Strict<Kill>,
) -> Response {
    let signal = match request.signal.as_deref().unwrap_or("SIGTERM") {
        "SIGTERM" => Signal::TERM,
        "SIGKILL" => Signal::KILL,
        "SIGINT" => Signal::INT,
        other => return failure(&format!("Unsupported signal: {other}"), &Value::Null),
    };
    match service.sessions.command(&request.session_id, None) {
        Ok(command) if command.is_running() => {
            command.kill(signal, true);
            success(&Value::Null)
        }
        Ok(_) => failure("No running command", &Value::Null),
        Err(refusal) => failure(&refusal, &Value::Null),
    }
}

pub(super) async fn list_sessions(State(service): State<SharedService>) -> Response {
    let all = service.sessions.all();
    let open = all.iter().filter(|(_, session)| !session.is_closed);
    success(&open.map(|(id, session)| session.describe(id)).collect())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateSession {
    session_id: Option<String>,
    exec_dir: Option<PathBuf>,
    snapshot_path: Option<PathBuf>,
}

pub(super) async fn create_session(
    State(service): State<SharedService>,
    Strict(request): Strict<CreateSession>,
) -> Response {
    if request.snapshot_path.is_some() {
        return failure("Snapshots are not part of this contract", &Value::Null);
    }
    let id = request
        .session_id
        .filter(|id| !id.is_empty())
        .unwrap_or_else(|| service.sessions.new_id("session"));
    let dir = request.exec_dir.unwrap_or_else(|| service.dir.clone());
    let mut all = service.sessions.all();
    let session = all.entry(id.clone()).or_insert_with(|| Session::new(&dir));
    success(&session.describe(&id))
}

pub(super) async fn close_session(
    State(service): State<SharedService>,
    UrlPath(id): UrlPath<String>,
) -> Response {
    let mut all = service.sessions.all();
    let Some(session) = all.get_mut(&id).filter(|session| !session.is_closed) else {
        return failure(&format!("Session not found: {id}"), &Value::Null);
    };
    session.is_closed = true;
    for command in std::mem::take(&mut session.commands) {
        command.kill(Signal::KILL, service.end_kills_group);
    }
    success(&Value::Null)
}
