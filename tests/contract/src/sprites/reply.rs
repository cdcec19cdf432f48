//! Answers in the shapes of the service, and the reading of parameters.

use super::Service;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use time::OffsetDateTime;

pub(super) type Reply = Response;

/// An answer in JSON.
pub(super) fn answer(status: u16, body: &Value) -> Reply {
    let mut reply = (
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        body.to_string(),
    )
        .into_response();
    let json = HeaderValue::from_static("application/json");
    reply.headers_mut().insert("content-type", json);
    reply
}

/// An answer without a body.
pub(super) fn empty(status: u16) -> Reply {
    StatusCode::from_u16(status)
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        .into_response()
}

/// A refusal, with a word for programs and one for people.
pub(super) fn refuse(status: u16, error: &str, message: &str) -> Reply {
    answer(status, &json!({"error": error, "message": message}))
}

/// Events, one a line.
pub(super) fn events(events: &[Value]) -> Reply {
    let mut lines = String::new();
    for event in events {
        lines.push_str(&event.to_string());
        lines.push('\n');
    }
    let mut reply = Response::new(Body::from(lines));
    let kind = HeaderValue::from_static("application/x-ndjson");
    reply.headers_mut().insert("content-type", kind);
    reply
}

/// The present time as the service writes it: RFC 3339 with milliseconds.
pub(super) fn now() -> String {
    let now = OffsetDateTime::now_utc();
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        now.year(),
        u8::from(now.month()),
        now.day(),
        now.hour(),
        now.minute(),
        now.second(),
        now.millisecond()
    )
}

/// Parameters of one request. Every one must be asked for.
#[derive(Debug)]
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Takes the parameters of a request.
    ///
    /// # Errors
    /// A refusal for names that are not in `known`.
    pub(super) fn read(
        service: &Service,
        pairs: Vec<(String, String)>,
        known: &[&str],
    ) -> Result<Self, Box<Reply>> {
        match pairs
            .iter()
            .find(|(name, _)| !known.contains(&name.as_str()))
        {
            Some((name, _)) => {
                let what = format!("unknown parameter {name}");
                Err(Box::new(service.violation(&what)))
            }
            None => Ok(Self(pairs)),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let found = self.0.iter().filter(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).collect()
    }

    /// A yes or no; absent is no.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }
}

/// Reads a body whose fields are all known to `T`; an empty one reads as an empty object.
pub(super) fn read_body<T: DeserializeOwned>(
    service: &Service,
    body: &[u8],
) -> Result<T, Box<Reply>> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body)
        .map_err(|error| Box::new(service.violation(&format!("body: {error}"))))
}

/// Reads a duration as Go writes it: `30s`, `10m`, `24h`, `500ms`, `0`.
pub(super) fn read_duration(text: &str) -> Option<std::time::Duration> {
    use std::time::Duration;
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..at].parse().ok()?;
    match &text[at..] {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number * 60)),
        "h" => Some(Duration::from_secs(number * 3600)),
        _ => None,
    }
}
