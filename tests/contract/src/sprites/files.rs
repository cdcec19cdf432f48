//! Files of a Sprite. Paths outside its own directory are refused: they are files of this machine.

use super::Shared;
use super::reply::{Parameters, Reply, answer, empty, now, read_body};
use super::rest::no_sprite;
use super::store::Machine;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, PathBuf};

type Pairs = Query<Vec<(String, String)>>;

fn failure(error: &Error, path: &str) -> Reply {
    let (status, code) = match error.kind() {
        ErrorKind::NotFound => (404, "ENOENT"),
        ErrorKind::AlreadyExists => (409, "EEXIST"),
        ErrorKind::NotADirectory => (400, "ENOTDIR"),
        ErrorKind::IsADirectory => (400, "EISDIR"),
        ErrorKind::PermissionDenied => (403, "EACCES"),
        ErrorKind::DirectoryNotEmpty => (409, "ENOTEMPTY"),
        ErrorKind::InvalidInput => (400, "EINVAL"),
        _ => (500, "EIO"),
    };
    answer(
        status,
        &json!({"error": error.to_string(), "code": code, "path": path}),
    )
}

/// Joins a path to the working directory, without leaving the Sprite.
fn resolve(machine: &Machine, dir: Option<&str>, path: &str) -> Result<PathBuf, Error> {
    let mut resolved = PathBuf::from("/");
    let joined = PathBuf::from(dir.unwrap_or("/")).join(path);
    for component in joined.components() {
        match component {
            Component::Normal(name) => resolved.push(name),
            Component::ParentDir => {
                resolved.pop();
            }
            _ => {}
        }
    }
    if resolved.starts_with(&machine.dir) {
        Ok(resolved)
    } else {
        Err(ErrorKind::PermissionDenied.into())
    }
}

fn reply(outcome: Result<Value, Error>, path: &str) -> Reply {
    match outcome {
        Ok(value) => answer(200, &value),
        Err(error) => failure(&error, path),
    }
}

pub(super) async fn read(
    State(service): Shared,
    Path(name): Path<String>,
    Query(pairs): Pairs,
) -> Reply {
    let parameters = match Parameters::read(&service, pairs, &["path", "workingDir"]) {
        Ok(parameters) => parameters,
        Err(reply) => return *reply,
    };
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    let path = parameters.get("path").unwrap_or_default();
    let bytes = resolve(&machine, parameters.get("workingDir"), path).and_then(fs::read);
    match bytes {
        Ok(bytes) => {
            let mut reply = empty(200);
            *reply.body_mut() = Body::from(bytes);
            reply
        }
        Err(error) => failure(&error, path),
    }
}

fn read_mode(text: &str) -> Result<u32, Error> {
    u32::from_str_radix(text, 8).map_err(|_| ErrorKind::InvalidInput.into())
}

