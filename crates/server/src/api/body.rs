//! Request bodies: bounded, read once, and refused with the path of the invalid field.

use super::error::ApiError;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use glovebox_proto::{Code, Fault};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Maximum length of a body, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 2 << 20;
/// Maximum time for a body to arrive.
const BODY_WAIT: Duration = Duration::from_secs(30);

/// A JSON body of type `T`. An empty body counts as `{}`.
#[derive(Debug)]
pub(crate) struct JsonBody<T> {
    pub value: T,
    /// BLAKE3 digest of the bytes of the body.
    pub digest: blake3::Hash,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let kind = request.headers().get(CONTENT_TYPE).cloned();
        let bytes = read(request, MAX_BODY_BYTES).await?;
        let is_json = kind.as_ref().is_some_and(|kind| {
            let word = kind.to_str().unwrap_or_default();
            word.split(';').next().unwrap_or_default().trim() == "application/json"
        });
        if !bytes.is_empty() && !is_json {
            return Err(ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                Fault::failed(Code::InvalidArgument, "the body is not JSON")
                    .remedy("send JSON with `Content-Type: application/json`"),
            ));
        }
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let mut reader = serde_json::Deserializer::from_slice(text);
        let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            let message = match path.as_str() {
                "." => format!("the body is wrong: {}", error.inner()),
                path => format!("`{path}` is wrong: {}", error.inner()),
            };
            ApiError::invalid(message, "/api/openapi.json describes what can be asked for")
        })?;
        reader.end().map_err(|error| {
            ApiError::invalid(
                format!("the body goes on after its end: {error}"),
                "send one value",
            )
        })?;
        Ok(Self {
            value,
            digest: blake3::hash(&bytes),
        })
    }
}

// TRUST: a client may send a body of any size, as slowly as it likes. Both are bounded here.
pub(super) async fn read(request: Request, most: usize) -> Result<Bytes, ApiError> {
    let reading = Limited::new(request.into_body(), most).collect();
    match tokio::time::timeout(BODY_WAIT, reading).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            Fault::failed(
                Code::TooLarge,
                format!("the body has more than {} MiB", most >> 20),
            ),
        )),
        Ok(Err(_)) => Err(ApiError::invalid(
            "the body did not arrive",
            "send it again",
        )),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            Fault::failed(Code::TimedOut, "the body took too long").retryable(),
        )),
    }
}
