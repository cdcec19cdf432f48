//! How the text of a key of `glovebox.toml` becomes a setting, and a setting text.

use super::{Origin, Settings, Sourced};
use crate::values::{self, EnvArg, GrantArg};
use glovebox_sandbox::egress::{Secret, SecretError, SecretSource};
use glovebox_tools::policy::Effect;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

/// A value as written, before its key gives it a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Raw {
    /// A string, number or boolean.
    One(String),
    /// An array of those.
    Many(Vec<String>),
    /// A table of the user's own naming.
    Table(String, Vec<(String, Raw)>),
}

impl Raw {
    pub(super) fn one(&self) -> Result<&str, String> {
        match self {
            Self::One(text) => Ok(text),
            Self::Many(_) => Err("takes one value, not a list".to_owned()),
            Self::Table(..) => Err("takes one value, not a table".to_owned()),
        }
    }

    /// Patterns may contain commas.
    pub(super) fn patterns(&self) -> Vec<&str> {
        match self {
            Self::One(text) => vec![text],
            Self::Table(..) => Vec::new(),
            Self::Many(texts) => texts.iter().map(String::as_str).collect(),
        }
    }

    pub(super) fn many(&self) -> Vec<&str> {
        match self {
            Self::One(text) => text
                .split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty())
                .collect(),
            Self::Many(texts) => texts.iter().map(String::as_str).collect(),
            Self::Table(..) => Vec::new(),
        }
    }
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(text) => f.write_str(text),
            Self::Many(texts) => f.write_str(&texts.join(", ")),
            Self::Table(name, fields) => {
                f.write_str(name)?;
                fields
                    .iter()
                    .try_for_each(|(field, value)| write!(f, "; {field} = {value}"))
            }
        }
    }
}

/// What relative paths and `~` mean where a value was written.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Relative paths start here.
    pub base: &'a Path,
    /// What `~` stands for.
    pub home: Option<&'a Path>,
}

impl Place<'_> {
    fn path(&self, text: &str) -> Result<PathBuf, String> {
        if text.is_empty() || text.contains('\0') {
            return Err(format!("`{text}` is not a path"));
        }
        if text == "~" || text.starts_with("~/") {
            let home = self
                .home
                .ok_or_else(|| format!("`{text}` needs a home directory, and there is none"))?;
            return Ok(home.join(text.trim_start_matches('~').trim_start_matches('/')));
        }
        Ok(self.base.join(text))
    }
}

