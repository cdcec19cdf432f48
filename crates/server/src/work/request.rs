//! Requests for sessions: validated once and turned into the work of a session.

use super::health::DISK;
use super::live::{Heard, LiveSession};
use super::worker::{Beginning, Job};
use super::{App, HostRights, QueuedWork};
use crate::config::ServerConfig;
use crate::store::{Owned, RequestKey, SessionRows, WorkspaceChoice};
use glovebox_agent::{Placement, SessionState};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Name;
use glovebox_session::Error;
use glovebox_session::agent::{AgentWorkplace, EarlierSession, NewSession, find_model};
use glovebox_session::host::now_unix_ms;
use glovebox_session::work::{lay_local, lay_toolset, unknown_toolset};
use glovebox_settings::units::{Count, Span};
use glovebox_settings::{AgentFlags, Dollars, Origin, Settings};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use utoipa::ToSchema;

/// Maximum length of a task, in bytes.
const MAX_TASK_BYTES: usize = 1 << 20;
const MAX_NAME_CHARS: usize = 256;
/// Maximum time to wait for a session that is ending, and the interval at which it is checked.
const END_WAIT: Duration = Duration::from_secs(10);
const END_LOOK: Duration = Duration::from_millis(10);

/// A task for an agent.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(crate) struct TaskRequest {
    /// What is to be done, at most 1 MiB.
    #[schema(min_length = 1)]
    pub task: String,
    /// A session that is to go on with it; without one, a session begins.
    pub session_id: Option<String>,
    /// `PROVIDER/NAME`, one of those that the server offers; without one, the first of them.
    pub model: Option<String>,
    /// The kind of work: a toolset, such as `plan` or `review`.
    pub phase: Option<String>,
    /// What the session's workspace begins with; without it the server's project, or nothing.
    pub workspace: Option<WorkspaceChoice>,
    /// Limits that are tighter than the server's.
    #[serde(default)]
    pub limits: TaskLimits,
    /// Whether changes are taken over when the work is done. Without it they stay in the sandbox for review.
    #[serde(default)]
    pub apply: bool,
    /// Whether somebody answers questions about calls; without it a call that a rule asks about is refused.
    #[serde(default)]
    pub ask: bool,
}

/// Limits of one run of an agent. Those of the server hold as well.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskLimits {
    /// Times the model is asked.
    pub max_turns: Option<u32>,
    /// Seconds.
    pub max_time_s: Option<u32>,
    /// Tokens sent and received.
    pub max_tokens: Option<u32>,
    /// US dollars.
    pub max_cost_usd: Option<f64>,
}

impl TaskRequest {
    fn check(&self) -> Result<(), Error> {
        if self.task.trim().is_empty() {
            return Err(Error::usage("`task` is empty", "say what is to be done"));
        }
        if self.task.len() > MAX_TASK_BYTES {
            return Err(Error::usage(
                "`task` has more than 1 MiB",
                "put it into a file of the workspace",
            ));
        }
        for (field, value) in [("model", &self.model), ("phase", &self.phase)] {
            if value
                .as_ref()
                .is_some_and(|value| value.chars().count() > MAX_NAME_CHARS)
            {
                return Err(Error::usage(
                    format!("`{field}` has more than {MAX_NAME_CHARS} characters"),
                    "give its name",
                ));
            }
        }
        self.limits.check()
    }
}

impl TaskLimits {
    fn check(self) -> Result<(), Error> {
        let numbers = [
            ("limits.max_turns", self.max_turns.map(f64::from)),
            ("limits.max_time_s", self.max_time_s.map(f64::from)),
            ("limits.max_tokens", self.max_tokens.map(f64::from)),
            ("limits.max_cost_usd", self.max_cost_usd),
        ];
        for (field, value) in numbers {
            if value.is_some_and(|value| !value.is_finite() || value <= 0.0) {
                return Err(Error::usage(
                    format!("`{field}` is not more than 0"),
                    "give a limit above 0, or leave it out for the server's",
                ));
            }
        }
        Ok(())
    }

    /// Sets each limit of the request that is tighter than the server's.
    fn lay(self, settings: &mut Settings) {
        let agent = &settings.agent;
        let turns = tighter(self.max_turns, agent.max_turns.value.0);
        let time = tighter(
            self.max_time_s.map(|s| u64::from(s) * 1000),
            agent.max_time.value.0,
        );
        let tokens = tighter(self.max_tokens, agent.max_tokens.value.0);
        let cost = match (self.max_cost_usd, agent.max_cost.value.0) {
            (Some(asked), Some(own)) if asked < own => Some(asked),
            (Some(asked), None) => Some(asked),
            _ => None,
        };
        settings.lay_agent_flags(&AgentFlags {
            max_turns: turns.map(|count| Count(Some(count))),
            max_time: time.map(|ms| Span(Some(ms))),
            max_tokens: tokens.map(|count| Count(Some(count))),
            max_cost: cost.map(|dollars| Dollars(Some(dollars))),
            ..AgentFlags::default()
        });
    }
}

