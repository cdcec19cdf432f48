//! Form of all errors of the API: code, message, remedy, and the matching HTTP status.

use super::request_id::RequestId;
use axum::Json;
use axum::response::{IntoResponse, Response};
use glovebox_proto::{Class, Code, Fault};
use glovebox_session::Error;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use utoipa::ToSchema;

/// Value of `Retry-After`, in seconds, for retryable errors that give no other time.
const RETRY_S: u64 = 2;

/// Remedy when the disk is full.
const MAKE_ROOM: &str =
    "make room where the server keeps its state: delete sessions and sandboxes, or other files";

/// An error, as every route answers it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// The error.
    pub error: ErrorInfo,
}

/// What was wrong.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorInfo {
    /// Stable word for programs.
    pub code: String,
    /// Who must act: `refused` by a rule, `failed` honestly, or `lost`.
    pub class: String,
    /// One sentence for people.
    pub message: String,
    /// What to do about it.
    pub remedy: Option<String>,
    /// Whether the same request may succeed later and is safe to repeat.
    pub is_retryable: bool,
    /// The request's, as in `x-request-id`: the server's log has it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// More about it, for programs: what there is instead, each place that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub details: Option<Value>,
}

impl From<Fault> for ErrorBody {
    fn from(fault: Fault) -> Self {
        let Fault {
            class,
            code,
            message,
            remedy,
            is_retryable,
        } = fault;
        let class = match class {
            Class::Refused => "refused",
            Class::Failed => "failed",
            Class::Lost => "lost",
        };
        Self {
            error: ErrorInfo {
                code: code.as_str().to_owned(),
                class: class.to_owned(),
                message,
                remedy: remedy.map(|remedy| remedy.to_string()),
                is_retryable,
                request_id: RequestId::current().map(|id| id.as_str().to_owned()),
                details: None,
            },
        }
    }
}

/// Error of a request.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub status: StatusCode,
    pub fault: Fault,
    /// Details and overrides. None if the fault says all.
    more: Option<Box<More>>,
}

/// Parts of an error besides its fault.
#[derive(Debug, Default)]
struct More {
    /// Code in the body, if it is not the fault's.
    code: Option<&'static str>,
    details: Option<Value>,
    /// Value of `Retry-After`, in seconds.
    retry_after_s: Option<u64>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, mut fault: Fault) -> Self {
        if fault.code == Code::NoSpace {
            fault.remedy.get_or_insert_with(|| MAKE_ROOM.into());
        }
        Self {
            status,
            fault,
            more: None,
        }
    }

    /// Adds details for programs.
    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.more.get_or_insert_default().details = Some(details);
        self
    }

    /// Sets the wait after which the same request may succeed. It is sent in whole seconds, rounded
    /// up.
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        self.more.get_or_insert_default().retry_after_s = Some(seconds.max(1));
        self
    }

    /// Replaces the code in the body.
    pub(crate) fn with_code(mut self, code: &'static str) -> Self {
        self.more.get_or_insert_default().code = Some(code);
        self
    }

    /// Returns the error for an object that does not exist. It is the same for one that this user
    /// may not see, so that the response does not reveal it.
    pub(crate) fn not_found(what: &str, id: &str) -> Self {
        let id: String = id.escape_debug().take(64).collect();
        let fault = Fault::failed(Code::NotFound, format!("there is no {what} `{id}`"));
        Self::new(StatusCode::NOT_FOUND, fault)
    }

    /// Returns the error for an invalid request.
    pub(crate) fn invalid(message: impl Into<String>, remedy: &str) -> Self {
        let fault = Fault::failed(Code::InvalidArgument, message).remedy(remedy);
        Self::new(StatusCode::BAD_REQUEST, fault)
    }

    /// Returns the error for a request that this user may not make.
    pub(crate) fn forbidden(message: impl Into<String>, remedy: &str) -> Self {
        let fault = Fault::refused(Code::PermissionDenied, message).remedy(remedy);
        Self::new(StatusCode::FORBIDDEN, fault)
    }
}

impl From<Fault> for ApiError {
    fn from(fault: Fault) -> Self {
        Self::new(status_of(&fault), fault)
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let is_settings = matches!(error, Error::Settings(_));
        let fault = error.into_fault();
        let status = match status_of(&fault) {
            // The request is invalid for this server's settings, which is not an internal error.
            StatusCode::INTERNAL_SERVER_ERROR if is_settings && fault.code != Code::Io => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            status => status,
        };
        Self::new(status, fault)
    }
}

const fn status_of(fault: &Fault) -> StatusCode {
    match (fault.class, fault.code) {
        (Class::Lost, _) => StatusCode::BAD_GATEWAY,
        (_, Code::InvalidArgument) => StatusCode::BAD_REQUEST,
        (_, Code::NotFound | Code::SandboxNotFound | Code::JobNotFound) => StatusCode::NOT_FOUND,
        (
            _,
            Code::AlreadyExists
            | Code::Changed
            | Code::Conflict
            | Code::DigestMismatch
            | Code::SandboxNotRunning
            | Code::IsDirectory
            | Code::NotDirectory
            | Code::SpecialFile,
        ) => StatusCode::CONFLICT,
        (_, Code::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
        // The limit of all users is reached. That of one user is a fault of class `failed`, with
        // status 429.
        (Class::Refused, Code::TooManySandboxes)
        | (_, Code::Unavailable | Code::BackendUnavailable) => StatusCode::SERVICE_UNAVAILABLE,
        (_, Code::Busy | Code::TooManySandboxes) => StatusCode::TOO_MANY_REQUESTS,
        (_, Code::TimedOut) => StatusCode::GATEWAY_TIMEOUT,
        (_, Code::NoSpace) => StatusCode::INSUFFICIENT_STORAGE,
        (_, Code::Unsupported) => StatusCode::NOT_IMPLEMENTED,
        (Class::Refused, _) => StatusCode::FORBIDDEN,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Fault of a response, attached for the log.
#[derive(Debug, Clone)]
pub(super) struct AnsweredFault {
    pub code: Code,
    pub message: String,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let is_retryable = self.fault.is_retryable;
        let answered = AnsweredFault {
            code: self.fault.code,
            message: self.fault.message.clone(),
        };
        let mut body = ErrorBody::from(self.fault);
        let mut after_s = RETRY_S;
        if let Some(more) = self.more {
            after_s = more.retry_after_s.unwrap_or(RETRY_S);
            if let Some(code) = more.code {
                code.clone_into(&mut body.error.code);
            }
            body.error.details = more.details;
        }
        let mut response = (self.status, Json(body)).into_response();
        response.extensions_mut().insert(answered);
        if is_retryable {
            let after = HeaderValue::from(after_s);
            response.headers_mut().insert(RETRY_AFTER, after);
        }
        response
    }
}

/// Result of a handler.
pub(crate) type ApiResult<T> = Result<T, ApiError>;
