//! Secrets: never printed, and removed from texts of servers and tools.

use std::fmt;

/// Secret value, for one server only. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `value`.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// Returns the value, for the request that needs it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Minimum length of a secret that is removed. A shorter one would match in unrelated text.
const MIN_BYTES: usize = 8;

/// Secrets of this process, which are removed from the texts of servers and tools.
///
/// A server may quote the key that it refuses. A command without a sandbox may read it from the
/// environment of another process of the same user.
#[derive(Debug, Clone, Default)]
pub struct Secrets(Vec<Secret>);

impl Secrets {
    /// Collects the secrets. Those shorter than 8 bytes are ignored.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut secrets: Vec<Secret> = secrets
            .into_iter()
            .filter(|secret| secret.0.len() >= MIN_BYTES)
            .collect();
        // The longest first: if one secret contains another, replacing the shorter one first would
        // leave the rest of the longer one.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.0.len()));
        Self(secrets)
    }

    /// Returns `text` with every secret replaced by `[secret]`.
    pub fn clean(&self, text: String) -> String {
        let mut text = text;
        for secret in &self.0 {
            if text.contains(&secret.0) {
                text = text.replace(&secret.0, "[secret]");
            }
        }
        text
    }

    /// Replaces every secret in the strings of `value`. Names of fields stay unchanged.
    pub fn clean_json(&self, value: &mut serde_json::Value) {
        use serde_json::Value;
        match value {
            Value::String(text) => *text = self.clean(std::mem::take(text)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.clean_json(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.clean_json(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_secret_is_shown() {
        let secret = Secret::new("sk-planted-1234");
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        let secrets = Secrets::new([
            secret,
            Secret::new("sk-planted-1234-longer"),
            Secret::new("a"),
        ]);
        assert_eq!(
            secrets.clean("key sk-planted-1234-longer and sk-planted-1234 a".to_owned()),
            "key [secret] and [secret] a"
        );
        let mut value = serde_json::json!({"a": ["sk-planted-1234"], "n": 1});
        secrets.clean_json(&mut value);
        assert_eq!(value, serde_json::json!({"a": ["[secret]"], "n": 1}));
    }
}
