//! Sprites themselves, and their network policies.

use super::reply::{Parameters, Reply, answer, empty, read_body, refuse};
use super::store::lock;
use super::{Service, Shared};
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::HeaderValue;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

type Pairs = Query<Vec<(String, String)>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "fields of the contract that change nothing here")]
struct CreateBody {
    name: String,
    labels: Option<Vec<String>>,
    url_settings: Option<UrlSettings>,
    wait_for_capacity: Option<bool>,
    runtime: Option<String>,
    config: Option<Value>,
    environment: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "fields of the contract that change nothing here")]
struct UrlSettings {
    auth: Option<Value>,
    private_access: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpdateBody {
    labels: Option<Vec<String>>,
    url_settings: Option<UrlSettings>,
    clear_labels: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyBody {
    rules: Vec<Value>,
}

pub(super) async fn create(State(service): Shared, body: Bytes) -> Reply {
    let left = service
        .limited_creates
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(1)
        });
    if left.is_ok() {
        return limit_rate(&service);
    }
    let body: CreateBody = match read_body(&service, &body) {
        Ok(body) => body,
        Err(reply) => return *reply,
    };
    let is_name = !body.name.is_empty()
        && body.name.len() <= 63
        && body
            .name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !is_name {
        return refuse(400, "invalid_name", "a name has a-z, 0-9 and -");
    }
    if service.store.all().len() as u64 >= service.options.max_sprites {
        return refuse(
            429,
            "concurrent_sprite_limit_exceeded",
            "the account has as many Sprites as it may",
        );
    }
    match service.store.create(&body.name) {
        Ok(Some(machine)) => {
            if !service.options.no_labels {
                lock(&machine.state).labels = body.labels.unwrap_or_default();
            }
            lock(&machine.state).url_auth = body.url_settings.and_then(|settings| settings.auth);
            answer(201, &machine.describe())
        }
        Ok(None) => refuse(400, "name_taken", "a Sprite of this name exists"),
        Err(error) => refuse(500, "internal", &error.to_string()),
    }
}

fn limit_rate(service: &Service) -> Reply {
    let seconds = service.options.retry_after;
    let mut reply = answer(
        429,
        &json!({
            "error": "sprite_creation_rate_limited",
            "message": "too many Sprites were created",
            "limit": 10,
            "window_seconds": 60,
            "retry_after_seconds": seconds,
            "current_count": 10,
        }),
    );
    if let Ok(value) = HeaderValue::try_from(seconds.to_string()) {
        reply.headers_mut().insert("retry-after", value);
    }
    reply
}

pub(super) async fn list(State(service): Shared, Query(pairs): Pairs) -> Reply {
    let known = ["prefix", "max_results", "continuation_token", "bulk_load"];
    let parameters = match Parameters::read(&service, pairs, &known) {
        Ok(parameters) => parameters,
        Err(reply) => return *reply,
    };
    let wanted = match parameters.get("max_results").map(str::parse::<usize>) {
        None => 50,
        Some(Ok(wanted)) => wanted.clamp(1, 50),
        Some(Err(_)) => return service.violation("max_results is no number"),
    };
    let prefix = parameters.get("prefix").unwrap_or_default();
    let after = parameters.get("continuation_token");
    let mut found: Vec<_> = service
        .store
        .all()
        .into_iter()
        .filter(|machine| machine.name.starts_with(prefix))
        .filter(|machine| after.is_none_or(|after| machine.name.as_str() > after))
        .collect();
    let has_more = found.len() > wanted;
    found.truncate(wanted);
    let next = found.last().filter(|_| has_more);
    let sprites: Vec<Value> = found.iter().map(|one| one.describe_shortly()).collect();
    answer(
        200,
        &json!({
            "sprites": sprites,
            "has_more": has_more,
            "next_continuation_token": next.map(|machine| machine.name.clone()),
            "name": "contract",
            "running": 0,
            "warm": sprites.len(),
            "cold": 0,
            "running_limit": 10,
            "warm_limit": 100,
        }),
    )
}

pub(super) async fn get(State(service): Shared, Path(name): Path<String>) -> Reply {
    match service.store.get(&name) {
        Some(machine) => answer(200, &machine.describe()),
        None => no_sprite(),
    }
}

pub(super) fn no_sprite() -> Reply {
    answer(404, &json!({"error": "sprite not found"}))
}

pub(super) async fn update(State(service): Shared, Path(name): Path<String>, body: Bytes) -> Reply {
    let body: UpdateBody = match read_body(&service, &body) {
        Ok(body) => body,
        Err(reply) => return *reply,
    };
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    {
        let mut state = lock(&machine.state);
        if body.clear_labels == Some(true) {
            state.labels.clear();
        }
        if let Some(labels) = body.labels.filter(|_| !service.options.no_labels) {
            state.labels = labels;
        }
        if let Some(settings) = body.url_settings {
            state.url_auth = settings.auth;
        }
    }
    answer(200, &machine.describe())
}

pub(super) async fn destroy(State(service): Shared, Path(name): Path<String>) -> Reply {
    let task = tokio::task::spawn_blocking(move || service.store.destroy(&name));
    match task.await {
        Ok(true) => empty(204),
        Ok(false) => no_sprite(),
        Err(error) => refuse(500, "internal", &error.to_string()),
    }
}

pub(super) async fn policy(State(service): Shared, Path(name): Path<String>) -> Reply {
    match service.store.get(&name) {
        Some(machine) => answer(200, &json!({"rules": lock(&machine.state).rules})),
        None => no_sprite(),
    }
}

pub(super) async fn set_policy(
    State(service): Shared,
    Path(name): Path<String>,
    body: Bytes,
) -> Reply {
    let body: PolicyBody = match read_body(&service, &body) {
        Ok(body) => body,
        Err(reply) => return *reply,
    };
    let is_rule = |rule: &Value| {
        let Some(fields) = rule.as_object() else {
            return false;
        };
        let has = |name: &str| fields.get(name).and_then(Value::as_str);
        match (has("domain"), has("action"), has("include")) {
            (Some(_), Some("allow" | "deny"), None) => fields.len() == 2,
            (None, None, Some(_)) => fields.len() == 1,
            _ => false,
        }
    };
    if let Some(rule) = body.rules.iter().find(|rule| !is_rule(rule)) {
        return service.violation(&format!("no rule: {rule}"));
    }
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    if !service.options.forget_policy {
        lock(&machine.state).rules = body.rules;
    }
    empty(204)
}
