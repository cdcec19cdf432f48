//! JSON that keeps the order of keys in objects. Models read the schemas of tools in that order.

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fmt;

/// A JSON value. Numbers are finite.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A finite number.
    Number(f64),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object, with its keys in the order of the source.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Returns an empty object.
    pub const fn object() -> Self {
        Self::Object(Vec::new())
    }

    /// Returns the value of a key of an object; `None` for anything else.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(entries) = self else {
            return None;
        };
        entries
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    /// Sets a key of an object in place, or appends it. Does nothing to anything but an object.
    pub fn set(&mut self, key: &str, value: Self) {
        if let Self::Object(entries) = self {
            match entries.iter_mut().find(|(name, _)| name == key) {
                Some((_, old)) => *old = value,
                None => entries.push((key.to_owned(), value)),
            }
        }
    }

    /// Removes a key of an object and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Self> {
        let Self::Object(entries) = self else {
            return None;
        };
        let index = entries.iter().position(|(name, _)| name == key)?;
        Some(entries.remove(index).1)
    }

    /// Returns the nesting of arrays and objects; 0 for anything else.
    pub(crate) fn depth(&self) -> usize {
        match self {
            Self::Array(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Object(entries) => {
                let inner = entries.iter().map(|(_, value)| value.depth());
                1 + inner.max().unwrap_or(0)
            }
            Self::Null | Self::Boolean(_) | Self::Number(_) | Self::String(_) => 0,
        }
    }

    /// Returns the approximate size as text, in bytes.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Null | Self::Boolean(_) | Self::Number(_) => 8,
            Self::String(text) => text.len() + 2,
            Self::Array(items) => items.iter().map(|item| item.weight() + 1).sum::<usize>() + 2,
            Self::Object(entries) => entries
                .iter()
                .map(|(key, value)| key.len() + value.weight() + 4)
                .sum::<usize>(),
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<f64> for Json {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

/// Largest integer that JavaScript represents exactly.
pub(crate) const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Boolean(value) => serializer.serialize_bool(*value),
            // An integer is written without a fraction, as in `JSON.stringify`.
            Self::Number(value) if value.fract() == 0.0 && value.abs() <= MAX_SAFE => {
                serializer.serialize_i64(*value as i64)
            }
            Self::Number(value) => serializer.serialize_f64(*value),
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(items) => items.serialize(serializer),
            Self::Object(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Boolean(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value as f64))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value as f64))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Number(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Json, E> {
        Ok(Json::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut entries: Vec<(String, Json)> = Vec::new();
        while let Some((key, value)) = access.next_entry::<String, Json>()? {
            entries.push((key, value));
        }
        Ok(Json::Object(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_both_ways() {
        let text = r#"{"z":1,"a":[null,true,"x",1.5,-9007199254740991],"m":{}}"#;
        let value: Json = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&value).unwrap(), text);
    }

    #[test]
    fn a_key_that_is_set_again_keeps_its_place() {
        let mut value = Json::object();
        value.set("a", 1.0.into());
        value.set("b", 2.0.into());
        value.set("a", 3.0.into());
        assert_eq!(serde_json::to_string(&value).unwrap(), r#"{"a":3,"b":2}"#);
        assert_eq!(value.remove("a"), Some(Json::Number(3.0)));
        assert_eq!(value.get("a"), None);
    }
}
