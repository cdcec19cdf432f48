//! Failed calls: the fault for people, and the data for a retry.

use glovebox_carrier::show_message;
use glovebox_proto::{Code, Fault};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde::Deserialize;
use std::time::{Duration, SystemTime};

/// Maximum pause that a service can ask for.
const MAX_PAUSE: Duration = Duration::from_hours(24);
/// Error word of the service for an account that has reached its limit of running Sprites.
const TOO_MANY_SPRITES: &str = "concurrent_sprite_limit_exceeded";

/// Cause of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No response arrived: the service is unreachable, or the connection broke.
    Transport,
    /// The deadline passed.
    Deadline,
    /// The service responded with this status.
    Status(StatusCode),
    /// The response violates the service's contract.
    Answer,
    /// The cause lies on this machine.
    Here,
}

/// Failed call.
#[derive(Debug)]
pub(crate) struct CallFailure {
    pub(crate) fault: Fault,
    pub(crate) cause: Cause,
    /// Pause that the service asks for. None if it asks for none.
    pub(crate) after: Option<Duration>,
}

impl CallFailure {
    /// Creates a failure without a response. `what` is the operation, as in "cannot {what}".
    pub(crate) fn transport(what: &str, error: &dyn std::error::Error) -> Self {
        let fault = Fault::failed(Code::Io, format!("cannot {what}: {}", reason(error)));
        Self {
            fault: fault
                .remedy("check the base URL and the connection to the service")
                .retryable(),
            cause: Cause::Transport,
            after: None,
        }
    }

    pub(crate) fn deadline(what: &str) -> Self {
        Self {
            fault: Fault::failed(
                Code::TimedOut,
                format!("cannot {what}: the service did not answer in time"),
            )
            .retryable(),
            cause: Cause::Deadline,
            after: None,
        }
    }

    pub(crate) fn answer(what: &str, why: &str) -> Self {
        Self {
            fault: Fault::failed(
                Code::Protocol,
                format!("cannot {what}: the service answered against its contract: {why}"),
            ),
            cause: Cause::Answer,
            after: None,
        }
    }

    /// Creates a failure from an error status and the beginning of its body.
    pub(crate) fn status(what: &str, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let error: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
        let text = error
            .message
            .as_ref()
            .or(error.error.as_ref())
            .map_or_else(|| show_message(body), |text| show_message(text.as_bytes()));
        let said = if text.is_empty() {
            String::new()
        } else {
            format!(": {text}")
        };
        let number = status.as_u16();
        let after = pause(headers, &error);
        let failed = |code| {
            Fault::failed(
                code,
                format!("cannot {what}: the service answered {number}{said}"),
            )
        };
        let fault = match number {
            401 | 403 => Fault::refused(
                Code::NotAuthenticated,
                format!("cannot {what}: the service does not accept the token ({number}){said}"),
            )
            .remedy(
                "check the token of the service, and that it belongs to the right organization",
            ),
            404 | 410 => failed(Code::NotFound),
            _ if error.error.as_deref() == Some(TOO_MANY_SPRITES) => failed(Code::TooManySandboxes)
                .remedy("end a Sprite that is not needed, or raise the limit of the account"),
            429 => {
                let time = after.map_or_else(
                    || "for a while".to_owned(),
                    |after| format!("for {} s", after.as_secs().max(1)),
                );
                Fault::failed(
                    Code::RateLimited,
                    format!("cannot {what}: the service takes no more requests {time}{said}"),
                )
                .retryable()
            }
            300..=399 => failed(Code::Protocol).remedy(
                "give the address that the service redirects to; redirects are not followed",
            ),
            400..=499 => failed(Code::InvalidArgument),
            500..=599 => failed(Code::Io).retryable(),
            _ => failed(Code::Protocol),
        };
        Self {
            fault,
            cause: Cause::Status(status),
            after,
        }
    }

