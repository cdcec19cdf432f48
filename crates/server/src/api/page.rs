//! What is not part of the API itself: its description, and answers to what is not there.

use super::error::ApiError;
use axum::response::{IntoResponse, Response};
use glovebox_proto::{Code, Fault};
use http::StatusCode;
use http::header::CONTENT_TYPE;

/// The description of the API.
pub(super) async fn description() -> Response {
    ([(CONTENT_TYPE, "application/json")], super::openapi()).into_response()
}

/// No such route.
pub(super) fn not_found() -> ApiError {
    let fault = Fault::failed(Code::NotFound, "there is nothing at this address")
        .remedy("/api/openapi.json describes what there is");
    ApiError::new(StatusCode::NOT_FOUND, fault)
}

/// A route that is asked for in another way.
pub(super) async fn wrong_method() -> ApiError {
    let fault = Fault::failed(
        Code::InvalidArgument,
        "this address does not take that method",
    )
    .remedy("/api/openapi.json describes what it takes");
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, fault)
}
