//! Choice of the model and its key. Only this file reads keys from the user's variables.

use crate::Error;
use glovebox_agent::{
    ContextBudget, Event, KnownModel, Model, ModelName, Provider, ProviderAccess, RecordedModel,
    RemoteModel, RetryPolicy, Secret, Secrets, Tariff, default_model, detect_provider, known_model,
    read_recording, window_of_server,
};
use glovebox_proto::visible::line_of_text as escape_text;
use glovebox_proto::{Remedy, Setting};
use glovebox_settings::{Settings, Surroundings};
use std::io::Read;
use std::path::Path;

/// Name of the model that replays recorded answers, for a first try without a key.
pub const DEMO_MODEL: &str = "demo";
/// Recorded answers of the demo model, which work on an empty workspace.
const DEMO_ANSWERS: &str = include_str!("demo.jsonl");
/// Maximum size of a recording, in bytes.
const MAX_RECORDING_BYTES: u64 = 64 << 20;

/// Model that is ready for requests, and the secrets to remove from its texts.
pub struct ModelConfig {
    /// The model.
    pub model: Box<dyn Model>,
    /// Secrets to remove from everything that is shown or logged.
    pub secrets: Secrets,
    /// Price of the model; `None` if unknown.
    pub price: Option<Tariff>,
    /// Token budget of a conversation, derived from the model's context window.
    pub budget: ContextBudget,
    /// Custom server to ask for the context window; `None` if the user has set it or the server is
    /// the provider's own.
    pub asked: Option<(ModelName, ProviderAccess)>,
}

impl std::fmt::Debug for ModelConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ModelConfig({})", self.model.label())
    }
}

impl ModelConfig {
    /// Combines a model with its price and window. The user's settings take precedence over the
    /// list of known models.
    ///
    /// # Errors
    /// The user limits the cost of a model whose price is unknown.
    fn new(
        settings: &Settings,
        model: Box<dyn Model>,
        secrets: Secrets,
        known: Option<KnownModel>,
        is_elsewhere: bool,
    ) -> Result<Self, Error> {
        // A custom server may mean another model by the same name, at another price.
        let listed = known.filter(|_| !is_elsewhere).map(|known| known.tariff);
        let price = settings.agent.price.value.0.map(Tariff::from).or(listed);
        let max_cost = settings.agent.max_cost.value.0;
        if let (Some(_), None) = (max_cost, price) {
            return Err(Error::usage(
                format!(
                    "what the agent spends cannot be limited: what {} costs is unknown{}",
                    escape_text(&model.label()),
                    if is_elsewhere { " at that server" } else { "" }
                ),
                Remedy::advice([
                    "give the price of a million tokens with ".into(),
                    Setting::Price.of("IN/OUT"),
                    ", or agent.price".into(),
                ]),
            ));
        }
        let window = settings.agent.window.value.0.map(u64::from);
        let window = window.or_else(|| known.map(|known| known.window_tokens));
        Ok(Self {
            model,
            secrets,
            price,
            budget: window.map_or_else(ContextBudget::default, ContextBudget::of_window),
            asked: None,
        })
    }

    /// Asks a custom server for its context window if the user has not set one. Blocks for the
    /// request.
    pub fn learn_window(&mut self) {
        if let Some((name, access)) = self.asked.take()
            && let Some(tokens) = window_of_server(&name, &access)
        {
            self.budget = ContextBudget::of_window(tokens);
        }
    }
}

/// Finds the model to use: from the settings, from `remembered`, or by the keys in the environment.
///
/// # Errors
/// Usage errors that say how to name a model.
pub fn find_model(
    host: &Surroundings,
    settings: &Settings,
    remembered: Option<&str>,
) -> Result<ModelConfig, Error> {
    let variable = |name: &str| {
        host.var(name)
            .and_then(|value| value.to_str().map(str::to_owned))
    };
    let asked = settings.agent.model.value.as_deref().or(remembered);
    if let Some(file) = asked.and_then(|text| text.strip_prefix("replay:")) {
        let events = read(&host.absolute(Path::new(file)))?;
        let model = Box::new(RecordedModel::new(&events, format!("replay:{file}")));
        return ModelConfig::new(settings, model, all_secrets(host, settings), None, false);
    }
    if asked == Some(DEMO_MODEL) {
        let model = RecordedModel::new(&read_recording(DEMO_ANSWERS)?, DEMO_MODEL);
        let secrets = all_secrets(host, settings);
        return ModelConfig::new(settings, Box::new(model), secrets, None, false);
    }
    let usage = |message: String| {
        Error::usage(
            message,
            Remedy::advice([
                "name one with ".into(),
                Setting::Model.of("PROVIDER/NAME"),
                ", such as openai/gpt-5".into(),
            ]),
        )
    };
    let name = match asked {
        Some(text) => ModelName::parse(text).map_err(usage)?,
        None => detect_provider(variable).and_then(default_model).ok_or_else(|| {
            Error::usage(
                "there is no model: none is named, and there is no key in the environment",
                Remedy::advice([
                    "set ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, or OPENAI_BASE_URL for a server of your \
                     own; or name a model with "
                        .into(),
                    Setting::Model.of("PROVIDER/NAME"),
                ]),
            )
        })?,
    };
    let access = ProviderAccess::find(name.provider, variable)
        .map_err(|message| Error::usage(message, "correct the variable"))?;
    let secrets = all_secrets(host, settings);
    let (known, is_elsewhere) = (known_model(&name), access.is_custom);
    let asked = settings.agent.window.value.0.is_none() && access.is_custom;
    let asked = asked.then(|| (name.clone(), access.clone()));
    let model = RemoteModel::new(name, &access, secrets.clone(), RetryPolicy::default()).map_err(
        |error| {
            Error::usage(
                error.message,
                error.remedy.unwrap_or_else(|| "name another model".into()),
            )
        },
    )?;
    let config = ModelConfig::new(settings, Box::new(model), secrets, known, is_elsewhere)?;
    Ok(ModelConfig { asked, ..config })
}

/// Reads a recording from a file.
fn read(path: &Path) -> Result<Vec<Event>, Error> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_RECORDING_BYTES).read_to_string(&mut text))
        .map_err(|error| Error::io(format!("read the recording {}", path.display()), &error))?;
    Ok(read_recording(&text)?)
}

/// Ends of the names of variables whose values are treated as secrets.
const SECRET_ENDS: [&str; 6] = [
    "_KEY",
    "_TOKEN",
    "_SECRET",
    "_PASSWORD",
    "_CREDENTIALS",
    "_PASSWD",
];

/// Returns every key of every provider, the secrets passed to MCP servers, and the value of each
/// variable with the name of a secret.
fn all_secrets(host: &Surroundings, settings: &Settings) -> Secrets {
    let keys: Vec<&str> = Provider::ALL
        .iter()
        .flat_map(|provider| provider.key_variables())
        .copied()
        .chain(
            settings
                .servers
                .iter()
                .flat_map(|server| server.value.header_variables()),
        )
        .collect();
    let given = settings.servers.iter();
    let given = given.flat_map(|server| server.value.given());
    Secrets::new(host.vars().chain(given).filter_map(|(name, value)| {
        let name = name.to_str()?.to_ascii_uppercase();
        let is_secret =
            keys.contains(&name.as_str()) || SECRET_ENDS.iter().any(|end| name.ends_with(end));
        is_secret.then(|| Secret::new(value.to_str().unwrap_or_default().trim()))
    }))
}