/// Returns the requested limit if it is tighter than the server's. None as `own` means no limit.
fn tighter<T: Ord + Copy>(asked: Option<T>, own: Option<T>) -> Option<T> {
    asked.filter(|asked| own.is_none_or(|own| *asked < own))
}

impl App {
    /// Creates and queues a session for `user`, or continues the one the request names. Returns the
    /// session's id.
    ///
    /// # Errors
    /// Fails if the request is invalid, the server takes no new work, or a quota is exceeded.
    pub(crate) fn submit(
        self: &Arc<Self>,
        user: &str,
        request: &TaskRequest,
        host_rights: HostRights,
        key: Option<&RequestKey>,
    ) -> Result<String, Error> {
        request.check()?;
        if let Some(id) = &request.session_id {
            if request.model.is_some() || request.phase.is_some() || request.workspace.is_some() {
                return Err(Error::usage(
                    "a session goes on with the model, the phase and the workspace that it has",
                    "leave `model`, `phase` and `workspace` out, or begin a session without `session_id`",
                ));
            }
            self.say(id, &request.task, request.limits, request.ask, host_rights)?;
            if let Some(key) = key {
                self.owners.add_request(user, key, id, now_unix_ms())?;
            }
            return Ok(id.clone());
        }
        self.refuse_when_full(user)?;
        self.refuse_unready()?;
        let mut settings = self.session_settings(request.phase.as_deref(), request.limits)?;
        let beginning = self.beginning_of(request.workspace.as_ref());
        Self::lay_caches(&mut settings, user, Some(&beginning));
        self.choose_model(&mut settings, request.model.as_deref())?;
        let model = find_model(&self.config.host, &settings, None)?;
        self.lay_address(&mut settings, user)?;
        // Held until the session's rows are written: until then the upload counts as unused and
        // could expire.
        let is_upload = matches!(request.workspace, Some(WorkspaceChoice::Upload(_)));
        let _turn = is_upload.then(|| self.uploads_turn());
        let need = self.session_need(&settings, None);
        // A sandbox that can never fit is refused here: in the queue it would wait forever.
        self.config.quotas.check(need)?;
        let mut workspace = self.session_workspace(user, request)?;
        if request.apply
            && let Some(choice) = &request.workspace
        {
            self.check_choice(choice, None)?;
        }
        let owned = Owned {
            user: user.to_owned(),
            is_applied: request.apply,
        };
        let id = NewSession::random_id();
        let rows = SessionRows {
            id: &id,
            owned: &owned,
            workspace: Some(&beginning),
            request: key,
            sandbox: None,
            now_unix_ms: now_unix_ms(),
        };
        let new = self.create_session(&rows, || {
            NewSession::create(
                self.open_log()?,
                id.clone(),
                SessionState::Queued,
                request.task.clone(),
                &model,
                self.config.placement.as_str(),
                workspace.dir(),
            )
        })?;
        self.enqueue(QueuedWork::Agent(Box::new(Job {
            live: LiveSession::new(&id, user, 0),
            owned,
            beginning: Beginning::New(new),
            need,
            sandbox: None,
            warm: workspace.take_warm(),
            settings,
            project: workspace.keep(),
            model,
            phase: request.phase.clone(),
            has_user: request.ask,
            host_rights,
        })));
        Ok(id)
    }

    /// Writes the rows of a session, then creates the session with `create`. If the server is
    /// killed in between, rows without a session remain, which its next start removes; a session
    /// without rows never exists.
    pub(super) fn create_session<T>(
        &self,
        rows: &SessionRows<'_>,
        create: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.owners.add_session(rows)?;
        create().inspect_err(|_| {
            // Rows that cannot be removed now, on a full disk, are removed when the server next
            // starts.
            let _ = self.owners.remove_session(rows.id);
            if let Some(name) = rows.sandbox {
                let _ = self.owners.remove_sandbox(name);
            }
        })
    }

