//! Names of machines in the program's output.

use super::Syntax;
use crate::names::is_name;
use serde_json::Value;

/// Returns the names in a listing that begin with `prefix`. Any other text, such as a heading, a
/// column or a hint, is dropped.
pub(super) fn names(syntax: Syntax, output: &str, prefix: &str) -> Vec<String> {
    // TRUST: the program wrote this text; only words in the form of a name are accepted.
    let found: Vec<String> = match syntax {
        Syntax::Current => output.lines().map(|line| line.trim().to_owned()).collect(),
        Syntax::Old => {
            let value = serde_json::from_str(output).unwrap_or(Value::Null);
            let entries = value.as_array().cloned().unwrap_or_default();
            let name = |entry: &Value| {
                let name = entry.get("name").unwrap_or(entry);
                name.as_str().map(str::to_owned)
            };
            entries.iter().filter_map(name).collect()
        }
    };
    found
        .into_iter()
        .filter(|name| is_name(name) && name.starts_with(prefix))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_are_taken_from_a_listing() {
        let text =
            "NAME\n  gb-1-a\ngb-1-b \n3 sprites\n\u{1b}[1mgb-1-c\u{1b}[0m\nother\n\n--gb-1\n";
        assert_eq!(names(Syntax::Current, text, "gb-1-"), ["gb-1-a", "gb-1-b"]);
        let text = r#"[{"name":"gb-1-a","status":"warm"},"gb-1-b",{"id":1},{"name":"GB"},null]"#;
        assert_eq!(names(Syntax::Old, text, "gb-1-"), ["gb-1-a", "gb-1-b"]);
        for text in ["", "{", "{}", "no sprites", "[[[["] {
            assert!(names(Syntax::Old, text, "").is_empty(), "{text}");
        }
    }
}
