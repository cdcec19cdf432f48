//! Keys: held so that no format shows them, and taken out of texts that others wrote.

use std::fmt;

/// A value that must reach nobody but the server it is for.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Holds `value`.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one request it belongs in.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Shorter values would be found in texts that have nothing to do with them.
const MIN_BYTES: usize = 8;

/// Every secret this process knows, to be taken out of what servers and tools say.
///
/// A server may quote the key it refuses, and a command without walls may find it in the environment
/// of a process of the same user.
#[derive(Debug, Clone, Default)]
pub struct Secrets(Vec<Secret>);

impl Secrets {
    /// Takes out these values.
    pub fn new(secrets: impl IntoIterator<Item = Secret>) -> Self {
        let mut secrets: Vec<Secret> = secrets
            .into_iter()
            .filter(|secret| secret.0.len() >= MIN_BYTES)
            .collect();
        // One that holds another goes first, so that nothing of it stays.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.0.len()));
        Self(secrets)
    }

    /// `text` without any secret.
    pub fn clean(&self, text: String) -> String {
        let mut text = text;
        for secret in &self.0 {
            if text.contains(&secret.0) {
                text = text.replace(&secret.0, "[secret]");
            }
        }
        text
    }

    /// `value` without any secret in any of its strings.
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
