//! Expansion of a leading `~` in path arguments to the home of commands in the sandbox.
//!
//! It takes place before rules are checked, so that a rule on the home applies to every spelling of
//! a path.

use glovebox_proto::{Code, Fault};
use glovebox_sandbox::Sandbox;
use serde_json::Value;
use std::sync::OnceLock;

/// Arguments that hold paths or path patterns.
const PATHS: [&str; 5] = ["path", "from", "to", "cwd", "pattern"];
/// Only tool whose argument `pattern` is a path pattern.
const PATTERN_TOOL: &str = "Glob";
/// Tool that works in another sandbox, whose home may differ.
const ELSEWHERE: &str = "SandboxExec";

/// Home directory in the sandbox, requested from the guest once.
#[derive(Debug, Default)]
pub(crate) struct HomeInside(OnceLock<String>);

impl HomeInside {
    /// Replaces a leading `~` or `~/` in each path argument of a call. The arguments have their
    /// canonical names. Returns true if any was replaced.
    ///
    /// # Errors
    /// `invalid-argument` if commands have no home; the loss of the sandbox.
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
        // TRUST: the guest sends the path. It is only matched by rules and sent back to the same
        // guest.
        let home = String::from_utf8(sandbox.facts()?.home.into_vec()).unwrap_or_default();
        if !home.starts_with('/') {
            let why = "commands in this sandbox have no home that `~` could stand for";
            return Err(Fault::refused(Code::InvalidArgument, why).remedy("name the path from /"));
        }
        Ok(self.0.get_or_init(|| home.trim_end_matches('/').to_owned()))
    }
}

/// Returns the part after `~`, with its slash. `None` if the path does not begin with the home.
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