impl Settings {
    /// Sets `key` from `raw`.
    ///
    /// # Errors
    /// One sentence on what is wrong with the value.
    pub fn apply(
        &mut self,
        key: &str,
        raw: &Raw,
        place: Place<'_>,
        origin: &Origin,
    ) -> Result<(), String> {
        let from = |value| Sourced {
            value,
            origin: origin.clone(),
        };
        match key {
            "backend" => self.backend.set(values::parse_backend(raw.one()?)?, origin),
            "carrier" => {
                let words = match raw {
                    Raw::One(text) => values::split_words(text)?,
                    Raw::Many(words) => words.clone(),
                    Raw::Table(..) => Vec::new(),
                };
                self.carrier.set(words, origin);
            }
            "rootfs" => {
                let rootfs = match values::parse_rootfs(raw.one()?)? {
                    glovebox_sandbox::jail::spec::RootFs::Dir(path) => {
                        glovebox_sandbox::jail::spec::RootFs::Dir(
                            place.path(&path.to_string_lossy())?,
                        )
                    }
                    other => other,
                };
                self.rootfs.set(rootfs, origin);
            }
            "net" => self.net.set(values::parse_net(raw.one()?)?, origin),
            "allow" | "deny" => {
                let list = if key == "allow" {
                    &mut self.allow
                } else {
                    &mut self.deny
                };
                for text in raw.many() {
                    list.push(Sourced {
                        value: values::parse_reach(text)?,
                        origin: origin.clone(),
                    });
                }
            }
            "secrets" => {
                for text in raw.patterns() {
                    let mut secret: Secret = text
                        .parse()
                        .map_err(|error: SecretError| error.to_string())?;
                    if let SecretSource::File(path) = &mut secret.source {
                        *path = place.path(&path.to_string_lossy())?;
                    }
                    self.secrets.push(Sourced {
                        value: secret,
                        origin: origin.clone(),
                    });
                }
            }
            "grants" => {
                for text in raw.many() {
                    let grant: GrantArg = text.parse()?;
                    let source = place.path(&grant.source.to_string_lossy())?;
                    self.grants.push(from(GrantArg { source, ..grant }));
                }
            }
            "toolchains" => self.toolchains.set(switch(raw.one()?)?, origin),
            "cache" => self.cache.set(switch(raw.one()?)?, origin),
            "env" => {
                for text in raw.many() {
                    self.env.push(Sourced {
                        value: EnvArg::parse(OsStr::new(text))?,
                        origin: origin.clone(),
                    });
                }
            }
            "workspace" => self
                .workspace
                .set(Some(values::parse_workspace(raw.one()?)?), origin),
            "sync.enabled" => self.sync.enabled.set(switch(raw.one()?)?, origin),
            "sync.on_success" => self.sync.on_success.set(switch(raw.one()?)?, origin),
            name if name.starts_with("sync.") => {
                let patterns = raw
                    .patterns()
                    .into_iter()
                    .map(values::parse_pattern)
                    .collect::<Result<Vec<_>, _>>()?;
                self.sync
                    .patterns_mut(name)
                    .ok_or_else(|| format!("`{name}` is not a key"))?
                    .extend(patterns.into_iter().map(|value| Sourced {
                        value,
                        origin: origin.clone(),
                    }));
            }
            "mcp" => super::servers::add(&mut self.servers, raw, origin)?,
            "toolsets" => self.tools.define(&raw.patterns(), origin)?,
            "toolset" => self.tools.choose(raw.one()?, origin)?,
            "workflow" => self.add_workflow(&raw.patterns(), origin)?,
            "policy.allow" => self.tools.add(Effect::Allow, &raw.patterns(), origin)?,
            "policy.ask" => self.tools.add(Effect::Ask, &raw.patterns(), origin)?,
            "policy.deny" => self.tools.add(Effect::Deny, &raw.patterns(), origin)?,
            name if super::agent::is_key(name) => self.agent.apply(name, raw, origin)?,
            "memory" => self.memory.set(raw.one()?.parse()?, origin),
            "cpus" => self.cpus.set(raw.one()?.parse()?, origin),
            "pids" => self.pids.set(raw.one()?.parse()?, origin),
            "disk" => self.disk.set(raw.one()?.parse()?, origin),
            "file_size" => self.file_size.set(raw.one()?.parse()?, origin),
            "net_bytes" => self.net_bytes.set(raw.one()?.parse()?, origin),
            "net_connections" => self.net_connections.set(raw.one()?.parse()?, origin),
            "net_rate" => self.net_rate.set(raw.one()?.parse()?, origin),
            "timeout" => self.timeout.set(Some(raw.one()?.parse()?), origin),
            "require" => {
                for text in raw.many() {
                    self.require.push(Sourced {
                        value: values::parse_limit(text)?,
                        origin: origin.clone(),
                    });
                }
            }
            "layers" => self.layers.set(values::parse_layers(raw.one()?)?, origin),
            "ids" => self.ids.set(values::parse_ids(raw.one()?)?, origin),
            "proc" => self.proc.set(values::parse_proc(raw.one()?)?, origin),
            "nested" => self.nested.set(switch(raw.one()?)?, origin),
            "max_sandboxes" => self.max_sandboxes.set(raw.one()?.parse()?, origin),
            "state" => self.state.set(Some(place.path(raw.one()?)?), origin),
            other => return Err(format!("`{other}` is not a key")),
        }
        Ok(())
    }

