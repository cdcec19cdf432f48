//! `glovebox serve`: serves agents' sessions over HTTP.

mod log;
mod traces;

use super::given_token::given_token;
use super::listening::cannot_listen;
use super::run::supervisor;
use super::{Cx, try_start};
use crate::args::ServeArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::say;
use glovebox_agent::Placement;
use glovebox_runner::{Engine, GrantFlags, HostGrant};
use glovebox_sandbox::{Backend, WorkspaceMode};
use glovebox_server::{
    BundleConfig, ResourceLimits, ResourceQuotas, ServerConfig, Serving, Tls, Token,
    TrustedProxies, UploadLimits, serve,
};
use glovebox_session::agent::{DEMO_MODEL, find_model};
use glovebox_session::bundle::{BundleKeys, node_view};
use glovebox_settings::units::Span;
use glovebox_settings::{
    AgentFlags, LogFormat, LogLevel, Origin, Quota, ServeFlags, Settings, SourceDir,
};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use traces::TraceExport;
use tracing::{info, warn};

const TOKEN_VARIABLE: &str = "GLOVEBOX_SERVER_TOKEN";
const MAX_PEM_BYTES: u64 = 1 << 20;
const USUAL_RUNNING: usize = 32;
/// Open files that a server may need: 4096 connections, and those of sandboxes, logs and previews.
const OPEN_FILES: u64 = 16384;

/// Serves until a signal ends the process.
pub(crate) fn run(cx: &Cx, args: &ServeArgs) -> CommandResult {
    // Set the umask so that files of tenants do not depend on the server's environment. It is a
    // property of the process, so this must precede the first thread.
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    let project = args.project.as_deref().map(|dir| project(cx, dir));
    let project = project.transpose()?;
    let placement = if args.unsafe_local {
        Placement::Local
    } else {
        Placement::Sandbox
    };
    let mut settings = settings(cx, args, project.as_deref(), placement)?;
    settings.tools.is_for_users = true;
    let log_format = settings.serve.log_format.value;
    let export = TraceExport::open(&cx.host)?;
    let layer = export.as_ref().map(TraceExport::layer);
    // Must precede the first event: without a subscriber it is dropped.
    log::start(log_format, log_level(cx, &settings), layer);
    traces::warn_where_left_out(&cx.host);
    if let Some(export) = &export {
        info!(
            collector = export.collector(),
            "spans are sent to a collector of traces"
        );
    }
    raise_open_files();
    let sources = sources(&settings, placement)?;
    let quotas = quotas(&settings, placement)?;
    let models = models(cx, args, &settings)?;
    let bundles = bundles(cx, args, &settings)?;
    let given = given_token(cx, args.token_file.as_deref(), TOKEN_VARIABLE, Token::parse)?;
    let is_made = given.is_none();
    let admin_token = match given {
        Some(token) => token,
        None if log_format == LogFormat::Json => {
            return Err(CommandError::usage(
                "a token that is made for this run would be printed into a log for programs",
                format!(
                    "set {TOKEN_VARIABLE}, name a file with --token-file, or take --log-format text"
                ),
            ));
        }
        None if args.listen.ip().is_loopback() => Token::random()?,
        None => {
            return Err(CommandError::usage(
                format!(
                    "{} can be reached from other machines, and there is no token",
                    args.listen
                ),
                format!(
                    "set {TOKEN_VARIABLE}, name a file with --token-file, or listen on 127.0.0.1"
                ),
            ));
        }
    };
    let tls = tls(cx, args)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let base_path = args.base_path.clone().unwrap_or_default();
    let is_behind_proxy = !args.trusted_proxy.is_empty();
    let is_readable_on_the_way =
        tls.is_none() && !args.listen.ip().is_loopback() && !is_behind_proxy;
    let listener = TcpListener::bind(args.listen)
        .map_err(|error| cannot_listen(args.listen, &error, "--listen"))?;
    let registry = cx.registry(&settings)?;
    if placement == Placement::Sandbox && settings.backend.value.is_walled_here() {
        // Fail now: otherwise every session would end with this refusal.
        try_start(&registry, settings.backend.value)?;
    }
    let config = ServerConfig {
        host: cx.host.clone(),
        registry: Arc::new(registry),
        supervisor: supervisor()?,
        state_dir: cx.state_dir(&settings)?,
        project,
        sources,
        uploads: UploadLimits {
            max_bytes: args.max_upload_bytes.0.unwrap_or(u64::MAX),
            max_bytes_per_user: args.max_upload_bytes_per_user.0.unwrap_or(u64::MAX),
            ttl: duration(args.upload_ttl),
        },
        models,
        placement,
        bundles,
        admin_token: admin_token.clone(),
        allowed_hosts: args.allow_host.clone(),
        allowed_origins: args.allow_origin.clone(),
        trusted_proxies: Arc::new(TrustedProxies::new(args.trusted_proxy.clone())),
        base_path: base_path.clone(),
        is_admin_token_made: is_made,
        users_open_public_hosts: args.users_open_hosts.is_some(),
        preview_domain: args.preview_domain.clone(),
        tls,
        max_running: max_running(args, &settings)?,
        max_running_per_user: usize::from(args.max_running_per_user.max(1)),
        max_queued: usize::from(args.max_queued),
        max_queued_per_user: usize::from(args.max_queued_per_user),
        max_sandboxes_per_user: usize::from(args.max_sandboxes_per_user),
        quotas,
        pool: pool(args, placement)?,
        max_requests_per_second: Some(args.max_requests_per_second).filter(|count| *count > 0),
        idle: duration(args.idle),
        session_ttl: duration(args.session_ttl),
        drain: duration(args.drain),
        dropped_spans: export.as_ref().map(TraceExport::dropped_spans),
        settings,
    };
    if placement == Placement::Local {
        warn!(
            "there are no walls: agents work on this machine with all that this user may do (--unsafe-local)"
        );
    }
    if is_readable_on_the_way {
        warn!(
            "the server speaks plain HTTP, and tokens can be read on the way: name a certificate with --tls-cert and \
             --tls-key, or put a proxy with TLS before it"
        );
    }
    let ready = |serving: &Serving| {
        let (addr, code) = (serving.addr, serving.login_code.reveal());
        if log_format == LogFormat::Json {
            info!(url = %format_args!("{scheme}://{addr}{base_path}"), "listening");
            return;
        }
        // Printed with --quiet too: no other output tells the address.
        say(format_args!(
            "glovebox: serving at {scheme}://{addr}{base_path}"
        ));
        say(format_args!(
            "glovebox: a browser comes in, once, at {scheme}://{addr}{base_path}/login?code={code}"
        ));
        if is_made {
            let token = admin_token.reveal();
            say(format_args!(
                "glovebox: programs send `Authorization: Bearer {token}`, made for this run; set {TOKEN_VARIABLE} for \
                 one that stays"
            ));
        }
    };
    let served = serve(config, listener, ready);
    // Send the last spans before returning, even if serving failed.
    if let Some(export) = &export {
        export.end();
    }
    served?;
    Ok(0)
}

