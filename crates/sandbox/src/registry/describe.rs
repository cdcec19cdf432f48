//! Entry of the list of sandboxes, from the files in a sandbox's directory.

use super::RegistryEntry;
use crate::backend;
use crate::state::sandbox_dir::{read_spec, read_status};
use crate::state::status::SandboxState;
use crate::{Name, SandboxSpec, limit_in_words};
use glovebox_proto::Code;
use glovebox_spec::LimitKind;
use std::path::Path;

/// Builds the entry from the files in `dir`. `is_live` is true if the sandbox's lock is held.
pub(super) fn describe(name: &Name, dir: &Path, is_live: bool) -> RegistryEntry {
    let mut entry = RegistryEntry {
        name: name.clone(),
        state: if is_live {
            SandboxState::Starting
        } else {
            SandboxState::Lost
        },
        backend: String::new(),
        pid: None,
        is_supervised: true,
        created_unix_ms: 0,
        workspace: None,
        summary: String::new(),
        problem: None,
        parked: None,
        dir: dir.to_owned(),
    };
    match read_status(dir) {
        Ok(status) => {
            entry.state = match (is_live, status.state) {
                (true, SandboxState::Ready) => SandboxState::Ready,
                (true, _) => SandboxState::Starting,
                (false, state @ (SandboxState::Stopped | SandboxState::Parked)) => state,
                (false, _) => SandboxState::Lost,
            };
            entry.pid = is_live.then_some(status.pid);
            entry.is_supervised = status.is_supervised;
            entry.created_unix_ms = status.created_unix_ms;
            entry.problem = status.reason;
            entry.parked = status
                .parked
                .filter(|_| entry.state == SandboxState::Parked);
        }
        // A command's own sandbox has no status while it is starting.
        Err(fault) if is_live && fault.code == Code::NotFound => entry.is_supervised = false,
        Err(fault) => entry.problem = Some(fault.message),
    }
    match read_spec(dir) {
        Ok(spec) => {
            entry.backend = spec.backend.to_string();
            let workspace = spec.jail.workspace.as_ref().or(spec.cwd.as_ref());
            entry.workspace = workspace.map(|path| path.display().to_string());
            entry.summary = summarise(&spec);
        }
        Err(fault) => {
            entry.problem.get_or_insert(fault.message);
        }
    }
    entry
}

/// Describes a spec in a few words.
fn summarise(spec: &SandboxSpec) -> String {
    let mut words = backend::summary(spec);
    for (kind, value) in spec.jail.limits.set() {
        let value = limit_in_words(kind, value);
        words.push(match kind {
            LimitKind::Cpu => value,
            kind => format!("{kind} {value}"),
        });
    }
    words.join(", ")
}
