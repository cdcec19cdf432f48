//! `~` at the beginning of a path in the arguments of a call: the home of commands inside.
//!
//! It is replaced before rules are asked, so that a rule on the home holds however a path is written.

use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Sandbox;
use serde_json::Value;
use std::sync::OnceLock;

/// Arguments that are paths or patterns of paths.
const PATHS: [&str; 5] = ["path", "from", "to", "cwd", "pattern"];
/// The argument `pattern` is one of paths for this tool alone.
const PATTERN_TOOL: &str = "Glob";
/// Works in another sandbox, whose home may be another.
const ELSEWHERE: &str = "SandboxExec";

/// Home directory inside, asked for once.
#[derive(Debug, Default)]
pub(crate) struct HomeInside(OnceLock<String>);

impl HomeInside {
    /// Replaces `~` and `~/` at the beginning of each path among the arguments of a call, under the names that the
    /// tool's schema has for them. Whether there was any.
    ///
    /// # Errors
    /// `invalid-argument` where commands have no home; the loss of the sandbox.
    pub(crate) fn expand(
        &self,
        tool: &str,
        arguments: &mut Value,
        sandbox: &Sandbox,
    ) -> Result<bool, Fault> {
        let mut is_any = false;
        if tool == ELSEWHERE {
            return Ok(is_any);
        }
        for name in PATHS {
            if name == "pattern" && tool != PATTERN_TOOL {
                continue;
            }
            let Some(Value::String(path)) = arguments.get_mut(name) else {
                continue;
            };
            let Some(below) = below_home(path) else {
                continue;
            };
            let home = self.find(sandbox)?;
            *path = format!("{home}{below}");
            is_any = true;
        }
        Ok(is_any)
    }

    fn find(&self, sandbox: &Sandbox) -> Result<&str, Fault> {
        if let Some(home) = self.0.get() {
            return Ok(home);
        }
        // TRUST: a path inside; it goes to rules and back to the same guest.
        let home = String::from_utf8(sandbox.facts()?.home.into_vec()).unwrap_or_default();
        if !home.starts_with('/') {
            let why = "commands in this sandbox have no home that `~` could stand for";
            return Err(Fault::refused(Code::InvalidArgument, why).remedy("name the path from /"));
        }
        Ok(self.0.get_or_init(|| home.trim_end_matches('/').to_owned()))
    }
}

/// Returns what follows `~`, with its slash; `None` for a path that does not begin with the home.
fn below_home(path: &str) -> Option<&str> {
    let below = path.strip_prefix('~')?;
    (below.is_empty() || below.starts_with('/')).then_some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_home_of_ones_own_is_replaced() {
        for (path, below) in [
            ("~", Some("")),
            ("~/x", Some("/x")),
            ("~x", None),
            ("./~", None),
            ("a/~", None),
            ("", None),
        ] {
            assert_eq!(below_home(path), below, "{path}");
        }
    }
}
