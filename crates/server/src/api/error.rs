//! The one form of an error: code, message, what to do, and the HTTP status that fits.

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

/// Seconds after which what is busy may be tried again, where nothing says more precisely when.
const RETRY_S: u64 = 2;

/// What to do when nothing fits any more.
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

/// What keeps a request from being answered.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub status: StatusCode,
    pub fault: Fault,
    /// More about it, where there is more.
    more: Option<Box<More>>,
}

/// What an error has besides its fault.
#[derive(Debug, Default)]
struct More {
    /// Its word for programs, where the fault's code is not the one.
    code: Option<&'static str>,
    details: Option<Value>,
    /// Seconds after which it may be tried again.
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

    /// With more about it for programs.
    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.more.get_or_insert_default().details = Some(details);
        self
    }

    /// Names the wait after which the same request may succeed. It is told in whole seconds, rounded up.
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        self.more.get_or_insert_default().retry_after_s = Some(seconds.max(1));
        self
    }

    /// Under a word of its own.
    pub(crate) fn with_code(mut self, code: &'static str) -> Self {
        self.more.get_or_insert_default().code = Some(code);
        self
    }

    /// Something that is not there, or not for this user, which is not told apart.
    pub(crate) fn not_found(what: &str, id: &str) -> Self {
        let id: String = id.escape_debug().take(64).collect();
        let fault = Fault::failed(Code::NotFound, format!("there is no {what} `{id}`"));
        Self::new(StatusCode::NOT_FOUND, fault)
    }

    /// A request that cannot be understood.
    pub(crate) fn invalid(message: impl Into<String>, remedy: &str) -> Self {
        let fault = Fault::failed(Code::InvalidArgument, message).remedy(remedy);
        Self::new(StatusCode::BAD_REQUEST, fault)
    }

    /// A request that this user may not make.
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
            // What was asked for is wrong, or this server does not have it.
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
        // The places of all users are taken; those of one user are another failure, of class `failed`.
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

/// What was wrong, for the log.
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

/// What handlers answer.
pub(crate) type ApiResult<T> = Result<T, ApiError>;
