//! Probe of a service: its facts, and whether a guest can run there.

use crate::base_url::BaseUrl;
use crate::client::Client;
use crate::failure::carrier_failed;
use crate::program::{GuestProgram, Placement};
use crate::script::{Answers, check_script};
use crate::wire::{Exec, ExecResult, Sandbox, is_running};
use glovebox_carrier::{ConnectFailure, runtime, show_message};
use glovebox_proto::{Code, Fault, Setting};
use glovebox_sandbox::random_hex;
use std::pin::pin;
use std::time::{Duration, Instant};

/// Maximum run time of a script there.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time for the service to describe itself. A service that does not respond within it
/// counts as down.
pub(crate) const CONTACT_WAIT: Duration = Duration::from_secs(3);
/// Maximum length of a path there in bytes: with added names it must stay below the kernel's 4096
/// (PATH_MAX).
const MAX_PATH_BYTES: usize = 3000;
/// Maximum length of one fact in characters.
const MAX_FACT_CHARS: usize = 100;

/// Facts that the service states about its container. Untrusted: bounded and escaped, but not
/// verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Version of the service.
    pub version: String,
    /// Home directory of commands.
    pub home_dir: String,
    /// Operating system, such as `Linux`.
    pub os: String,
    /// Version of the operating system.
    pub os_version: String,
    /// Processor architecture.
    pub arch: String,
    /// User of commands.
    pub user: String,
}

/// Result of a probe of a service in which a guest can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Facts that the service states.
    pub facts: Facts,
    /// Home directory of commands there, without control characters. None if they have none.
    pub home: Option<String>,
    /// Directory in which the guest is kept, without control characters.
    pub guest_dir: String,
    /// True if the guest is installed with the right checksum.
    pub has_guest: bool,
}

impl Client {
    /// Probes the service with two concurrent requests. Starts nothing that stays.
    ///
    /// # Errors
    /// `not-authenticated`, `unsupported` without the API for commands, `carrier-failed` if no
    /// guest can run, `timed-out` after `deadline`.
    pub fn probe(
        &self,
        guest: &GuestProgram,
        placement: &Placement,
        deadline: Instant,
    ) -> Result<Probe, Fault> {
        let (client, guest, placement) = (self.clone(), guest.clone(), placement.clone());
        let probed = runtime::run_until(deadline, async move {
            let session = format!("glovebox-probe-{}", random_hex());
            let probed = client.look(&session, &guest, &placement).await;
            client.close_later(session);
            probed
        })?;
        match probed {
            Some(Ok(probe)) => Ok(probe),
            Some(Err(ConnectFailure::Retry { fault, .. } | ConnectFailure::Final(fault))) => {
                Err(fault)
            }
            None => Err(self.timed_out()),
        }
    }

    /// Probes the service, with commands in `session`.
    pub(crate) async fn look(
        &self,
        session: &str,
        guest: &GuestProgram,
        placement: &Placement,
    ) -> Result<Probe, ConnectFailure> {
        let base = self.base_url();
        let nonce = random_hex();
        let tenant = placement.tenant.as_ref();
        let tenant = tenant.filter(|tenant| tenant.has_own_dir);
        let values = [
            ("n", nonce.as_str()),
            ("h", guest.sha256()),
            ("a", std::env::consts::ARCH),
            ("d", placement.cwd.as_deref().unwrap_or_default()),
            ("r", if placement.needs_cwd { "1" } else { "" }),
            ("k", placement.guest_dir.as_deref().unwrap_or_default()),
            ("o", tenant.map_or("", |tenant| &tenant.owner)),
            ("i", tenant.map_or("", |tenant| &tenant.life)),
        ];
        let script = check_script(&values, "check");
        // Send both at once: each costs a round trip, and a start waits for them.
        let mut described = pin!(tokio::time::timeout(CONTACT_WAIT, self.describe()));
        let mut checked = pin!(self.run_script(session, &script));
        let mut early = None;
        // A service that is down delays both; the timeout of one bounds both.
        let described = tokio::select! {
            answer = &mut described => answer,
            result = &mut checked => {
                early = Some(result);
                described.await
            }
        };
        let facts = match described {
            Ok(Ok(sandbox)) => Facts::of(&sandbox),
            Err(_) => {
                let what = format!("it did not answer within {} s", CONTACT_WAIT.as_secs());
                return Err(ConnectFailure::Retry {
                    fault: carrier_failed(base, &what).retryable(),
                    after: None,
                });
            }
            Ok(Err(error)) if error.is_absent() => {
                let what = "there is no AIO Sandbox: it does not know /v1/sandbox";
                return Err(ConnectFailure::Final(carrier_failed(base, what)));
            }
            Ok(Err(error)) => return Err(error.into_failure(base)),
        };
        let result = match early {
            Some(result) => result?,
            None => checked.await?,
        };
        let output = result.stdout.unwrap_or_default();
        let answers = Answers::new(&output, &nonce);
        if let Some((word, detail)) = answers.failure() {
            return Err(ConnectFailure::Final(
                self.explain(&word, &detail, placement),
            ));
        }
        let (Some(dir), Some(has_guest)) = (answers.last("dir"), answers.last("guest")) else {
            let what = format!(
                "its shell did not answer (exit code {}): {}",
                result.exit_code.unwrap_or(-1),
                self.show(&result.stderr.unwrap_or_default())
            );
            return Err(ConnectFailure::Final(carrier_failed(base, &what)));
        };
        // TRUST: paths go back to that shell, quoted, and may be displayed.
        if !is_path(dir) {
            let what = "its shell answered with a directory that is none";
            return Err(ConnectFailure::Final(carrier_failed(base, what)));
        }
        Ok(Probe {
            facts,
            home: answers
                .last("home")
                .filter(|home| is_path(home))
                .map(ToOwned::to_owned),
            guest_dir: dir.to_owned(),
            has_guest: has_guest == "yes",
        })
    }

