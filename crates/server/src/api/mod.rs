//! Routes of the server: paths, required scopes, and forms of responses.

mod audit;
mod auth;
mod body;
mod bundle_health;
mod bundle_runs;
mod bundle_tools;
mod bundles;
mod changes;
mod chat;
mod chat_chunks;
mod checkpoints;
mod environment;
mod error;
mod events;
mod files;
mod health;
mod interface;
mod last_use;
mod logins;
mod mcp;
mod nest;
mod page;
mod preview;
mod previews;
mod principal;
mod query;
mod quotas;
mod request_id;
mod sandboxes;
mod session_pages;
mod sessions;
mod sources;
mod stream;
mod terminal;
mod workspaces;

pub(crate) use auth::Shared;
use error::{ApiError, ApiResult};
use interface::Interface;
pub(crate) use logins::Logins;
pub(crate) use mcp::McpServices;
use page::TokenScheme;
pub(crate) use preview::Previews;
use principal::Principal;

use crate::base_path::BasePath;
use crate::peer::{self, Peer};
use crate::store::{AuditEntry, Decision, Owned, Scope, Via};
use crate::work::App;
use axum::Router;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use glovebox_proto::{Code, Fault};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, RETRY_AFTER};
use http::{HeaderValue, Method, StatusCode};
use std::sync::Arc;
use std::time::Duration;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
use tracing::Span;
use utoipa::OpenApi;
use utoipa::openapi::Server;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Glovebox",
        description = "Sessions of agents, each in a sandbox of its own. Every request but those about health needs `Authorization: Bearer TOKEN`.",
        license(name = "MIT OR Apache-2.0")
    ),
    paths(files::read, changes::conflict),
    security(("token" = [])),
    modifiers(&TokenScheme),
    // Readers see the groups in this order.
    tags(
        (name = "sessions", description = "Tasks for agents: begin them, follow them, answer them, end them."),
        (name = "changes", description = "What a session wrote: its diff, its files, and taking changes over."),
        (name = "checkpoints", description = "Files of a session as they were: keep them, go back to them, begin there."),
        (name = "workspaces", description = "What sessions begin with: directories of the operator's, and uploads."),
        (name = "sandboxes", description = "Sandboxes and single calls of tools, without an agent."),
        (name = "bundles", description = "Agents and tools that a JavaScript or TypeScript file declares."),
        (name = "mcp", description = "The tools of a sandbox for clients of the Model Context Protocol."),
        (name = "operation", description = "How the server stands, what its machine is like, and what it counts.")
    )
)]
struct ApiDescription;

/// Returns the routes that need a user, with their description.
fn api() -> OpenApiRouter<Shared> {
    OpenApiRouter::with_openapi(ApiDescription::openapi())
        .routes(routes!(sessions::submit))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::show, sessions::delete))
        .routes(routes!(sessions::cancel))
        .routes(routes!(sessions::say))
        .routes(routes!(sessions::approve))
        .routes(routes!(events::stream))
        .routes(routes!(terminal::of_session))
        .routes(routes!(previews::session_ports))
        .routes(routes!(previews::of_session))
        .routes(routes!(previews::open))
        .routes(routes!(changes::diff))
        .routes(routes!(changes::apply))
        .routes(routes!(files::list))
        .routes(routes!(checkpoints::list, checkpoints::make))
        .routes(routes!(checkpoints::restore))
        .routes(routes!(checkpoints::fork))
        .routes(routes!(sources::list))
        .routes(routes!(workspaces::put, workspaces::list))
        .routes(routes!(workspaces::delete))
        .routes(routes!(workspaces::download))
        .routes(routes!(sandboxes::list, sandboxes::start))
        .routes(routes!(sandboxes::kill))
        .routes(routes!(sandboxes::call))
        .routes(routes!(terminal::of_sandbox))
        .routes(routes!(previews::sandbox_ports))
        .routes(routes!(previews::of_sandbox))
        .routes(routes!(sandboxes::tools))
        .routes(routes!(bundles::put, bundles::list))
        .routes(routes!(bundles::show, bundles::delete))
        .routes(routes!(bundle_runs::execute))
        .routes(routes!(bundle_tools::call, bundle_health::health))
        .routes(routes!(chat::send))
        .routes(routes!(chat::resume))
        .routes(routes!(mcp::post, mcp::stream, mcp::delete))
        .routes(routes!(environment::show, environment::refresh))
        .routes(routes!(environment::events))
        .routes(routes!(quotas::show))
        .routes(routes!(audit::export))
        .routes(routes!(health::metrics))
}

/// Returns the routes that need no user, with their description.
fn public() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
}

/// Returns the description of the API as OpenAPI 3.1.
pub fn openapi() -> String {
    describe(&BasePath::default())
}

/// Returns the description of an API below `base`.
fn describe(base: &BasePath) -> String {
    let (_, mut description) = api().merge(public()).split_for_parts();
    if !base.as_str().is_empty() {
        description.servers = Some(vec![Server::new(base.as_str())]);
    }
    // The description consists of constants, so it has a JSON form.
    description.to_pretty_json().unwrap_or_default()
}

