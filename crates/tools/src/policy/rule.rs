//! Rule: `Tool` or `Tool(pattern)`, its effect, and the place where it was written.

use super::command;
use super::name::ToolName;
use super::pattern::Pattern;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// Effect of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// The call is made.
    Allow,
    /// The call is made if the person who is asked agrees.
    Ask,
    /// The call is not made.
    Deny,
}

impl Effect {
    /// Returns the word that configuration and logs use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Subject of a call, in the terms of its tool. Rules and logs look at nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallSubject<'a> {
    /// No particular subject.
    None,
    /// A command line.
    Command(&'a str),
    /// Path in the sandbox. Relative paths begin at the workspace.
    Path(&'a str),
    /// Two such paths, for a move from one to the other.
    Paths {
        /// Current path.
        from: &'a str,
        /// New path.
        to: &'a str,
    },
    /// Other text: an action, a name, source code.
    Word(&'a str),
    /// Arguments of an MCP server's tool, as JSON. Only the server knows their meaning.
    Arguments(&'a str),
}

impl<'a> CallSubject<'a> {
    /// Returns the subject of a call with these arguments, which have their canonical names.
    pub(super) fn of(tool: &str, arguments: &'a Value) -> Self {
        let text = |name| arguments.get(name).and_then(Value::as_str);
        match tool {
            "Bash" | "SandboxExec" => text("command").map_or(Self::None, Self::Command),
            // Source for bash is a command line, so rules on commands must see it as one.
            "Code" if text("language") == Some("bash") => {
                text("source").map_or(Self::None, Self::Command)
            }
            "Code" | "RunJS" => text("source").map_or(Self::None, Self::Word),
            "Job" => text("action").map_or(Self::None, Self::Word),
            // Without a path they search the whole workspace.
            "List" | "Glob" | "Grep" => Self::Path(text("path").unwrap_or(".")),
            _ => match (text("path"), text("from"), text("to"), text("name")) {
                (Some(path), ..) => Self::Path(path),
                (None, Some(from), Some(to), _) => Self::Paths { from, to },
                (.., Some(name)) => Self::Word(name),
                _ => Self::None,
            },
        }
    }
}

impl<'a> CallSubject<'a> {
    /// Returns the subject as text.
    pub fn text(&self) -> Cow<'a, str> {
        match *self {
            Self::None => Cow::Borrowed(""),
            Self::Command(text) | Self::Path(text) | Self::Word(text) | Self::Arguments(text) => {
                Cow::Borrowed(text)
            }
            Self::Paths { from, to } => Cow::Owned(format!("{from} -> {to}")),
        }
    }
}

/// Rule about calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Effect on the calls that the rule matches.
    pub effect: Effect,
    /// Text of the rule, for people and logs: `deny Bash(git push *)`.
    pub id: String,
    /// Place where the rule was written.
    pub source: String,
    /// Tool that the rule is about. `None` for every tool.
    tool: Option<ToolName>,
    argument: Option<Pattern>,
}

impl Rule {
    /// Parses `Tool` or `Tool(pattern)`. `*` is every tool, `server__tool` is one tool of a server,
    /// and `server__*` is all of them.
    ///
    /// # Errors
    /// One sentence with the reason, and with the nearest tool for a mistyped one.
    pub fn parse(effect: Effect, text: &str, source: impl Into<String>) -> Result<Self, String> {
        let text = text.trim();
        let (tool, argument) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => {
                let pattern = rest
                    .strip_suffix(')')
                    .ok_or_else(|| format!("the rule `{text}` does not end with `)`"))?;
                (tool, Some(pattern))
            }
        };
        let name = match tool {
            "*" => None,
            tool => Some(ToolName::parse(tool)?),
        };
        if argument.is_some() && name.as_ref().is_some_and(|name| name.server().is_some()) {
            return Err(format!(
                "the rule `{text}` has a pattern; what the arguments of a server's tool mean is the server's own, \
                 so write `{tool}`"
            ));
        }
        if argument.is_some_and(str::is_empty) {
            return Err(format!(
                "the rule `{text}` has an empty pattern; write `{tool}` for every call"
            ));
        }
        Ok(Self {
            effect,
            id: format!("{effect} {text}"),
            source: source.into(),
            tool: name,
            argument: argument
                .map(Pattern::new)
                .filter(|pattern| !pattern.is_anything()),
        })
    }

    /// Returns the server whose tools the rule is about. `None` for all other rules.
    pub fn server(&self) -> Option<&str> {
        self.tool.as_ref()?.server()
    }

    /// Returns the rank of the rule: of two rules, the one that names more is the more specific.
    pub(super) fn specificity(&self) -> (bool, bool, usize) {
        let chars = self.argument.as_ref().map_or(0, Pattern::literal_chars);
        let is_one = self.tool.as_ref().is_some_and(ToolName::is_one);
        (self.tool.is_some(), is_one, chars)
    }

    /// Returns true if the rule is about this call.
    pub(super) fn fits(&self, tool: &str, subject: CallSubject<'_>) -> bool {
        // A deny or ask rule on Bash covers the commands of every tool. An allow rule covers only
        // the tool that it names.
        let is_by_other_name = self.effect != Effect::Allow
            && self.tool == Some(ToolName::Own("Bash"))
            && matches!(subject, CallSubject::Command(_));
        if !is_by_other_name && self.tool.as_ref().is_some_and(|wanted| !wanted.means(tool)) {
            return false;
        }
        let Some(pattern) = &self.argument else {
            return true;
        };
        match subject {
            CallSubject::None => false,
            CallSubject::Word(word) => pattern.fits_text(word),
            // The pattern may match anywhere in the arguments, so an allow rule with a pattern
            // never matches.
            CallSubject::Arguments(text) => self.effect != Effect::Allow && pattern.fits_text(text),
            CallSubject::Path(path) => pattern.fits_path(&absolute(path)),
            // An allow rule must match both paths. A deny or ask rule matches if either path does.
            CallSubject::Paths { from, to } if self.effect == Effect::Allow => [from, to]
                .iter()
                .all(|path| pattern.fits_path(&absolute(path))),
            CallSubject::Paths { from, to } => [from, to]
                .iter()
                .any(|path| pattern.fits_path(&absolute(path))),
            CallSubject::Command(line) if self.effect == Effect::Allow => command::plain(line)
                .is_some_and(|commands| commands.iter().all(|one| pattern.fits_text(one))),
            CallSubject::Command(line) => command::possible(line)
                .iter()
                .any(|one| pattern.fits_text(one)),
        }
    }
}

/// Returns a path from the root without `.`, `..` and doubled slashes. Only the text is rewritten
/// and links are not followed, because rules on text are not an isolation boundary.
fn absolute(path: &str) -> String {
    let whole = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{}/{path}", glovebox_spec::WORKSPACE)
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                let _ = parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CATALOG;

    fn rule(effect: Effect, text: &str) -> Rule {
        Rule::parse(effect, text, "test").unwrap()
    }

    #[test]
    fn mistyped_tools_are_errors_with_a_suggestion() {
        let wrong = |text| Rule::parse(Effect::Deny, text, "x").unwrap_err();
        assert!(wrong("Bsah(git *)").contains("did you mean `Bash`?"));
        assert!(wrong("Nothing").contains("the tools are Bash, "));
        assert!(wrong("Bash(git *").contains("does not end with `)`"));
        assert!(wrong("Bash()").contains("empty pattern"));
        assert_eq!(
            rule(Effect::Deny, "file_read").tool,
            Some(ToolName::Own("Read"))
        );
    }

    #[test]
    fn rules_on_servers_are_about_their_names_only() {
        let fits = |effect, text, tool| rule(effect, text).fits(tool, CallSubject::Arguments("{}"));
        for effect in [Effect::Allow, Effect::Ask, Effect::Deny] {
            assert!(fits(effect, "hub__search", "hub__search"));
            assert!(fits(effect, "hub__*", "hub__search"));
            assert!(fits(effect, "*", "hub__search"));
            assert!(!fits(effect, "hub__search", "hub__delete"));
            assert!(!fits(effect, "hub__*", "hubs__search") && !fits(effect, "hub__*", "Bash"));
            let wrong = Rule::parse(effect, "hub__search(x*)", "x").unwrap_err();
            assert!(wrong.contains("so write `hub__search`"), "{wrong}");
        }
        let said = CallSubject::Arguments(r#"{"q":"x; git push"}"#);
        assert!(rule(Effect::Deny, "*(*git push*)").fits("hub__run", said));
        assert!(!rule(Effect::Allow, "*(*git push*)").fits("hub__run", said));
        assert!(!rule(Effect::Deny, "Bash(git push *)").fits("hub__run", said));
        assert_eq!(rule(Effect::Ask, "hub__*").server(), Some("hub"));
        assert!(Rule::parse(Effect::Ask, "hub.x__y", "x").is_err());
    }

    #[test]
    fn every_tool_says_what_a_call_is_about() {
        for tool in &CATALOG {
            let schema = tool.schema();
            let arguments: serde_json::Map<String, Value> = schema["properties"]
                .as_object()
                .unwrap()
                .keys()
                .map(|name| (name.clone(), "x".into()))
                .collect();
            let arguments = Value::Object(arguments);
            let subject = CallSubject::of(tool.name, &arguments);
            let text = subject.text();
            assert!(text == "x" || text == "x -> x", "{}: {text}", tool.name);
            let is_command = matches!(tool.name, "Bash" | "SandboxExec");
            assert_eq!(is_command, matches!(subject, CallSubject::Command(_)));
        }
    }

    #[test]
    fn paths_are_matched_however_they_are_spelled() {
        let docs = rule(Effect::Allow, "Write(/workspace/docs/**)");
        for path in [
            "docs/a",
            "./docs//a",
            "/workspace/docs/b/c",
            "src/../docs/a",
        ] {
            assert!(docs.fits("Write", CallSubject::Path(path)), "{path}");
        }
        for path in ["docs/../src/a", "/docs/a", "src/docs/a", "../docs/a"] {
            assert!(!docs.fits("Write", CallSubject::Path(path)), "{path}");
        }
        assert!(!docs.fits("Edit", CallSubject::Path("docs/a")));
    }

    #[test]
    fn of_two_paths_both_must_be_allowed_and_one_that_is_denied_is_enough() {
        let fits = |effect, from, to| {
            let arguments = serde_json::json!({ "from": from, "to": to });
            let subject = CallSubject::of("hypothetical", &arguments);
            rule(effect, "*(/workspace/docs/**)").fits("hypothetical", subject)
        };
        for (from, to, is_allowed, is_denied) in [
            ("docs/a", "docs/b", true, true),
            ("docs/a", "src/b", false, true),
            ("src/a", "./docs//b", false, true),
            ("src/a", "docs/../b", false, false),
        ] {
            assert_eq!(fits(Effect::Allow, from, to), is_allowed, "{from} {to}");
            for effect in [Effect::Deny, Effect::Ask] {
                assert_eq!(fits(effect, from, to), is_denied, "{effect} {from} {to}");
            }
        }
    }

    #[test]
    fn what_allows_is_read_narrowly_and_what_denies_widely() {
        let allow = rule(Effect::Allow, "Bash(git *)");
        assert!(allow.fits("Bash", CallSubject::Command("git status && git diff")));
        for line in ["git status; rm -rf x", "git log > x", "git $(rm x)", "true"] {
            assert!(!allow.fits("Bash", CallSubject::Command(line)), "{line}");
        }
        let deny = rule(Effect::Deny, "Bash(git push *)");
        for line in ["git push", "true && git push -f", "sh -c 'git push x'"] {
            assert!(deny.fits("Bash", CallSubject::Command(line)), "{line}");
        }
        assert!(!deny.fits("Bash", CallSubject::Command("git pull")));
    }

    #[test]
    fn what_denies_or_asks_about_bash_holds_for_code_in_bash_and_what_allows_does_not() {
        let fits = |effect, text, language: &str, source: &str| {
            let arguments = serde_json::json!({ "language": language, "source": source });
            rule(effect, text).fits("Code", CallSubject::of("Code", &arguments))
        };
        for effect in [Effect::Deny, Effect::Ask] {
            for (text, source) in [
                ("Bash(git push *)", "cd x\nsh -c 'git push y'"),
                ("Code(git push *)", "cd x\nsh -c 'git push y'"),
                ("Bash", "true"),
                ("Code", "true"),
            ] {
                assert!(fits(effect, text, "bash", source), "{effect} {text}");
            }
            for (text, language) in [("Bash(git push *)", "python"), ("Bash", "javascript")] {
                assert!(!fits(effect, text, language, "git push"), "{effect} {text}");
            }
            assert!(!fits(effect, "Bash(git push *)", "bash", "git pull"));
            assert!(!fits(effect, "Job", "bash", "git push"));
            assert!(fits(effect, "Code(*push*)", "python", "git push"));
            let elsewhere = CallSubject::Command("true; git push");
            assert!(rule(effect, "Bash(git push *)").fits("SandboxExec", elsewhere));
        }
        for (text, source, is_allowed) in [
            ("Bash", "git log", false),
            ("Bash(git *)", "git log", false),
            ("Code(git *)", "git log && git status", true),
            ("Code(git *)", "git log; rm -rf x", false),
            ("Code", "git log; rm -rf x", true),
        ] {
            let allowed = fits(Effect::Allow, text, "bash", source);
            assert_eq!(allowed, is_allowed, "{text} {source}");
        }
    }
}