pub(super) async fn write(
    State(service): Shared,
    Path(name): Path<String>,
    Query(pairs): Pairs,
    body: Bytes,
) -> Reply {
    let known = ["path", "workingDir", "mode", "mkdirParents", "mkdir"];
    let parameters = match Parameters::read(&service, pairs, &known) {
        Ok(parameters) => parameters,
        Err(reply) => return *reply,
    };
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    let path = parameters.get("path").unwrap_or_default();
    let outcome = resolve(&machine, parameters.get("workingDir"), path).and_then(|path| {
        if let Some(parent) = path.parent() {
            if parameters.is_set("mkdirParents") || parameters.is_set("mkdir") {
                fs::create_dir_all(parent)?;
            } else if path.ends_with(".keep") && body.is_empty() && !parent.exists() {
                // How clients make a directory (S4).
                fs::create_dir(parent)?;
            }
        }
        fs::write(&path, &body)?;
        let mode = read_mode(parameters.get("mode").unwrap_or("0644"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(json!({"path": path, "size": body.len(), "mode": format!("{mode:04o}")}))
    });
    reply(outcome, path)
}

fn entry(path: &std::path::Path) -> Result<Value, Error> {
    let metadata = fs::symlink_metadata(path)?;
    let kind = if metadata.is_symlink() {
        "symlink"
    } else if metadata.is_dir() {
        "directory"
    } else {
        "file"
    };
    Ok(json!({
        "name": path.file_name().map(|name| name.to_string_lossy().into_owned()),
        "path": path,
        "type": kind,
        "size": metadata.len(),
        "mode": format!("{:04o}", metadata.permissions().mode() & 0o7777),
        "modTime": now(),
        "isDir": metadata.is_dir(),
    }))
}

pub(super) async fn list(
    State(service): Shared,
    Path(name): Path<String>,
    Query(pairs): Pairs,
) -> Reply {
    let parameters = match Parameters::read(&service, pairs, &["path", "workingDir"]) {
        Ok(parameters) => parameters,
        Err(reply) => return *reply,
    };
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    let path = parameters.get("path").unwrap_or_default();
    let outcome = resolve(&machine, parameters.get("workingDir"), path).and_then(|path| {
        let mut entries = Vec::new();
        // A file is listed as its own only entry: clients look at files in this way.
        if fs::metadata(&path)?.is_dir() {
            let mut paths: Vec<PathBuf> = fs::read_dir(&path)?
                .map(|found| found.map(|found| found.path()))
                .collect::<Result<_, _>>()?;
            paths.sort();
            for path in paths {
                entries.push(entry(&path)?);
            }
        } else {
            entries.push(entry(&path)?);
        }
        Ok(json!({"path": path, "count": entries.len(), "entries": entries}))
    });
    reply(outcome, path)
}

pub(super) async fn remove(
    State(service): Shared,
    Path(name): Path<String>,
    Query(pairs): Pairs,
) -> Reply {
    let known = ["path", "workingDir", "recursive", "asRoot"];
    let parameters = match Parameters::read(&service, pairs, &known) {
        Ok(parameters) => parameters,
        Err(reply) => return *reply,
    };
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    let path = parameters.get("path").unwrap_or_default();
    let outcome = resolve(&machine, parameters.get("workingDir"), path).and_then(|path| {
        let is_dir = fs::symlink_metadata(&path)?.is_dir();
        match (is_dir, parameters.is_set("recursive")) {
            (true, true) => fs::remove_dir_all(&path)?,
            (true, false) => fs::remove_dir(&path)?,
            (false, _) => fs::remove_file(&path)?,
        }
        Ok(json!({"deleted": [path], "count": 1}))
    });
    reply(outcome, path)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "fields of the contract that change nothing here")]
struct MoveBody {
    source: String,
    dest: String,
    working_dir: Option<String>,
    recursive: Option<bool>,
    preserve_attrs: Option<bool>,
    as_root: Option<bool>,
}

pub(super) async fn rename(State(service): Shared, Path(name): Path<String>, body: Bytes) -> Reply {
    let body: MoveBody = match read_body(&service, &body) {
        Ok(body) => body,
        Err(reply) => return *reply,
    };
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    let dir = body.working_dir.as_deref();
    let outcome = resolve(&machine, dir, &body.source).and_then(|source| {
        let dest = resolve(&machine, dir, &body.dest)?;
        fs::rename(&source, &dest)?;
        Ok(json!({"source": source, "dest": dest}))
    });
    reply(outcome, &body.source)
}

pub(super) async fn copy(State(service): Shared, Path(name): Path<String>, body: Bytes) -> Reply {
    let body: MoveBody = match read_body(&service, &body) {
        Ok(body) => body,
        Err(reply) => return *reply,
    };
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    let dir = body.working_dir.as_deref();
    let outcome = resolve(&machine, dir, &body.source).and_then(|source| {
        let dest = resolve(&machine, dir, &body.dest)?;
        let bytes = fs::copy(&source, &dest)?;
        Ok(json!({"copied": [{"source": source, "dest": dest}], "count": 1, "totalBytes": bytes}))
    });
    reply(outcome, &body.source)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "fields of the contract that change nothing here")]
struct ModeBody {
    path: String,
    working_dir: Option<String>,
    mode: String,
    recursive: Option<bool>,
    as_root: Option<bool>,
}

pub(super) async fn chmod(State(service): Shared, Path(name): Path<String>, body: Bytes) -> Reply {
    let body: ModeBody = match read_body(&service, &body) {
        Ok(body) => body,
        Err(reply) => return *reply,
    };
    let Some(machine) = service.store.get(&name) else {
        return no_sprite();
    };
    let outcome = resolve(&machine, body.working_dir.as_deref(), &body.path).and_then(|path| {
        let mode = read_mode(&body.mode)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(json!({"affected": [{"path": path, "mode": format!("{mode:04o}")}], "count": 1}))
    });
    reply(outcome, &body.path)
}
