//! Answers of the service: the envelope, and the ways a request is refused.

use super::SharedService;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// An answer with a result.
pub(super) fn success(data: &Value) -> Response {
    let body =
        json!({ "success": true, "message": "Operation successful", "data": data, "hint": null });
    Json(body).into_response()
}

/// An answer of status 200 that says that the operation failed.
pub(super) fn failure(message: &str, data: &Value) -> Response {
    let body = json!({ "success": false, "message": message, "data": data, "hint": null });
    Json(body).into_response()
}

/// An answer with a status, as the framework of the service makes them.
pub(super) fn status(status: StatusCode, detail: &str) -> Response {
    (status, Json(json!({ "detail": detail }))).into_response()
}

/// The answer to a request whose form is wrong.
pub(super) fn unprocessable(place: &[&str], message: &str) -> Response {
    let detail = json!([{ "loc": place, "msg": message, "type": "value_error" }]);
    (
        StatusCode::UNPROCESSABLE_ENTITY,
        Json(json!({ "detail": detail })),
    )
        .into_response()
}

pub(super) async fn unknown_path(State(service): State<SharedService>, uri: Uri) -> Response {
    service
        .journal
        .note(format!("unknown path or method: {}", uri.path()));
    status(StatusCode::NOT_FOUND, "Not Found")
}

/// The body of a request, with exactly the fields that the description names.
#[derive(Debug)]
pub(super) struct Strict<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<SharedService> for Strict<T> {
    type Rejection = Response;

    async fn from_request(request: Request, service: &SharedService) -> Result<Self, Response> {
        let path = request.uri().path().to_owned();
        if let Some(query) = request
            .uri()
            .query()
            .filter(|query| !query.starts_with("api_key="))
        {
            service
                .journal
                .note(format!("{path}: unknown parameters {query:?}"));
            return Err(unprocessable(&["query"], "unknown parameters"));
        }
        let is_json = request
            .headers()
            .get("content-type")
            .is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
        let body = Bytes::from_request(request, service)
            .await
            .map_err(IntoResponse::into_response)?;
        if !is_json {
            service
                .journal
                .note(format!("{path}: the body is not declared as JSON"));
            return Err(unprocessable(
                &["body"],
                "Input should be a valid dictionary",
            ));
        }
        serde_json::from_slice(&body).map(Self).map_err(|error| {
            service.journal.note(format!("{path}: {error}"));
            unprocessable(&["body"], &error.to_string())
        })
    }
}
