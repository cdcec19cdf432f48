//! What a server is told when it starts.

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

/// Shortest token that may be chosen.
const MIN_TOKEN_CHARS: usize = 16;

/// A secret that clients show. It is never printed but by [`Self::reveal`].
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// Checks that it can be a token: printable, without spaces, not too short to guess.
    ///
    /// # Errors
    /// One sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() < MIN_TOKEN_CHARS || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "a token has at least {MIN_TOKEN_CHARS} printable characters and no spaces"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// One that nobody can guess.
    ///
    /// # Errors
    /// When the kernel has no random bytes.
    pub fn random() -> Result<Self, Fault> {
        let mut bytes = [0_u8; 32];
        let filled = getrandom(&mut bytes, GetRandomFlags::empty());
        if filled != Ok(bytes.len()) {
            return Err(Fault::failed(
                Code::Unavailable,
                "the kernel has no random bytes for a token",
            ));
        }
        // As hard to guess as the bytes, and text.
        Ok(Self(blake3::hash(&bytes).to_hex().to_string()))
    }

    /// Its text, for the one who is to have it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is kept and compared in its place: a token has more than enough entropy for a plain hash, and equality of
    /// hashes is compared in constant time.
    pub fn digest(&self) -> blake3::Hash {
        blake3::hash(self.0.as_bytes())
    }
}

/// What holds for bundles of users.
#[derive(Debug)]
pub struct BundleConfig {
    /// Reads their text, each in a process that can do nothing else.
    pub extractor: ConfinedExtractor,
    /// Which models stand for those that bundles name, besides those that tasks may name.
    pub models: Vec<AllowedModel>,
    /// Whose signatures are accepted; when there are any, each bundle needs one.
    pub keys: BundleKeys,
    /// Hosts that bundles may be fetched from, in the words of `--allow`; none when empty.
    pub hosts: Vec<String>,
    /// Engines that requests may name for tools, besides the usual one.
    pub engines: Vec<Engine>,
    /// Where the engine `node` finds Node.
    pub node: NodeView,
    /// Hosts that tools may reach; none when its policy is empty.
    pub tool_hosts: HostGrant,
    /// Certificates, in PEM, that are believed at `hosts` besides the usual ones.
    pub ca: Option<Vec<u8>>,
}

/// Bounds of workspaces that users upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadLimits {
    /// Bytes of one, unpacked.
    pub max_bytes: u64,
    /// Bytes of all that one user has, with 4 KiB more for each entry.
    pub max_bytes_per_user: u64,
    /// How long one is kept that nobody uses.
    pub ttl: std::time::Duration,
}

/// What several sandboxes may use together; no limit where it is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Thousandths of one processor.
    pub cpu_millis: Option<u64>,
    /// Bytes of disk.
    pub disk_bytes: Option<u64>,
}

/// What sandboxes that run may use together, by the limits that each has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceQuotas {
    /// Those of all users.
    pub in_all: ResourceLimits,
    /// Those of one user.
    pub per_user: ResourceLimits,
}

/// What a server is told when it starts.
#[derive(Debug)]
pub struct ServerConfig {
    /// What this machine and this user are like.
    pub host: Surroundings,
    /// What holds for every session: limits, network, tools. Consent to a project's file has been given.
    pub settings: Settings,
    /// The project of sessions that bring none; without it they begin with an empty workspace.
    pub project: Option<PathBuf>,
    /// Directories that tasks may name, and a session then works on.
    pub sources: Vec<SourceDir>,
    /// Workspaces that users upload.
    pub uploads: UploadLimits,
    /// Models that a task may name; the first is the usual one. When empty, the one of the settings.
    pub models: Vec<String>,
    /// Where sandboxes are.
    pub registry: Arc<Registry>,
    /// How a sandbox gets its supervisor.
    pub supervisor: Supervisor,
    /// Where sessions and the server's own files are.
    pub state_dir: PathBuf,
    /// Where the tools work.
    pub placement: Placement,
    /// Bundles of users.
    pub bundles: BundleConfig,
    /// The administrator's.
    pub admin_token: Token,
    /// Names by which the server may be called besides those of its address, with their ports.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may call the API with a token.
    pub allowed_origins: Vec<AllowedOrigin>,
    /// Proxies whose word about a request's client is believed.
    pub trusted_proxies: Arc<TrustedProxies>,
    /// The path below which the server lies.
    pub base_path: BasePath,
    /// True if the administrator's token was made for this run.
    pub is_admin_token_made: bool,
    /// True if users open hosts of the public internet for their own sessions; else only administrators open hosts.
    pub users_open_public_hosts: bool,
    /// Below which name previews are; without it, below `localhost` at the server's port.
    pub preview_domain: Option<PreviewDomain>,
    /// How clients are met that speak TLS; without it the server speaks plain HTTP.
    pub tls: Option<Tls>,
    /// Sessions that work at the same time.
    pub max_running: usize,
    /// The same of one user.
    pub max_running_per_user: usize,
    /// Sessions that wait for their turn.
    pub max_queued: usize,
    /// The same of one user.
    pub max_queued_per_user: usize,
    /// Sandboxes of one user that run when one is started without a session.
    pub max_sandboxes_per_user: usize,
    /// What sandboxes may use together.
    pub quotas: ResourceQuotas,
    /// Sandboxes that are started ahead, for sessions that begin with an empty workspace.
    pub pool: usize,
    /// Requests of one user in a second; none for no limit.
    pub max_requests_per_second: Option<u32>,
    /// How long a sandbox that nobody uses goes on before it stops, with its files kept.
    pub idle: std::time::Duration,
    /// How long a sandbox runs at a stretch; then what works in it ends, and it stops, with its files kept.
    pub session_ttl: std::time::Duration,
    /// How long running sessions may go on when the server is asked to end.
    pub drain: std::time::Duration,
    /// Spans that the collector of traces does not get, counted in `/metrics`; none without a collector.
    pub dropped_spans: Option<DroppedSpans>,
}
