//! Name of a model, its provider, and the address and key of the provider's server.

use crate::Secret;
use std::fmt;

/// Provider of models: a wire format with a default address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Messages API of Anthropic.
    Anthropic,
    /// Chat completions API of OpenAI, and of every compatible server.
    OpenAi,
    /// Responses API of OpenAI.
    OpenAiResponses,
    /// Gemini API of Google.
    Gemini,
    /// Chat completions API of an Ollama server, by default on this machine.
    Ollama,
}

impl Provider {
    /// All providers.
    pub const ALL: [Self; 5] = [
        Self::Anthropic,
        Self::OpenAi,
        Self::OpenAiResponses,
        Self::Gemini,
        Self::Ollama,
    ];

    /// Returns the provider's part of a model name, before the slash.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    /// Returns the environment variables that may hold the key. The first one that is set counts.
    pub const fn key_variables(self) -> &'static [&'static str] {
        match self {
            Self::Anthropic => &["ANTHROPIC_API_KEY"],
            Self::OpenAi | Self::OpenAiResponses => &["OPENAI_API_KEY"],
            Self::Gemini => &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
            Self::Ollama => &["OLLAMA_API_KEY"],
        }
    }

    /// Returns the environment variable that overrides the address.
    pub const fn base_variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_BASE_URL",
            Self::OpenAi | Self::OpenAiResponses => "OPENAI_BASE_URL",
            Self::Gemini => "GEMINI_BASE_URL",
            Self::Ollama => "OLLAMA_BASE_URL",
        }
    }

    const fn default_base(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::OpenAi | Self::OpenAiResponses => "https://api.openai.com/v1/",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
            Self::Ollama => "http://localhost:11434/v1/",
        }
    }

    const fn version(self) -> &'static str {
        match self {
            Self::Gemini => "v1beta",
            _ => "v1",
        }
    }
}

/// Name of a model, as `PROVIDER/NAME`. The name may contain slashes of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName {
    /// Provider.
    pub provider: Provider,
    /// Name of the model at the provider.
    pub name: String,
}

/// Maximum length of a name; longer than any provider's name.
const MAX_NAME_BYTES: usize = 200;

impl ModelName {
    /// Parses `PROVIDER/NAME`. `google` is accepted for `gemini`.
    ///
    /// # Errors
    /// A sentence that says what is wrong, and names the providers if the provider is missing or
    /// unknown.
    pub fn parse(text: &str) -> Result<Self, String> {
        let words = Provider::ALL.map(Provider::as_str).join(", ");
        let (provider, name) = text
            .split_once('/')
            .ok_or_else(|| format!("`{text}` is not PROVIDER/NAME; the providers are {words}"))?;
        let provider = match provider {
            "google" => Some(Provider::Gemini),
            word => Provider::ALL
                .into_iter()
                .find(|provider| provider.as_str() == word),
        }
        .ok_or_else(|| format!("there is no provider `{provider}`; use one of {words}"))?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@+".contains(c);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_plain) {
            return Err(format!(
                "`{}` is not the name of a model",
                name.escape_debug()
            ));
        }
        Ok(Self {
            provider,
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider.as_str(), self.name)
    }
}

/// Address and key of a provider's server.
#[derive(Debug, Clone)]
pub struct ProviderAccess {
    /// Base address; ends in a slash.
    pub base_url: String,
    /// True if the address is not the provider's own: it was overridden, or the provider is Ollama.
    pub is_custom: bool,
    /// API key; `None` if there is none.
    pub key: Option<Secret>,
}

impl ProviderAccess {
    /// Reads the address and key of `provider` from the environment, through `variable`.
    ///
    /// # Errors
    /// A sentence if the address is not a usable HTTP address.
    pub fn find(
        provider: Provider,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let key = provider.key_variables().iter().find_map(|name| set(name));
        let base = set(provider.base_variable());
        let base_url = match &base {
            Some(text) => base_url(provider, text)
                .map_err(|why| format!("{} is not usable: {why}", provider.base_variable()))?,
            None => provider.default_base().to_owned(),
        };
        Ok(Self {
            base_url,
            is_custom: base.is_some() || provider == Provider::Ollama,
            key: key.map(|key| Secret::new(key.trim())),
        })
    }
}

