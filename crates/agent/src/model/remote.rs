//! A provider's server, asked over HTTP.

use super::{
    AnswerFuture, Delta, Model, ModelError, ModelName, OnDelta, Prompt, Provider, ProviderAccess,
};
use super::{RetryPolicy, wire};
use crate::{ModelAnswer, Secrets};
use futures_util::StreamExt;
use genai::adapter::AdapterKind;
use genai::chat::{ChatOptions, ChatStreamEvent};
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ModelIden, ServiceTarget};
use std::fmt::Write as _;
use std::time::Duration;

/// Until a server begins to answer.
const HEADER_TIMEOUT: Duration = Duration::from_mins(2);
/// Between two pieces of an answer. Thoughts can take long, and are announced by pings.
const READ_TIMEOUT: Duration = Duration::from_mins(3);
/// Until a connection stands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// More than any model says at once.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// Sent where a server wants no key and the library wants one.
const NO_KEY: &str = "none";

/// A model behind a server.
#[derive(Debug)]
pub struct RemoteModel {
    name: ModelName,
    target: ServiceTarget,
    client: Client,
    options: ChatOptions,
    secrets: Secrets,
    retry: RetryPolicy,
}

impl RemoteModel {
    /// Prepares to ask `name` through `access`. `secrets` are taken out of every failure.
    ///
    /// # Errors
    /// Without a key for a provider's own server, and when no connection can be prepared.
    pub fn new(
        name: ModelName,
        access: &ProviderAccess,
        secrets: Secrets,
        retry: RetryPolicy,
    ) -> Result<Self, ModelError> {
        if access.key.is_none() && !access.is_custom {
            return Err(
                ModelError::lasting(format!("there is no key for `{name}`")).remedy(format!(
                    "set {}, or {} for a server of your own",
                    name.provider.key_variables().join(" or "),
                    name.provider.base_variable()
                )),
            );
        }
        let kind = match name.provider {
            Provider::Anthropic => AdapterKind::Anthropic,
            Provider::OpenAi | Provider::Ollama => AdapterKind::OpenAI,
            Provider::OpenAiResponses => AdapterKind::OpenAIResp,
            Provider::Gemini => AdapterKind::Gemini,
        };
        let key = access.key.as_ref().map_or(NO_KEY, |key| key.expose());
        let target = ServiceTarget {
            endpoint: Endpoint::from_owned(access.base_url.as_str()),
            auth: AuthData::from_single(key),
            model: ModelIden::new(kind, name.name.as_str()),
        };
        let options = ChatOptions::default()
            .with_capture_usage(true)
            .with_capture_content(true)
            .with_capture_tool_calls(true)
            .with_capture_reasoning_content(true)
            .with_stream_header_timeout(HEADER_TIMEOUT)
            .with_stream_read_timeout(READ_TIMEOUT);
        Ok(Self {
            client: Client::builder()
                .with_reqwest(http_client(&access.base_url)?)
                .build()
                .map_err(wire::error)?,
            name,
            target,
            options,
            secrets,
            retry,
        })
    }

    /// One attempt.
    async fn attempt(
        &self,
        prompt: &Prompt<'_>,
        on_delta: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<ModelAnswer, ModelError> {
        let request = wire::request(prompt, &self.target.model);
        let response = self
            .client
            .exec_chat_stream(self.target.clone(), request, Some(&self.options))
            .await
            .map_err(wire::error)?;
        let mut stream = response.stream;
        let mut bytes = 0_usize;
        let mut call_bytes = 0_usize;
        while let Some(event) = stream.next().await {
            match event.map_err(wire::error)? {
                ChatStreamEvent::Start
                | ChatStreamEvent::Heartbeat
                | ChatStreamEvent::ThoughtSignatureChunk(_) => {}
                ChatStreamEvent::Chunk(chunk) => {
                    bytes += chunk.content.len();
                    on_delta(Delta::Text(self.secrets.clean(chunk.content)));
                }
                ChatStreamEvent::ReasoningChunk(chunk) => {
                    bytes += chunk.content.len();
                    on_delta(Delta::Reasoning(self.secrets.clean(chunk.content)));
                }
                // These carry all arguments so far.
                ChatStreamEvent::ToolCallChunk(chunk) => {
                    let call = chunk.tool_call;
                    call_bytes = call.fn_arguments.as_str().map_or(0, str::len);
                    on_delta(Delta::Call {
                        name: call.fn_name,
                        bytes: call_bytes,
                    });
                }
                // For two formats the library makes an end of its own when the stream just stops. A real
                // one says why the model stopped.
                ChatStreamEvent::End(end)
                    if end.captured_stop_reason.is_none()
                        && self.target.model.adapter_kind != AdapterKind::OpenAI =>
                {
                    break;
                }
                ChatStreamEvent::End(end) => return Ok(wire::answer(end)),
            }
            // TRUST: a server may go on for ever.
            if bytes + call_bytes > MAX_ANSWER_BYTES {
                return Err(ModelError::lasting(
                    "the model's answer has more than 16 MiB and was given up",
                ));
            }
        }
        Err(ModelError::passing(
            "the model's answer broke off before its end",
        ))
    }

    async fn persist(
        &self,
        prompt: Prompt<'_>,
        on_delta: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<ModelAnswer, ModelError> {
        let mut attempt = 1;
        loop {
            let mut error = match self.attempt(&prompt, on_delta).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            error.message = self.secrets.clean(error.message);
            attempt += 1;
            let Some(wait) = self.retry.wait(attempt, &error) else {
                if let Some(asked) = error.retry_after {
                    let secs = asked.as_secs();
                    let _ = write!(error.message, "; it asks to wait {secs} s");
                }
                return Err(error);
            };
            on_delta(Delta::Retry {
                attempt,
                wait,
                reason: error.message,
            });
            tokio::time::sleep(wait).await;
        }
    }
}

impl Model for RemoteModel {
    fn label(&self) -> String {
        self.name.to_string()
    }

    fn answer<'a>(&'a self, prompt: Prompt<'a>, on_delta: OnDelta<'a>) -> AnswerFuture<'a> {
        Box::pin(self.persist(prompt, on_delta))
    }
}

/// Connections to the server at this address, and to nowhere else.
///
/// # Errors
/// When none can be made at all.
pub fn http_client(base_url: &str) -> Result<reqwest::Client, ModelError> {
    // Whoever was first has made the same choice.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let host = base_url.split("//").nth(1).unwrap_or_default();
    let is_here = ["localhost", "127.", "[::1]"]
        .iter()
        .any(|name| host.starts_with(name));
    let builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // A server that leads elsewhere would be given the key there.
        .redirect(reqwest::redirect::Policy::none())
        .pool_max_idle_per_host(1);
    let builder = if is_here { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| {
        ModelError::lasting(format!("connections to servers cannot be made: {error}"))
    })
}