    /// Sends a message to a session. A running session receives it after its current work;
    /// otherwise the session is queued to continue with it.
    pub(crate) fn say(
        self: &Arc<Self>,
        id: &str,
        text: &str,
        limits: TaskLimits,
        has_user: bool,
        host_rights: HostRights,
    ) -> Result<(), Error> {
        if let Some(live) = self.live(id) {
            match live.say(text.to_owned()) {
                Heard::Later => return Ok(()),
                Heard::Full => {
                    let fault = Fault::failed(Code::Busy, "too many messages wait for the agent");
                    return Err(fault
                        .remedy("wait until it has answered")
                        .retryable()
                        .into());
                }
                Heard::Over => self.await_end(id),
            }
        }
        let Some(owned) = self.owners.session(id)? else {
            return Err(
                Fault::failed(Code::NotFound, format!("there is no session `{id}`")).into(),
            );
        };
        self.refuse_when_full(&owned.user)?;
        let log = self.open_log()?;
        let earlier = EarlierSession::open(&log, id).map_err(held_elsewhere)?;
        if earlier.declared().is_some() {
            return self.go_on_with_bundle(&owned.user, log, earlier, Some(text), limits);
        }
        self.refuse_unready()?;
        let mut settings = self.session_settings(earlier.phase().as_deref(), limits)?;
        let workspace = self.owners.workspace(id)?;
        Self::lay_caches(&mut settings, &owned.user, workspace.as_ref());
        self.choose_model(&mut settings, Some(&earlier.info.model))?;
        let model = find_model(&self.config.host, &settings, Some(&earlier.info.model))?;
        // Needed in case the session's sandbox no longer exists and a new one is started.
        self.lay_address(&mut settings, &owned.user)?;
        let sandbox = earlier.info.sandbox.as_deref();
        let sandbox = sandbox.and_then(|name| Name::parse(name).ok());
        let need = self.session_need(&settings, sandbox.as_ref());
        self.config.quotas.check(need)?;
        log.set_state(id, SessionState::Queued)?;
        self.enqueue(QueuedWork::Agent(Box::new(Job {
            live: LiveSession::new(id, &owned.user, earlier.info.events),
            owned,
            project: earlier.info.project.clone(),
            phase: earlier.phase(),
            beginning: Beginning::Again {
                log,
                earlier: Box::new(earlier),
                words: Some(text.to_owned()),
            },
            need,
            sandbox,
            warm: None,
            settings,
            model,
            has_user,
            host_rights,
        })));
        Ok(())
    }

    /// Waits up to `END_WAIT` until a session that accepts no further messages has released its
    /// lock. At most it still applies its changes.
    fn await_end(&self, id: &str) {
        let begun = Instant::now();
        while self.live(id).is_some() && begun.elapsed() < END_WAIT {
            std::thread::sleep(END_LOOK);
        }
    }

    /// Refuses new sessions.
    ///
    /// # Errors
    /// `unavailable` while the server ends or its queue is full; `busy` if the user has too many
    /// waiting sessions; `no-space` if the disk is full, because every session writes a log.
    pub(super) fn refuse_when_full(&self, user: &str) -> Result<(), Fault> {
        self.refuse_draining()?;
        if self.queue.is_full_for(user) {
            let limit = self.config.max_queued_per_user;
            let message = format!("{limit} sessions of this user wait for their turn");
            let fault = Fault::failed(Code::Busy, message);
            let remedy = "wait until one begins, or cancel one; /api/quotas says what is used";
            return Err(fault.remedy(remedy).retryable());
        }
        if self.queue.is_full() {
            let fault = Fault::failed(Code::Unavailable, "too many sessions wait for their turn");
            return Err(fault.remedy("try again in a while").retryable());
        }
        let Some(detail) = self.status.problem_of(DISK) else {
            return Ok(());
        };
        let message = format!("nothing can be written at the moment: {detail}");
        Err(Fault::failed(Code::NoSpace, message).retryable())
    }

    /// Returns the settings of one session.
    pub(super) fn session_settings(
        &self,
        phase: Option<&str>,
        limits: TaskLimits,
    ) -> Result<Settings, Error> {
        lay_session(&self.config, phase, limits)
    }

    /// Sets the model of a session. `asked` must be a model that the server offers; None takes the
    /// first.
    fn choose_model(&self, settings: &mut Settings, asked: Option<&str>) -> Result<(), Error> {
        let offered = &self.config.models;
        let chosen = match (asked, offered.first()) {
            (None, first) => first,
            (Some(asked), _) => {
                let usual = settings.agent.model.value.as_deref();
                let found = offered.iter().find(|one| *one == asked);
                if found.is_none() && !(offered.is_empty() && usual.is_none_or(|one| one == asked))
                {
                    let listed = match offered.as_slice() {
                        [] => usual.unwrap_or_default().to_owned(),
                        several => several.join(", "),
                    };
                    return Err(Error::usage(
                        "this server does not offer that model",
                        format!("choose one of: {listed}"),
                    ));
                }
                found
            }
        };
        settings.lay_agent_flags(&AgentFlags {
            model: chosen.cloned(),
            ..AgentFlags::default()
        });
        Ok(())
    }

