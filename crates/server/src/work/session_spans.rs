//! Trace spans of a session's turns and model requests, created from its events, without their
//! content.

use super::worker::state_of;
use crate::log;
use glovebox_agent::{Ending, Event, ModelName, Provider};
use tracing::{Span, error_span, field};

/// Open spans of one session.
#[derive(Debug)]
pub(super) struct SessionSpans {
    session: Span,
    id: String,
    model: ModelLabel,
    /// Span of the current turn: from a request to the model until the next one, including the tool
    /// calls. Disabled before the first turn.
    turn: Span,
    /// Span of the current model request. Disabled while there is none.
    answer: Span,
}

impl SessionSpans {
    /// Creates the spans of the session with this span and id, whose model has the label `model`.
    pub(super) fn new(session: &Span, id: &str, model: &str) -> Self {
        let model = ModelLabel::parse(model);
        session.record("gen_ai.provider.name", model.provider);
        Self {
            session: session.clone(),
            id: id.to_owned(),
            model,
            turn: Span::none(),
            answer: Span::none(),
        }
    }

    /// Returns the span that tool calls belong to: the turn, or the session if no turn is open.
    pub(super) fn turn(&self) -> &Span {
        if self.turn.is_none() {
            &self.session
        } else {
            &self.turn
        }
    }

    /// Updates the spans after an event of the session.
    pub(super) fn observe(&mut self, event: &Event) {
        match event {
            Event::TurnStarted { turn } => self.begin_turn(*turn),
            Event::Retrying { attempt, .. } => {
                log::record_number(&self.answer, "glovebox.attempts", (*attempt).into());
            }
            Event::Answered { usage, .. } => {
                if let Some(usage) = usage {
                    for (name, count) in [
                        ("gen_ai.usage.input_tokens", usage.input),
                        ("gen_ai.usage.output_tokens", usage.output),
                        ("gen_ai.usage.cache_read.input_tokens", usage.cached),
                    ] {
                        log::record_number(&self.answer, name, count);
                    }
                }
                self.answer = Span::none();
            }
            Event::Ended { ending, .. } => self.end(*ending),
            _ => {}
        }
    }

    fn begin_turn(&mut self, turn: u32) {
        // Drop the old spans first: a turn must end before the next begins, and the response before
        // its turn.
        self.answer = Span::none();
        self.turn = Span::none();
        self.turn = error_span!(
            parent: &self.session,
            "turn",
            session_id = self.id,
            otel.status_code = field::Empty,
            "error.type" = field::Empty,
            glovebox.turn = i64::from(turn),
        );
        let name = match &self.model.name {
            Some(name) => format!("chat {name}"),
            None => "chat".to_owned(),
        };
        self.answer = error_span!(
            parent: &self.turn,
            "answer",
            session_id = self.id,
            otel.name = name,
            otel.kind = "client",
            otel.status_code = field::Empty,
            "error.type" = field::Empty,
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = self.model.provider,
            gen_ai.request.model = self.model.name,
            gen_ai.usage.input_tokens = field::Empty,
            gen_ai.usage.output_tokens = field::Empty,
            gen_ai.usage.cache_read.input_tokens = field::Empty,
            glovebox.attempts = field::Empty,
        );
    }

    fn end(&mut self, ending: Ending) {
        let word = state_of(ending).as_str();
        self.session.record("glovebox.ending", word);
        if matches!(ending, Ending::Failed | Ending::Lost) {
            log::mark_failed(&self.session, word);
            log::mark_failed(&self.turn, word);
        }
        // A request to the model that is still open got no response.
        log::mark_failed(&self.answer, word);
        self.answer = Span::none();
        self.turn = Span::none();
    }
}

/// Provider and name of a model, as traces show them.
#[derive(Debug, PartialEq, Eq)]
struct ModelLabel {
    /// Provider name from the OpenTelemetry conventions, if they define one.
    provider: &'static str,
    /// Name of the model. None for a recorded model, whose name may be that of a file.
    name: Option<String>,
}

impl ModelLabel {
    fn parse(label: &str) -> Self {
        let Ok(ModelName { provider, name }) = ModelName::parse(label) else {
            return Self {
                provider: "recorded",
                name: None,
            };
        };
        Self {
            provider: match provider {
                Provider::OpenAi | Provider::OpenAiResponses => "openai",
                Provider::Gemini => "gcp.gemini",
                Provider::Anthropic | Provider::Ollama => provider.as_str(),
            },
            name: Some(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_names_provider_and_model_and_no_file() {
        for (label, provider, name) in [
            ("openai-responses/gpt-5", "openai", Some("gpt-5")),
            (
                "gemini/gemini-2.5-pro",
                "gcp.gemini",
                Some("gemini-2.5-pro"),
            ),
            ("ollama/a/b", "ollama", Some("a/b")),
            ("replay:/home/ann/answers", "recorded", None),
            ("replay:openai/x", "recorded", None),
            ("demo", "recorded", None),
        ] {
            let expected = ModelLabel {
                provider,
                name: name.map(str::to_owned),
            };
            assert_eq!(ModelLabel::parse(label), expected, "{label}");
        }
    }
}
