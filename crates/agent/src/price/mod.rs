//! Prices and context windows of well-known models, from a table of a named source and day; the
//! user may override both.
//!
//! A model that is not in the table has no price. It is never counted as free.

use crate::{ModelName, Provider, Usage};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Table of models. Its fields `source` and `taken` name the origin and the day.
const MODELS: &str = include_str!("models.json");

/// Price in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Price {
    /// Of tokens sent.
    pub input: f64,
    /// Of tokens received.
    pub output: f64,
    /// Of tokens read from the provider's cache; `None` means the price of `input`.
    #[serde(default)]
    pub cache_read: Option<f64>,
    /// Of tokens written to the provider's cache; `None` means the price of `input`.
    #[serde(default)]
    pub cache_write: Option<f64>,
}

impl Price {
    /// Parses `IN/OUT` or `IN/OUT/CACHE_READ/CACHE_WRITE`, such as `3/15` or `3/15/0.3/3.75`.
    ///
    /// # Errors
    /// A sentence that describes the format.
    pub fn parse(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<f64>> = text
            .split('/')
            .map(|part| {
                part.trim()
                    .parse::<f64>()
                    .ok()
                    .filter(|price| price.is_finite() && *price >= 0.0)
            })
            .collect();
        let (input, output, cache_read, cache_write) = match numbers.as_deref() {
            Some(&[input, output]) => (input, output, None, None),
            Some(&[input, output, read, write]) => (input, output, Some(read), Some(write)),
            _ => {
                return Err(format!(
                    "`{text}` is not a price; write dollars for a million tokens in and out, such as 3/15, or \
                     those read from and written to a cache as well, such as 3/15/0.3/3.75"
                ));
            }
        };
        Ok(Self {
            input,
            output,
            cache_read,
            cache_write,
        })
    }

    fn of(&self, usage: Usage) -> f64 {
        let plain = usage
            .input
            .saturating_sub(usage.cached)
            .saturating_sub(usage.cache_written);
        let dollars = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        dollars(plain, self.input)
            + dollars(usage.cached, self.cache_read.unwrap_or(self.input))
            + dollars(usage.cache_written, self.cache_write.unwrap_or(self.input))
            + dollars(usage.output, self.output)
    }
}

impl std::fmt::Display for Price {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.input, self.output)?;
        if self.cache_read.is_some() || self.cache_write.is_some() {
            let read = self.cache_read.unwrap_or(self.input);
            let write = self.cache_write.unwrap_or(self.input);
            write!(f, "/{read}/{write}")?;
        }
        Ok(())
    }
}

/// Price of a model, which may depend on the length of the prompt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tariff {
    /// Default price.
    pub usual: Price,
    /// Price of prompts with more tokens than this number; `None` if it is the same.
    pub long: Option<(u64, Price)>,
}

impl Tariff {
    /// Returns the cost of one answer in US dollars.
    pub fn of(&self, usage: Usage) -> f64 {
        match self.long {
            Some((above, price)) if usage.input > above => price.of(usage),
            _ => self.usual.of(usage),
        }
    }
}

impl From<Price> for Tariff {
    fn from(usual: Price) -> Self {
        Self { usual, long: None }
    }
}

/// Entry of the table of models.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KnownModel {
    /// Price at the model's own provider.
    pub tariff: Tariff,
    /// Context window, in tokens.
    pub window_tokens: u64,
}

/// Returns the table's entry for a model. A name that ends in a date falls back to the name without
/// it. `None` for Ollama and for unknown models.
pub fn known_model(name: &ModelName) -> Option<KnownModel> {
    let provider = match name.provider {
        Provider::Anthropic => "anthropic",
        Provider::OpenAi | Provider::OpenAiResponses => "openai",
        Provider::Gemini => "gemini",
        Provider::Ollama => return None,
    };
    let find = |name: &str| TABLE.models.get(&format!("{provider}/{name}"));
    let entry = find(&name.name).or_else(|| find(undated(&name.name)))?;
    Some(KnownModel {
        tariff: Tariff {
            usual: entry.price,
            long: entry.long.map(|long| (long.above, long.price)),
        },
        window_tokens: entry.window,
    })
}

/// Returns the default model of a provider for which only a key is set: the newest of its kind in
/// the table. A preview is chosen only if there is no other.
pub fn default_model(provider: Provider) -> Option<ModelName> {
    let (table, prefix, suffix) = match provider {
        Provider::Anthropic => ("anthropic/", "claude-sonnet-", ""),
        Provider::OpenAi | Provider::OpenAiResponses => ("openai/", "gpt-", ""),
        Provider::Gemini => ("gemini/", "gemini-", "-pro"),
        Provider::Ollama => {
            let name = "qwen3".to_owned();
            return Some(ModelName { provider, name });
        }
    };
    let names = || {
        TABLE
            .models
            .keys()
            .filter_map(|name| name.strip_prefix(table))
    };
    let newest = |suffix: &str| {
        let versioned = names().filter_map(|name| {
            let version = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
            Some((version_numbers(version)?, name))
        });
        versioned.max().map(|(_, name)| name.to_owned())
    };
    let name = newest(suffix).or_else(|| newest(&format!("{suffix}-preview")))?;
    Some(ModelName { provider, name })
}

/// Returns the numbers of a version such as `4-6` or `5.6`; `None` for anything else, such as a
/// date.
fn version_numbers(version: &str) -> Option<Vec<u8>> {
    let numbers = version.split(['.', '-']);
    numbers
        .map(|number| (number.len() <= 2).then(|| number.parse().ok()).flatten())
        .collect()
}