/// Returns the router of the server, with all middleware.
pub(crate) fn router(shared: Shared) -> Router {
    let (api, _) = api().split_for_parts();
    let guarded = api
        // OpenAPI has no form for a parameter of several path segments: these routes are described
        // separately.
        .route("/api/sessions/{id}/files/{*path}", get(files::read))
        .route(
            "/api/sessions/{id}/conflicts/{*path}",
            get(changes::conflict),
        )
        .route("/api/openapi.json", get(page::description))
        .route("/api/login", post(auth::login_by_token))
        .route("/api/logout", post(auth::log_out))
        .layer(middleware::from_fn_with_state(
            shared.clone(),
            refuse_new_work,
        ))
        // Outside of `refuse_new_work`, so that its refusals are audited, and inside of
        // `require_user`, so that entries name the user.
        .layer(middleware::from_fn_with_state(shared.clone(), write_down))
        .layer(middleware::from_fn_with_state(
            shared.clone(),
            auth::require_user,
        ));
    let interface = Arc::new(Interface::new(&shared.app.config.base_path));
    let files = Router::new()
        .fallback(interface::answer)
        .with_state(interface);
    let router = Router::new()
        .route("/login", get(auth::login))
        .merge(public().split_for_parts().0)
        .merge(guarded)
        .fallback_service(files)
        .method_not_allowed_fallback(page::wrong_method);
    // Outside of authentication, because a browser sends the token only after its preflight request
    // was answered. Outside of the fallback for methods as well, because no route accepts OPTIONS.
    let router = if shared.app.config.allowed_origins.is_empty() {
        router
    } else {
        router.layer(allow_origins(&shared))
    };
    let router = router
        .layer(middleware::from_fn_with_state(
            shared.clone(),
            auth::require_host,
        ))
        .layer(middleware::map_response(challenge))
        .layer(middleware::map_response(mark_stream))
        .layer(middleware::from_fn_with_state(
            shared.clone(),
            request_id::identify,
        ))
        .with_state(shared.clone());
    let proxies = Arc::clone(&shared.app.config.trusted_proxies);
    nest::nest(&shared.app.config.base_path, router)
        // Outside of the base path: the host of a request decides whether it is for a preview,
        // before its path is looked at.
        .layer(middleware::from_fn_with_state(shared, preview::answer))
        // Outermost: audit entries and secure cookies depend on the client that it finds.
        .layer(middleware::from_fn_with_state(proxies, peer::find_client))
}

/// Lets pages of listed origins call the API. Cookies are never allowed: such a page must send a
/// token.
fn allow_origins(shared: &Shared) -> CorsLayer {
    let origins = shared.app.config.allowed_origins.iter();
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(
            origins.map(|origin| origin.as_header().clone()),
        ))
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([ETAG, RETRY_AFTER, HeaderName::from_static("x-request-id")])
        .max_age(Duration::from_mins(10))
}

/// Requests that begin new work, by method and route. A message to a session begins work only if
/// the session has ended, and then `App::say` refuses it.
const NEW_WORK: [(Method, &str); 9] = [
    (Method::POST, "/api/tasks"),
    (Method::POST, "/api/sessions/{id}/fork"),
    (Method::POST, "/api/sandboxes"),
    (Method::POST, "/api/execute"),
    (Method::POST, "/api/tool"),
    (Method::POST, "/api/chat"),
    (Method::PUT, "/api/bundles"),
    (Method::PUT, "/api/workspaces"),
    (Method::POST, "/mcp"),
];

/// Refuses requests that begin new work while the server ends. Others are served: events, answers
/// to questions, reads, deletions, and requests of connected MCP clients.
async fn refuse_new_work(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    if let Err(fault) = shared.app.refuse_draining() {
        let path = request.extensions().get::<MatchedPath>();
        let path = path.map(MatchedPath::as_str).unwrap_or_default();
        let begins = NEW_WORK.contains(&(request.method().clone(), path));
        let is_client = path == "/mcp" && request.headers().contains_key("mcp-session-id");
        if begins && !is_client {
            return ApiError::from(fault).into_response();
        }
    }
    next.run(request).await
}

/// Asks proxies to pass events on at once and to store none of them.
async fn mark_stream(mut response: Response) -> Response {
    let kind = response.headers().get(CONTENT_TYPE);
    if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
        let headers = response.headers_mut();
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        let no_store = HeaderValue::from_static("no-store, no-transform");
        headers.insert(CACHE_CONTROL, no_store);
    }
    response
}

/// Adds the `WWW-Authenticate` header to responses with status 401.
async fn challenge(mut response: Response) -> Response {
    auth::add_challenge(&mut response);
    response
}

