//! Network of a toolset: hosts that its sandboxes reach, if the toolset defines them.
//!
//! ```toml
//! [toolsets.research]
//! net = "egress"
//! allow = ["pypi", "docs.example.com"]
//! ```

use crate::keys;
use crate::raw::{PathContext, RawValue};
use crate::{Origin, Settings};
use glovebox_tools::nearest;
use std::fmt;
use std::path::Path;

/// The only field of a toolset's table that is not about its network.
pub(super) const TOOLS: &str = "tools";
/// Keys with one value, which a flag or a variable overrides.
const SINGLE: [&str; 4] = ["net", "net_bytes", "net_connections", "net_rate"];
/// Keys whose values accumulate.
const LISTS: [&str; 2] = ["allow", "deny"];
/// Returns a placeholder: no value of these keys is a path.
fn nowhere() -> PathContext<'static> {
    PathContext {
        base: Path::new("/"),
        home: None,
    }
}

/// Network settings of a toolset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolsetNetwork {
    pub(super) toolset: String,
    pub(super) settings: Vec<(&'static str, RawValue)>,
    pub(super) origin: Origin,
}

impl ToolsetNetwork {
    /// Parses the fields of a toolset's table.
    ///
    /// # Errors
    /// A sentence about the unknown key or the invalid value.
    pub(super) fn parse(
        toolset: &str,
        fields: &[(String, RawValue)],
        origin: &Origin,
    ) -> Result<Self, String> {
        let mut settings = Vec::new();
        for (field, raw) in fields.iter().filter(|(field, _)| field != TOOLS) {
            let mut known = SINGLE.into_iter().chain(LISTS);
            let Some(key) = known.find(|key| key == field) else {
                let names = || SINGLE.into_iter().chain(LISTS).chain([TOOLS]);
                let near = nearest(field, names()).map_or_else(
                    || format!("the keys are {}", names().collect::<Vec<_>>().join(", ")),
                    |known| format!("did you mean `{known}`?"),
                );
                return Err(format!(
                    "`{}` is not a key of a toolset; {near}",
                    field.escape_debug()
                ));
            };
            // A trial reports invalid values now instead of when the toolset is selected.
            let mut trial = Settings::default();
            trial
                .apply(key, raw, nowhere(), origin)
                .map_err(|error| format!("`{key}` of the toolset `{toolset}`: {error}"))?;
            settings.push((key, raw.clone()));
        }
        Ok(Self {
            toolset: toolset.to_owned(),
            settings,
            origin: origin.clone(),
        })
    }
}

impl fmt::Display for ToolsetNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.settings.iter();
        let said: Vec<String> = said.map(|(key, raw)| format!("{key} = {raw}")).collect();
        write!(f, "{}: {}", self.toolset, said.join("; "))
    }
}

impl Settings {
    /// Applies the network of the toolset in use over the other sources, once. A value from a flag
    /// or a variable stays.
    ///
    /// # Errors
    /// A sentence about the invalid value.
    pub fn lay_toolset_network(&mut self) -> Result<(), String> {
        let chosen = self.tools.toolset.value.clone();
        let networks = std::mem::take(&mut self.tools.networks);
        let (laid, left): (Vec<_>, Vec<_>) = networks
            .into_iter()
            .partition(|network| network.toolset == chosen);
        self.tools.networks = left;
        for network in laid {
            for (key, raw) in &network.settings {
                if SINGLE.contains(key) && self.is_said_nearer(key) {
                    continue;
                }
                self.apply(key, raw, nowhere(), &network.origin)?;
            }
        }
        Ok(())
    }

