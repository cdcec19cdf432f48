//! Recognizes a used-up quota, as opposed to too many requests at once, which pass.
//!
//! In: a server's refusal. Out: whether the account is out of quota or credit, by the words that
//! the providers document. A refusal that is not recognized counts as passing, and the request is
//! retried.

use super::ModelError;
use glovebox_proto::Setting;
use serde_json::Value;

/// Values of `type` or `code` of an error: OpenAI and compatible servers, Anthropic.
const WORDS: [&str; 5] = [
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_not_active",
    "billing_error",
    "insufficient_balance",
];
/// Text of Anthropic's refusal with status 400.
const NO_CREDIT: &str = "credit balance is too low";
/// Part of Google's identifier of a daily quota. A quota per minute passes.
const PER_DAY: &str = "PerDay";

/// True if a refusal says that the quota or credit of the account is used up. `status` is the HTTP
/// status; `None` if the refusal came inside an answer.
// TRUST: a server's words decide only whether the request is retried.
pub(super) fn is_exhausted(status: Option<u16>, body: &str) -> bool {
    if status == Some(402) {
        return true;
    }
    let Ok(mut value) = serde_json::from_str::<Value>(body) else {
        return false;
    };
    // Google wraps errors of streams in a list.
    if let Some(first) = value.get_mut(0) {
        value = first.take();
    }
    let error = value.get("error").unwrap_or(&value);
    let is_known = |field: &str| {
        error[field]
            .as_str()
            .is_some_and(|word| WORDS.contains(&word))
    };
    if is_known("type") || is_known("code") {
        return true;
    }
    let message = error["message"].as_str().unwrap_or_default();
    if message.to_ascii_lowercase().contains(NO_CREDIT) {
        return true;
    }
    error["status"] == "RESOURCE_EXHAUSTED" && has_daily_violation(&error["details"])
}

fn has_daily_violation(details: &Value) -> bool {
    let details = details.as_array().into_iter().flatten();
    details
        .filter_map(|detail| detail["violations"].as_array())
        .flatten()
        .any(|violation| {
            violation["quotaId"]
                .as_str()
                .is_some_and(|id| id.contains(PER_DAY))
        })
}

/// Returns the error for a used-up quota. `said` is the server's message, already sanitized.
pub(super) fn error(status: Option<u16>, said: &str) -> ModelError {
    let status_words = status.map_or_else(String::new, |status| format!(" (HTTP {status})"));
    let tail = if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    };
    ModelError {
        status,
        is_exhausted: true,
        ..ModelError::lasting(format!(
            "the quota or credit at the model's provider is used up{status_words}{tail}"
        ))
        .remedy([
            "add credit or raise the quota with the provider, or name another model with ".into(),
            Setting::Model.into(),
            "; `glovebox sessions resume` goes on from here".into(),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn is(status: u16, body: &Value) -> bool {
        is_exhausted(Some(status), &body.to_string())
    }

    fn google(quota: &str) -> Value {
        json!({ "error": { "code": 429, "status": "RESOURCE_EXHAUSTED",
            "message": "You exceeded your current quota, please check your plan and billing details.",
            "details": [
                { "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                  "violations": [{ "quotaMetric": "x", "quotaId": quota }] },
                { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "20s" },
            ] } })
    }

    #[test]
    fn a_quota_that_is_used_up_is_told_apart_from_too_many_requests() {
        let quota = json!({ "error": { "message": "You exceeded your current quota",
            "type": "insufficient_quota", "code": "insufficient_quota" } });
        assert!(is(429, &quota));
        let rate = json!({ "error": { "message": "Rate limit reached", "type": "requests",
            "code": "rate_limit_exceeded" } });
        assert!(!is(429, &rate));
        let credit = json!({ "type": "error", "error": { "type": "invalid_request_error",
            "message": "Your credit balance is too low to access the Anthropic API." } });
        assert!(is(400, &credit));
        let billing =
            json!({ "type": "error", "error": { "type": "billing_error", "message": "x" } });
        assert!(is(403, &billing));
        let busy =
            json!({ "type": "error", "error": { "type": "rate_limit_error", "message": "x" } });
        assert!(!is(429, &busy));
        assert!(is(
            429,
            &google("GenerateRequestsPerDayPerProjectPerModel-FreeTier")
        ));
        assert!(!is(
            429,
            &google("GenerateRequestsPerMinutePerProjectPerModel")
        ));
        assert!(is(
            429,
            &json!([google("InputTokensPerModelPerDay-FreeTier")])
        ));
        assert!(is_exhausted(Some(402), "Payment Required"));
        assert!(!is_exhausted(Some(429), "too many requests"));
        assert!(!is_exhausted(Some(500), ""));
    }

    #[test]
    fn it_is_not_asked_for_again() {
        let error = error(Some(429), "no more");
        assert!(error.is_exhausted && !error.is_passing);
        assert!(error.message.contains("HTTP 429") && error.message.ends_with(": no more"));
    }
}
