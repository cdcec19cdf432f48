//! `GET /v1/sandbox`: facts about the container. Its fields stand beside `success`, not in `data`.

use super::SharedService;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

pub(super) async fn describe_sandbox(State(service): State<SharedService>) -> Json<Value> {
    let home = service.dir.to_string_lossy();
    let system = rustix::system::uname();
    let detail = json!({
        "system": {
            "os": system.sysname().to_string_lossy(),
            "os_version": system.release().to_string_lossy(),
            "arch": system.machine().to_string_lossy(),
            "user": rustix::process::getuid().as_raw().to_string(),
            "home_dir": home,
            "workspace": home,
            "timezone": "UTC",
            "occupied_ports": [],
        },
        "runtime": {
            "python": [{ "ver": "3.10.12", "bin": "/usr/bin/python3", "alias": ["python3"] }],
            "nodejs": [{ "ver": "v22.21.1", "bin": "/usr/bin/node", "alias": ["node"] }],
        },
        "utils": [{ "category": "vcs", "tools": [{ "name": "git", "description": null }] }],
    });
    Json(json!({
        "success": true,
        "message": "Operation successful",
        "data": null,
        "hint": null,
        "home_dir": home,
        "workspace": home,
        "version": "1.9.4",
        "detail": detail,
    }))
}
