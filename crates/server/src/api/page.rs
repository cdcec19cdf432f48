//! Description of the API, and responses to unknown routes.

use super::auth::Shared;
use super::error::ApiError;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use glovebox_proto::{Code, Fault};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use utoipa::Modify;
use utoipa::openapi::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};

/// Declares the security scheme `token` (`Authorization: Bearer TOKEN`), which every operation that
/// needs a user names.
pub(super) struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, openapi: &mut OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", scheme);
    }
}

/// Serves the description of the API, with the server's base path.
pub(super) async fn description(State(shared): State<Shared>) -> Response {
    let text = super::describe(&shared.app.config.base_path);
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// Returns the error for an unknown route.
pub(super) fn not_found() -> ApiError {
    let fault = Fault::failed(Code::NotFound, "there is nothing at this address")
        .remedy("/api/openapi.json describes what there is, /api-docs shows it in a browser");
    ApiError::new(StatusCode::NOT_FOUND, fault)
}

/// Returns the error for a method that the route does not accept.
pub(super) async fn wrong_method() -> ApiError {
    let fault = Fault::failed(
        Code::InvalidArgument,
        "this address does not take that method",
    )
    .remedy("/api/openapi.json describes what it takes, /api-docs shows it in a browser");
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, fault)
}
