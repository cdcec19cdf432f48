//! Specification of a sandbox, declared and serialisable, for any backend.

pub(crate) mod amount;
pub(crate) mod backend;
pub(crate) mod credential;
pub(crate) mod name;
pub(crate) mod workspace_mode;

use crate::Name;
use crate::spec::backend::{Backend, CheckpointStore};
use crate::spec::credential::Credential;
use glovebox_egress::{MAX_SECRETS, MachineProxy, Policy, Secret};
use glovebox_proto::{Code, Fault, Setting, limits::MAX_TIMEOUT_MS};
use glovebox_spec::{Isolation, Layers, Net, json_path};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Specification of one sandbox: everything that the caller decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxSpec {
    /// Backend.
    pub backend: Backend,
    /// Walls, limits, environment and workspace. The `host` and `command` backends use only its
    /// `env`, `limits` and `require`. For `host`, `env` is the whole environment of the guest. For
    /// `command` it is that of the carrier (`ssh` needs `HOME` and `SSH_AUTH_SOCK`, for instance),
    /// and commands see the other machine's own environment.
    pub jail: Isolation,
    /// Working directory of the guest for the `host` and `command` backends. `None` for the
    /// default.
    #[serde(with = "json_path::option")]
    pub cwd: Option<PathBuf>,
    /// Deadline for the start, in milliseconds.
    pub start_ms: u64,
    /// Directory of the guest on the other machine for the `command` backend. `None` for one that
    /// is found there.
    #[serde(
        default,
        with = "json_path::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub guest_dir: Option<PathBuf>,
    /// Settings of the backend, as words by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Vec<String>>,
    /// Key or token for the backend's service. Never written to disk, like the values of secrets.
    #[serde(skip)]
    pub credential: Option<Credential>,
    /// Time without any connected client after which a supervised sandbox ends, in milliseconds.
    /// `None` for no limit.
    pub lease_ms: Option<u64>,
    /// Sandbox for which this one is made. `None` if it is made for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Project whose package caches are kept when the sandbox has ended. `None` removes what the
    /// sandbox wrote to them.
    #[serde(
        default,
        with = "json_path::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub cache_project: Option<PathBuf>,
    /// User of a server that owns the caches; each user has separate caches of a project. `None`
    /// for the user of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_owner: Option<String>,
    /// Hosts that the sandbox may reach if its network is [`Net::Egress`].
    #[serde(default, skip_serializing_if = "Policy::is_empty")]
    pub egress: Policy,
    /// Secrets that the egress proxy fills in. Their values are never written to disk: in a spec
    /// that was read from disk they are missing, and the process that starts the sandbox reads them
    /// again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Secret>,
    /// Proxy of the machine for connections to allowed hosts. Never written to disk, like the
    /// values of secrets.
    #[serde(skip)]
    pub upstream: Option<MachineProxy>,
    /// Files with CA certificates, needed for secrets or for a machine's proxy that speaks TLS. The
    /// proxy verifies hosts with the first file. If there are secrets, programs inside trust the
    /// certificates of all files.
    #[serde(
        default,
        with = "json_path::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub certificates: Vec<PathBuf>,
    /// True if the sandbox's changes are parked when its owner dies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parks_changes: bool,
}

/// Supervised sandbox for which another one is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// Name of the sandbox.
    pub name: Name,
    /// Time of its creation, in milliseconds since the Unix epoch. A later sandbox of the same name
    /// is another one.
    pub created_unix_ms: u64,
    /// True if the child sandbox outlives the parent. Otherwise it ends with the parent and its
    /// files are removed.
    pub is_survived: bool,
}

impl SandboxSpec {
    /// Returns the spec of a sandbox with default values.
    pub fn new(backend: Backend) -> Self {
        Self {
            backend,
            jail: Isolation::default(),
            cwd: None,
            start_ms: backend.capabilities().start_ms,
            guest_dir: None,
            options: BTreeMap::new(),
            credential: None,
            lease_ms: None,
            parent: None,
            cache_project: None,
            cache_owner: None,
            egress: Policy::default(),
            secrets: Vec::new(),
            upstream: None,
            certificates: Vec::new(),
            parks_changes: false,
        }
    }

