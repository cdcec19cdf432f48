//! MCP over streamable HTTP. Each user has a separate service, so that sessions of one are
//! unreachable for another.

use super::auth::Shared;
use super::blocking;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::principal::Principal;
use crate::store::Scope;
use crate::work::{App, McpUser};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use glovebox_mcp::server::{Closing, EndpointOptions, HttpService};
use glovebox_proto::{Code, Fault};
use glovebox_session::Error;
use http::StatusCode;
use http::header::{AUTHORIZATION, ORIGIN};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of connected clients of one user, each with a sandbox.
const MAX_CLIENTS_PER_USER: usize = 16;
/// Maximum time to close the clients' sandboxes when the server ends.
const CLOSE_WAIT: Duration = Duration::from_secs(30);

/// MCP services, by user. A service is created with the user's first request.
#[derive(Debug, Default)]
pub(crate) struct McpServices {
    services: Mutex<HashMap<String, (Arc<HttpService>, Closing)>>,
}

impl McpServices {
    fn services(&self) -> MutexGuard<'_, HashMap<String, (Arc<HttpService>, Closing)>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the service of a user, and creates it if necessary.
    ///
    /// # Errors
    /// `unavailable` while the server ends.
    fn of_user(
        &self,
        app: &Arc<App>,
        hosts: Vec<String>,
        user: &str,
    ) -> Result<Arc<HttpService>, Error> {
        let mut services = self.services();
        if app.end.is_cancelled() {
            return Err(Fault::failed(Code::Unavailable, "the server is ending").into());
        }
        if let Some((service, _)) = services.get(user) {
            return Ok(Arc::clone(service));
        }
        let options = EndpointOptions {
            allowed_hosts: hosts,
            // Pages of other origins were refused before; for programs with a token the origin does
            // not matter.
            allowed_origins: Vec::new(),
            max_sessions: MAX_CLIENTS_PER_USER,
            idle: app.config.idle,
        };
        let factory = Arc::new(McpUser::new(Arc::clone(app), user)?);
        let (service, closing) = HttpService::new(factory, &options, &app.end)?;
        let service = Arc::new(service);
        services.insert(user.to_owned(), (Arc::clone(&service), closing));
        Ok(service)
    }

    /// Ends all clients. Blocks until their sandboxes are removed or stopped, at most `CLOSE_WAIT`.
    pub(crate) fn close(&self) {
        let services = std::mem::take(&mut *self.services());
        let closings: Vec<Closing> = services.into_values().map(|(_, closing)| closing).collect();
        let begun = Instant::now();
        for closing in closings {
            let _ = closing.wait(CLOSE_WAIT.saturating_sub(begun.elapsed()));
        }
    }
}

/// Messages of an MCP client: streamable HTTP, with a session of its own and a sandbox.
#[utoipa::path(
    post, path = "/mcp", tag = "mcp", operation_id = "mcp_post",
    params(("Mcp-Session-Id" = Option<String>, Header, description = "As the answer to `initialize` has it.")),
    request_body(content = Object, description = "A message of the Model Context Protocol", content_type = "application/json"),
    responses((status = 200, description = "Messages, as JSON or as a stream", content_type = "text/event-stream"),
        (status = 202, description = "It was taken"),
        (status = "4XX", description = "Refused, or no such session", body = ErrorBody),
        (status = 503, description = "Too many clients of this user are here", body = ErrorBody))
)]
pub(super) async fn post(
    state: State<Shared>,
    principal: Extension<Principal>,
    request: Request,
) -> ApiResult<Response> {
    answer(state, principal, request).await
}

/// Messages of the server to an MCP client.
#[utoipa::path(
    get, path = "/mcp", tag = "mcp", operation_id = "mcp_stream",
    params(("Mcp-Session-Id" = String, Header, description = "As the answer to `initialize` has it.")),
    responses((status = 200, description = "A stream of messages", content_type = "text/event-stream"),
        (status = "4XX", description = "Refused, or no such session", body = ErrorBody))
)]
pub(super) async fn stream(
    state: State<Shared>,
    principal: Extension<Principal>,
    request: Request,
) -> ApiResult<Response> {
    answer(state, principal, request).await
}

/// The end of an MCP client's session. Its sandbox is removed, or kept when something was changed in it.
#[utoipa::path(
    delete, path = "/mcp", tag = "mcp", operation_id = "mcp_delete",
    params(("Mcp-Session-Id" = String, Header, description = "As the answer to `initialize` has it.")),
    responses((status = 204, description = "It is over"),
        (status = "4XX", description = "Refused, or no such session", body = ErrorBody))
)]
pub(super) async fn delete(
    state: State<Shared>,
    principal: Extension<Principal>,
    request: Request,
) -> ApiResult<Response> {
    answer(state, principal, request).await
}

async fn answer(
    State(shared): State<Shared>,
    Extension(principal): Extension<Principal>,
    mut request: Request,
) -> ApiResult<Response> {
    principal.require(Scope::Run)?;
    // A browser sends its cookie with requests of any page. MCP clients are programs and have a
    // token.
    if !request.headers().contains_key(AUTHORIZATION) {
        let fault = Fault::refused(Code::PermissionDenied, "an MCP client shows a token")
            .remedy("send `Authorization: Bearer TOKEN`");
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, fault));
    }
    if glovebox_mcp::server::has_local_origin(request.headers()) {
        request.headers_mut().remove(ORIGIN);
    }
    let service = blocking(move || {
        let hosts = shared.logins.hosts().to_vec();
        shared.mcp.of_user(&shared.app, hosts, &principal.name)
    });
    let service = service.await??;
    Ok(service.answer(request).await.map(Body::new))
}
