//! Keys of the agent: place of its tools, model, limits.

use super::access::{Access, one, show_one};
use super::{DefaultValue, Key};
use crate::agent::{Mode, Tariff, window};
use crate::project_rule::ProjectRule::{NeedsTrust, TightensOnly, UserOnly};
use crate::project_rule::{
    fewer_agent_tokens, fewer_agent_turns, less_agent_time, less_spending, sandboxed_mode,
};
use crate::raw::switch;
use glovebox_agent::{ModelName, Price};
use std::str::FromStr;

pub(super) const KEYS: &[Key] = &[
    Key::new(
        "mode",
        "where the tools of `agent` work: `sandbox`, `local`, or `auto`, which is local",
        TightensOnly(sandboxed_mode),
        one!(agent.mode, Mode::from_str),
    )
    .variable("GLOVEBOX_EXECUTION_MODE")
    .flags(&["agent sandbox", "agent local"])
    .default(DefaultValue::Text("auto")),
    Key::new(
        "agent.model",
        "`\"PROVIDER/NAME\"`",
        NeedsTrust("chooses who reads the project and what that costs"),
        Access {
            set: |settings, raw, _, origin| {
                let text = raw.one()?;
                if !text.starts_with("replay:") {
                    ModelName::parse(text)?;
                }
                settings.agent.model.set(Some(text.to_owned()), origin);
                Ok(())
            },
            show: |settings| {
                show_one(&settings.agent.model, |model| {
                    model
                        .as_deref()
                        .unwrap_or("by the keys in the environment")
                        .to_owned()
                })
            },
        },
    )
    .variable("GLOVEBOX_MODEL")
    .flags(&["agent model"])
    .default(DefaultValue::Words("by the keys in the environment")),
    Key::new(
        "agent.price",
        "`\"IN/OUT\"` or `\"IN/OUT/CACHE_READ/CACHE_WRITE\"`, dollars for a million tokens",
        NeedsTrust("says what tokens cost"),
        Access {
            set: |settings, raw, _, origin| {
                let price = Price::parse(raw.one()?)?;
                settings.agent.price.set(Tariff(Some(price)), origin);
                Ok(())
            },
            show: |settings| {
                show_one(&settings.agent.price, |price| {
                    price
                        .0
                        .map_or_else(|| "by the model".to_owned(), |price| price.to_string())
                })
            },
        },
    )
    .variable("GLOVEBOX_PRICE")
    .flags(&["agent price"])
    .default(DefaultValue::Words("by the model")),
    Key::new(
        "agent.window",
        "context window of the model in tokens, 4000 or more",
        NeedsTrust("says how much the model is told, and so what that costs"),
        one!(agent.window, window, |tokens| match tokens.0 {
            Some(_) => tokens.to_string(),
            None => "by the model".to_owned(),
        }),
    )
    .variable("GLOVEBOX_WINDOW")
    .flags(&["agent window"])
    .default(DefaultValue::Words(
        "by the model's own server where it tells it, else by the model, `200000` for one that is not known",
    )),
    // A project must not hide the user's prohibitions from the model.
    Key::new(
        "agent.instructions",
        "whether `AGENTS.md` and `CLAUDE.md` reach the model; not in a project's file",
        UserOnly,
        one!(agent.instructions, switch),
    )
    .variable("GLOVEBOX_INSTRUCTIONS")
    .flags(&["agent no-instructions"])
    .default(DefaultValue::Plain("true")),
    Key::new(
        "agent.max_turns",
        "times the model is asked",
        TightensOnly(fewer_agent_turns),
        one!(agent.max_turns, str::parse),
    )
    .variable("GLOVEBOX_MAX_TURNS")
    .flags(&["agent max-turns"])
    .default(DefaultValue::Plain("100")),
    Key::new(
        "agent.max_time",
        "wall time",
        TightensOnly(less_agent_time),
        one!(agent.max_time, str::parse),
    )
    .variable("GLOVEBOX_MAX_TIME")
    .flags(&["agent max-time"])
    .default(DefaultValue::Text("1h")),
    Key::new(
        "agent.max_tokens",
        "tokens sent and received",
        TightensOnly(fewer_agent_tokens),
        one!(agent.max_tokens, str::parse),
    )
    .variable("GLOVEBOX_MAX_TOKENS")
    .flags(&["agent max-tokens"])
    .default(DefaultValue::Plain("5000000")),
    Key::new(
        "agent.max_cost",
        "dollars; needs a known price or `agent.price`",
        TightensOnly(less_spending),
        one!(agent.max_cost, str::parse),
    )
    .variable("GLOVEBOX_MAX_COST")
    .flags(&["agent max-cost"])
    .default(DefaultValue::Text("none")),
];