    /// Returns true if the files stay on this machine when the sandbox stops: its layers are native
    /// and on disk.
    pub fn has_layers_on_disk(&self) -> bool {
        self.backend.has_layers() && self.jail.layers == Layers::Disk
    }

    /// Returns true if the files stay when the sandbox stops, on this machine or at a service.
    pub fn keeps_files(&self) -> bool {
        self.has_layers_on_disk() || self.backend.capabilities().keeps_files
    }

    /// Returns the place where the sandbox's checkpoints are kept.
    pub fn checkpoints(&self) -> CheckpointStore {
        match self.backend.capabilities().checkpoints {
            CheckpointStore::Layers if !self.has_layers_on_disk() => CheckpointStore::None,
            store => store,
        }
    }

    /// Returns true if the sandbox ends with its parent.
    pub(crate) fn is_bound(&self) -> bool {
        self.parent
            .as_ref()
            .is_some_and(|parent| !parent.is_survived)
    }

    /// Sets the words of a backend's option.
    pub fn set_option(&mut self, name: &str, words: impl IntoIterator<Item = impl Into<String>>) {
        let words = words.into_iter().map(Into::into).collect();
        self.options.insert(name.to_owned(), words);
    }

    /// Returns the words of an option. Empty if it was not set.
    pub fn option(&self, name: &str) -> &[String] {
        self.options.get(name).map_or(&[], Vec::as_slice)
    }

    /// Checks the parts that are common to all backends, without accessing the system.
    ///
    /// # Errors
    /// `invalid-argument`, naming the field.
    pub(crate) fn validate(&self) -> Result<(), Fault> {
        let invalid = |message: &str| Err(Fault::failed(Code::InvalidArgument, message));
        if self.jail.net == Net::Egress
            && !self.backend.capabilities().networks.contains(&Net::Egress)
        {
            return invalid(
                "a network of listed hosts takes the backend `native` or `confined`: elsewhere nothing sees to it",
            );
        }
        self.validate_secrets()?;
        if self.start_ms == 0 || self.start_ms > MAX_TIMEOUT_MS {
            return invalid("the start deadline is not between 1 ms and 30 days");
        }
        if self
            .lease_ms
            .is_some_and(|ms| ms == 0 || ms > MAX_TIMEOUT_MS)
        {
            return invalid("the lease is not between 1 ms and 30 days");
        }
        if self
            .jail
            .limits
            .wall_ms
            .is_some_and(|ms| ms == 0 || ms > MAX_TIMEOUT_MS)
        {
            return invalid("the wall-clock limit is not between 1 ms and 30 days");
        }
        Ok(())
    }

    fn validate_secrets(&self) -> Result<(), Fault> {
        let invalid = |message: String| Fault::failed(Code::InvalidArgument, message);
        if !self.secrets.is_empty() && self.jail.net != Net::Egress {
            return Err(
                invalid("secrets are filled in on the way to listed hosts".to_owned())
                    .remedy([Setting::Net.of("egress"), " is that way".into()]),
            );
        }
        if self.secrets.len() > MAX_SECRETS {
            return Err(invalid(format!(
                "there are more than {MAX_SECRETS} secrets"
            )));
        }
        for (number, secret) in self.secrets.iter().enumerate() {
            let before = &self.secrets[..number];
            if before.iter().any(|other| other.name == secret.name) {
                return Err(invalid(format!(
                    "the secret `{}` is given twice",
                    secret.name
                )));
            }
            if secret.value().is_none() {
                return Err(invalid(format!(
                    "the value of the secret `{}` is not at hand: it is kept nowhere, and read from {} by who starts \
                     the sandbox",
                    secret.name, secret.source
                ))
                .remedy("start it with `glovebox start`, where that can be read"));
            }
        }
        Ok(())
    }
}
