//! Checkpoints: copies of a Sprite's home directory.

use super::Shared;
use super::reply::{Reply, answer, events, now, read_body, refuse};
use super::rest::no_sprite;
use super::store::{Machine, lock};
use axum::body::Bytes;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateBody {
    comment: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoBody {}

fn place(machine: &Machine, id: &str) -> PathBuf {
    machine.dir.join("checkpoints").join(id)
}

fn copy(from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(std::io::Error::other("cp failed"))
    }
}

/// Lowers a counter. False if it is zero.
fn takes_one(counter: &AtomicU64) -> bool {
    let lower = |count: u64| count.checked_sub(1);
    counter
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, lower)
        .is_ok()
}

fn info(text: &str) -> Value {
    json!({"type": "info", "data": text, "time": now()})
}

fn complete(text: &str) -> Value {
    json!({"type": "complete", "data": text, "time": now()})
}

fn failure(error: &dyn std::fmt::Display) -> Value {
    json!({"type": "error", "error": error.to_string(), "time": now()})
}

pub(super) async fn create(State(service): Shared, Path(name): Path<String>, body: Bytes) -> Reply {
    let body: CreateBody = match read_body(&service, &body) {
        Ok(body) => body,
        Err(reply) => return *reply,
    };
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    let id = format!("v{}", lock(&machine.state).checkpoints.len());
    let begin = info("Creating checkpoint...");
    if let Err(error) = copy(&machine.home(), &place(&machine, &id)) {
        return events(&[begin, failure(&error)]);
    }
    lock(&machine.state).checkpoints.push(json!({
        "id": id,
        "create_time": now(),
        "source_id": "",
        "comment": body.comment.unwrap_or_default(),
        "history": [],
        "is_auto": false,
        "health": "",
    }));
    events(&[
        begin,
        // An error before the last event is advice.
        json!({"type": "error", "error": "cache was not flushed", "time": now()}),
        info(&format!("  ID: {id}")),
        complete(&format!("Checkpoint {id} created")),
    ])
}

pub(super) async fn list(
    State(service): Shared,
    Path(name): Path<String>,
    axum::extract::Query(pairs): axum::extract::Query<Vec<(String, String)>>,
) -> Reply {
    let known = ["history", "includeAuto"];
    if let Err(reply) = super::reply::Parameters::read(&service, pairs, &known) {
        return *reply;
    }
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    let mut found = lock(&machine.state).checkpoints.clone();
    found.push(json!({"id": "Current", "create_time": now(), "source_id": "", "comment": ""}));
    answer(200, &Value::Array(found))
}

fn find(machine: &Machine, id: &str) -> Option<Value> {
    let state = lock(&machine.state);
    let mut found = state.checkpoints.iter();
    found.find(|checkpoint| checkpoint["id"] == id).cloned()
}

pub(super) async fn get(State(service): Shared, Path((name, id)): Path<(String, String)>) -> Reply {
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    match find(&machine, &id) {
        Some(checkpoint) => answer(200, &checkpoint),
        None => refuse(404, "not_found", "there is no such checkpoint"),
    }
}

pub(super) async fn restore(
    State(service): Shared,
    Path((name, id)): Path<(String, String)>,
    body: Bytes,
) -> Reply {
    if let Err(reply) = read_body::<NoBody>(&service, &body) {
        return *reply;
    }
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    if find(&machine, &id).is_none() {
        return refuse(404, "not_found", "there is no such checkpoint");
    }
    let begin = info(&format!("Restoring from checkpoint {id}..."));
    let restore = {
        let id = id.clone();
        move || -> std::io::Result<()> {
            machine.end_processes();
            std::fs::remove_dir_all(machine.home())?;
            copy(&place(&machine, &id), &machine.home())
        }
    };
    match tokio::task::spawn_blocking(restore).await {
        Ok(Ok(())) if takes_one(&service.broken_restores) => events(&[begin]),
        Ok(Ok(())) => events(&[begin, complete(&format!("Restored from {id}"))]),
        Ok(Err(error)) => events(&[begin, failure(&error)]),
        Err(error) => events(&[begin, failure(&error)]),
    }
}
