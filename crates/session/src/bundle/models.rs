//! Maps the models that bundles name to the models that are used.
//!
//! A bundle says `gateway("gpt-4")`. The operator decides which provider serves that, and whether
//! an untrusted bundle may spend its tokens. A model that no rule names is refused: no other takes
//! its place.

use crate::Error;
use glovebox_bundle::Model;
use glovebox_proto::visible::line_of_text as escape_text;
use std::str::FromStr;

/// Provider name of models that use the AI SDK's gateway.
const GATEWAY: &str = "gateway";

/// Rule: the model that a bundle names, and the model to use for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedModel {
    named: String,
    model: String,
}

impl FromStr for AllowedModel {
    type Err = String;

    /// Parses `NAME=PROVIDER/NAME`, or `PROVIDER/NAME` for a model that stands for itself.
    fn from_str(text: &str) -> Result<Self, String> {
        let (named, model) = text.split_once('=').unwrap_or((text, text));
        let (named, model) = (named.trim(), model.trim());
        if named.is_empty() || model.is_empty() {
            return Err(
                "it is not NAME=PROVIDER/NAME, such as gateway/gpt-4=openai/gpt-4o".to_owned(),
            );
        }
        Ok(Self {
            named: named.to_owned(),
            model: model.to_owned(),
        })
    }
}

impl AllowedModel {
    /// Returns the model to use.
    pub fn model(&self) -> &str {
        &self.model
    }
}

/// Model rules of an operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelRules {
    rules: Vec<AllowedModel>,
    /// Models that clients may name in any case; bundles may name them too.
    offered: Vec<String>,
}

impl ModelRules {
    /// Creates rules; `offered` are models allowed without a rule.
    pub const fn new(rules: Vec<AllowedModel>, offered: Vec<String>) -> Self {
        Self { rules, offered }
    }

    /// Returns the name of the model to use for the one that a bundle's agent names.
    ///
    /// # Errors
    /// Usage error that names the model and says how an operator allows it.
    pub fn resolve(&self, agent: &str, model: &Model) -> Result<String, Error> {
        let named = named(model);
        if let Some(rule) = self.rules.iter().find(|rule| rule.named == named) {
            return Ok(rule.model.clone());
        }
        // The gateway's own names are PROVIDER/NAME, with the same meaning without the prefix.
        let same = named.strip_prefix("gateway/").unwrap_or(&named);
        if let Some(offered) = self.offered.iter().find(|one| *one == same) {
            return Ok(offered.clone());
        }
        let shown = escape_text(&named);
        Err(Error::refused(
            format!(
                "the agent `{}` wants the model `{shown}`, which is not allowed here",
                escape_text(agent)
            ),
            format!("whoever runs this allows it as the model `{shown}=PROVIDER/NAME`"),
        ))
    }
}

/// Returns `PROVIDER/NAME` of the bundle's model; the name alone if it contains a provider.
fn named(model: &Model) -> String {
    match &model.provider {
        Some(provider) => format!("{provider}/{}", model.name),
        // In the AI SDK a plain string means the gateway; `openai/gpt-5` is such a string.
        None if model.name.contains('/') => model.name.clone(),
        None => format!("{GATEWAY}/{}", model.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(provider: Option<&str>, name: &str) -> Model {
        Model {
            provider: provider.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_model_is_the_one_that_a_rule_names_or_none() {
        let rules = ["gateway/gpt-4=openai/gpt-4o", "anthropic/claude-sonnet-4-5"];
        let rules = rules.map(|text| text.parse().unwrap()).to_vec();
        let rules = ModelRules::new(rules, vec!["openai/gpt-5".to_owned()]);
        let resolved = |provider, name| rules.resolve("a", &model(provider, name)).ok();
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(resolved(Some("gateway"), "gpt-4"), some("openai/gpt-4o"));
        assert_eq!(resolved(None, "gpt-4"), some("openai/gpt-4o"));
        assert_eq!(
            resolved(Some("anthropic"), "claude-sonnet-4-5"),
            some("anthropic/claude-sonnet-4-5")
        );
        assert_eq!(
            resolved(Some("gateway"), "openai/gpt-5"),
            some("openai/gpt-5")
        );
        assert_eq!(resolved(None, "openai/gpt-5"), some("openai/gpt-5"));
        assert_eq!(resolved(Some("openai"), "gpt-5"), some("openai/gpt-5"));
        for (provider, name) in [
            (Some("openai"), "gpt-4"),
            (Some("gateway"), "gpt-4 "),
            (Some("gateway"), "gpt-5"),
            (None, "gpt-4o"),
            (None, "replay:/etc/passwd"),
            (None, "demo"),
        ] {
            assert_eq!(resolved(provider, name), None, "{provider:?} {name}");
        }
    }

    #[test]
    fn a_refusal_names_the_model_and_shows_no_control_characters() {
        let error = ModelRules::default()
            .resolve("a\u{1b}[2J", &model(None, "x\n\u{1b}[31m"))
            .unwrap_err();
        let fault = error.into_fault();
        let remedy = fault.remedy.unwrap().to_string();
        assert!(fault.message.contains("gateway/x"), "{}", fault.message);
        assert!(!fault.message.contains(['\u{1b}', '\n']) && !remedy.contains(['\u{1b}', '\n']));
    }
}
