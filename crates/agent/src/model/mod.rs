//! Whatever answers: a provider's server, or a recording.
//!
//! In: a [`Prompt`]. Out: one whole [`ModelAnswer`], and [`Delta`]s while it comes. An answer that breaks off
//! is a failure, never a short answer. Dropping the future closes the connection.

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

/// Everything a model is told.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    /// What holds for the whole conversation.
    pub system: &'a str,
    /// What was said so far; the last is not the model's.
    pub messages: &'a [Message],
    /// What it may call.
    pub tools: &'a [ToolDefinition],
}

/// A piece of an answer on its way, for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Words for the user.
    Text(String),
    /// Thoughts.
    Reasoning(String),
    /// A call is being written: the tool, and how much of its arguments there is.
    Call {
        /// The tool.
        name: String,
        /// Bytes of arguments so far.
        bytes: usize,
    },
    /// The answer broke off or was refused and is asked for once more: what came of it is void.
    Retry {
        /// Which attempt follows, from 2.
        attempt: u32,
        /// How long is waited before.
        wait: Duration,
        /// Why.
        reason: String,
    },
}

/// An answer in the making.
pub type AnswerFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ModelAnswer, ModelError>> + Send + 'a>>;

/// Receives the pieces of an answer.
pub type OnDelta<'a> = &'a mut (dyn FnMut(Delta) + Send);

/// Something that answers.
pub trait Model: Send + Sync {
    /// Its name, as `PROVIDER/NAME`.
    fn label(&self) -> String;

    /// Asks for an answer. Dropping the future gives it up.
    fn answer<'a>(&'a self, prompt: Prompt<'a>, on_delta: OnDelta<'a>) -> AnswerFuture<'a>;

    /// Tells it how many answers of an earlier run it has given already.
    fn skip(&self, _answers: usize) {}

    /// What was done to make room before its next answer, where it is a recording; `None` where that is
    /// to be decided.
    fn compactions(&self) -> Option<Vec<Event>> {
        None
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// One sentence, without secrets.
    pub message: String,
    /// What to do about it.
    pub remedy: Option<Remedy>,
    /// The provider's HTTP status, if it came to that.
    pub status: Option<u16>,
    /// Whether the same request may succeed later.
    pub is_passing: bool,
    /// Whether it was refused because more was told than the model can be told at once.
    pub is_too_long: bool,
    /// Whether the account's quota or credit is used up: waiting does not help.
    pub is_exhausted: bool,
    /// How long the provider wants to be left alone.
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
