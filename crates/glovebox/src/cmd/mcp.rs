//! `glovebox mcp`: the tools for agents of others.

use super::{Cx, TerminalFrontend, run::supervisor};
use crate::args::McpArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::{Messages, escape_text, plural, say};
use glovebox_mcp::server::{self, HttpOptions, Session, SessionFactory, Token};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::jail::spec::Net;
use glovebox_sandbox::{Registry, Supervisor};
use glovebox_session::work::{
    LeaveOutcome, NewName, NewSandbox, WorkContext, WorkSession, WorkTarget, changes_as_patch,
    unknown_toolset,
};
use glovebox_settings::Settings;
use glovebox_tools::policy::Toolset;
use glovebox_tools::{ToolSession, WaitPolicy};
use std::fs::File;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a sandbox outlives a server that was killed.
const LEASE_MS: u64 = 5000;
/// How long a call waits for a command: clients give up after a minute.
const USUAL_WAIT_MS: u64 = 45_000;
/// What the names of the sandboxes of clients begin with.
const PREFIX: &str = "mcp";
const USUAL_CLIENTS: u16 = 16;
const USUAL_IDLE_MS: u64 = 30 * 60 * 1000;
const MAX_TOKEN_BYTES: u64 = 4096;
const TOKEN_VARIABLE: &str = "GLOVEBOX_MCP_TOKEN";

/// Serves until the client, or a signal, says that it is enough.
pub(crate) fn run(cx: &Cx, args: &McpArgs) -> CommandResult {
    let (project, settings) = cx.tool_settings(&args.own, args.toolset.as_deref())?;
    let lodge = Arc::new(McpSessions::open(cx, args, project, settings)?);
    let Some(addr) = args.http else {
        server::serve_stdio(lodge)?;
        return Ok(0);
    };
    if args.no_token && cx.host.var(TOKEN_VARIABLE).is_some() {
        return Err(CommandError::usage(
            format!("--no-token lets everybody in, and ${TOKEN_VARIABLE} is set"),
            format!("leave --no-token out, or unset {TOKEN_VARIABLE}"),
        ));
    }
    let given = token(cx, args.token_file.as_deref())?;
    let made = if given.is_none() && addr.ip().is_loopback() && !args.no_token {
        Some(make_token()?)
    } else {
        None
    };
    let options = HttpOptions {
        token: given.or(made.as_ref().map(|(_, token)| token.clone())),
        allowed_hosts: args.allow_host.clone(),
        allowed_origins: args.allow_origin.clone(),
        max_sessions: usize::from(args.max_clients.unwrap_or(USUAL_CLIENTS).max(1)),
        idle: Duration::from_millis(args.idle.and_then(|span| span.0).unwrap_or(USUAL_IDLE_MS)),
    };
    server::check_reach(addr, &options)?;
    let listener = TcpListener::bind(addr)
        .map_err(|error| CommandError::io(format!("listen at {addr}"), &error))?;
    let talk = cx.talk;
    if options.token.is_none() {
        talk.warning(format_args!(
            "there is no token: every program of this machine can use the tools"
        ));
    }
    server::serve_http(lodge, listener, &options, |addr| {
        // Said even with --quiet: with port 0 nobody knows it otherwise.
        say(format_args!("glovebox: serving at http://{addr}/mcp"));
        if let Some((text, _)) = &made {
            say(format_args!(
                "glovebox: clients show `Authorization: Bearer {text}`, made for this run; set \
                 ${TOKEN_VARIABLE} for one that stays"
            ));
        }
    })?;
    Ok(0)
}

/// The token, from where it is said not to be seen by others: never from the command line.
fn token(cx: &Cx, file: Option<&Path>) -> Result<Option<Token>, CommandError> {
    let (text, origin) = match file {
        Some(path) => {
            let path = cx.host.absolute(path);
            let mut text = String::new();
            let read = File::open(&path)
                .and_then(|file| file.take(MAX_TOKEN_BYTES).read_to_string(&mut text));
            read.map_err(|error| CommandError::io(format!("read {}", path.display()), &error))?;
            (text, path.display().to_string())
        }
        None => match cx.host.var(TOKEN_VARIABLE) {
            Some(text) => (
                text.to_string_lossy().into_owned(),
                format!("${TOKEN_VARIABLE}"),
            ),
            None => return Ok(None),
        },
    };
    Token::parse(&text).map(Some).map_err(|error| {
        CommandError::usage(
            format!("{origin}: {error}"),
            "make one with `openssl rand -hex 32`",
        )
    })
}