    /// Runs a short script to its end.
    pub(crate) async fn run_script(
        &self,
        session: &str,
        script: &str,
    ) -> Result<ExecResult, ConnectFailure> {
        let base = self.base_url();
        let request = Exec {
            session_id: session,
            command: script,
            async_mode: false,
            timeout: Some(SCRIPT_TIMEOUT.as_secs_f64()),
            hard_timeout: Some(SCRIPT_TIMEOUT.as_secs_f64()),
        };
        match self.exec(&request).await {
            Ok(result) if is_running(&result.status) || result.status == "timed_out" => {
                let fault = carrier_failed(base, "its shell did not finish a short script in time");
                Err(ConnectFailure::Retry {
                    fault: fault.retryable(),
                    after: None,
                })
            }
            Ok(result) => Ok(result),
            Err(error) if error.is_absent() => Err(ConnectFailure::Final(no_bash_api())),
            Err(error) => Err(error.into_failure(base)),
        }
    }

    /// Returns the fault for the reason of a script.
    pub(crate) fn explain(&self, word: &str, detail: &str, placement: &Placement) -> Fault {
        let failed = |what: &str| self.carrier_failed(what);
        match word {
            "system" => failed(&format!("it runs `{detail}`; the guest needs Linux")),
            "arch" => failed(&format!(
                "it is `{detail}`; this glovebox carries a guest for {} only",
                std::env::consts::ARCH
            )),
            "hash" => failed("it has no program to check a SHA-256 sum")
                .remedy("install coreutils, busybox or openssl there"),
            "dir" => failed("it has no directory of ours that lets programs run").remedy([
                "name one that is writable and not mounted noexec with ".into(),
                Setting::GuestDir.of("DIR"),
            ]),
            "guestdir" => failed(&format!(
                "the guest cannot be kept in {} there: that is not a directory of ours in which \
                 programs may be written and run",
                show_message(
                    placement
                        .guest_dir
                        .as_deref()
                        .unwrap_or_default()
                        .as_bytes()
                )
            ))
            .remedy([
                "name another one with ".into(),
                Setting::GuestDir.of("DIR"),
                ", or none".into(),
            ]),
            "write" => {
                failed("the guest could not be stored there").remedy("see whether its disk is full")
            }
            "mismatch" => failed("the guest arrived changed; its SHA-256 sum is wrong"),
            "cwd" => Fault::failed(
                Code::CwdNotFound,
                format!(
                    "cannot work in {} in the AIO Sandbox",
                    show_message(placement.cwd.as_deref().unwrap_or_default().as_bytes())
                ),
            ),
            "taken" => taken(
                placement.cwd.as_deref().unwrap_or_default(),
                detail == "ours",
                self.base_url(),
            ),
            word => failed(&format!("its shell failed: {word} {detail}")),
        }
    }
}

/// Creates the fault for a new sandbox's directory that exists already.
fn taken(dir: &str, is_ours: bool, base: &BaseUrl) -> Fault {
    let dir = show_message(dir.as_bytes());
    if is_ours {
        return Fault::refused(
            Code::AlreadyExists,
            format!("the AIO Sandbox has `{dir}` already, of an earlier sandbox of this name"),
        )
        .remedy(format!(
            "take another name; `glovebox prune --backend aio --base-url {base}` removes what no sandbox here needs"
        ));
    }
    Fault::refused(
        Code::AlreadyExists,
        format!("the AIO Sandbox has `{dir}` already, and it was not made from here"),
    )
    .remedy("take another name")
}

/// Returns true for an absolute path of ordinary length without control characters.
fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.len() <= MAX_PATH_BYTES && !text.chars().any(char::is_control)
}

impl Facts {
    fn of(sandbox: &Sandbox) -> Self {
        let fact = |text: &str| -> String {
            show_message(text.as_bytes())
                .chars()
                .take(MAX_FACT_CHARS)
                .collect()
        };
        let system = &sandbox.detail.system;
        Self {
            version: fact(&sandbox.version),
            home_dir: fact(&sandbox.home_dir),
            os: fact(&system.os),
            os_version: fact(&system.os_version),
            arch: fact(&system.arch),
            user: fact(&system.user),
        }
    }
}

/// Creates the fault for a service that is older than its API for commands.
fn no_bash_api() -> Fault {
    Fault::failed(
        Code::Unsupported,
        "this AIO Sandbox has no /v1/bash API; use an image of 2026 or later",
    )
}
