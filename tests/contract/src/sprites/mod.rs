//! The contract of Sprites: machines with names, exec sessions over WebSocket, policies,
//! checkpoints, files.
//!
//! `DIR/sprites/NAME/home` is the home directory of a Sprite; its commands run there as processes
//! of the current user. The server is strict: a parameter or a field that the contract does not
//! know is a 400, and noted. Tests read the notes and cut connections below `/__contract/`.

mod checkpoints;
mod exec;
mod files;
mod processes;
mod reply;
mod rest;
mod session;
mod store;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{any, delete, get, post, put};
use reply::{Reply, refuse};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Store, lock};
use tokio::sync::Notify;

/// The token and the place of the service, and the faults that it plays.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Token that clients must show.
    #[arg(long)]
    token: String,
    /// Directory of the Sprites.
    #[arg(long)]
    dir: PathBuf,
    /// Kill the process group of an exec session when its connection ends.
    #[arg(long)]
    sessions_end: bool,
    /// Refuse "for ever" as the time a session without a terminal goes on alone.
    #[arg(long)]
    refuse_forever: bool,
    /// Answer 429 to that many requests to create a Sprite.
    #[arg(long, default_value_t = 0)]
    limited_creates: u64,
    /// Seconds that such an answer asks to wait.
    #[arg(long, default_value_t = 1)]
    retry_after: u64,
    /// Number of Sprites that may exist.
    #[arg(long, default_value_t = u64::MAX)]
    max_sprites: u64,
    /// Break off the answer to that many restores after they are done.
    #[arg(long, default_value_t = 0)]
    broken_restores: u64,
    /// Forget labels.
    #[arg(long)]
    no_labels: bool,
    /// Milliseconds before an exec session opens.
    #[arg(long, default_value_t = 0)]
    wake_ms: u64,
    /// Milliseconds before each answer.
    #[arg(long, default_value_t = 0)]
    latency_ms: u64,
    /// Number of requests that the token is good for.
    #[arg(long, default_value_t = u64::MAX)]
    expire_after: u64,
    /// Token that is good after that.
    #[arg(long)]
    next_token: Option<String>,
    /// End connections after an exit without a close frame.
    #[arg(long)]
    drop_after_exit: bool,
    /// Drop every policy that is set.
    #[arg(long)]
    forget_policy: bool,
    /// End when standard input does.
    #[arg(long)]
    until_stdin_ends: bool,
}

/// The state of the server.
#[derive(Debug)]
struct Service {
    options: Options,
    store: Store,
    requests: AtomicU64,
    limited_creates: AtomicU64,
    broken_restores: AtomicU64,
    journal: Mutex<Journal>,
    /// Ends the connections of all exec sessions, without a word.
    cut: Notify,
}

/// Requests with their statuses, and what the contract does not have.
#[derive(Debug, Default)]
struct Journal {
    requests: Vec<String>,
    refusals: Vec<String>,
}

impl Service {
    /// Notes something that the contract does not have.
    fn note_refusal(&self, what: &str) {
        lock(&self.journal).refusals.push(what.to_owned());
    }

    /// Refuses something that the contract does not have.
    fn violation(&self, what: &str) -> Response {
        self.note_refusal(what);
        refuse(400, "bad_request", what)
    }
}

type Shared = State<Arc<Service>>;

