//! Configuration of a server.

use crate::base_path::BasePath;
use crate::metrics::DroppedSpans;
use crate::origin::AllowedOrigin;
use crate::peer::TrustedProxies;
use crate::preview_domain::PreviewDomain;
use crate::tls::Tls;
use glovebox_agent::Placement;
use glovebox_bundle::ConfinedExtractor;
use glovebox_proto::{Code, Fault};
use glovebox_runner::{Engine, HostGrant, NodeView};
use glovebox_sandbox::{Registry, Supervisor};
use glovebox_session::bundle::{AllowedModel, BundleKeys};
use glovebox_settings::{Settings, SourceDir, Surroundings};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Minimum length of a token that a user chooses.
const MIN_TOKEN_CHARS: usize = 16;

/// A secret that authenticates a client. Only [`Self::reveal`] returns its text; `Debug` does not.
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// Checks that a text is printable, has no spaces and is not too short to resist guessing.
    ///
    /// # Errors
    /// One sentence that states the rule.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() < MIN_TOKEN_CHARS || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "a token has at least {MIN_TOKEN_CHARS} printable characters and no spaces"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// Creates a random token.
    ///
    /// # Errors
    /// `unavailable` if the kernel has no random bytes.
    pub fn random() -> Result<Self, Fault> {
        let mut bytes = [0_u8; 32];
        let filled = getrandom(&mut bytes, GetRandomFlags::empty());
        if filled != Ok(bytes.len()) {
            return Err(Fault::failed(
                Code::Unavailable,
                "the kernel has no random bytes for a token",
            ));
        }
        // The hash is text with the entropy of the bytes.
        Ok(Self(blake3::hash(&bytes).to_hex().to_string()))
    }

    /// Returns the text, for the user who owns the token.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the digest that is stored and compared instead of the token. A token has enough
    /// entropy for a plain hash, and hashes are compared in constant time.
    pub fn digest(&self) -> blake3::Hash {
        blake3::hash(self.0.as_bytes())
    }
}

/// Configuration of users' bundles.
#[derive(Debug)]
pub struct BundleConfig {
    /// Reader of bundles, which runs each time in a confined process.
    pub extractor: ConfinedExtractor,
    /// Models allowed for the names in bundles, besides those that tasks may name.
    pub models: Vec<AllowedModel>,
    /// Keys whose signatures are accepted. If there are any, every bundle must be signed.
    pub keys: BundleKeys,
    /// Hosts from which bundles may be fetched, in the syntax of `--allow`. Empty for none.
    pub hosts: Vec<String>,
    /// Engines that requests may name, besides the default one.
    pub engines: Vec<Engine>,
    /// Location of Node for the engine `node`.
    pub node: NodeView,
    /// Hosts that tools may reach. None are reachable if its policy is empty.
    pub tool_hosts: HostGrant,
    /// PEM certificates that are trusted for `hosts`, besides the usual ones.
    pub ca: Option<Vec<u8>>,
}

/// Limits of uploaded workspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadLimits {
    /// Maximum bytes of one upload, unpacked.
    pub max_bytes: u64,
    /// Maximum bytes of all uploads of one user, with 4 KiB added for each entry.
    pub max_bytes_per_user: u64,
    /// Time after which an unused upload is removed.
    pub ttl: std::time::Duration,
}

/// Resources that several sandboxes may use together. None for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Processors in thousandths of one.
    pub cpu_millis: Option<u64>,
    /// Disk in bytes.
    pub disk_bytes: Option<u64>,
}

/// Quotas of the sandboxes' resources. A running sandbox counts with its own limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceQuotas {
    /// Quota of all users together.
    pub in_all: ResourceLimits,
    /// Quota of each user.
    pub per_user: ResourceLimits,
}

/// Configuration of a server.
#[derive(Debug)]
pub struct ServerConfig {
    /// Variables, working directory and home of the user.
    pub host: Surroundings,
    /// Settings of every session: limits, network, tools. Consent to a project's file was given
    /// before.
    pub settings: Settings,
    /// Project of sessions that choose no workspace. None gives them an empty one.
    pub project: Option<PathBuf>,
    /// Source directories that tasks may name as their workspace.
    pub sources: Vec<SourceDir>,
    /// Limits of uploaded workspaces.
    pub uploads: UploadLimits,
    /// Models that a task may name; the first is the default. If empty, the model of the settings
    /// is the only one.
    pub models: Vec<String>,
    /// Registry of the sandboxes.
    pub registry: Arc<Registry>,
    /// Supervisor that sandboxes are started with.
    pub supervisor: Supervisor,
    /// Directory of sessions and of the server's own files.
    pub state_dir: PathBuf,
    /// Placement of the tools: in sandboxes or on this machine.
    pub placement: Placement,
    /// Configuration of users' bundles.
    pub bundles: BundleConfig,
    /// The administrator's token.
    pub admin_token: Token,
    /// Host names, with ports, under which the server accepts requests, besides its own address.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may call the API with a token.
    pub allowed_origins: Vec<AllowedOrigin>,
    /// Proxies whose headers about the client are trusted.
    pub trusted_proxies: Arc<TrustedProxies>,
    /// Path below which the server is reached.
    pub base_path: BasePath,
    /// True if the administrator's token was generated for this run.
    pub is_admin_token_made: bool,
    /// True if users may open hosts of the public internet for their own sessions. Otherwise only
    /// administrators may open hosts.
    pub users_open_public_hosts: bool,
    /// Domain below which previews are served. None for `localhost` with the server's port.
    pub preview_domain: Option<PreviewDomain>,
    /// TLS certificate. None for plain HTTP.
    pub tls: Option<Tls>,
    /// Maximum number of running sessions.
    pub max_running: usize,
    /// Maximum number of running sessions of one user.
    pub max_running_per_user: usize,
    /// Maximum number of waiting sessions.
    pub max_queued: usize,
    /// Maximum number of waiting sessions of one user.
    pub max_queued_per_user: usize,
    /// Maximum number of running sandboxes of one user when one is started without a session.
    pub max_sandboxes_per_user: usize,
    /// Quotas of the sandboxes' resources.
    pub quotas: ResourceQuotas,
    /// Number of sandboxes that are started ahead for sessions with an empty workspace.
    pub pool: usize,
    /// Maximum requests per second of one user. None for no limit.
    pub max_requests_per_second: Option<u32>,
    /// Time after which an idle sandbox stops; its files are kept.
    pub idle: std::time::Duration,
    /// Maximum running time of a sandbox. Then its session ends, and it stops; its files are kept.
    pub session_ttl: std::time::Duration,
    /// Time for which sessions may continue after the server was asked to end.
    pub drain: std::time::Duration,
    /// Counter of trace spans that did not reach the collector. None without a collector.
    pub dropped_spans: Option<DroppedSpans>,
}