/// A token that nobody can guess, and its text for the one who started the server.
fn make_token() -> Result<(String, Token), CommandError> {
    let mut bytes = [0_u8; 32];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if filled != Ok(bytes.len()) {
        let fault = Fault::failed(
            Code::Unavailable,
            "the kernel has no random bytes for a token",
        )
        .remedy(format!("set ${TOKEN_VARIABLE}"));
        return Err(fault.into());
    }
    // As hard to guess as the bytes, and text.
    let text = blake3::hash(&bytes).to_hex().to_string();
    let token = Token::parse(&text).map_err(|error| Fault::failed(Code::Internal, error))?;
    Ok((text, token))
}

/// Where clients live: each in a sandbox of its own, or all in one.
#[derive(Debug)]
struct McpSessions {
    cx: Cx,
    project: PathBuf,
    settings: Settings,
    toolset: Toolset,
    registry: Arc<Registry>,
    supervisor: Supervisor,
    waits: WaitPolicy,
    /// The one sandbox of all clients, if it is one.
    shared: Option<ToolSession>,
    /// A sandbox that waits for its client.
    ready: Mutex<Option<OwnSession>>,
}

impl McpSessions {
    /// Makes sure that there will be sandboxes, before any client relies on it.
    fn open(
        cx: &Cx,
        args: &McpArgs,
        project: PathBuf,
        settings: Settings,
    ) -> Result<Self, CommandError> {
        let registry = Arc::new(cx.registry(&settings)?);
        let toolset = settings.tools.toolset().map_err(unknown_toolset)?.clone();
        let mut lodge = Self {
            cx: Cx::new(cx.global.clone()),
            project,
            settings,
            toolset,
            registry,
            supervisor: supervisor()?,
            waits: WaitPolicy::at_most(Duration::from_millis(
                args.max_wait
                    .and_then(|span| span.0)
                    .unwrap_or(USUAL_WAIT_MS),
            )),
            shared: None,
            ready: Mutex::new(None),
        };
        if let Some(name) = &args.sandbox {
            let name = super::name(name)?;
            let (_, tools) = lodge.work(WorkTarget::Running(&name))?;
            lodge.shared = Some(tools);
            if lodge.toolset.is_read_only {
                cx.talk.warning(format_args!(
                    "the sandbox `{}` is as it was started: the toolset `{}` is read-only, the commands in it are not",
                    name,
                    lodge.toolset.name
                ));
            }
        } else if args.http.is_none() {
            *lodge.ready() = Some(lodge.guest(!args.fresh)?);
        }
        Ok(lodge)
    }

    fn ready(&self) -> std::sync::MutexGuard<'_, Option<OwnSession>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sandbox of its own for a client: one that an earlier client has left, where that may be.
    fn guest(&self, may_be_used: bool) -> Result<OwnSession, CommandError> {
        let name = if may_be_used {
            NewName::Reused(PREFIX)
        } else {
            NewName::Random(PREFIX)
        };
        let (work, tools) = self.work(WorkTarget::New(NewSandbox {
            name,
            lease_ms: Some(LEASE_MS),
        }))?;
        let guest = OwnSession {
            tools,
            work,
            talk: self.cx.talk,
        };
        guest.talk.note(format_args!(
            "a client works in the sandbox {}",
            guest.name()
        ));
        Ok(guest)
    }

    fn work(&self, target: WorkTarget<'_>) -> Result<(WorkSession, ToolSession), CommandError> {
        let caller = WorkContext {
            host: &self.cx.host,
            registry: &self.registry,
            supervisor: &self.supervisor,
            frontend: &TerminalFrontend::new(&self.cx),
        };
        let work = WorkSession::open(&caller, &self.settings, &self.project, target)?;
        let tools = work.permitted_tools(&self.settings)?.with_waits(self.waits);
        Ok((work, tools))
    }
}