/// Returns the level of the log: only errors with `--quiet`, unless the level is set explicitly.
fn log_level(cx: &Cx, settings: &Settings) -> LogLevel {
    let level = &settings.serve.log_level;
    if cx.talk.is_quiet && level.origin == Origin::Default {
        return LogLevel::Error;
    }
    level.value
}

/// Converts a span; an unlimited one becomes the longest duration.
fn duration(span: Span) -> Duration {
    span.0.map_or(Duration::MAX, Duration::from_millis)
}

/// Returns the configuration of bundles. Fails now if one of their models is missing.
fn bundles(cx: &Cx, args: &ServeArgs, settings: &Settings) -> Result<BundleConfig, CommandError> {
    for rule in &args.allow_model {
        find_named(cx, settings, rule.model())?;
    }
    let ca = args.bundle_ca.as_deref().map(|path| read_pem(cx, path));
    let ca = ca.transpose()?;
    let tool_hosts = HostGrant::new(&args.bundle_allow, &args.bundle_deny, GrantFlags::Serve)
        .map_err(|error| super::bundle::too_many_hosts(&error))?;
    let engines: Vec<Engine> = args.bundle_engine.iter().map(|one| one.engine()).collect();
    Ok(BundleConfig {
        extractor: super::bundle::extractor()?,
        models: args.allow_model.clone(),
        keys: BundleKeys::new(args.bundle_key.clone()),
        hosts: args.bundle_host.clone(),
        node: node_view(&engines, settings, &cx.host),
        engines,
        tool_hosts: tool_hosts.with_authorities(ca.clone().unwrap_or_default()),
        ca,
    })
}

