//! Service that sandboxes run on, with all its files below one directory.

use crate::contract::ContractServer;
use crate::home::Glovebox;
use crate::person::Person;
use std::fs;
use std::path::Path;

/// Token of the form that users have.
pub const SERVICE_TOKEN: &str = "planted/0815/token";

/// Running service of a backend. Dropping it ends the service and removes its files.
#[derive(Debug)]
pub struct RemoteService {
    /// Name for `--backend`.
    pub backend: &'static str,
    /// Variable with the token.
    pub variable: &'static str,
    /// The server.
    pub server: ContractServer,
    dir: tempfile::TempDir,
}

impl RemoteService {
    /// Runs a test with each service, as the present user and as an ordinary user.
    pub fn each(mut test: impl FnMut(&mut Self, &Person)) {
        for start in [Self::sprites, Self::aio] {
            Person::each(|person| test(&mut start(), person));
        }
    }

    /// Starts the service of Sprites.
    pub fn sprites() -> Self {
        Self::start("sprites", "SPRITES_TOKEN", &["--token", SERVICE_TOKEN])
    }

    /// Starts the service of Sprites with further arguments, such as faults to play.
    pub fn sprites_with(arguments: &[&str]) -> Self {
        let arguments = [&["--token", SERVICE_TOKEN], arguments].concat();
        Self::start("sprites", "SPRITES_TOKEN", &arguments)
    }

    /// Starts the service of AIO Sandbox.
    pub fn aio() -> Self {
        Self::start("aio", "AIO_API_KEY", &["--key", SERVICE_TOKEN])
    }

    #[expect(clippy::expect_used, reason = "a test cannot go on without")]
    fn start(backend: &'static str, variable: &'static str, arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let machines = dir.path().join("machines");
        let machines = machines.to_str().expect("a path of text");
        let arguments = [arguments, &["--dir", machines]].concat();
        let server = ContractServer::start(backend, &arguments);
        Self {
            backend,
            variable,
            server,
            dir,
        }
    }

    /// Returns the flags that name this service.
    pub fn flags(&self) -> String {
        let (backend, url) = (self.backend, self.server.url());
        format!("--backend {backend} --base-url {url}")
    }

    /// Returns a call with the flags of this service.
    pub fn line(&self, person: &Person, command: &str, rest: &str) -> Glovebox {
        let line = format!("{command} {} {rest}", self.flags());
        person.line(&line).env(self.variable, SERVICE_TOKEN)
    }

    /// Removes every directory of the service with this name, as another client of it might.
    ///
    /// # Panics
    /// A directory cannot be removed.
    #[expect(clippy::expect_used, reason = "a test cannot go on without")]
    pub fn lose_files(&self, name: &str) {
        let mut pending = vec![self.dir.path().to_owned()];
        while let Some(dir) = pending.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.file_name() == name {
                    fs::remove_dir_all(entry.path()).expect("a directory that goes");
                } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    pending.push(entry.path());
                }
            }
        }
    }

    /// Returns true if the name of any file of the service contains `name`.
    pub fn holds(&self, name: &str) -> bool {
        holds(self.dir.path(), name)
    }
}

fn holds(dir: &Path, name: &str) -> bool {
    fs::read_dir(dir).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            entry.file_name().to_string_lossy().contains(name)
                || (is_dir && holds(&entry.path(), name))
        })
    })
}
