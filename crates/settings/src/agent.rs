//! Settings of the agent: place of its tools, model, limits.

use super::{Settings, SourcedValue};
use crate::units::{Count, Span};
use crate::{AgentFlags, Origin};
use glovebox_agent::Price;
use std::fmt;

/// Place of the agent's tools, as the user may choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Default of the command.
    Auto,
    /// On this machine.
    Local,
    /// In a sandbox.
    Sandbox,
}

impl Mode {
    /// Returns the word in files and variables.
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

/// Amount in US dollars; `None` for no limit.
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

/// Price of tokens, as written; `None` for the known price of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tariff(pub Option<Price>);

impl Eq for Tariff {}

/// Settings of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Place of the agent's tools.
    pub mode: SourcedValue<Mode>,
    /// Model as `PROVIDER/NAME`; `None` to choose by the keys in the environment.
    pub model: SourcedValue<Option<String>>,
    /// Price of tokens.
    pub price: SourcedValue<Tariff>,
    /// Context window of the model, in tokens.
    pub window: SourcedValue<Count>,
    /// True if the instruction files of the user and of the project are sent to the model.
    pub instructions: SourcedValue<bool>,
    /// Most requests to the model.
    pub max_turns: SourcedValue<Count>,
    /// Most wall-clock time.
    pub max_time: SourcedValue<Span>,
    /// Most tokens, sent and received together.
    pub max_tokens: SourcedValue<Count>,
    /// Most cost.
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

/// Smallest context window, in tokens: less leaves no room for the prompt and one answer.
const MIN_WINDOW: u32 = 4000;

/// Parses the context window of a model, in tokens.
///
/// # Errors
/// A sentence if the text is not a number of at least 4000.
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
    /// Applies the agent's flags, which override all other sources.
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

    /// Turns the instruction files off if the flag is given.
    pub fn lay_no_instructions(&mut self, is_asked: bool) {
        if is_asked {
            let origin = Origin::Flag("no-instructions");
            self.agent.instructions.set(false, &origin);
        }
    }

    /// Returns the limits of an agent run.
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