/// Writes an audit entry for each change that a user requests and for each refusal.
async fn write_down(
    State(shared): State<Shared>,
    params: RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let method = request.method().clone();
    let principal = request.extensions().get::<Principal>().cloned();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let address = request.extensions().get::<Peer>().map(|peer| peer.address);
    let via = request.extensions().get::<Via>().copied();
    let named = params
        .iter()
        .find(|(name, _)| *name == "id")
        .map(|(_, value)| value.to_owned());
    let response = next.run(request).await;
    let task = response.extensions().get::<SubmittedTask>();
    if let Some(task) = task {
        request_id::note_session(&task.session);
    }
    let object = named.as_deref().or(task.map(|task| task.session.as_str()));
    let status = response.status();
    let is_refused = matches!(status, StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED);
    // A terminal is opened with GET, but must be in the audit log.
    let is_terminal = status == StatusCode::SWITCHING_PROTOCOLS;
    if !matches!(method, Method::GET | Method::HEAD) || is_refused || is_terminal {
        let path = path.as_ref().map_or("?", MatchedPath::as_str);
        let action = format!("{method} {path}");
        let entry = AuditEntry::Request {
            user: principal.as_ref().map_or("?", |principal| &principal.name),
            address,
            via,
            action: &action,
            object,
            decision: if is_refused {
                Decision::Refused
            } else {
                Decision::Allowed
            },
            status: status.as_u16(),
            digest: task.map(|task| task.digest.to_hex().to_string()),
        };
        shared.app.accounting.write_down(&entry);
    }
    response
}

/// Session and request digest of a response, attached for the audit log.
#[derive(Debug, Clone)]
struct SubmittedTask {
    session: String,
    digest: blake3::Hash,
}

/// Runs `work`, which may block on files, locks or sandboxes, on a blocking thread.
///
/// # Errors
/// `internal` if `work` panics.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> ApiResult<T> {
    let span = Span::current();
    let working = tokio::task::spawn_blocking(move || span.in_scope(work));
    working.await.map_err(|_| {
        ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Fault::failed(Code::Internal, "the request ended without an answer"),
        )
    })
}

/// Returns the serialized name of an enum's value.
fn word(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// Owner shown for sessions that no user of the server owns. No user can have this name.
const THIS_MACHINE: &str = "(this machine)";

/// Returns a session that `principal` may see.
///
/// # Errors
/// `not-found` if there is none, or if it belongs to another user.
fn own_session(app: &App, principal: &Principal, id: &str) -> ApiResult<Owned> {
    let found = app.owners.session(id)?;
    let owned = found.filter(|owned| principal.sees(&owned.user));
    found_session(id, owned)
}

/// Returns a session that `principal` may read or delete. Besides the sessions of [`own_session`],
/// an administrator may read those that commands such as `glovebox agent` made on this machine and
/// that no user of the server owns.
fn readable_session(app: &App, principal: &Principal, id: &str) -> ApiResult<Owned> {
    let is_of_machine = || -> ApiResult<bool> {
        let is_admin = principal.scopes.has(Scope::Admin);
        Ok(is_admin && app.owners.session(id)?.is_none() && app.find(id)?.is_some())
    };
    if is_of_machine()? {
        let owned = Owned {
            user: THIS_MACHINE.to_owned(),
            is_applied: false,
        };
        return found_session(id, Some(owned));
    }
    own_session(app, principal, id)
}

fn found_session(id: &str, owned: Option<Owned>) -> ApiResult<Owned> {
    if owned.is_some() {
        request_id::note_session(id);
    }
    owned.ok_or_else(|| ApiError::not_found("session", id))
}

/// Runs `work` on a session of the requesting user, on a blocking thread.
///
/// # Errors
/// Fails if the principal lacks the scope or may not see the session.
async fn on_session<T: Send + 'static>(
    shared: &Shared,
    principal: Principal,
    id: String,
    scope: Scope,
    work: impl FnOnce(&Arc<App>, &str) -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    principal.require(scope)?;
    let app = Arc::clone(&shared.app);
    blocking(move || {
        match scope {
            Scope::Read => readable_session(&app, &principal, &id)?,
            _ => own_session(&app, &principal, &id)?,
        };
        work(&app, &id)
    })
    .await?
}

#[cfg(test)]
mod tests {
    /// Generated clients name a function after each operation id, and place each field by its `in`.
    #[test]
    fn operations_have_names_of_their_own_and_fields_in_their_places() {
        let description: serde_json::Value = serde_json::from_str(&super::openapi()).unwrap();
        let mut names = std::collections::BTreeSet::new();
        for (path, item) in description["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let name = operation["operationId"].as_str().unwrap();
                assert!(names.insert(name.to_owned()), "{method} {path}: {name}");
                for field in operation["parameters"].as_array().into_iter().flatten() {
                    let is_named =
                        path.contains(&format!("{{{}}}", field["name"].as_str().unwrap()));
                    assert_eq!(field["in"] == "path", is_named, "{method} {path}: {field}");
                }
            }
        }
        assert!(names.len() > 40);
    }

    /// The types of the web interface are generated from this file.
    #[test]
    fn the_description_in_the_repository_is_the_one_that_is_served() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/openapi.json");
        let served = super::openapi();
        if std::env::var_os("GLOVEBOX_TEST_BLESS").is_some() {
            std::fs::write(path, &served).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert!(
            written == served,
            "the API has changed; run `GLOVEBOX_TEST_BLESS=1 cargo test --package glovebox-server`, then `cargo xtask web`"
        );
    }
}