    pub(crate) fn has_status(&self, wanted: &[u16]) -> bool {
        matches!(self.cause, Cause::Status(status) if wanted.contains(&status.as_u16()))
    }

    /// Returns true if the service may respond differently to the same request later.
    pub(crate) fn is_passing(&self) -> bool {
        self.cause == Cause::Transport || self.has_status(&[500, 502, 503, 504])
    }
}

impl From<Fault> for CallFailure {
    fn from(fault: Fault) -> Self {
        Self {
            fault,
            cause: Cause::Here,
            after: None,
        }
    }
}

impl From<CallFailure> for Fault {
    fn from(failure: CallFailure) -> Self {
        failure.fault
    }
}

/// Returns the innermost cause of an error, without URLs.
pub(crate) fn reason(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    show_message(error.to_string().as_bytes())
}

#[derive(Default, Deserialize)]
struct ErrorBody {
    error: Option<String>,
    message: Option<String>,
    retry_after_seconds: Option<f64>,
}

fn pause(headers: &HeaderMap, error: &ErrorBody) -> Option<Duration> {
    let header = headers.get(RETRY_AFTER).and_then(|value| {
        let value = value.to_str().ok()?.trim();
        if let Ok(seconds) = value.parse::<u64>() {
            return Some(Duration::from_secs(seconds));
        }
        let at = httpdate::parse_http_date(value).ok()?;
        Some(
            at.duration_since(SystemTime::now())
                .unwrap_or(Duration::ZERO),
        )
    });
    let body = || Duration::try_from_secs_f64(error.retry_after_seconds?).ok();
    header.or_else(body).map(|after| after.min(MAX_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_proto::Class;
    use reqwest::header::HeaderValue;

    fn status(number: u16, headers: &[(&'static str, &'static str)], body: &str) -> CallFailure {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_static(value));
        }
        CallFailure::status(
            "get it",
            StatusCode::from_u16(number).unwrap(),
            &map,
            body.as_bytes(),
        )
    }

    #[test]
    fn status_gives_a_code() {
        for (number, body, code) in [
            (
                401,
                r#"{"error":"authentication failed"}"#,
                Code::NotAuthenticated,
            ),
            (403, "", Code::NotAuthenticated),
            (404, r#"{"error":"sprite not found"}"#, Code::NotFound),
            (
                429,
                r#"{"error":"sprite_creation_rate_limited"}"#,
                Code::RateLimited,
            ),
            (
                429,
                r#"{"error":"concurrent_sprite_limit_exceeded","message":"3 of 3"}"#,
                Code::TooManySandboxes,
            ),
            (400, "{}", Code::InvalidArgument),
            (307, "", Code::Protocol),
            (503, "<html>", Code::Io),
        ] {
            let failure = status(number, &[], body);
            assert_eq!(failure.fault.code, code, "{number}");
        }
        assert_eq!(status(401, &[], "").fault.class, Class::Refused);
    }

    #[test]
    fn pause_is_read_from_header_or_body() {
        let after = |headers, body| status(429, headers, body).after;
        assert_eq!(
            after(&[("retry-after", "7")], r#"{"retry_after_seconds":9}"#),
            Some(Duration::from_secs(7))
        );
        assert_eq!(
            after(&[], r#"{"retry_after_seconds":9}"#),
            Some(Duration::from_secs(9))
        );
        assert_eq!(
            after(&[("retry-after", "99999999999")], ""),
            Some(MAX_PAUSE)
        );
        assert_eq!(
            after(&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")], ""),
            Some(Duration::ZERO)
        );
        assert_eq!(
            after(&[("retry-after", "soon")], "{\"retry_after_seconds\":-1}"),
            None
        );
    }

    #[test]
    fn words_of_the_service_are_short_and_visible() {
        let failure = status(500, &[], &format!("\u{1b}[2Jboo\n{}", "x".repeat(5000)));
        assert!(failure.fault.message.contains("\\x1b[2Jboo\\nxx"));
        assert!(failure.fault.message.chars().count() < 260);
    }
}