fn read_pem(cx: &Cx, path: &Path) -> Result<Vec<u8>, CommandError> {
    let path = cx.host.absolute(path);
    let mut pem = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(MAX_PEM_BYTES).read_to_end(&mut pem))
        .map_err(|error| CommandError::io(format!("read {}", path.display()), &error))?;
    Ok(pem)
}

/// Opens the certificate and its key. None if no files are named.
fn tls(cx: &Cx, args: &ServeArgs) -> Result<Option<Tls>, CommandError> {
    let (Some(chain), Some(key)) = (&args.tls_cert, &args.tls_key) else {
        return Ok(None);
    };
    let (chain, key) = (cx.host.absolute(chain), cx.host.absolute(key));
    Ok(Some(Tls::open(chain, key)?))
}

/// Returns the maximum number of working sessions. Each has a sandbox, as does each place of the
/// pool, and one more is needed to test the backend at the start.
fn max_running(args: &ServeArgs, settings: &Settings) -> Result<usize, CommandError> {
    let most = settings.max_sandboxes.value.0.unwrap_or(u32::MAX);
    let others = 1 + u32::from(args.pool);
    let room = usize::try_from(most.saturating_sub(others)).unwrap_or(usize::MAX);
    let beside = match args.pool {
        0 => String::new(),
        pool => format!(" beside a pool of {pool}"),
    };
    match args.max_running {
        None | Some(0) if args.pool > 0 && room == 0 => Err(CommandError::usage(
            format!("no session can work{beside}: `max_sandboxes` is {most}"),
            format!(
                "take a smaller --pool, or raise `max_sandboxes` in glovebox.toml to {} or more",
                others + 1
            ),
        )),
        None => Ok(USUAL_RUNNING.min(room).max(1)),
        Some(asked) if usize::from(asked) <= room => Ok(usize::from(asked.max(1))),
        Some(asked) => Err(CommandError::usage(
            format!(
                "{asked} sessions cannot work at the same time{beside}: `max_sandboxes` is {most}"
            ),
            format!(
                "raise it in glovebox.toml to {} or more",
                u32::from(asked) + others
            ),
        )),
    }
}

/// Raises the limit of open files up to [`OPEN_FILES`], or the hard limit if that is lower: each
/// connection is one.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit
        .maximum
        .map_or(OPEN_FILES, |most| most.min(OPEN_FILES));
    let raised = Rlimit {
        current: Some(most),
        maximum: limit.maximum,
    };
    let is_less = limit.current.is_some_and(|current| current < most);
    if is_less && setrlimit(Resource::Nofile, raised).is_err() {
        warn!(
            open_files = limit.current,
            "no more files may be open at the same time"
        );
    }
}

/// Returns the number of sandboxes that are started ahead. They have empty workspaces, so a server
/// with a project cannot use them.
fn pool(args: &ServeArgs, placement: Placement) -> Result<usize, CommandError> {
    let problem = match placement {
        _ if args.pool == 0 => return Ok(0),
        Placement::Local => "without sandboxes none can be started ahead",
        Placement::Sandbox if args.project.is_some() => {
            "a sandbox that is started ahead shows the project as it was then, so sessions of a project begin without"
        }
        Placement::Sandbox => return Ok(usize::from(args.pool)),
    };
    Err(CommandError::usage(problem, "leave --pool out"))
}

/// Returns the quotas of all sandboxes together. A sandbox with the default settings must fit.
fn quotas(settings: &Settings, placement: Placement) -> Result<ResourceQuotas, CommandError> {
    let limits = |quota: &Quota| ResourceLimits {
        memory_bytes: quota.memory.value.0,
        cpu_millis: quota.cpus.value.0.map(u64::from),
        disk_bytes: quota.disk.value.0,
    };
    let quotas = ResourceQuotas {
        in_all: limits(&settings.serve.quota),
        per_user: limits(&settings.serve.quota_per_user),
    };
    if placement == Placement::Local && quotas != ResourceQuotas::default() {
        return Err(CommandError::usage(
            "without sandboxes nothing holds quotas of memory, processors and disk",
            "serve without --unsafe-local, or leave the quotas out",
        ));
    }
    quotas.check_settings(settings)?;
    Ok(quotas)
}

fn project(cx: &Cx, dir: &Path) -> Result<PathBuf, CommandError> {
    directory(
        "project",
        &cx.host.absolute(dir),
        "name a directory with --project",
    )
}