    /// Creates a session with a copy of this one's conversation and files, or of the files of
    /// `checkpoint`. Returns its id.
    pub(crate) fn fork(
        &self,
        user: &str,
        id: &str,
        checkpoint: Option<&str>,
    ) -> Result<String, Error> {
        let Some(info) = self.find(id)? else {
            return Err(
                Fault::failed(Code::NotFound, format!("there is no session `{id}`")).into(),
            );
        };
        let Some(sandbox) = &info.sandbox else {
            return Err(Fault::failed(Code::SandboxNotFound, "its sandbox is gone").into());
        };
        let from = parse_name(sandbox)?;
        let (name, new) = (AgentWorkplace::random_name(), NewSession::random_id());
        let owned = Owned {
            user: user.to_owned(),
            is_applied: false,
        };
        let workspace = self.owners.workspace(id)?;
        let rows = SessionRows {
            id: &new,
            owned: &owned,
            workspace: workspace.as_ref(),
            request: None,
            sandbox: Some(name.as_str()),
            now_unix_ms: now_unix_ms(),
        };
        self.create_session(&rows, || {
            let registry = &self.config.registry;
            registry
                .fork(&from, &name, checkpoint)
                .map_err(held_elsewhere)?;
            let log = self.log();
            let copied = log.fork(&info, &new, None);
            let copied = copied.and_then(|()| log.set_sandbox(&new, Some(name.as_str())));
            copied.inspect_err(|_| {
                // Errors of the clean-up are ignored so that the first fault is reported. A session
                // without its sandbox is of no use.
                let _ = log.delete(&new);
                let _ = self.config.registry.kill(&name);
            })?;
            Ok(())
        })?;
        Ok(new)
    }

    /// Deletes a session, its sandbox, and the workspace that was made for it.
    ///
    /// # Errors
    /// `conflict` while the session waits or runs; `not-found` if it does not exist.
    pub(crate) fn delete(self: &Arc<Self>, id: &str) -> Result<(), Error> {
        let Some(info) = self.find(id)? else {
            return Err(
                Fault::failed(Code::NotFound, format!("there is no session `{id}`")).into(),
            );
        };
        if self.live(id).is_some() {
            return Err(
                Fault::failed(Code::Conflict, "the session works, or waits for its turn")
                    .remedy("cancel it first")
                    .into(),
            );
        }
        // Another process, such as `glovebox agent`, may run the session: its sandbox must not be
        // removed then.
        drop(self.log().lock(id).map_err(held_elsewhere)?);
        // The sandbox goes before the rows: after a failure in between, the session can be deleted
        // again. A session without rows was made by a command on this machine; its sandbox does not
        // belong to the server.
        if let Some(sandbox) = &info.sandbox
            && self.owners.session(id)?.is_some()
        {
            let name = parse_name(sandbox)?;
            self.with_reserve(|| self.kill_sandbox(&name).map_err(Error::into_fault))?;
        }
        self.with_reserve(|| self.log().delete(id))?;
        self.release_workspace(&info.project);
        Ok(self.with_reserve(|| self.owners.remove_session(id))?)
    }

    /// Calls `work`, which frees space. On a full disk, releases the reserve and calls it once
    /// more.
    fn with_reserve<T>(&self, work: impl Fn() -> Result<T, Fault>) -> Result<T, Fault> {
        match work() {
            Err(fault) if fault.code == Code::NoSpace && self.reserve.release() => work(),
            done => done,
        }
    }
}

/// Turns `busy` into `conflict`: another process or request holds the session, while `busy` means
/// that there are too many.
pub(crate) fn held_elsewhere(error: impl Into<Error>) -> Error {
    let error = error.into();
    let fault = error.clone().into_fault();
    if fault.code != Code::Busy {
        return error;
    }
    let code = Code::Conflict;
    Fault { code, ..fault }.into()
}

/// Returns the settings of one session: those of the server with the phase and the limits of the
/// request.
pub(super) fn lay_session(
    config: &ServerConfig,
    phase: Option<&str>,
    limits: TaskLimits,
) -> Result<Settings, Error> {
    let mut settings = config.settings.clone();
    if let Some(phase) = phase {
        let chosen = settings.tools.choose(phase, &Origin::Flag("phase"));
        chosen.map_err(unknown_toolset)?;
    }
    lay_toolset(&mut settings)?;
    if config.placement == Placement::Local {
        lay_local(&mut settings);
    }
    limits.check()?;
    limits.lay(&mut settings);
    Ok(settings)
}

pub(super) fn parse_name(text: &str) -> Result<Name, Fault> {
    Name::parse(text).map_err(|error| Fault::failed(Code::InvalidArgument, error.to_string()))
}