impl SessionFactory for McpSessions {
    fn open_session(&self) -> Result<Box<dyn Session>, Fault> {
        if let Some(tools) = &self.shared {
            return Ok(Box::new(SharedSession(tools.new_conversation())));
        }
        let waiting = self.ready().take();
        let guest = match waiting {
            Some(guest) => guest,
            None => self.guest(false).map_err(|error| error.fault)?,
        };
        Ok(Box::new(guest))
    }

    fn toolset(&self) -> &Toolset {
        &self.toolset
    }

    fn instructions(&self) -> String {
        let network = match self.settings.net.value {
            Net::Host => "Commands have the network of the machine.".to_owned(),
            Net::Egress => {
                let listed: Vec<_> = self
                    .settings
                    .allow
                    .iter()
                    .map(|word| word.value.as_str())
                    .collect();
                format!(
                    "Commands reach these hosts and no others: {}.",
                    listed.join(", ")
                )
            }
            Net::None => "Commands have no network.".to_owned(),
        };
        let writing = if self.toolset.is_read_only {
            "The project cannot be written."
        } else if self.shared.is_some() {
            "What you change stays in that sandbox until the user takes it over."
        } else {
            "What you change stays in the sandbox until the user takes it over with `glovebox pull`; the \
             resource glovebox://changes shows it as a patch."
        };
        let name = self.ready().as_ref().map_or_else(String::new, |guest| {
            format!(" It is called {}.", guest.name())
        });
        let wait = self.waits.longest().as_secs();
        let job = if self.toolset.has("Job") {
            ": Job waits for it and reads what it writes"
        } else {
            ""
        };
        format!(
            "These tools work in a sandbox, not on the user's machine.{name} The user's project is in /workspace, \
             where relative paths and commands begin. {writing} {network} A call waits at most {wait} s for a \
             command, which then goes on as a job{job}."
        )
    }
}

/// A client in a sandbox of its own.
#[derive(Debug)]
struct OwnSession {
    work: WorkSession,
    tools: ToolSession,
    talk: Messages,
}

impl Session for OwnSession {
    fn tools(&self) -> &ToolSession {
        &self.tools
    }

    fn name(&self) -> String {
        self.work.sandbox().info().name.to_string()
    }

    fn notice(&self) -> Option<String> {
        let name = self.name();
        Some(format!(
            "[this is the sandbox {name}; the user takes over what is changed in it with `glovebox pull {name}`]"
        ))
    }

    fn changes(&self, max_bytes: usize) -> Result<Vec<u8>, Fault> {
        let patch = self.work.changes_as_patch(max_bytes);
        patch.map_err(|error| CommandError::from(error).fault)
    }
}

impl Drop for OwnSession {
    fn drop(&mut self) {
        let name = self.name();
        match self.work.leave(false) {
            Ok(LeaveOutcome::Untouched | LeaveOutcome::Removed) => {}
            Ok(LeaveOutcome::Stopped(count)) => self.talk.note(format_args!(
                "{} in the sandbox {name}: `glovebox diff {name}`, `glovebox pull {name}`, `glovebox kill {name}`",
                plural(count, "change is kept", "changes are kept")
            )),
            Ok(LeaveOutcome::Running(why)) => self.talk.note(format_args!(
                "the sandbox {name} goes on because {why}; `glovebox kill {name}` ends it"
            )),
            Err(fault) => self.talk.warning(format_args!(
                "the sandbox {name} could not be left in order ({}); look at it with `glovebox list`",
                escape_text(&fault.message)
            )),
        }
    }
}

/// A client among others.
#[derive(Debug)]
struct SharedSession(ToolSession);

impl Session for SharedSession {
    fn tools(&self) -> &ToolSession {
        &self.0
    }

    fn name(&self) -> String {
        self.0.sandbox().info().name.to_string()
    }

    /// Whoever runs the server has named it.
    fn notice(&self) -> Option<String> {
        None
    }

    fn changes(&self, max_bytes: usize) -> Result<Vec<u8>, Fault> {
        let patch = changes_as_patch(self.0.sandbox(), max_bytes);
        patch.map_err(|error| CommandError::from(error).fault)
    }
}