/// Returns the canonical path of a directory.
///
/// # Errors
/// The directory does not exist, or is a file.
fn directory(what: &str, dir: &Path, remedy: &'static str) -> Result<PathBuf, CommandError> {
    let found = dir.canonicalize();
    let found = found
        .map_err(|error| CommandError::io(format!("open the {what} {}", dir.display()), &error))?;
    if found.is_dir() {
        return Ok(found);
    }
    Err(CommandError::usage(
        format!("the {what} {} is not a directory", dir.display()),
        remedy,
    ))
}

/// Returns the directories that tasks may name. Each must exist, and a read-only one must not be
/// written to directly.
fn sources(settings: &Settings, placement: Placement) -> Result<Vec<SourceDir>, CommandError> {
    let is_written =
        placement == Placement::Local || settings.workspace_mode() == WorkspaceMode::Live;
    let named = settings.sources.iter().map(|source| {
        let SourceDir { name, dir, .. } = &source.value;
        let what = format!("source {name}");
        if source.value.is_read_only && is_written {
            return Err(CommandError::usage(
                format!("the {what} is to take no changes, and tools would write to it directly"),
                "serve without --unsafe-local and without `workspace = \"live\"`, or leave `:ro` out",
            ));
        }
        let remedy = "name a directory with --source NAME=DIR";
        Ok(SourceDir {
            dir: directory(&what, dir, remedy)?,
            ..source.value.clone()
        })
    });
    named.collect()
}

/// Returns the settings of every session, with the consent of the user who starts the server.
fn settings(
    cx: &Cx,
    args: &ServeArgs,
    project: Option<&Path>,
    placement: Placement,
) -> Result<Settings, CommandError> {
    let mut settings = cx.load_settings(project)?;
    settings.lay_flags(&args.sandbox.to_flags());
    settings.lay_serve_flags(&ServeFlags {
        log_format: args.log_format,
        log_level: args.log_level,
        max_memory: args.max_memory,
        max_memory_per_user: args.max_memory_per_user,
        max_cpus: args.max_cpus,
        max_cpus_per_user: args.max_cpus_per_user,
        max_disk: args.max_disk,
        max_disk_per_user: args.max_disk_per_user,
    });
    for source in &args.source {
        let mut source = source.clone();
        source.dir = cx.host.absolute(&source.dir);
        let added = settings.add_source(source, &Origin::Flag("source"));
        added.map_err(|error| CommandError::usage(error, "name each source once"))?;
    }
    if placement == Placement::Sandbox && settings.backend.value.is_unwalled_here() {
        return Err(CommandError::usage(
            "the backend `host` is no sandbox",
            "leave it out, or say --unsafe-local to let agents work on this machine without walls",
        ));
    }
    // The order is resolved once, at the start, and without backends on which a server cannot have
    // sessions.
    settings.choose_backend(|backend| backend.capabilities().can_serve);
    let backend = settings.backend.value;
    if placement == Placement::Sandbox && !backend.capabilities().can_serve {
        return Err(CommandError::usage(
            format!("a server has no sessions on `{backend}` yet"),
            format!(
                "use `{}` here, or `run`, `start`, `agent`, `mcp` and `call` with `{backend}`",
                Backend::NATIVE
            ),
        ));
    }
    let is_outside = placement == Placement::Local || settings.is_outside_native();
    cx.require_consent(&mut settings, is_outside)?;
    Ok(settings)
}

/// Returns the models that tasks may name. Fails now if one of them is missing, instead of in a
/// task.
fn models(cx: &Cx, args: &ServeArgs, settings: &Settings) -> Result<Vec<String>, CommandError> {
    for model in &args.model {
        find_named(cx, settings, model)?;
    }
    if !args.model.is_empty() {
        return Ok(args.model.clone());
    }
    match find_model(&cx.host, settings, None) {
        Ok(found) => Ok(vec![found.model.label()]),
        Err(error) if settings.agent.model.value.is_none() => {
            warn!(
                "{}; until then tasks are answered by recorded answers (model `{DEMO_MODEL}`)",
                error.message()
            );
            Ok(vec![DEMO_MODEL.to_owned()])
        }
        Err(error) => Err(error.into()),
    }
}

/// Checks that a model is available.
fn find_named(cx: &Cx, settings: &Settings, model: &str) -> Result<(), CommandError> {
    let mut settings = settings.clone();
    settings.lay_agent_flags(&AgentFlags {
        model: Some(model.to_owned()),
        ..AgentFlags::default()
    });
    find_model(&cx.host, &settings, None)?;
    Ok(())
}
