//! Facts that a sandbox reports: system, time zone and programs.
//!
//! One command collects them. Its output comes from inside and is reduced to short lines of plain
//! characters before it is shown. No variable is read.

use crate::host::program_version;
use glovebox_agent::{Program, SystemFacts, plain_fact};
use glovebox_proto::{Class, Exec, Fault};
use glovebox_sandbox::Sandbox;
use glovebox_tools::PROBE;

/// Maximum time for collecting the facts, in milliseconds.
const LOOK_MS: u64 = 10_000;
/// Maximum number of lines that are parsed; the command prints fewer.
const MAX_LINES: usize = 40;

/// Script that prints the facts, each as a word, a tab and a value. Programs whose version matters
/// to a model come first, then those whose presence is enough.
const LOOK: &str = r#"
printf '@os\t%s\n' "$(sed -n 's/^PRETTY_NAME=//p' /etc/os-release 2> /dev/null | head -n 1)"
printf '@kernel\t%s\n' "$(uname -sr 2> /dev/null)"
printf '@arch\t%s\n' "$(uname -m 2> /dev/null)"
printf '@zone\t%s\n' "$(date +%Z 2> /dev/null)"
printf '@directory\t%s\n' "$(pwd)"
for p in bash git python3 node rustc go gcc; do
    command -v "$p" > /dev/null 2>&1 || continue
    case $p in
        go) v=$("$p" version 2> /dev/null) ;;
        *) v=$("$p" --version 2> /dev/null | head -n 1) ;;
    esac
    printf '%s\t%s\n' "$p" "$v"
done
for p in cargo npm make cmake java ruby perl rg jq; do
    command -v "$p" > /dev/null 2>&1 && printf '%s\t\n' "$p"
done
true
"#;

/// Facts that a sandbox reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxFacts {
    /// Operating system.
    pub system: SystemFacts,
    /// Directory in which commands start.
    pub directory: String,
    /// Programs that were found.
    pub programs: Vec<Program>,
}

impl SandboxFacts {
    /// Collects the facts of `sandbox`. Blocks while the command runs.
    ///
    /// # Errors
    /// The command could not be run: the sandbox is lost, or has no shell.
    pub fn capture(sandbox: &Sandbox) -> Result<Self, Fault> {
        let output = sandbox.exec(Exec {
            timeout_ms: Some(LOOK_MS),
            ..Exec::new(["sh", "-c", LOOK, PROBE])
        })?;
        Ok(Self::parse(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Collects the facts for a model's prompt. Returns empty facts if the command cannot be run,
    /// because an agent can work without them.
    ///
    /// # Errors
    /// The sandbox is lost.
    pub fn capture_if_possible(sandbox: &Sandbox) -> Result<Self, Fault> {
        match Self::capture(sandbox) {
            Err(fault) if fault.class != Class::Lost => Ok(Self::default()),
            captured => captured,
        }
    }

    // TRUST: the output comes from inside. It is reduced here, once, for display and for models.
    fn parse(text: &str) -> Self {
        let mut facts = Self::default();
        let lines = text.lines().take(MAX_LINES);
        for (name, told) in lines.filter_map(|line| line.split_once('\t')) {
            let value = plain_fact(told.trim_matches(['"', '\'']));
            match name {
                "@os" => facts.system.os = value,
                "@kernel" => facts.system.kernel = value,
                "@arch" => facts.system.arch = value,
                "@zone" => facts.system.time_zone = value,
                "@directory" => facts.directory = value,
                _ => facts.programs.push(Program {
                    name: plain_fact(name),
                    version: program_version(told),
                }),
            }
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sandbox_says_is_cut_to_plain_words() {
        let facts = SandboxFacts::parse(
            "@os\t\"Debian GNU/Linux 12 (bookworm)\"\n@kernel\tLinux 6.1.0\n@arch\tx86_64\n@zone\tUTC\n\
             @directory\t/workspace\ngit\tgit version 2.39.5\n@secret\tx\nno tab\n",
        );
        assert_eq!(facts.system.os, "Debian GNU/Linux 12 (bookworm)");
        assert_eq!(facts.system.kernel, "Linux 6.1.0");
        assert_eq!(facts.directory, "/workspace");
        assert_eq!(facts.programs[0].version, "2.39.5");
        let hostile = format!("@os\t<script>`x`\u{1b}[31m\u{202e}{}", "y".repeat(9999));
        let facts = SandboxFacts::parse(&hostile);
        assert!(facts.system.os.starts_with("scriptx31m"), "{facts:?}");
        assert!(facts.system.os.chars().count() <= 80);
        let many = "git\t1.0\n".repeat(1000);
        assert_eq!(SandboxFacts::parse(&many).programs.len(), MAX_LINES);
    }
}
