//! Toolsets: which tools a phase of work has, and whether it may write to the workspace.

use super::rule::tool_name;
use crate::catalog::{CATALOG, Definition, find};
use crate::nearest::nearest;

/// A named set of tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolset {
    /// Its name.
    pub name: String,
    /// Where it was defined.
    pub source: String,
    /// Whether a sandbox that is made for it shows the workspace read-only.
    pub is_read_only: bool,
    tools: Vec<&'static str>,
}

/// The toolset of whoever names none.
pub const USUAL_TOOLSET: &str = "implement";
/// What a toolset that may not write begins its list with.
const READ_ONLY: &str = "read-only";
/// Tools that manage sandboxes; only `full` has them.
const MANAGEMENT: [&str; 4] = ["Spawn", "Sandboxes", "SandboxExec", "SandboxKill"];
const READING: [&str; 4] = ["Read", "List", "Glob", "Grep"];
const COMMANDS: [&str; 2] = ["Bash", "Job"];
const RUNNING: [&str; 3] = ["Bash", "Job", "Code"];
const WRITING: [&str; 2] = ["Write", "Edit"];

/// Name, tools, and whether the workspace is read-only.
type Shipped = (&'static str, &'static [&'static [&'static str]], bool);

const SHIPPED: [Shipped; 6] = [
    ("research", &[&READING], true),
    ("plan", &[&READING, &COMMANDS], true),
    ("implement", &[&READING, &RUNNING, &WRITING], false),
    ("review", &[&READING, &RUNNING], true),
    ("full", &[&READING, &RUNNING, &WRITING, &MANAGEMENT], false),
    ("safe", &[&READING, &WRITING], false),
];

impl Toolset {
    /// Every toolset that needs no configuration.
    pub fn shipped() -> Vec<Self> {
        SHIPPED
            .iter()
            .map(|(name, parts, is_read_only)| {
                let is_in = |tool: &&Definition| parts.iter().any(|part| part.contains(&tool.name));
                Self {
                    name: (*name).to_owned(),
                    source: "shipped".to_owned(),
                    is_read_only: *is_read_only,
                    tools: CATALOG.iter().filter(is_in).map(|tool| tool.name).collect(),
                }
            })
            .collect()
    }

    /// No tool at all.
    pub(super) fn nothing() -> Self {
        Self {
            name: "nothing".to_owned(),
            source: "shipped".to_owned(),
            is_read_only: true,
            tools: Vec::new(),
        }
    }

    /// A toolset of the user's: names of tools, after the word `read-only` if the workspace is.
    ///
    /// # Errors
    /// One sentence: a name that is taken, a tool that does not exist.
    pub fn parse(name: &str, words: &[&str], source: impl Into<String>) -> Result<Self, String> {
        if SHIPPED.iter().any(|(shipped, _, _)| *shipped == name) {
            return Err(format!(
                "the toolset `{name}` is a shipped one; choose another name"
            ));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(format!(
                "`{}` is not a name for a toolset; use letters, digits, `-` and `_`",
                name.escape_debug()
            ));
        }
        let is_read_only = words.contains(&READ_ONLY);
        let mut tools = Vec::new();
        for word in words.iter().filter(|word| **word != READ_ONLY) {
            let tool = tool_name(word)?;
            if !tools.contains(&tool) {
                tools.push(tool);
            }
        }
        if tools.is_empty() {
            return Err(format!("the toolset `{name}` has no tools"));
        }
        Ok(Self {
            name: name.to_owned(),
            source: source.into(),
            is_read_only,
            tools,
        })
    }

    /// The toolset of this name among `known`.
    ///
    /// # Errors
    /// One sentence with the nearest name, or all of them.
    pub fn find<'a>(known: &'a [Self], name: &str) -> Result<&'a Self, String> {
        if let Some(found) = known.iter().find(|toolset| toolset.name == name) {
            return Ok(found);
        }
        let names = || known.iter().map(|toolset| toolset.name.as_str());
        let name = name.escape_debug();
        Err(match nearest(&name.to_string(), names()) {
            Some(near) => format!("there is no toolset `{name}`; did you mean `{near}`?"),
            None => format!(
                "there is no toolset `{name}`; the toolsets are {}",
                names().collect::<Vec<_>>().join(", ")
            ),
        })
    }

    /// Whether it has the tool of this name.
    pub fn has(&self, tool: &str) -> bool {
        self.tools.contains(&tool)
    }

    /// Its tools.
    pub fn tools(&self) -> impl Iterator<Item = &'static Definition> + '_ {
        self.tools.iter().filter_map(|name| find(name).ok())
    }

    /// Why it can do more than `other`; `None` when it cannot.
    pub fn wider_than(&self, other: &Self) -> Option<String> {
        if !self.is_read_only && other.is_read_only {
            return Some(format!(
                "lets tools write, which the toolset `{}` does not",
                other.name
            ));
        }
        let more = self.tools.iter().find(|tool| !other.has(tool))?;
        Some(format!(
            "has the tool {more}, which the toolset `{}` does not have",
            other.name
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_toolsets_name_real_tools_and_read_only_ones_have_no_writer() {
        for toolset in Toolset::shipped() {
            assert!(toolset.tools().count() >= READING.len(), "{toolset:?}");
            if toolset.is_read_only {
                assert!(!toolset.has("Write") && !toolset.has("Edit"), "{toolset:?}");
            }
            let has_management = MANAGEMENT.iter().any(|tool| toolset.has(tool));
            assert!(!has_management || toolset.name == "full", "{toolset:?}");
        }
        let shipped = Toolset::shipped();
        let research = Toolset::find(&shipped, "research").unwrap();
        assert!(research.tools().all(|tool| tool.is_read_only));
        let full = Toolset::find(&shipped, "full").unwrap();
        assert_eq!(full.tools().count(), CATALOG.len());
    }

    #[test]
    fn mistakes_are_named() {
        let shipped = Toolset::shipped();
        let wrong = Toolset::find(&shipped, "reserch").unwrap_err();
        assert_eq!(
            wrong,
            "there is no toolset `reserch`; did you mean `research`?"
        );
        assert!(
            Toolset::parse("docs", &["Raed"], "x")
                .unwrap_err()
                .contains("`Read`")
        );
        assert!(Toolset::parse("full", &["Read"], "x").is_err());
        assert!(Toolset::parse("a b", &["Read"], "x").is_err());
        assert!(Toolset::parse("docs", &["read-only"], "x").is_err());
        let docs = Toolset::parse("docs", &["read-only", "Read", "grep", "Read"], "x").unwrap();
        assert!(docs.is_read_only && docs.has("Grep") && docs.tools().count() == 2);
        assert_eq!(
            docs.wider_than(Toolset::find(&shipped, "research").unwrap()),
            None
        );
        assert!(
            Toolset::find(&shipped, "safe")
                .unwrap()
                .wider_than(&docs)
                .is_some()
        );
    }
}
