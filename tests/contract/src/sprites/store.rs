//! The Sprites that exist.

use super::processes;
use super::reply::now;
use super::session::Session;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All Sprites, by name.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    sprites: Mutex<BTreeMap<String, Arc<Machine>>>,
}

/// One Sprite.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) dir: PathBuf,
    created: String,
    pub(super) state: Mutex<MachineState>,
}

/// The part of a Sprite that changes.
#[derive(Debug, Default)]
pub(super) struct MachineState {
    pub(super) labels: Vec<String>,
    pub(super) url_auth: Option<Value>,
    pub(super) rules: Vec<Value>,
    pub(super) checkpoints: Vec<Value>,
    pub(super) sessions: BTreeMap<String, Arc<Session>>,
    /// Processes that were once below a session: they belong to this Sprite wherever they are now.
    pub(super) processes: BTreeSet<processes::Id>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.join("sprites"),
            sprites: Mutex::default(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Machine>> {
        lock(&self.sprites).get(name).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Machine>> {
        lock(&self.sprites).values().cloned().collect()
    }

    /// Makes a Sprite. None if there is one of this name.
    pub(super) fn create(&self, name: &str) -> std::io::Result<Option<Arc<Machine>>> {
        let mut sprites = lock(&self.sprites);
        if sprites.contains_key(name) {
            return Ok(None);
        }
        let machine = Arc::new(Machine {
            name: name.to_owned(),
            dir: self.dir.join(name),
            created: now(),
            state: Mutex::default(),
        });
        std::fs::create_dir_all(machine.home())?;
        sprites.insert(name.to_owned(), Arc::clone(&machine));
        Ok(Some(machine))
    }

    /// Removes a Sprite with its processes and files. False if there is none.
    pub(super) fn destroy(&self, name: &str) -> bool {
        let Some(machine) = lock(&self.sprites).remove(name) else {
            return false;
        };
        machine.end_processes();
        // What cannot be removed is found by the test that looks.
        let _ = std::fs::remove_dir_all(&machine.dir);
        true
    }

    /// Ends the processes of all Sprites.
    pub(super) fn end_all(&self) {
        for machine in self.all() {
            machine.end_processes();
        }
    }
}

impl Machine {
    pub(super) fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    /// Remembers the processes below the sessions, before the tree that shows them is cut.
    pub(super) fn remember_processes(&self) {
        let mut state = lock(&self.state);
        let roots: Vec<u32> = state.sessions.values().map(|session| session.pid).collect();
        let known: Vec<processes::Id> = state.processes.iter().copied().collect();
        let found = processes::below(&roots, &known);
        state.processes = found;
    }

    /// Ends every process of the Sprite, as a restart of its machine does.
    pub(super) fn end_processes(&self) {
        // Some may be forked while others are killed, so this repeats until none is found.
        for _ in 0..20 {
            self.remember_processes();
            let found = lock(&self.state).processes.clone();
            if found.is_empty() {
                return;
            }
            processes::kill(&found);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// The Sprite as the service describes it.
    pub(super) fn describe(&self) -> Value {
        let state = lock(&self.state);
        let status = if state.sessions.is_empty() {
            "warm"
        } else {
            "running"
        };
        json!({
            "id": format!("sprite-{}", self.name),
            "name": self.name,
            "organization": "contract",
            "url": format!("https://{}-contract.sprites.example", self.name),
            "url_settings": {"auth": state.url_auth.clone().unwrap_or_else(|| json!("sprite"))},
            "status": status,
            "labels": state.labels,
            "created_at": self.created,
            "updated_at": self.created,
        })
    }

    /// The short form of it in listings.
    pub(super) fn describe_shortly(&self) -> Value {
        let whole = self.describe();
        json!({
            "id": whole["id"],
            "name": whole["name"],
            "org_slug": whole["organization"],
            "url": whole["url"],
            "status": whole["status"],
            "created_at": whole["created_at"],
            "updated_at": whole["updated_at"],
        })
    }
}
