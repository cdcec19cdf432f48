//! Routes by which a test steers the server, and what it tells a test. They need no key and have no
//! faults.

use super::faults::FaultRule;
use super::{Service, SharedService, processes};
use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Requests and refusals since the start.
#[derive(Debug, Default)]
pub(super) struct Journal(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    requests: BTreeMap<String, u64>,
    refusals: Vec<String>,
}

impl Journal {
    /// Counts a request to `path`.
    pub(super) fn count(&self, path: &str) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *entries.requests.entry(path.to_owned()).or_default() += 1;
    }

    /// Notes that a request was not what the description allows.
    #[expect(clippy::print_stderr, reason = "the log of this program")]
    pub(super) fn note(&self, refusal: String) {
        eprintln!("refused: {refusal}");
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.refusals.push(refusal);
    }
}

pub(super) fn router() -> Router<SharedService> {
    Router::new()
        .route("/journal", get(read_journal))
        .route("/fault", post(add_fault))
        .route("/restart", post(restart))
        .route("/key", post(change_key))
}

async fn read_journal(State(service): State<SharedService>) -> Json<Value> {
    let entries = service
        .journal
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    Json(json!({ "requests": entries.requests, "refusals": entries.refusals }))
}

async fn add_fault(State(service): State<SharedService>, Json(rule): Json<FaultRule>) {
    service.faults.add(rule);
}

/// Does what a restart of the container does: every process and every session is gone.
async fn restart(State(service): State<SharedService>) {
    service.sessions.forget_all();
    processes::kill_descendants();
}

/// Replaces the key; an empty body makes the service open.
async fn change_key(State(service): State<SharedService>, key: String) {
    *service.key.lock().unwrap_or_else(PoisonError::into_inner) =
        Some(key.trim().to_owned()).filter(|key| !key.is_empty());
}

impl Service {
    /// True if `given` is the key, or none is wanted.
    pub(super) fn accepts(&self, given: Option<&str>) -> bool {
        let key = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        key.as_deref().is_none_or(|key| given == Some(key))
    }

    /// The key, which commands find in their environment, as in the service's container.
    pub(super) fn api_key(&self) -> Option<String> {
        self.key
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
