//! Prefix of tool names, for MCP hosts that show the tools of several servers under their bare
//! names.

use std::str::FromStr;

const MAX_BYTES: usize = 16;

/// Prefix; empty if names are shown unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolPrefix(String);

impl ToolPrefix {
    /// Returns the displayed name of a tool.
    pub fn name(&self, tool: &str) -> String {
        format!("{}{tool}", self.0)
    }

    /// Returns the tool's own name. `None` if `shown` does not begin with the prefix.
    pub fn own_name<'a>(&self, shown: &'a str) -> Option<&'a str> {
        shown.strip_prefix(&self.0)
    }

    /// Puts the prefix before these tools in `text`. Only whole words are replaced.
    pub fn write_names(&self, text: &str, tools: &[&str]) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let mut written = String::with_capacity(text.len());
        for word in text.split_inclusive(|c| !is_word(c)) {
            let name = word.trim_end_matches(|c| !is_word(c));
            if tools.contains(&name) {
                written.push_str(&self.0);
            }
            written.push_str(word);
        }
        written
    }
}

impl FromStr for ToolPrefix {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if word.is_empty() || word.len() > MAX_BYTES || !word.chars().all(is_plain) {
            return Err(format!(
                "a prefix has up to {MAX_BYTES} letters, digits, `-` and `_`"
            ));
        }
        Ok(Self(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_with_the_word_and_nothing_else_is() {
        let prefix: ToolPrefix = "gb_".parse().unwrap();
        let text = "Job {\"id\":3} reads on; Jobs, aJob and Job2 do not. Bash's `Job`.";
        assert_eq!(
            prefix.write_names(text, &["Job"]),
            "gb_Job {\"id\":3} reads on; Jobs, aJob and Job2 do not. Bash's `gb_Job`."
        );
        assert_eq!(ToolPrefix::default().write_names(text, &["Job"]), text);
        assert_eq!(prefix.name("Bash"), "gb_Bash");
        assert_eq!(prefix.own_name("gb_Bash"), Some("Bash"));
        assert_eq!(prefix.own_name("Bash"), None);
        for word in ["", "seventeen_letters", "a b", "\u{e4}"] {
            assert!(word.parse::<ToolPrefix>().is_err(), "{word}");
        }
    }
}
