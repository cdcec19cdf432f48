//! Models: a provider's server, or a recording.
//!
//! In: a [`Prompt`]. Out: a complete [`ModelAnswer`], and [`Delta`]s while it arrives. An answer
//! that breaks off is an error, never a short answer. Dropping the future closes the connection.

mod name;
mod quota;
mod remote;
mod retry;
mod window;
mod wire;

pub use name::{ModelName, Provider, ProviderAccess, detect_provider};
pub use remote::{RemoteModel, http_client};
pub use retry::RetryPolicy;
pub use window::window_of_server;
pub use wire::decode_stream;

use crate::{Event, Message, ModelAnswer, ToolDefinition};
use glovebox_proto::{Code, Fault, Remedy};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Everything that is sent to a model.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    /// System prompt, the same for the whole conversation.
    pub system: &'a str,
    /// Messages so far. The last one is not the model's.
    pub messages: &'a [Message],
    /// Tools that the model may call.
    pub tools: &'a [ToolDefinition],
}

/// Part of an answer that is still arriving, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Text for the user.
    Text(String),
    /// Reasoning.
    Reasoning(String),
    /// Progress of a call that the model writes.
    Call {
        /// Name of the tool.
        name: String,
        /// Bytes of arguments so far.
        bytes: usize,
    },
    /// The answer broke off or was refused, and is requested again. Its deltas so far are void.
    Retry {
        /// Number of the next attempt, from 2.
        attempt: u32,
        /// Pause before the attempt.
        wait: Duration,
        /// Reason.
        reason: String,
    },
}

/// Future of a model answer. Dropping it cancels the request.
pub type AnswerFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ModelAnswer, ModelError>> + Send + 'a>>;

/// Receiver of the deltas of an answer.
pub type OnDelta<'a> = &'a mut (dyn FnMut(Delta) + Send);

/// Source of answers.
pub trait Model: Send + Sync {
    /// Returns the name, as `PROVIDER/NAME`.
    fn label(&self) -> String;

    /// Requests an answer. Dropping the future cancels the request.
    fn answer<'a>(&'a self, prompt: Prompt<'a>, on_delta: OnDelta<'a>) -> AnswerFuture<'a>;

    /// Skips the answers that a recording already gave in an earlier run. A server ignores it.
    fn skip(&self, _answers: usize) {}

    /// Returns the compactions before the next answer of a recording; `None` for a server, where
    /// the agent loop decides.
    fn compactions(&self) -> Option<Vec<Event>> {
        None
    }
}

/// Reason why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// Message of one sentence, without secrets.
    pub message: String,
    /// Hint for the user.
    pub remedy: Option<Remedy>,
    /// HTTP status of the provider; `None` if the failure has none.
    pub status: Option<u16>,
    /// True if the same request may succeed later.
    pub is_passing: bool,
    /// True if the prompt is longer than the context window of the model.
    pub is_too_long: bool,
    /// True if the account's quota or credit is used up, so that waiting does not help.
    pub is_exhausted: bool,
    /// Pause that the provider asks for.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    pub(crate) fn lasting(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            remedy: None,
            status: None,
            is_passing: false,
            is_too_long: false,
            is_exhausted: false,
            retry_after: None,
        }
    }

    pub(crate) fn passing(message: impl Into<String>) -> Self {
        Self {
            is_passing: true,
            ..Self::lasting(message)
        }
    }

    #[must_use]
    pub(crate) fn remedy(mut self, remedy: impl Into<Remedy>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl From<ModelError> for Fault {
    fn from(error: ModelError) -> Self {
        let code = match error.status {
            _ if error.is_exhausted => Code::QuotaExhausted,
            Some(401 | 403) => Code::PermissionDenied,
            Some(404) => Code::NotFound,
            Some(400 | 422) => Code::InvalidArgument,
            Some(413) => Code::TooLarge,
            _ if error.is_passing => Code::Unavailable,
            _ => Code::Protocol,
        };
        let mut fault = Self::failed(code, error.message);
        fault.remedy = error.remedy;
        fault.is_retryable = error.is_passing;
        fault
    }
}