    fn is_said_nearer(&self, key: &str) -> bool {
        let is_near = |origin: &Origin| matches!(origin, Origin::Flag(_) | Origin::Variable(_));
        keys::find(key).is_some_and(|key| {
            let shown = key.shown(self);
            shown.iter().any(|(_, origin)| is_near(origin))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::tests::Tree;
    use crate::{Net, SandboxFlags};
    use glovebox_spec::LimitKind;

    const FILE: &str = "net_bytes = \"1MiB\"\nallow = [\"a.test\"]\n[toolsets.fetch]\ntools = [\"Bash\", \"Read\"]\n\
        net = \"egress\"\nallow = [\"b.test\"]\nnet_bytes = \"2MiB\"\n[toolsets.research]\nnet = \"egress\"\n";

    fn laid(toolset: &str, vars: &[(&str, &str)], flags: &SandboxFlags) -> Settings {
        let (mut settings, _) = Tree::new(FILE, "").resolve(vars, false).unwrap();
        settings.lay_flags(flags);
        let chosen = settings.tools.choose(toolset, &Origin::Flag("toolset"));
        chosen.unwrap();
        settings.lay_toolset_network().unwrap();
        settings.lay_toolset_network().unwrap();
        settings
    }

    fn reach(settings: &Settings) -> (Net, Vec<&str>, Option<u64>) {
        let allow = settings.allow.iter().map(|host| host.value.as_str());
        let bytes = settings.limits.value(LimitKind::NetBytes);
        (settings.net.value, allow.collect(), bytes)
    }

    #[test]
    fn a_toolset_has_its_network_and_others_have_none_of_it() {
        let none = SandboxFlags::default();
        let fetch = laid("fetch", &[], &none);
        let all = (Net::Egress, vec!["a.test", "b.test"], Some(2 << 20));
        assert_eq!(reach(&fetch), all);
        assert!(matches!(fetch.net.origin, Origin::UserFile(_)));
        let usual = laid("implement", &[], &none);
        assert_eq!(reach(&usual), (Net::None, vec!["a.test"], Some(1 << 20)));
        // A shipped toolset may have a network too.
        let research = laid("research", &[], &none);
        assert_eq!(
            reach(&research),
            (Net::Egress, vec!["a.test"], Some(1 << 20))
        );
    }

    #[test]
    fn what_is_said_nearer_stays() {
        let flags = SandboxFlags {
            net: Some(Net::None),
            ..SandboxFlags::default()
        };
        let settings = laid("fetch", &[("GLOVEBOX_NET_BYTES", "3MiB")], &flags);
        let (net, _, bytes) = reach(&settings);
        assert_eq!((net, bytes), (Net::None, Some(3 << 20)));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_toolset() {
        for (text, told) in [
            (
                "[toolsets.x]\ntools = [\"Read\"]\nalow = [\"a.test\"]",
                "did you mean `allow`",
            ),
            (
                "[toolsets.x]\ntools = [\"Read\"]\nnet = \"all\"",
                "of the toolset `x`",
            ),
            ("[toolsets.nothing]\nnet = \"egress\"", "nothing"),
            (
                "[toolsets.plan]\nallow = [\"npmm\"]",
                "of the toolset `plan`",
            ),
            (
                "[toolsets.x]\ntools = [\"Read\"]\nnet = { a = 1 }",
                "cannot be that",
            ),
            ("[toolsets]\nx = 5", "neither a list nor a table"),
        ] {
            let error = Tree::new(text, "").resolve(&[], false).unwrap_err();
            assert!(
                error.message().contains(told),
                "{text}: {}",
                error.message()
            );
        }
    }

    #[test]
    fn a_projects_toolset_opens_no_network_without_trust() {
        let project = "[toolsets.plan]\nnet = \"egress\"\nallow = [\"a.test\"]\n";
        let (settings, _) = Tree::new("", project).resolve(&[], false).unwrap();
        let refused = settings.check_project(false).unwrap_err();
        assert!(
            refused.message().contains("network"),
            "{}",
            refused.message()
        );
        let (settings, _) = Tree::new("", project).resolve(&[], true).unwrap();
        assert!(settings.check_project(false).is_ok());
    }
}