/// Returns the name without a final date (`-20251001` or `-2025-10-01`).
fn undated(name: &str) -> &str {
    let is_date = |text: &str| text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_digit());
    for bytes in [9, 11] {
        if let Some((front, end)) = name
            .len()
            .checked_sub(bytes)
            .and_then(|at| name.split_at_checked(at))
            && let Some(date) = end.strip_prefix('-')
            && is_date(&date.replace('-', ""))
        {
            return front;
        }
    }
    name
}

#[derive(Debug, Default, Deserialize)]
struct Table {
    models: BTreeMap<String, Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(flatten)]
    price: Price,
    window: u64,
    long: Option<LongPrice>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct LongPrice {
    above: u64,
    #[serde(flatten)]
    price: Price,
}

/// Parsed table, empty if it cannot be parsed: every price is then unknown. A test parses the
/// built-in one.
static TABLE: LazyLock<Table> = LazyLock::new(|| serde_json::from_str(MODELS).unwrap_or_default());

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Option<KnownModel> {
        super::known_model(&ModelName::parse(name).unwrap())
    }

    #[test]
    fn the_table_can_be_read_and_says_where_it_is_from() {
        let table: serde_json::Value = serde_json::from_str(MODELS).unwrap();
        for field in ["source", "taken", "unit"] {
            assert!(!table[field].as_str().unwrap().is_empty(), "{field}");
        }
        let table: Table = serde_json::from_str(MODELS).unwrap();
        assert!(table.models.len() > 50);
        for (name, entry) in &table.models {
            assert!(ModelName::parse(name).is_ok(), "{name}");
            assert!(entry.window > 4000, "{name}");
            for price in [Some(entry.price), entry.long.map(|long| long.price)]
                .into_iter()
                .flatten()
            {
                assert!(
                    price.input > 0.0 && price.output > 0.0,
                    "{name} is not free"
                );
                assert!(
                    price.cache_read.unwrap_or(price.input) <= price.input,
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn names_with_dates_are_known_and_others_are_not_free() {
        let sonnet = known("anthropic/claude-sonnet-4-5").unwrap();
        assert_eq!(sonnet.window_tokens, 200_000);
        assert_eq!(known("anthropic/claude-sonnet-4-5-20250929"), Some(sonnet));
        assert_eq!(
            known("openai-responses/gpt-5-2025-08-07"),
            known("openai/gpt-5")
        );
        assert!(known("openai/gpt-5").is_some());
        for unknown in ["openai/gpt-5-of-my-own", "anthropic/gpt-5", "ollama/gpt-5"] {
            assert_eq!(known(unknown), None, "{unknown}");
        }
        assert_eq!(undated("é-2025-01-01"), "é");
        assert_eq!(undated("é2025-01-01"), "é2025-01-01");
    }

    #[test]
    fn caches_and_long_prompts_have_prices_of_their_own() {
        let price = Price::parse("3/15/0.3/3.75").unwrap();
        assert_eq!(price.to_string(), "3/15/0.3/3.75");
        assert_eq!(Price::parse("3/15").unwrap().to_string(), "3/15");
        for wrong in ["3", "3/15/1", "-1/2", "a/b", "1/inf", "1/2/3/4/5"] {
            assert!(Price::parse(wrong).is_err(), "{wrong}");
        }
        let usage = Usage {
            input: 1_000_000,
            output: 100_000,
            cached: 500_000,
            cache_written: 100_000,
            ..Usage::default()
        };
        let tariff = Tariff::from(price);
        // 400k plain, 500k read, 100k written, 100k out.
        assert!((tariff.of(usage) - (1.2 + 0.15 + 0.375 + 1.5)).abs() < 1e-9);
        assert!((Tariff::from(Price::parse("3/15").unwrap()).of(usage) - 4.5).abs() < 1e-9);
        let pro = known("gemini/gemini-2.5-pro").unwrap().tariff;
        let of = |input| {
            pro.of(Usage {
                input,
                ..Usage::default()
            })
        };
        assert!((of(200_000) - 0.25).abs() < 1e-9, "{}", of(200_000));
        assert!((of(200_001) - 0.500_002_5).abs() < 1e-9, "{}", of(200_001));
    }

    #[test]
    fn default_model_is_the_newest_of_its_kind() {
        let default = |provider| default_model(provider).unwrap();
        for (provider, prefix, suffix) in [
            (Provider::Anthropic, "anthropic/claude-sonnet-", ""),
            (Provider::OpenAi, "openai/gpt-", ""),
            (Provider::Gemini, "gemini/gemini-", "-pro"),
        ] {
            let name = default(provider).to_string();
            let version =
                |name: &str| version_numbers(name.strip_prefix(prefix)?.strip_suffix(suffix)?);
            let newest = TABLE.models.keys().filter_map(|name| version(name)).max();
            assert_eq!(version(&name), newest, "{name}");
            assert!(known_model(&default(provider)).is_some(), "{name}");
        }
        assert_eq!(default(Provider::Ollama).to_string(), "ollama/qwen3");
        assert_eq!(version_numbers("4-6"), Some(vec![4, 6]));
        assert!(version_numbers("5.10") > version_numbers("5.6"));
        assert_eq!(version_numbers("5-2025-08-07"), None);
        assert_eq!(version_numbers("6-astra"), None);
    }
}