    /// The values of `key` as text, each with its origin; lists may have none or many.
    pub fn shown(&self, key: &str) -> Vec<(String, &Origin)> {
        fn one<T: ToString>(setting: &Sourced<T>) -> Vec<(String, &Origin)> {
            vec![(setting.value.to_string(), &setting.origin)]
        }
        fn many<T>(list: &[Sourced<T>], text: impl Fn(&T) -> String) -> Vec<(String, &Origin)> {
            list.iter()
                .map(|item| (text(&item.value), &item.origin))
                .collect()
        }
        let word = |text: String, origin| vec![(text, origin)];
        match key {
            "backend" => word(self.backend.value.as_str().to_owned(), &self.backend.origin),
            "carrier" if self.carrier.value.is_empty() => Vec::new(),
            "carrier" => word(self.carrier.value.join(" "), &self.carrier.origin),
            "rootfs" => one(&self.rootfs),
            "net" => word(
                values::net_word(self.net.value).to_owned(),
                &self.net.origin,
            ),
            "allow" => many(&self.allow, Clone::clone),
            "deny" => many(&self.deny, Clone::clone),
            "secrets" => many(&self.secrets, ToString::to_string),
            "grants" => many(&self.grants, ToString::to_string),
            "toolchains" => one(&self.toolchains),
            "cache" => one(&self.cache),
            // Values may be secrets: only names are shown.
            "env" => many(&self.env, |var| match var.value {
                Some(_) => format!("{}=...", var.name.to_string_lossy()),
                None => var.name.to_string_lossy().into_owned(),
            }),
            "workspace" => match self.workspace.value {
                Some(mode) => word(mode.as_str().to_owned(), &self.workspace.origin),
                None => word(
                    "overlay; none with `command`".to_owned(),
                    &self.workspace.origin,
                ),
            },
            "sync.enabled" => one(&self.sync.enabled),
            "sync.on_success" => one(&self.sync.on_success),
            name if name.starts_with("sync.") => self
                .sync
                .patterns(name)
                .map_or_else(Vec::new, |list| many(list, ToString::to_string)),
            "mcp" => many(&self.servers, super::McpServer::shown),
            "toolsets" => many(&self.tools.own, ToString::to_string),
            "toolset" => one(&self.tools.toolset),
            "workflow" => many(&self.workflows, ToString::to_string),
            "policy.allow" => self.tools.shown(Effect::Allow),
            "policy.ask" => self.tools.shown(Effect::Ask),
            "policy.deny" => self.tools.shown(Effect::Deny),
            name if super::agent::is_key(name) => self.agent.shown(name),
            "memory" => one(&self.memory),
            "cpus" => one(&self.cpus),
            "pids" => one(&self.pids),
            "disk" => one(&self.disk),
            "file_size" => one(&self.file_size),
            "net_bytes" => one(&self.net_bytes),
            "net_connections" => one(&self.net_connections),
            "net_rate" => one(&self.net_rate),
            "timeout" => match self.timeout.value {
                Some(span) => word(span.to_string(), &self.timeout.origin),
                None => word("none".to_owned(), &self.timeout.origin),
            },
            "require" => many(&self.require, ToString::to_string),
            "layers" => word(
                values::layers_word(self.layers.value).to_owned(),
                &self.layers.origin,
            ),
            "ids" => word(
                values::ids_word(self.ids.value).to_owned(),
                &self.ids.origin,
            ),
            "proc" => word(
                values::proc_word(self.proc.value).to_owned(),
                &self.proc.origin,
            ),
            "nested" => one(&self.nested),
            "max_sandboxes" => one(&self.max_sandboxes),
            "state" => match &self.state.value {
                Some(path) => word(path.display().to_string(), &self.state.origin),
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        other => Err(format!("`{other}` is not a switch; use `true` or `false`")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::KEYS;
    use super::*;

    #[test]
    fn every_key_can_be_set_and_shown() {
        let place = Place {
            base: Path::new("/base"),
            home: Some(Path::new("/home/u")),
        };
        let samples = [
            ("backend", "host"),
            ("carrier", "ssh box"),
            ("rootfs", "dir:root"),
            ("net", "host"),
            ("allow", "npm"),
            ("deny", "*.example.com:22"),
            (
                "secrets",
                "TOKEN=env:GH_TOKEN@api.example.com,*.example.com:8443",
            ),
            ("grants", "~/data:/data"),
            ("toolchains", "false"),
            ("cache", "true"),
            ("env", "A=b"),
            ("workspace", "copy"),
            ("sync.enabled", "false"),
            ("sync.push.exclude", "*.mp4"),
            ("sync.push.include", ".env.example"),
            ("sync.pull.exclude", "*.{log,tmp}"),
            ("sync.pull.include", "dist/"),
            ("sync.on_success", "true"),
            ("mcp", "hub; npx"),
            ("toolsets", "docs; Read"),
            ("toolset", "plan"),
            ("workflow", "change; phase=plan"),
            ("policy.allow", "Bash(git status)"),
            ("policy.ask", "Bash"),
            ("policy.deny", "Read(**/.env)"),
            ("mode", "sandbox"),
            ("agent.model", "openai/gpt-5"),
            ("agent.price", "3/15"),
            ("agent.window", "32000"),
            ("agent.instructions", "false"),
            ("agent.max_turns", "7"),
            ("agent.max_time", "10m"),
            ("agent.max_tokens", "1000"),
            ("agent.max_cost", "2.5"),
            ("memory", "1GiB"),
            ("cpus", "2"),
            ("pids", "64"),
            ("disk", "none"),
            ("file_size", "1MiB"),
            ("net_bytes", "1GiB"),
            ("net_connections", "16"),
            ("net_rate", "64KiB"),
            ("timeout", "1h"),
            ("require", "memory"),
            ("layers", "memory"),
            ("ids", "single"),
            ("proc", "pids"),
            ("nested", "true"),
            ("max_sandboxes", "5"),
            ("state", "state"),
        ];
        assert_eq!(
            samples.map(|(name, _)| name).as_slice(),
            KEYS.iter().map(|key| key.name).collect::<Vec<_>>()
        );
        let origin = Origin::Variable("X");
        for (name, text) in samples {
            let mut settings = Settings::default();
            let raw = match text.split_once("; ") {
                Some((one, two)) if name == "mcp" => {
                    let command = ("command".to_owned(), Raw::One(two.to_owned()));
                    Raw::Table(one.to_owned(), vec![command])
                }
                Some((one, two)) => Raw::Many(vec![one.to_owned(), two.to_owned()]),
                None => Raw::One(text.to_owned()),
            };
            settings.apply(name, &raw, place, &origin).unwrap();
            let shown = settings.shown(name);
            assert_eq!(shown.len(), 1, "{name}");
            assert_eq!(shown[0].1, &origin, "{name}");
            assert_ne!(settings, Settings::default(), "{name}");
        }
    }

    #[test]
    fn values_of_variables_are_not_shown() {
        let place = Place {
            base: Path::new("/"),
            home: None,
        };
        let mut settings = Settings::default();
        settings
            .apply(
                "env",
                &Raw::One("TOKEN=hush".to_owned()),
                place,
                &Origin::Default,
            )
            .unwrap();
        assert_eq!(settings.shown("env")[0].0, "TOKEN=...");
    }
}
