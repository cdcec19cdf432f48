//! Names of tools in rules and toolsets: those of the catalog, and those of servers, `server__tool`.
//!
//! Which servers there are is not known here, so any well-formed name of a server's tool is one.
//! Whoever knows the servers checks them ([`super::Rule::server`], [`super::Toolset::servers`]).

use crate::catalog::{CATALOG, find};
use crate::nearest::nearest;
use std::fmt;

/// Between a server's name and its tool's.
const BETWEEN: &str = "__";
/// Longest name that every provider of models takes.
const MAX_NAME_BYTES: usize = 64;
/// Leaves room for the name of a tool.
const MAX_SERVER_BYTES: usize = 24;
/// Stands for every tool of a server.
const EVERY: &str = "*";

/// A tool, or all tools of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ToolName {
    /// One of the catalog.
    Own(&'static str),
    /// One of a server; `None` for all of them.
    Served {
        server: String,
        tool: Option<String>,
    },
}

impl ToolName {
    /// Reads any name of a tool of the catalog, `server__tool`, or `server__*`.
    ///
    /// # Errors
    /// One sentence with the nearest name, or all of them.
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

    /// Whether the tool of this own name is meant.
    pub(super) fn means(&self, name: &str) -> bool {
        match self {
            Self::Own(own) => *own == name,
            Self::Served { server, tool } => parts(name).is_some_and(|(of, its)| {
                of == server && tool.as_deref().is_none_or(|tool| tool == its)
            }),
        }
    }

    /// The server, if it is one's.
    pub(super) fn server(&self) -> Option<&str> {
        match self {
            Self::Own(_) => None,
            Self::Served { server, .. } => Some(server),
        }
    }

    /// Whether it means a single tool.
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

/// Server and tool of the name of a server's tool; `None` for a name of the catalog.
pub fn parts(name: &str) -> Option<(&str, &str)> {
    name.split_once(BETWEEN)
}

/// The name under which a server's tool is known; `None` when it has characters that not every
/// provider of models takes, or is too long.
// TRUST: a server chose the second half.
pub fn served_name(server: &str, tool: &str) -> Option<String> {
    let name = format!("{server}{BETWEEN}{tool}");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (!tool.is_empty() && tool.chars().all(is_plain) && name.len() <= MAX_NAME_BYTES).then_some(name)
}

/// Whether a server may be called so.
///
/// # Errors
/// One sentence on what a name may be.
pub fn check_server_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_good = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(is_plain)
        && !name.contains(BETWEEN)
        // With what follows it would be one of the marks between.
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
