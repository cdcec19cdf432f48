//! Engines that run the code of tools.

use glovebox_spec::Grant;
use std::fmt;
use std::str::FromStr;

/// Engine that runs the code of a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Engine {
    /// QuickJS, in a process that can only compute. A call takes milliseconds.
    #[default]
    Quickjs,
    /// Node of this machine, in an ordinary sandbox without network and project: for code that
    /// needs `Intl`, WebAssembly or modules of Node.
    Node,
}

impl Engine {
    /// All engines, the default one first.
    pub const ALL: [Self; 2] = [Self::Quickjs, Self::Node];

    /// Returns the stable identifier of the engine.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quickjs => "quickjs",
            Self::Node => "node",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.as_str() == text);
        found.ok_or_else(|| "there is no such engine; write `quickjs` or `node`".to_owned())
    }
}

/// Location of Node inside the sandboxes of [`Engine::Node`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Parts of this machine to mount besides the system's programs, such as those of a version
    /// manager.
    pub grants: Vec<Grant>,
    /// Value of `PATH` inside.
    pub path: String,
}

impl Default for NodeView {
    fn default() -> Self {
        Self {
            grants: Vec::new(),
            path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
        }
    }
}
