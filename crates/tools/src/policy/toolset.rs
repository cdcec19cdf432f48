//! Toolsets: the tools of a phase of work, and whether they may write to the workspace.

use super::name::{ToolName, parts};
use crate::catalog::{CATALOG, Definition, find};
use crate::nearest::nearest;

/// Named set of tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolset {
    /// Name of the toolset.
    pub name: String,
    /// Place where the toolset was defined.
    pub source: String,
    /// True if a sandbox for the toolset mounts the workspace read-only.
    pub is_read_only: bool,
    tools: Vec<ToolName>,
    /// True if the toolset has the tools of every MCP server. A read-only toolset has only those
    /// that do not write.
    has_servers: bool,
}

/// Default toolset.
pub const USUAL_TOOLSET: &str = "implement";
/// Word at the start of a configured toolset that may not write.
const READ_ONLY: &str = "read-only";
/// Tools that manage sandboxes. Of the shipped toolsets only `full` has them.
const MANAGEMENT: [&str; 4] = ["Spawn", "Sandboxes", "SandboxExec", "SandboxKill"];
const READING: [&str; 4] = ["Read", "List", "Glob", "Grep"];
const COMMANDS: [&str; 2] = ["Bash", "Job"];
const RUNNING: [&str; 4] = ["Bash", "Job", "Code", "RunJS"];
const WRITING: [&str; 4] = ["Write", "Edit", "Delete", "Move"];

/// Name, tools, and true if the workspace is read-only. All except `safe`, which runs nothing, have
/// the tools of MCP servers.
type ShippedToolset = (&'static str, &'static [&'static [&'static str]], bool);

const SHIPPED: [ShippedToolset; 6] = [
    ("research", &[&READING], true),
    ("plan", &[&READING, &COMMANDS], true),
    ("implement", &[&READING, &RUNNING, &WRITING], false),
    ("review", &[&READING, &RUNNING], true),
    ("full", &[&READING, &RUNNING, &WRITING, &MANAGEMENT], false),
    ("safe", &[&READING, &WRITING], false),
];

impl Toolset {
    /// Returns the toolsets that need no configuration.
    pub fn shipped() -> Vec<Self> {
        SHIPPED
            .iter()
            .map(|(name, parts, is_read_only)| {
                let is_in = |tool: &&Definition| parts.iter().any(|part| part.contains(&tool.name));
                Self {
                    name: (*name).to_owned(),
                    source: "shipped".to_owned(),
                    is_read_only: *is_read_only,
                    tools: CATALOG
                        .iter()
                        .filter(is_in)
                        .map(|tool| ToolName::Own(tool.name))
                        .collect(),
                    has_servers: *name != "safe",
                }
            })
            .collect()
    }

    /// Returns a toolset without tools.
    pub(super) fn nothing() -> Self {
        Self {
            name: "nothing".to_owned(),
            source: "shipped".to_owned(),
            is_read_only: true,
            tools: Vec::new(),
            has_servers: false,
        }
    }

    /// Parses a configured toolset: names of tools, and the word `read-only` if it may not write.
    ///
    /// # Errors
    /// One sentence: the name is taken or invalid, a tool does not exist, or there are no tools.
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
            let tool = ToolName::parse(word)?;
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
            has_servers: false,
        })
    }

    /// Returns the toolset of this name among `known`.
    ///
    /// # Errors
    /// One sentence with the nearest name, or with all names.
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

    /// Removes the tools of the catalog that may change something, for backends that cannot keep a
    /// command from writing.
    #[must_use]
    pub fn only_reading(mut self) -> Self {
        self.tools.retain(|name| match name {
            ToolName::Own(name) => find(name).is_ok_and(|tool| tool.is_read_only),
            ToolName::Served { .. } => true,
        });
        self
    }

    /// Returns true if the toolset has the tool of this name. Tools of servers that may write are
    /// not excluded here.
    pub fn has(&self, tool: &str) -> bool {
        self.tools.iter().any(|name| name.means(tool)) || self.has_servers && parts(tool).is_some()
    }

    /// Returns its tools of the catalog.
    pub fn tools(&self) -> impl Iterator<Item = &'static Definition> + '_ {
        self.tools.iter().filter_map(|name| match name {
            ToolName::Own(name) => find(name).ok(),
            ToolName::Served { .. } => None,
        })
    }

    /// Returns the servers that it names. A server may occur more than once.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().filter_map(ToolName::server)
    }

    /// Returns its tools as they were named.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.tools.iter().map(ToString::to_string)
    }

    fn covers(&self, name: &ToolName) -> bool {
        match name {
            ToolName::Own(name) => self.has(name),
            ToolName::Served { server, .. } => {
                let is_whole = |own: &ToolName| !own.is_one() && own.server() == Some(server);
                self.has_servers || self.tools.iter().any(|own| own == name || is_whole(own))
            }
        }
    }

    /// Returns the reason why the toolset can do more than `other`. `None` if it cannot.
    pub fn wider_than(&self, other: &Self) -> Option<String> {
        if !self.is_read_only && other.is_read_only {
            return Some(format!(
                "lets tools write, which the toolset `{}` does not",
                other.name
            ));
        }
        if self.has_servers && !other.has_servers {
            return Some(format!(
                "has the tools of servers, which the toolset `{}` does not have",
                other.name
            ));
        }
        let more = self.tools.iter().find(|tool| !other.covers(tool))?;
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
                let can_write = WRITING.iter().any(|tool| toolset.has(tool));
                assert!(!can_write, "{toolset:?}");
            }
            let has_management = MANAGEMENT.iter().any(|tool| toolset.has(tool));
            assert!(!has_management || toolset.name == "full", "{toolset:?}");
        }
        let shipped = Toolset::shipped();
        let research = Toolset::find(&shipped, "research").unwrap();
        assert!(research.tools().all(|tool| tool.is_read_only));
        assert_eq!(research.clone().only_reading(), *research);
        let plan = Toolset::find(&shipped, "plan").unwrap();
        let reading = plan.clone().only_reading();
        assert!(plan.has("Bash") && !reading.has("Bash") && reading.has("Grep"));
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
        let served = Toolset::parse("hub", &["read-only", "hub__*", "tea__make"], "x").unwrap();
        assert!(served.has("hub__search") && served.has("tea__make") && !served.has("tea__spill"));
        assert_eq!(served.servers().collect::<Vec<_>>(), ["hub", "tea"]);
        let (safe, plan) = (
            Toolset::find(&shipped, "safe").unwrap(),
            Toolset::find(&shipped, "plan").unwrap(),
        );
        assert!(!safe.has("hub__search") && plan.has("hub__search"));
        assert_eq!(served.wider_than(plan), None);
        assert!(served.wider_than(safe).unwrap().contains("hub__*"));
        let one = Toolset::parse("one", &["read-only", "hub__search"], "x").unwrap();
        assert_eq!(one.wider_than(&served), None);
        assert!(served.wider_than(&one).is_some() && plan.wider_than(&served).is_some());
        assert!(
            Toolset::find(&shipped, "safe")
                .unwrap()
                .wider_than(&docs)
                .is_some()
        );
    }
}
