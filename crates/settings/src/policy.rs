//! Settings of the tools: toolsets, and the rules of their use.

use super::raw::RawValue;
use super::toolset_network::{TOOLS, ToolsetNetwork};
use super::{Origin, SourcedValue};
use glovebox_tools::policy::{Effect, Policy, Rule, Toolset, USUAL_TOOLSET};

/// Toolsets and rules from all sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// Name of the toolset in use.
    pub toolset: SourcedValue<String>,
    /// Known toolsets: shipped ones first, then those of configuration files.
    pub toolsets: Vec<Toolset>,
    /// Toolsets that are not shipped, as written.
    pub own: Vec<SourcedValue<String>>,
    /// Networks of toolsets that define one and were not applied yet.
    pub(super) networks: Vec<ToolsetNetwork>,
    /// Rules with their origin.
    pub rules: Vec<SourcedValue<Rule>>,
    /// True on a server: refusals then name neither files nor commands of the operator, which its
    /// users do not have.
    pub is_for_users: bool,
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            toolset: SourcedValue::default(USUAL_TOOLSET.to_owned()),
            toolsets: Toolset::shipped(),
            own: Vec::new(),
            networks: Vec::new(),
            rules: Vec::new(),
            is_for_users: false,
        }
    }
}

impl Tools {
    /// Returns the toolset in use.
    ///
    /// # Errors
    /// A sentence if there is no toolset with this name.
    pub fn toolset(&self) -> Result<&Toolset, String> {
        Toolset::find(&self.toolsets, &self.toolset.value)
    }

    /// Returns the policy for the tools of one conversation.
    ///
    /// # Errors
    /// Same as [`Self::toolset`].
    pub fn policy(&self) -> Result<Policy, String> {
        let rules = self.rules.iter().map(|rule| rule.value.clone()).collect();
        Ok(Policy::new(self.toolset()?.clone(), rules).for_users(self.is_for_users))
    }

    /// Selects a toolset.
    ///
    /// # Errors
    /// A sentence if there is no toolset with this name.
    pub fn choose(&mut self, name: &str, origin: &Origin) -> Result<(), String> {
        Toolset::find(&self.toolsets, name)?;
        self.toolset.set(name.to_owned(), origin);
        Ok(())
    }

    /// Checks that every server named in rules and toolsets is one of `known`.
    ///
    /// # Errors
    /// A sentence with the first unknown server and the place that names it.
    pub(super) fn check_servers(&self, known: &[&str]) -> Result<(), String> {
        let of_rules = self.rules.iter().filter_map(|rule| {
            let what = format!("the rule `{}`", rule.value.id);
            Some((rule.value.server()?, what, &rule.value.source))
        });
        let of_toolsets = self.toolsets.iter().flat_map(|toolset| {
            toolset.servers().map(|server| {
                let what = format!("the toolset `{}`", toolset.name);
                (server, what, &toolset.source)
            })
        });
        let unknown = of_rules
            .chain(of_toolsets)
            .find(|(server, ..)| !known.contains(server));
        let Some((server, what, source)) = unknown else {
            return Ok(());
        };
        let near = glovebox_tools::nearest(server, known.iter().copied());
        let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        Err(format!(
            "{source}: {what} names the MCP server `{server}`, and there is none{hint}"
        ))
    }

    /// Adds a toolset from its name and words.
    pub(super) fn define(&mut self, words: &[&str], origin: &Origin) -> Result<(), String> {
        let (name, words) = words
            .split_first()
            .ok_or_else(|| "a toolset needs a name and tools".to_owned())?;
        if let Some(other) = self.toolsets.iter().find(|known| known.name == *name)
            && other.source != "shipped"
        {
            return Err(format!(
                "the toolset `{name}` is defined already, in {}",
                other.source
            ));
        }
        let toolset = Toolset::parse(name, words, origin.to_string())?;
        self.toolsets.push(toolset);
        self.own.push(SourcedValue {
            value: format!("{name}: {}", words.join(", ")),
            origin: origin.clone(),
        });
        Ok(())
    }

    /// Adds a toolset with its own network, or gives a network to an existing toolset.
    pub(super) fn define_table(
        &mut self,
        name: &str,
        fields: &[(String, RawValue)],
        origin: &Origin,
    ) -> Result<(), String> {
        let tools = fields.iter().find(|(field, _)| field == TOOLS);
        match tools {
            Some((_, tools)) => {
                let words: Vec<&str> = std::iter::once(name).chain(tools.patterns()).collect();
                self.define(&words, origin)?;
            }
            None => drop(Toolset::find(&self.toolsets, name)?),
        }
        let network = ToolsetNetwork::parse(name, fields, origin)?;
        if network.settings.is_empty() {
            return Ok(());
        }
        if let Some(other) = self.networks.iter().find(|known| known.toolset == name) {
            return Err(format!(
                "the toolset `{name}` has a network already, in {}",
                other.origin
            ));
        }
        self.own.push(SourcedValue {
            value: network.to_string(),
            origin: origin.clone(),
        });
        self.networks.push(network);
        Ok(())
    }

    /// Adds rules.
    pub(super) fn add(
        &mut self,
        effect: Effect,
        texts: &[&str],
        origin: &Origin,
    ) -> Result<(), String> {
        for text in texts {
            let value = Rule::parse(effect, text, origin.to_string())?;
            self.rules.push(SourcedValue {
                value,
                origin: origin.clone(),
            });
        }
        Ok(())
    }

    /// Returns the rules with one effect, as written.
    pub(super) fn shown(&self, effect: Effect) -> Vec<(String, &Origin)> {
        let word = format!("{effect} ");
        self.rules
            .iter()
            .filter(|rule| rule.value.effect == effect)
            .map(|rule| {
                let text = rule.value.id.strip_prefix(&word).unwrap_or(&rule.value.id);
                (text.to_owned(), &rule.origin)
            })
            .collect()
    }
}
