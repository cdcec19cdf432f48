//! Names of tools in rules and toolsets: those of the catalog, and those of MCP servers in the form
//! `server__tool`.
//!
//! The configured servers are not known here, so any well-formed name of a server's tool is
//! accepted. The caller that knows the servers checks them ([`super::Rule::server`],
//! [`super::Toolset::servers`]).

use crate::catalog::{CATALOG, find};
use crate::nearest::nearest;
use std::fmt;

/// Separator of a server's name and the name of its tool.
const BETWEEN: &str = "__";
/// Maximum length of a name that every model provider accepts, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Maximum length of a server's name in bytes, which leaves room for the name of a tool.
const MAX_SERVER_BYTES: usize = 24;
/// Wildcard for all tools of a server.
const EVERY: &str = "*";

/// Name of a tool, or of all tools of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ToolName {
    /// Tool of the catalog.
    Own(&'static str),
    /// Tool of a server. `None` means all of them.
    Served {
        server: String,
        tool: Option<String>,
    },
}

impl ToolName {
    /// Parses the name or an alias of a catalog tool, `server__tool`, or `server__*`.
    ///
    /// # Errors
    /// One sentence with the nearest name, or with all names.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(tool) = find(text) {
            return Ok(Self::Own(tool.name));
        }
        if let Some((server, tool)) = text.split_once(BETWEEN) {
            check_server_name(server)?;
            let is_every = tool == EVERY;
            if !is_every && served_name(server, tool).is_none() {
                return Err(format!(
                    "`{}` is not the name of a server's tool",
                    text.escape_debug()
                ));
            }
            return Ok(Self::Served {
                server: server.to_owned(),
                tool: (!is_every).then(|| tool.to_owned()),
            });
        }
        let names = || CATALOG.iter().map(|tool| tool.name);
        Err(match nearest(text, names()) {
            Some(name) => format!("there is no tool `{text}`; did you mean `{name}`?"),
            None => format!(
                "there is no tool `{text}`; the tools are {}",
                names().collect::<Vec<_>>().join(", ")
            ),
        })
    }

    /// Returns true if the tool of this canonical name is meant.
    pub(super) fn means(&self, name: &str) -> bool {
        match self {
            Self::Own(own) => *own == name,
            Self::Served { server, tool } => parts(name).is_some_and(|(of, its)| {
                of == server && tool.as_deref().is_none_or(|tool| tool == its)
            }),
        }
    }

    /// Returns the server's name. `None` for a tool of the catalog.
    pub(super) fn server(&self) -> Option<&str> {
        match self {
            Self::Own(_) => None,
            Self::Served { server, .. } => Some(server),
        }
    }

    /// Returns true if a single tool is meant.
    pub(super) const fn is_one(&self) -> bool {
        !matches!(self, Self::Served { tool: None, .. })
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(name) => f.write_str(name),
            Self::Served { server, tool } => {
                write!(f, "{server}{BETWEEN}{}", tool.as_deref().unwrap_or(EVERY))
            }
        }
    }
}

/// Splits the name of a server's tool into server and tool. `None` for a name of the catalog.
pub fn parts(name: &str) -> Option<(&str, &str)> {
    name.split_once(BETWEEN)
}

/// Returns the full name of a server's tool. `None` if it has characters that some model providers
/// refuse, or is too long.
// TRUST: a server chose `tool`.
pub fn served_name(server: &str, tool: &str) -> Option<String> {
    let name = format!("{server}{BETWEEN}{tool}");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (!tool.is_empty() && tool.chars().all(is_plain) && name.len() <= MAX_NAME_BYTES).then_some(name)
}

/// Checks that a server may have this name.
///
/// # Errors
/// One sentence with the permitted characters and length.
pub fn check_server_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_good = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(is_plain)
        && !name.contains(BETWEEN)
        // The underscore would join the separator, which could then be split in two ways.
        && !name.ends_with('_')
        && name.len() <= MAX_SERVER_BYTES;
    is_good.then_some(()).ok_or_else(|| {
        format!(
            "`{}` is not a name for a server; use up to {MAX_SERVER_BYTES} letters, digits, `-` and single `_`",
            name.escape_debug()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_catalog_and_of_servers_are_told_apart() {
        for tool in &CATALOG {
            for name in std::iter::once(&tool.name).chain(tool.aliases) {
                assert_eq!(ToolName::parse(name), Ok(ToolName::Own(tool.name)));
                assert_eq!(parts(name), None);
            }
        }
        let one = ToolName::parse("git-hub__search__all").unwrap();
        assert!(one.means("git-hub__search__all") && one.is_one());
        assert!(!one.means("git-hub__search") && !one.means("Bash"));
        assert_eq!(one.server(), Some("git-hub"));
        let every = ToolName::parse("git-hub__*").unwrap();
        assert!(every.means("git-hub__search") && !every.means("git__search"));
        assert!(!every.is_one());
        assert_eq!(every.to_string(), "git-hub__*");
    }

    #[test]
    fn names_that_could_be_taken_for_another_are_refused() {
        for server in ["", "_a", "a_", "a__b", "a b", "a.b", "-a", &"a".repeat(25)] {
            assert!(check_server_name(server).is_err(), "{server}");
        }
        for name in ["a__", "__b", "a__b c", "a__b*", "a___b\u{7f}", "a__\u{e9}"] {
            assert!(ToolName::parse(name).is_err(), "{name}");
        }
        assert!(served_name("a", &"b".repeat(61)).is_some());
        assert!(served_name("a", &"b".repeat(62)).is_none());
    }
}