/// Serves until the process is killed or, where that is wanted, standard input ends.
pub(crate) async fn serve(options: Options) -> anyhow::Result<()> {
    std::fs::create_dir_all(options.dir.join("sprites"))
        .with_context(|| format!("cannot make {}", options.dir.display()))?;
    let listener = tokio::net::TcpListener::bind(options.listen).await?;
    let address = listener.local_addr()?;
    let mut out = std::io::stdout();
    writeln!(out, "listening on http://{address}")?;
    out.flush()?;
    let until_stdin_ends = options.until_stdin_ends;
    let service = Arc::new(Service {
        limited_creates: AtomicU64::new(options.limited_creates),
        broken_restores: AtomicU64::new(options.broken_restores),
        store: Store::new(&options.dir),
        requests: AtomicU64::new(0),
        journal: Mutex::default(),
        cut: Notify::new(),
        options,
    });
    let server = axum::serve(listener, routes(&service));
    let ended = async {
        if until_stdin_ends {
            let copy = || std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            // An input that cannot be read has ended as well.
            let _ = tokio::task::spawn_blocking(copy).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        served = async { server.await } => served?,
        () = ended => service.store.end_all(),
    }
    Ok(())
}

fn routes(service: &Arc<Service>) -> Router {
    Router::new()
        .route("/v1/sprites", post(rest::create).get(rest::list))
        .route(
            "/v1/sprites/{name}",
            get(rest::get).put(rest::update).delete(rest::destroy),
        )
        .route(
            "/v1/sprites/{name}/policy/network",
            get(rest::policy).post(rest::set_policy),
        )
        .route("/v1/sprites/{name}/checkpoint", post(checkpoints::create))
        .route("/v1/sprites/{name}/checkpoints", get(checkpoints::list))
        .route("/v1/sprites/{name}/checkpoints/{id}", get(checkpoints::get))
        .route(
            "/v1/sprites/{name}/checkpoints/{id}/restore",
            post(checkpoints::restore),
        )
        .route("/v1/sprites/{name}/exec", get(exec::open_or_list))
        .route("/v1/sprites/{name}/exec/{id}", get(exec::attach))
        .route("/v1/sprites/{name}/exec/{id}/kill", post(exec::kill))
        .route("/v1/sprites/{name}/fs/read", get(files::read))
        .route("/v1/sprites/{name}/fs/write", put(files::write))
        .route("/v1/sprites/{name}/fs/list", get(files::list))
        .route("/v1/sprites/{name}/fs/delete", delete(files::remove))
        .route("/v1/sprites/{name}/fs/rename", post(files::rename))
        .route("/v1/sprites/{name}/fs/copy", post(files::copy))
        .route("/v1/sprites/{name}/fs/chmod", post(files::chmod))
        // All clients go on without this channel when it is not found.
        .route("/v1/sprites/{name}/control", any(no_control))
        .fallback(unknown)
        .layer(from_fn_with_state(Arc::clone(service), admit))
        // For tests only, and so without the check of the token.
        .route("/__contract/journal", get(journal))
        .route("/__contract/cut", post(cut))
        .with_state(Arc::clone(service))
}

/// Says which requests came and what was refused.
async fn journal(State(service): Shared) -> Response {
    let journal = lock(&service.journal);
    reply::answer(
        200,
        &serde_json::json!({"requests": journal.requests, "refusals": journal.refusals}),
    )
}

/// Cuts the connections of all exec sessions, as a network does.
async fn cut(State(service): Shared) -> Response {
    service.cut.notify_waiters();
    reply::answer(200, &serde_json::json!({}))
}

async fn no_control() -> Response {
    refuse(404, "not_found", "there is no control channel")
}

async fn unknown(State(service): Shared, request: Request) -> Response {
    service.note_refusal(&format!("{} {}", request.method(), request.uri()));
    refuse(404, "not_found", "there is no such endpoint")
}

/// Checks the token, and plays the faults that concern every request.
async fn admit(State(service): Shared, request: Request, next: Next) -> Response {
    let options = &service.options;
    let count = service.requests.fetch_add(1, Ordering::SeqCst);
    let line = format!("{} {}", request.method(), request.uri());
    tokio::time::sleep(Duration::from_millis(options.latency_ms)).await;
    let token = if count < options.expire_after {
        Some(&options.token)
    } else {
        options.next_token.as_ref()
    };
    let shown = request.headers().get("authorization");
    let is_good = token.is_some_and(|token| {
        shown.is_some_and(|shown| shown.as_bytes() == format!("Bearer {token}").as_bytes())
    });
    let mut reply: Reply = if is_good {
        next.run(request).await
    } else {
        refuse(401, "authentication failed", "")
    };
    let line = format!("{line} {}", reply.status().as_u16());
    lock(&service.journal).requests.push(line);
    reply.headers_mut().insert(
        "sprite-version",
        axum::http::HeaderValue::from_static("0.0.1-rc46"),
    );
    reply
}
