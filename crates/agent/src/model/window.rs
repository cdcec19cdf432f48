//! Context window of a model, as its own server reports it.
//!
//! In: a model on a self-hosted server. Out: the size of its context window in tokens, if the
//! server reports it in time: llama.cpp (`/props`), vLLM, LM Studio and others (`/v1/models`),
//! Ollama (`/api/show`). A failure here is not an error: the table of models or the default size is
//! used then.

use super::{ModelName, Provider, ProviderAccess, http_client};
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use std::time::Duration;

/// Maximum time for all requests together.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum size of a response; a list of models may be long.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Plausible window sizes in tokens. Others are ignored.
const BELIEVED: std::ops::RangeInclusive<u64> = 1024..=100_000_000;
/// Fields of the window in an entry of a list of models. The window in use comes before the largest
/// that the model supports.
const FIELDS: [&str; 7] = [
    "/max_model_len",
    "/loaded_context_length",
    "/context_length",
    "/context_window",
    "/max_context_length",
    "/meta/n_ctx",
    "/meta/n_ctx_train",
];

/// Asks the server at `access` for the context window of the model, in tokens. Blocks for up to 2
/// s. `None` for a provider's own server, and if the server does not report it.
pub fn window_of_server(name: &ModelName, access: &ProviderAccess) -> Option<u64> {
    let speaks_chat = matches!(
        name.provider,
        Provider::OpenAi | Provider::OpenAiResponses | Provider::Ollama
    );
    if !speaks_chat || !access.is_custom {
        return None;
    }
    let client = http_client(&access.base_url).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    runtime.block_on(async {
        let asked = tokio::time::timeout(PATIENCE, ask(&client, name, access));
        asked.await.ok().flatten()
    })
}

async fn ask(client: &Client, name: &ModelName, access: &ProviderAccess) -> Option<u64> {
    let root = root(&access.base_url);
    let keyed = |request: RequestBuilder| match &access.key {
        Some(key) => request.bearer_auth(key.expose()),
        None => request,
    };
    let props = keyed(client.get(format!("{root}props")));
    let models = keyed(client.get(format!("{}models", access.base_url)));
    let show = keyed(client.post(format!("{root}api/show")))
        .header("content-type", "application/json")
        .body(json!({ "model": name.name }).to_string());
    let (props, models, show) = tokio::join!(read(props), read(models), read(show));
    // The window in use comes before the one that the model was trained for.
    props
        .as_ref()
        .and_then(of_props)
        .or_else(|| of_models(models.as_ref()?, &name.name))
        .or_else(|| of_show(show.as_ref()?))
}

/// Returns the address without the version at its end.
fn root(base_url: &str) -> &str {
    let base = base_url.trim_end_matches('/');
    match base.rsplit_once('/') {
        Some((root, last))
            if last
                .strip_prefix('v')
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) =>
        {
            &base_url[..=root.len()]
        }
        _ => base_url,
    }
}

// TRUST: a server may answer with anything and never end. The size is bounded here, the time by the
// caller.
async fn read(request: RequestBuilder) -> Option<Value> {
    let mut response = request.send().await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.ok()? {
        if body.len() + piece.len() > MAX_ANSWER_BYTES {
            return None;
        }
        body.extend_from_slice(&piece);
    }
    serde_json::from_slice(&body).ok()
}

fn believed(value: Option<&Value>) -> Option<u64> {
    value?.as_u64().filter(|tokens| BELIEVED.contains(tokens))
}

/// Reads the window from the properties of llama.cpp.
fn of_props(props: &Value) -> Option<u64> {
    believed(props.pointer("/default_generation_settings/n_ctx"))
}

/// Reads the window from a list of models. If the list has a single model, any name means that one.
fn of_models(list: &Value, name: &str) -> Option<u64> {
    let models = list.get("data")?.as_array()?;
    let entry = models
        .iter()
        .find(|model| model["id"] == name)
        .or(match models.as_slice() {
            [one] => Some(one),
            _ => None,
        })?;
    FIELDS
        .iter()
        .find_map(|field| believed(entry.pointer(field)))
}

/// Reads the window from Ollama's description: the configured one, else the one of the training.
fn of_show(show: &Value) -> Option<u64> {
    let set = show["parameters"].as_str().and_then(|parameters| {
        parameters.lines().find_map(|line| {
            let (key, value) = line.trim().split_once(char::is_whitespace)?;
            (key == "num_ctx").then(|| value.trim().parse().ok())?
        })
    });
    let set = set.filter(|tokens| BELIEVED.contains(tokens));
    set.or_else(|| {
        let info = show["model_info"].as_object()?;
        info.iter()
            .filter(|(key, _)| key.ends_with(".context_length"))
            .find_map(|(_, value)| believed(Some(value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_tells_it_in_its_own_place() {
        let props = json!({ "default_generation_settings": { "n_ctx": 8192 }, "total_slots": 1 });
        assert_eq!(of_props(&props), Some(8192));
        let list = |entry: Value| json!({ "object": "list", "data": [entry, { "id": "other" }] });
        for (entry, tokens) in [
            (json!({ "id": "m", "max_model_len": 32768 }), 32_768),
            (
                json!({ "id": "m", "meta": { "n_ctx_train": 131_072 } }),
                131_072,
            ),
            (
                json!({ "id": "m", "loaded_context_length": 4096, "max_context_length": 32768 }),
                4096,
            ),
            (json!({ "id": "m", "context_length": 200_000 }), 200_000),
        ] {
            assert_eq!(
                of_models(&list(entry.clone()), "m"),
                Some(tokens),
                "{entry}"
            );
            assert_eq!(of_models(&list(entry.clone()), "n"), None, "{entry}");
            let alone = json!({ "data": [entry] });
            assert_eq!(of_models(&alone, "n"), Some(tokens), "{alone}");
        }
        let info = json!({ "general.name": "x", "qwen3.context_length": 40_960 });
        assert_eq!(of_show(&json!({ "model_info": info })), Some(40_960));
        let set = "stop \"x\"\nnum_ctx                        16384";
        let show = json!({ "model_info": info, "parameters": set });
        assert_eq!(of_show(&show), Some(16_384));
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        for value in [
            json!(0),
            json!(-5),
            json!(12),
            json!(1e18),
            json!("8192"),
            json!(null),
        ] {
            let props = json!({ "default_generation_settings": { "n_ctx": value } });
            assert_eq!(of_props(&props), None, "{value}");
        }
        assert_eq!(of_models(&json!({ "data": "x" }), "m"), None);
        assert_eq!(of_show(&json!([1])), None);
        assert_eq!(root("http://h:1/v1/"), "http://h:1/");
        assert_eq!(root("https://h/openai/v1beta/"), "https://h/openai/");
        assert_eq!(root("https://h/api/"), "https://h/api/");
    }
}
