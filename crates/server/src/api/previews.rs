//! Ports on which programs of a sandbox listen, and the addresses of their previews.

use super::auth::Shared;
use super::body::JsonBody;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::preview::answer_error;
use super::principal::Principal;
use super::{on_session, sandboxes};
use crate::preview_domain::PreviewAddress;
use crate::store::Scope;
use crate::work::App;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::{Extension, Json};
use glovebox_sandbox::Name;
use glovebox_session::Error;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const MAX_PATH_CHARS: usize = 2048;

/// A port that a program listens on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PortView {
    /// Its number.
    port: u16,
    /// The address it listens at inside; the unspecified one for all of them.
    address: String,
}

/// Ports that programs of a sandbox listen on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PortList {
    /// Whether the sandbox runs; in one that has stopped nothing listens.
    is_running: bool,
    /// By number.
    ports: Vec<PortView>,
}

fn list_ports(app: &App, name: &Name) -> Result<PortList, Error> {
    let found = app.listening_ports(name)?;
    let is_running = found.is_some();
    let mut found = found.unwrap_or_default();
    found.sort_unstable_by_key(|port| (port.port, port.address));
    let ports = found.into_iter().map(|port| PortView {
        port: port.port,
        address: port.address.to_string(),
    });
    Ok(PortList {
        is_running,
        ports: ports.collect(),
    })
}

/// The ports that programs of a session's sandbox listen on.
#[utoipa::path(
    get, path = "/api/sessions/{id}/ports", tag = "sessions", operation_id = "previews_session_ports",
    params(("id" = String, Path, description = "Its name")),
    responses((status = 200, description = "By number", body = PortList),
        (status = "4XX", description = "Refused, not there, or without a sandbox", body = ErrorBody))
)]
pub(super) async fn session_ports(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> ApiResult<Json<PortList>> {
    let listed = on_session(&shared, principal, id, Scope::Read, |app, id| {
        let name = app.session_sandbox(id)?;
        Ok(list_ports(app, &name)?)
    });
    Ok(Json(listed.await?))
}

/// The ports that programs of a sandbox listen on.
#[utoipa::path(
    get, path = "/api/sandboxes/{id}/ports", tag = "sandboxes", operation_id = "previews_sandbox_ports",
    params(("id" = String, Path, description = "Its name")),
    responses((status = 200, description = "By number", body = PortList),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn sandbox_ports(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> ApiResult<Json<PortList>> {
    let listed = sandboxes::on_sandbox(&shared, principal, id, Scope::Read, |app, name| {
        Ok(list_ports(app, name)?)
    });
    Ok(Json(listed.await?))
}

/// What is to be seen.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreviewRequest {
    /// The port that a program listens on.
    #[schema(minimum = 1, maximum = 65535)]
    port: u16,
    /// Where the browser is led: a path of the program, with its query; `/` without it.
    #[serde(default = "root")]
    path: String,
}

fn root() -> String {
    "/".to_owned()
}

/// An address that shows a program to one browser.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PreviewView {
    /// The address. It lets one browser in, once, for this preview alone.
    url: String,
    /// Until when it does, in milliseconds since 1970.
    expires_unix_ms: u64,
}

/// Creates a login address for a port of the session or sandbox `id`, which the caller has
/// authorized.
///
/// # Errors
/// `invalid-argument` if the path or the port is invalid.
fn make(
    shared: &Shared,
    principal: Principal,
    id: &str,
    request: PreviewRequest,
) -> ApiResult<PreviewView> {
    let PreviewRequest { port, path } = request;
    // Browsers take `//host` and `/\host` for the address of another host, which would make this an
    // open redirect.
    let is_path = path.starts_with('/')
        && !path.starts_with("//")
        && path.len() <= MAX_PATH_CHARS
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if !is_path {
        return Err(ApiError::invalid(
            format!(
                "`path` is not a path of at most {MAX_PATH_CHARS} characters, as it stands in an address"
            ),
            "begin it with one `/`, and encode what is not plain",
        ));
    }
    let address = PreviewAddress::new(port, id).ok_or_else(|| {
        ApiError::invalid(
            format!("port {port} of `{id}` has no preview"),
            "name a port from 1 to 65535; names with `_` cannot be part of a host's name",
        )
    })?;
    let made = shared.previews.make_login(principal, address, path)?;
    Ok(PreviewView {
        url: made.url,
        expires_unix_ms: made.expires_unix_ms,
    })
}

/// An address under which one browser sees what listens on a port of a session's sandbox.
#[utoipa::path(
    post, path = "/api/sessions/{id}/previews", tag = "sessions", operation_id = "session_preview",
    request_body = PreviewRequest, params(("id" = String, Path, description = "Its name")),
    responses((status = 201, description = "It holds for a minute", body = PreviewView),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn of_session(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<PreviewRequest>,
) -> ApiResult<(StatusCode, Json<PreviewView>)> {
    let (visitor, name) = (principal.clone(), id.clone());
    on_session(&shared, principal, id, Scope::Run, |_, _| Ok(())).await?;
    let made = make(&shared, visitor, &name, body.value)?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// An address under which one browser sees what listens on a port of a sandbox.
#[utoipa::path(
    post, path = "/api/sandboxes/{id}/previews", tag = "sandboxes", operation_id = "sandbox_preview",
    request_body = PreviewRequest, params(("id" = String, Path, description = "Its name")),
    responses((status = 201, description = "It holds for a minute", body = PreviewView),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn of_sandbox(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
    body: JsonBody<PreviewRequest>,
) -> ApiResult<(StatusCode, Json<PreviewView>)> {
    let (visitor, name) = (principal.clone(), id.clone());
    sandboxes::on_sandbox(&shared, principal, id, Scope::Run, |_, _| Ok(())).await?;
    let made = make(&shared, visitor, &name, body.value)?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Go to the preview of a port of a session's sandbox: what a link in the interface leads to.
#[utoipa::path(
    get, path = "/api/sessions/{id}/previews/{port}", tag = "sessions", operation_id = "open_session_preview",
    params(("id" = String, Path, description = "Its name"), ("port" = u16, Path, description = "The port", minimum = 1, maximum = 65535)),
    responses((status = 303, description = "To an address that lets this browser in, once"),
        (status = "4XX", description = "Refused, or not there", body = ErrorBody))
)]
pub(super) async fn open(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    Path((id, port)): Path<(String, String)>,
) -> Response {
    match lead_to_preview(&shared, principal, id, &port).await {
        Ok(led) => led.into_response(),
        Err(error) => answer_error(error, &headers),
    }
}

async fn lead_to_preview(
    shared: &Shared,
    principal: Principal,
    id: String,
    port: &str,
) -> ApiResult<Redirect> {
    let port = port.parse().map_err(|_| {
        ApiError::invalid(
            "the address has no port",
            "end it with a number from 1 to 65535",
        )
    })?;
    let (visitor, name) = (principal.clone(), id.clone());
    on_session(shared, principal, id, Scope::Run, |_, _| Ok(())).await?;
    let request = PreviewRequest { port, path: root() };
    let made = make(shared, visitor, &name, request)?;
    Ok(Redirect::to(&made.url))
}
