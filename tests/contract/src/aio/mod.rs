//! The contract of an AIO Sandbox, as far as Glovebox and the vendor's client use it:
//! `/v1/sandbox`, `/v1/bash/*`, `/v1/file/upload` and `/v1/file/write`.
//!
//! Written from the OpenAPI description of the service. Stricter than the service: an unknown
//! field, parameter or path is refused and noted, so that a client's mistake fails a test. Below
//! `/__contract/` a test steers the server: faults, restarts, and the list of requests.

mod bash;
mod command;
mod control;
mod envelope;
mod faults;
mod files;
mod processes;
mod sandbox;

use anyhow::Context as _;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use bash::Sessions;
use control::Journal;
use faults::{FaultRule, Faults};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Options of the server.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
    /// API key that requests must carry.
    #[arg(long)]
    key: Option<String>,
    /// File that holds the API key, so that it stands in no argument.
    #[arg(long, conflicts_with = "key")]
    key_file: Option<PathBuf>,
    /// Path below which the API is served, such as `/sandboxes/7`.
    #[arg(long, default_value = "")]
    prefix: String,
    /// Home and working directory of commands.
    #[arg(long)]
    dir: PathBuf,
    /// Round trip of every request, in milliseconds.
    #[arg(long, default_value_t = 0)]
    latency: u64,
    /// Serve no `/v1/bash`, as images before 2026.
    #[arg(long)]
    no_bash: bool,
    /// Largest file that `/v1/file/upload` takes, in bytes; a larger one is answered with 413.
    #[arg(long)]
    upload_limit: Option<usize>,
    /// Most bytes of output in one answer of `/v1/bash/output`.
    #[arg(long)]
    answer_limit: Option<usize>,
    /// End the whole process group of a command with the command or its session.
    #[arg(long)]
    end_kills_group: bool,
    /// Answer 401 after this many requests.
    #[arg(long)]
    unauthorized_after: Option<u64>,
    /// Answer 503 for this long after the start, in milliseconds.
    #[arg(long)]
    unavailable_for: Option<u64>,
    /// End when standard input ends, so that no test leaves a server behind.
    #[arg(long)]
    until_stdin_ends: bool,
    /// A fault as JSON, as `/__contract/fault` takes it. May be repeated.
    #[arg(long, value_name = "JSON")]
    fault: Vec<String>,
}

/// State of the server.
#[derive(Debug)]
struct Service {
    prefix: String,
    key: Mutex<Option<String>>,
    dir: PathBuf,
    latency: Duration,
    upload_limit: Option<usize>,
    answer_limit: usize,
    end_kills_group: bool,
    faults: Faults,
    journal: Journal,
    sessions: Sessions,
}

type SharedService = Arc<Service>;

/// Serves until SIGTERM or SIGINT; then every process that its commands have left is ended.
pub(crate) async fn serve(options: Options) -> anyhow::Result<()> {
    std::fs::create_dir_all(&options.dir)
        .with_context(|| format!("cannot make {}", options.dir.display()))?;
    let key = match &options.key_file {
        Some(path) => Some(std::fs::read_to_string(path)?.trim().to_owned()),
        None => options.key.clone(),
    };
    let faults = Faults::default();
    for rule in &options.fault {
        faults.add(serde_json::from_str::<FaultRule>(rule).context("--fault")?);
    }
    if let Some(skip) = options.unauthorized_after {
        faults.add(FaultRule::status_after(401, skip));
    }
    if let Some(milliseconds) = options.unavailable_for {
        faults.add(FaultRule::status_for(503, milliseconds));
    }
    processes::adopt_orphans()?;
    tokio::spawn(processes::reap_adopted());
    let service = Arc::new(Service {
        prefix: options.prefix.trim_end_matches('/').to_owned(),
        key: Mutex::new(key),
        dir: options.dir.canonicalize()?,
        latency: Duration::from_millis(options.latency),
        upload_limit: options.upload_limit,
        answer_limit: options.answer_limit.unwrap_or(usize::MAX),
        end_kills_group: options.end_kills_group,
        faults,
        journal: Journal::default(),
        sessions: Sessions::default(),
    });
    let listener = tokio::net::TcpListener::bind(&options.listen)
        .await
        .with_context(|| format!("cannot listen on {}", options.listen))?;
    say_address(&listener)?;
    let router = router(&service, options.no_bash);
    let (mut term, mut int) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let ended = tokio::select! {
        ended = axum::serve(listener, router) => ended.map_err(anyhow::Error::from),
        _ = term.recv() => Ok(()),
        _ = int.recv() => Ok(()),
        () = stdin_end(), if options.until_stdin_ends => Ok(()),
    };
    processes::kill_descendants();
    ended
}

/// Waits for the end of standard input, on a thread that does not hold up the end of the program.
async fn stdin_end() {
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        // Bytes mean nothing; the end drops the sender.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        drop(sender);
    });
    let _ = receiver.await;
}

#[expect(
    clippy::print_stdout,
    reason = "the first line of output is how a test learns the port"
)]
fn say_address(listener: &tokio::net::TcpListener) -> anyhow::Result<()> {
    println!("listening on http://{}", listener.local_addr()?);
    Ok(())
}

fn router(service: &SharedService, no_bash: bool) -> Router {
    let mut api = Router::new()
        .route("/v1/sandbox", get(sandbox::describe_sandbox))
        .route("/v1/file/upload", post(files::upload_file))
        .route("/v1/file/write", post(files::write_file));
    if !no_bash {
        api = api
            .route("/v1/bash/exec", post(bash::exec_command))
            .route("/v1/bash/output", post(bash::read_output))
            .route("/v1/bash/write", post(bash::write_input))
            .route("/v1/bash/kill", post(bash::kill_command))
            .route("/v1/bash/sessions", get(bash::list_sessions))
            .route("/v1/bash/sessions/create", post(bash::create_session))
            .route("/v1/bash/sessions/{id}/close", post(bash::close_session));
    }
    let api = api
        .fallback(envelope::unknown_path)
        .method_not_allowed_fallback(envelope::unknown_path)
        .layer(axum::extract::DefaultBodyLimit::disable())
        .layer(from_fn_with_state(
            Arc::clone(service),
            faults::handle_request,
        ));
    let api = if service.prefix.is_empty() {
        Router::new().merge(api)
    } else {
        Router::new().nest(&service.prefix, api)
    };
    Router::new()
        .nest("/__contract", control::router())
        .merge(api)
        .with_state(Arc::clone(service))
}
