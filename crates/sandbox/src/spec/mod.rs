//! What is wanted of a sandbox, whatever stands behind it: declared and serialisable.

pub(crate) mod amount;
pub(crate) mod backend;
pub(crate) mod credential;
pub(crate) mod name;
pub(crate) mod workspace_mode;

use crate::Name;
use crate::spec::backend::Backend;
use crate::spec::credential::Credential;
use glovebox_egress::{MAX_SECRETS, MachineProxy, Policy, Secret};
use glovebox_proto::{Code, Fault, Setting, limits::MAX_TIMEOUT_MS};
use glovebox_spec::{Isolation, Layers, Net, json_path};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Everything the caller decides about one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxSpec {
    /// What stands behind it.
    pub backend: Backend,
    /// Walls, limits, environment and workspace. The `host` and `command` backends take `env`,
    /// `limits` and `require` from it. For `host`, `env` is the whole environment of the guest; for
    /// `command` it is that of the carrier (`ssh` wants `HOME` and `SSH_AUTH_SOCK`, for instance),
    /// and what commands see is the other side's own.
    pub jail: Isolation,
    /// Working directory of the guest for the `host` and `command` backends.
    #[serde(with = "json_path::option")]
    pub cwd: Option<PathBuf>,
    /// How long coming up may take, in milliseconds.
    pub start_ms: u64,
    /// Where the `command` backend keeps the guest on the other side; `None` for a place that it finds there.
    #[serde(
        default,
        with = "json_path::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub guest_dir: Option<PathBuf>,
    /// Settings that belong to the backend: words by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Vec<String>>,
    /// Key or token for the backend's service. In memory alone, as the values of secrets are.
    #[serde(skip)]
    pub credential: Option<Credential>,
    /// Ends a supervised sandbox after this many milliseconds without any connected client.
    pub lease_ms: Option<u64>,
    /// The sandbox on whose behalf this one is made, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The project whose package caches it keeps when it has ended; `None` throws away what it wrote to them.
    #[serde(
        default,
        with = "json_path::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub cache_project: Option<PathBuf>,
    /// The user of a server whose caches these are: caches of one project are apart for each user. `None` for the user
    /// of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_owner: Option<String>,
    /// What it may reach, where its network is [`Net::Egress`].
    #[serde(default, skip_serializing_if = "Policy::is_empty")]
    pub egress: Policy,
    /// What is filled in on the way out. Their values are in memory alone: a spec that was read from disk has none, and
    /// whoever starts a sandbox with it reads them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<Secret>,
    /// The machine's own proxy, for connections to listed hosts. In memory alone, as the values of secrets are.
    #[serde(skip)]
    pub upstream: Option<MachineProxy>,
    /// Files with certificates of authorities, where there are secrets, or a proxy of the machine that TLS is spoken
    /// with. The first is what these are checked with; with secrets programs inside trust those of all.
    #[serde(
        default,
        with = "json_path::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub certificates: Vec<PathBuf>,
    /// Whether what it changed is parked when the process that owns it dies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parks_changes: bool,
}

/// A supervised sandbox on whose behalf another one is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// Its name.
    pub name: Name,
    /// When it was made: a later sandbox of that name is another one.
    pub created_unix_ms: u64,
    /// Whether the one that is made outlives it. Otherwise it ends with it, and its files go.
    pub is_survived: bool,
}

impl SandboxSpec {
    /// A sandbox of this backend with everything else at its default.
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

    /// Whether its files stay on this machine when it stops: their layers are native, and on disk.
    pub fn has_layers_on_disk(&self) -> bool {
        self.backend.has_layers() && self.jail.layers == Layers::Disk
    }

    /// Whether its files stay when it stops, on this machine or on that of a service.
    pub fn keeps_files(&self) -> bool {
        self.has_layers_on_disk() || self.backend.capabilities().keeps_files
    }

    /// Whether it ends with the one on whose behalf it was made.
    pub(crate) fn is_bound(&self) -> bool {
        self.parent
            .as_ref()
            .is_some_and(|parent| !parent.is_survived)
    }

    /// Gives an option of the backend its words.
    pub fn set_option(&mut self, name: &str, words: impl IntoIterator<Item = impl Into<String>>) {
        let words = words.into_iter().map(Into::into).collect();
        self.options.insert(name.to_owned(), words);
    }

    /// The words of an option; none where it was not given.
    pub fn option(&self, name: &str) -> &[String] {
        self.options.get(name).map_or(&[], Vec::as_slice)
    }

    /// Checks what is the same for every backend, without touching the system.
    ///
    /// # Errors
    /// `invalid-argument`, naming the field.
    pub(crate) fn validate(&self) -> Result<(), Fault> {
        let invalid = |message: &str| Err(Fault::failed(Code::InvalidArgument, message));
        if self.jail.net == Net::Egress
            && !self.backend.capabilities().networks.contains(&Net::Egress)
        {
            return invalid(
                "a network of listed hosts takes a native sandbox: elsewhere nothing sees to it",
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
