//! Query of a URL, with errors in the form of the API.

use super::error::ApiError;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use serde::de::DeserializeOwned;

/// A query of type `T`.
#[derive(Debug)]
pub(crate) struct CheckedQuery<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for CheckedQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(error) => Err(ApiError::invalid(
                in_words(&error),
                "/api/openapi.json describes what can be asked for",
            )),
        }
    }
}

/// Returns the reason for which a query is invalid, without the library's own prefix.
pub(super) fn in_words(error: &QueryRejection) -> String {
    let text = error.body_text();
    let reason = text
        .strip_prefix("Failed to deserialize query string: ")
        .unwrap_or(&text);
    format!("the query is wrong: {reason}")
}
