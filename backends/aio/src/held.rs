//! Directories and sessions that a container holds for the sandboxes of one state directory.

use crate::client::Client;
use crate::program::{SESSION, Tenant};
use crate::script::{Answers, check_script};
use glovebox_carrier::{ConnectFailure, runtime, show_message};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::backend::{Claim, HeldMachine};
use glovebox_sandbox::{Name, random_hex};
use std::collections::BTreeMap;
use std::time::Instant;

/// State of a sandbox with sessions of commands.
const RUNNING: &str = "running";
/// State of a sandbox of which only the files exist.
const STOPPED: &str = "stopped";

impl Client {
    /// Returns the directories that look like those of sandboxes, and the sessions of the owner's
    /// sandboxes.
    ///
    /// # Errors
    /// The failure of a request.
    pub(crate) fn list_held(
        &self,
        owner: &str,
        known: &[Name],
        deadline: Instant,
    ) -> Result<Vec<HeldMachine>, Fault> {
        let mut found: BTreeMap<String, HeldMachine> = BTreeMap::new();
        let claim = |name: Option<&Name>| match name {
            Some(name) if known.contains(name) => Claim::InUse,
            _ => Claim::Left,
        };
        // Directories first: a sandbox that starts meanwhile would otherwise have a session without
        // a directory.
        let output = self.run_held_script("list_held", owner, "", deadline)?;
        for held in Answers::new(&output.text, &output.nonce).all("held") {
            // TRUST: any process in the container may have written this line.
            let Some((state, dir)) = held.split_once(' ') else {
                continue;
            };
            let name = sandbox_of_dir(dir);
            let claim = match (state, &name) {
                ("ours", Some(name)) => claim(Some(name)),
                _ => Claim::Foreign,
            };
            let machine = HeldMachine {
                name: dir.to_owned(),
                state: STOPPED.to_owned(),
                claim,
            };
            found.insert(dir.to_owned(), machine);
        }
        for session in self.list_sessions(deadline)? {
            let Some(name) = Tenant::sandbox_of_session(owner, &session) else {
                continue;
            };
            let Ok(name) = Name::parse(name) else {
                continue;
            };
            let dir = name.directory_elsewhere();
            let machine = found.entry(dir.clone()).or_insert_with(|| HeldMachine {
                name: dir,
                state: String::new(),
                claim: claim(Some(&name)),
            });
            RUNNING.clone_into(&mut machine.state);
        }
        Ok(found.into_values().collect())
    }

    /// Closes the sessions of a sandbox and removes its directory. Succeeds if there is neither.
    ///
    /// # Errors
    /// The failure of a request; `already-exists` for a directory that is not the owner's.
    pub(crate) fn remove_held(
        &self,
        owner: &str,
        name: &Name,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let sessions = self.list_sessions(deadline)?;
        let is_its =
            |session: &&String| Tenant::sandbox_of_session(owner, session) == Some(name.as_str());
        for session in sessions.iter().filter(is_its) {
            self.close_session(session, deadline)?;
        }
        self.remove_dir(owner, &name.directory_elsewhere(), deadline)
    }

    /// Removes the directory of a sandbox with its mark. Succeeds if there is none.
    ///
    /// # Errors
    /// As [`Self::remove_held`].
    pub(crate) fn remove_dir(
        &self,
        owner: &str,
        dir: &str,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let output = self.run_held_script("release", owner, dir, deadline)?;
        let answers = Answers::new(&output.text, &output.nonce);
        let dir = show_message(dir.as_bytes());
        match (answers.failure(), answers.last("done")) {
            (None, Some(_)) => Ok(()),
            (Some((word, _)), _) if word == "taken" => Err(Fault::refused(
                Code::AlreadyExists,
                format!("`{dir}` in the AIO Sandbox was not made from here, and stays"),
            )
            .remedy("remove it there, if it is yours")),
            _ => Err(self.carrier_failed(&format!(
                "`{dir}` could not be removed there: {}",
                self.show(&output.errors)
            ))),
        }
    }

    fn run_held_script(
        &self,
        call: &str,
        owner: &str,
        dir: &str,
        deadline: Instant,
    ) -> Result<ScriptOutput, Fault> {
        let client = self.clone();
        let nonce = random_hex();
        let script = check_script(&[("n", &nonce), ("o", owner), ("d", dir)], call);
        let run = runtime::run_until(deadline, async move {
            let session = format!("{SESSION}-{}", random_hex());
            let result = client.run_script(&session, &script).await;
            // Close in the foreground: the process may exit after this, and a background request
            // would be lost.
            let _ = client.close(&session).await;
            result
        })?;
        match run {
            Some(Ok(result)) => Ok(ScriptOutput {
                text: result.stdout.unwrap_or_default(),
                errors: result.stderr.unwrap_or_default(),
                nonce,
            }),
            Some(Err(ConnectFailure::Retry { fault, .. } | ConnectFailure::Final(fault))) => {
                Err(fault)
            }
            None => Err(self.timed_out()),
        }
    }
}

/// Output of a script of `check.sh`.
struct ScriptOutput {
    text: String,
    errors: String,
    nonce: String,
}

/// Returns the name of the sandbox that a directory would belong to. None if the name is no such.
pub(crate) fn sandbox_of_dir(dir: &str) -> Option<Name> {
    Name::parse(dir.strip_prefix("glovebox-")?).ok()
}
