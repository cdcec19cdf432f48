//! Settings of the agent: where its tools work, which model thinks, how far it may go.

use super::{Settings, SourcedValue};
use crate::units::{Count, Span};
use crate::{AgentFlags, Origin};
use glovebox_agent::Price;
use std::fmt;

/// Where tools work, as the user may say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// What the command does by itself.
    Auto,
    /// On this machine.
    Local,
    /// In a sandbox.
    Sandbox,
}

impl Mode {
    /// The word in files and variables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Local => "local",
            Self::Sandbox => "sandbox",
        }
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Auto, Self::Local, Self::Sandbox]
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not a mode; use `auto`, `local` or `sandbox`"))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// US dollars; none for no limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dollars(pub Option<f64>);

impl Eq for Dollars {}

impl std::str::FromStr for Dollars {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        text.trim_start_matches('$')
            .parse::<f64>()
            .ok()
            .filter(|dollars| dollars.is_finite() && *dollars >= 0.0)
            .map(|dollars| Self(Some(dollars)))
            .ok_or_else(|| {
                format!("`{text}` is not an amount; write dollars such as 2.50, or none")
            })
    }
}

impl fmt::Display for Dollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(dollars) => write!(f, "{dollars}"),
            None => f.write_str("none"),
        }
    }
}

/// What tokens cost, as written; none for what is known about the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tariff(pub Option<Price>);

impl Eq for Tariff {}

/// Settings of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Where tools work.
    pub mode: SourcedValue<Mode>,
    /// `PROVIDER/NAME`.
    pub model: SourcedValue<Option<String>>,
    /// What tokens cost.
    pub price: SourcedValue<Tariff>,
    /// Tokens the model can be told at once.
    pub window: SourcedValue<Count>,
    /// Whether files of the user's and of the project tell it how to work.
    pub instructions: SourcedValue<bool>,
    /// Times the model is asked.
    pub max_turns: SourcedValue<Count>,
    /// Wall time.
    pub max_time: SourcedValue<Span>,
    /// Tokens sent and received.
    pub max_tokens: SourcedValue<Count>,
    /// What may be spent.
    pub max_cost: SourcedValue<Dollars>,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            mode: SourcedValue::default(Mode::Auto),
            model: SourcedValue::default(None),
            price: SourcedValue::default(Tariff(None)),
            window: SourcedValue::default(Count(None)),
            instructions: SourcedValue::default(true),
            max_turns: SourcedValue::default(Count(Some(100))),
            max_time: SourcedValue::default(Span(Some(3_600_000))),
            max_tokens: SourcedValue::default(Count(Some(5_000_000))),
            max_cost: SourcedValue::default(Dollars(None)),
        }
    }
}

/// Less leaves no room for the prompt and one answer.
const MIN_WINDOW: u32 = 4000;

/// Reads how many tokens a model can be told at once.
///
/// # Errors
/// One sentence.
pub fn window(text: &str) -> Result<Count, String> {
    let window: Count = text.parse()?;
    match window.0 {
        Some(tokens) if tokens >= MIN_WINDOW => Ok(window),
        _ => Err(format!(
            "`{text}` is no window; write {MIN_WINDOW} tokens or more"
        )),
    }
}

impl Settings {
    /// Lays the agent's flags over what is there.
    pub fn lay_agent_flags(&mut self, flags: &AgentFlags) {
        let agent = &mut self.agent;
        if let Some(model) = &flags.model {
            agent.model.set(Some(model.clone()), &Origin::Flag("model"));
        }
        if let Some(price) = flags.price {
            agent.price.set(Tariff(Some(price)), &Origin::Flag("price"));
        }
        if let Some(window) = flags.window {
            agent.window.set(window, &Origin::Flag("window"));
        }
        if let Some(turns) = flags.max_turns {
            agent.max_turns.set(turns, &Origin::Flag("max-turns"));
        }
        if let Some(time) = flags.max_time {
            agent.max_time.set(time, &Origin::Flag("max-time"));
        }
        if let Some(tokens) = flags.max_tokens {
            agent.max_tokens.set(tokens, &Origin::Flag("max-tokens"));
        }
        if let Some(cost) = flags.max_cost {
            agent.max_cost.set(cost, &Origin::Flag("max-cost"));
        }
    }

    /// Leaves out what files say, where a flag says so.
    pub fn lay_no_instructions(&mut self, is_asked: bool) {
        if is_asked {
            let origin = Origin::Flag("no-instructions");
            self.agent.instructions.set(false, &origin);
        }
    }

    /// How far the agent may go.
    pub fn agent_limits(&self) -> glovebox_agent::RunLimits {
        let agent = &self.agent;
        glovebox_agent::RunLimits {
            max_turns: agent.max_turns.value.0,
            max_time: agent.max_time.value.0.map(std::time::Duration::from_millis),
            max_tokens: agent.max_tokens.value.0.map(u64::from),
            needs_token_counts: agent.max_tokens.origin != Origin::Default,
            max_cost_usd: agent.max_cost.value.0,
        }
    }
}