/// Normalizes a base address to end in the version and a slash. Accepts an address with or without
/// the version or a trailing slash, and one that ends in the path of an endpoint.
fn base_url(provider: Provider, text: &str) -> Result<String, String> {
    let text = text.trim();
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"))
        .ok_or_else(|| "it does not begin with http:// or https://".to_owned())?;
    if rest.contains(['?', '#', '@']) || rest.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("it has more than a host, a port and a path".to_owned());
    }
    let mut base = text.trim_end_matches('/').to_owned();
    for end in ["/chat/completions", "/responses", "/messages"] {
        if let Some(shorter) = base.strip_suffix(end) {
            base = shorter.to_owned();
        }
    }
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    let is_version = |part: &str| {
        part.strip_prefix('v')
            .and_then(|rest| rest.chars().next())
            .is_some_and(|c| c.is_ascii_digit())
    };
    if !path.split('/').any(is_version) {
        base.push('/');
        base.push_str(provider.version());
    }
    if rest.starts_with('/') || rest.is_empty() {
        return Err("it names no host".to_owned());
    }
    base.push('/');
    Ok(base)
}

/// Returns the first provider of [`Provider::ALL`] whose key or address is in the environment.
/// [`Provider::OpenAiResponses`] shares its variables with [`Provider::OpenAi`] and is never
/// returned.
pub fn detect_provider(variable: impl Fn(&str) -> Option<String>) -> Option<Provider> {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.trim().is_empty());
    Provider::ALL
        .into_iter()
        .filter(|provider| *provider != Provider::OpenAiResponses)
        .find(|provider| {
            provider.key_variables().iter().any(|name| is_set(name))
                || is_set(provider.base_variable())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_provider_and_may_have_slashes() {
        let name = ModelName::parse("openai/meta-llama/Llama-3:8b").unwrap();
        assert_eq!(name.provider, Provider::OpenAi);
        assert_eq!(name.name, "meta-llama/Llama-3:8b");
        assert_eq!(name.to_string(), "openai/meta-llama/Llama-3:8b");
        assert!(ModelName::parse("gpt-5").unwrap_err().contains("anthropic"));
        assert!(ModelName::parse("nobody/x").unwrap_err().contains("nobody"));
        assert!(ModelName::parse("openai/").is_err());
        assert!(ModelName::parse("openai/a\u{1b}b").is_err());
    }

    #[test]
    fn addresses_work_however_they_are_written() {
        for text in [
            "http://h:1",
            "http://h:1/",
            "http://h:1/v1",
            "http://h:1/v1/",
            "http://h:1/v1/chat/completions",
        ] {
            assert_eq!(base_url(Provider::OpenAi, text).unwrap(), "http://h:1/v1/");
        }
        assert_eq!(
            base_url(Provider::Gemini, "https://g/").unwrap(),
            "https://g/v1beta/"
        );
        assert_eq!(
            base_url(Provider::OpenAi, "https://g/v1beta/openai/").unwrap(),
            "https://g/v1beta/openai/"
        );
        for wrong in [
            "h:1",
            "ftp://h",
            "http://u:p@h",
            "http:///v1",
            "http://h/?k=v",
        ] {
            assert!(base_url(Provider::OpenAi, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_and_addresses_tell_the_provider() {
        let with = |names: &'static [&'static str]| {
            move |name: &str| names.contains(&name).then(|| "http://x".to_owned())
        };
        assert_eq!(
            detect_provider(with(&["GOOGLE_API_KEY"])),
            Some(Provider::Gemini)
        );
        assert_eq!(
            detect_provider(with(&["OPENAI_BASE_URL", "GEMINI_API_KEY"])),
            Some(Provider::OpenAi)
        );
        assert_eq!(detect_provider(with(&[])), None);
        let access = ProviderAccess::find(Provider::OpenAi, with(&["OPENAI_BASE_URL"])).unwrap();
        assert!(access.key.is_none() && access.is_custom);
        assert!(ProviderAccess::find(Provider::Anthropic, with(&[])).is_ok());
    }
}
