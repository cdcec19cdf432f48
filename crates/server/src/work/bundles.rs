//! Bundles of users: stored by digest and language, readable only by the users who uploaded them;
//! and single calls of their tools.

use super::accounting::{CallEnd, CallPlace};
use super::bundle_health::EngineProbes;
use super::places::{Place, Places};
use super::{App, bundle_url};
use crate::config::ServerConfig;
use crate::store::BundleRow;
use glovebox_bundle::Language;
use glovebox_egress::FetchClient;
use glovebox_proto::{Code, Fault};
use glovebox_runner::{CallReport, RunnerConfig, ToolRunner};
use glovebox_session::bundle::{
    BundleHash, BundleStore, BundleTools, CallContext, ModelRules, PLACEMENT, PutError,
    StoreLimits, StoredBundle, ToolFailure, ToolNote,
};
use glovebox_session::host::now_unix_ms;
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::Span;

/// Maximum number of bundles of all users, and of one user.
const MAX_BUNDLES: usize = 10_000;
const MAX_BUNDLES_PER_USER: usize = 100;
/// Maximum number of bundles kept ready in memory, and of the bytes of their sources.
const MAX_READY: usize = 64;
const MAX_READY_BYTES: u64 = 64 << 20;
/// Maximum number of bundles that are read at the same time; further requests wait.
const MAX_READERS: usize = 2;
/// Maximum number of tool calls at the same time, of all users and of one user.
const MAX_CALLS: usize = 64;
pub(crate) const MAX_CALLS_PER_USER: usize = 16;
/// Maximum number of calls of one user with the engine `node` at the same time, of the eight of all
/// users. Further calls wait.
const MAX_NODE_CALLS_PER_USER: usize = 4;

/// A bundle whose tools are ready to be called.
#[derive(Debug)]
pub(crate) struct ReadyBundle {
    pub stored: StoredBundle,
    /// Tools of each agent, by the agent's key.
    agents: HashMap<String, Arc<BundleTools>>,
    /// Tools of the bundle that belong to no agent.
    own: Arc<BundleTools>,
}

/// Reason for which a bundle is refused.
#[derive(Debug)]
pub(crate) enum BundleRefusal {
    /// The bundle is invalid. Holds all errors and warnings.
    Problems(Box<glovebox_bundle::Extraction>),
    /// Tools cannot be offered as they are declared. Holds the agent (empty for none) and the note
    /// about its tool.
    Tools(Vec<(String, ToolNote)>),
    /// The bundle cannot be accepted for another reason.
    Fault(Fault),
}

impl From<Fault> for BundleRefusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl ReadyBundle {
    fn prepare(stored: StoredBundle) -> Result<Self, Vec<(String, ToolNote)>> {
        let bundle = &stored.extraction.bundle;
        let (mut agents, mut wrong) = (HashMap::new(), Vec::new());
        let mut prepare = |agent: &str, tools| match BundleTools::new(tools) {
            Ok(tools) => Some(Arc::new(tools)),
            Err(notes) => {
                wrong.extend(notes.into_iter().map(|note| (agent.to_owned(), note)));
                None
            }
        };
        for agent in &bundle.agents {
            if let Some(tools) = prepare(&agent.key, &agent.tools) {
                agents.insert(agent.key.clone(), tools);
            }
        }
        match prepare("", &bundle.tools) {
            Some(own) if wrong.is_empty() => Ok(Self {
                stored,
                agents,
                own,
            }),
            _ => Err(wrong),
        }
    }

    fn is_of(&self, hash: BundleHash, language: Language) -> bool {
        self.stored.hash == hash && self.stored.language() == language
    }

    /// Returns the tools of an agent, or those without an agent if `agent` is None or unknown.
    pub(crate) fn tools(&self, agent: Option<&str>) -> &Arc<BundleTools> {
        let found = agent.and_then(|agent| self.agents.get(agent));
        found.unwrap_or(&self.own)
    }
}

/// All bundles of this server.
#[derive(Debug)]
pub(crate) struct Bundles {
    store: BundleStore,
    pub rules: ModelRules,
    /// Runner of the bundles' tools.
    pub runner: Arc<ToolRunner>,
    /// Client that fetches bundles by URL.
    pub(super) url_client: FetchClient,
    pub(super) probes: EngineProbes,
    is_prepared: AtomicBool,
    ready: Mutex<VecDeque<Arc<ReadyBundle>>>,
    /// Permits to read or store a bundle.
    readers: Arc<tokio::sync::Semaphore>,
    calls: Arc<Places>,
    /// Held while a row is added, and while a source without rows is removed.
    rows: Mutex<()>,
    /// Name of the key of each signature that was verified since the server started, by user and
    /// bundle.
    signers: Mutex<HashMap<(String, BundleHash), String>>,
}

impl Bundles {
    pub(crate) fn open(dir: &Path, config: &ServerConfig) -> Result<Self, Fault> {
        let limits = StoreLimits {
            bundles: MAX_BUNDLES,
            evicts: false,
        };
        Ok(Self {
            store: BundleStore::open(dir, limits, config.bundles.extractor.clone())?,
            rules: ModelRules::new(config.bundles.models.clone(), config.models.clone()),
            runner: Arc::new(ToolRunner::new(
                Arc::clone(&config.registry),
                RunnerConfig {
                    max_parallel: MAX_CALLS,
                    max_parallel_of_tenant: MAX_CALLS_PER_USER,
                    max_parallel_node_of_tenant: MAX_NODE_CALLS_PER_USER,
                    node: config.bundles.node.clone(),
                    hosts: config.bundles.tool_hosts.clone(),
                    ..RunnerConfig::default()
                },
            )?),
            url_client: bundle_url::client(&config.bundles)?,
            probes: EngineProbes::default(),
            is_prepared: AtomicBool::default(),
            ready: Mutex::default(),
            readers: Arc::new(tokio::sync::Semaphore::new(MAX_READERS)),
            calls: Places::new(MAX_CALLS_PER_USER, MAX_CALLS),
            rows: Mutex::default(),
            signers: Mutex::default(),
        })
    }

    /// Waits for a permit to read a bundle, which takes memory and a processor. Returns None if the
    /// semaphore is closed.
    pub(crate) async fn reader(&self) -> Option<tokio::sync::OwnedSemaphorePermit> {
        Arc::clone(&self.readers).acquire_owned().await.ok()
    }

    /// Starts a sandbox for tools once, in the background, so that the first call does not wait for
    /// it.
    fn prepare_runner(&self) {
        if self.is_prepared.swap(true, Ordering::Relaxed) {
            return;
        }
        let runner = Arc::clone(&self.runner);
        // A failure is ignored here: the first call starts the sandbox again and reports the fault.
        let _ = std::thread::Builder::new()
            .name("tool sandbox".to_owned())
            .spawn(move || runner.prepare());
    }

    fn ready(&self) -> MutexGuard<'_, VecDeque<Arc<ReadyBundle>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signers(&self) -> MutexGuard<'_, HashMap<(String, BundleHash), String>> {
        self.signers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_rows(&self) -> MutexGuard<'_, ()> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find_ready(&self, hash: BundleHash, language: Language) -> Option<Arc<ReadyBundle>> {
        let mut ready = self.ready();
        let at = ready.iter().position(|one| one.is_of(hash, language))?;
        let found = ready.remove(at)?;
        ready.push_back(Arc::clone(&found));
        Some(found)
    }

    fn keep_ready(&self, bundle: &Arc<ReadyBundle>) {
        let mut ready = self.ready();
        ready.retain(|one| !one.is_of(bundle.stored.hash, bundle.stored.language()));
        ready.push_back(Arc::clone(bundle));
        let bytes = |ready: &VecDeque<Arc<ReadyBundle>>| -> u64 {
            ready.iter().map(|one| one.stored.summary.bytes).sum()
        };
        while ready.len() > MAX_READY || (bytes(&ready) > MAX_READY_BYTES && ready.len() > 1) {
            ready.pop_front();
        }
    }

    /// Returns true if calls of this user are running, apart from those of sessions.
    pub(super) fn has_calls_of(&self, user: &str) -> bool {
        self.calls.has_taken(user)
    }

    /// Counts one tool call of `user` until the result is dropped. Does not wait.
    ///
    /// # Errors
    /// `busy` if the user has too many calls; `unavailable` if all users together have too many.
    pub(crate) fn begin_call(&self, user: &str) -> Result<Place, Fault> {
        self.calls.take(user).map_err(|no_place| {
            Fault::failed(no_place.code(), "too many tools are being called")
                .remedy("try again when some have ended")
                .retryable()
        })
    }
}

impl App {
    /// Stores a bundle of `user`, after checking its signature, size and tools.
    ///
    /// # Errors
    /// Returns the reason for which the bundle is refused.
    pub(crate) fn put_bundle(
        &self,
        user: &str,
        source: &[u8],
        language: Language,
        signature: Option<&str>,
    ) -> Result<Arc<ReadyBundle>, BundleRefusal> {
        // Before the source is read: an upload without an accepted signature never reaches the
        // parser.
        let checked = self.config.bundles.keys.check(source, signature)?;
        let hash = BundleHash::of(source);
        let name = hash.to_string();
        let earlier = self.owners.bundle(user, &name)?;
        if earlier.is_none() && self.owners.bundles(user)?.len() >= MAX_BUNDLES_PER_USER {
            let message = format!("you have {MAX_BUNDLES_PER_USER} bundles, and that is the most");
            let fault = Fault::failed(Code::NoSpace, message);
            return Err(fault.remedy("delete those that are not used").into());
        }
        let stored = self.bundles.store.put(source, language, now_unix_ms());
        let stored = stored.map_err(|error| match error {
            PutError::Refused(extraction) => BundleRefusal::Problems(extraction),
            PutError::Fault(fault) => fault.into(),
        })?;
        let ready = match ReadyBundle::prepare(stored) {
            Ok(ready) => Arc::new(ready),
            Err(notes) => {
                self.remove_unused(hash, language)?;
                return Err(BundleRefusal::Tools(notes));
            }
        };
        let row = BundleRow {
            language,
            signature: checked.as_ref().map(|checked| checked.signature.clone()),
            at_unix_ms: now_unix_ms(),
        };
        {
            let _rows = self.bundles.lock_rows();
            self.owners.add_bundle(user, &name, &row)?;
            // Between `store.put` and the row another user's deletion may have removed the source,
            // since no row held it.
            if self.bundles.store.source(hash, language)?.is_none() {
                self.bundles.store.restore(&ready.stored, source)?;
            }
        }
        if let Some(checked) = checked {
            let key = (user.to_owned(), hash);
            self.bundles.signers().insert(key, checked.signer);
        }
        if let Some(earlier) = earlier.filter(|earlier| earlier.language != language) {
            self.remove_unused(hash, earlier.language)?;
        }
        self.bundles.keep_ready(&ready);
        self.bundles.prepare_runner();
        Ok(ready)
    }

    /// Returns a bundle of `user`.
    ///
    /// # Errors
    /// `not-found` if this user has not uploaded it, even if another user has; `unsigned` if no
    /// accepted key signed it.
    pub(crate) fn bundle(&self, user: &str, hash: BundleHash) -> Result<Arc<ReadyBundle>, Fault> {
        let absent = || {
            Fault::failed(Code::NotFound, format!("you have no bundle {hash}"))
                .remedy("upload it with PUT /api/bundles")
        };
        let row = self.owners.bundle(user, &hash.to_string())?;
        let row = row.ok_or_else(absent)?;
        self.check_signature(user, hash, &row)?;
        if let Some(found) = self.bundles.find_ready(hash, row.language) {
            return Ok(found);
        }
        let stored = self.bundles.store.get(hash, row.language)?;
        let stored = stored.ok_or_else(absent)?;
        let ready = ReadyBundle::prepare(stored).map_err(|notes| {
            let reason = notes
                .first()
                .map(|(_, note)| note.to_string())
                .unwrap_or_default();
            Fault::failed(
                Code::InvalidArgument,
                format!("the bundle {hash} is refused by now: {reason}"),
            )
        })?;
        let ready = Arc::new(ready);
        self.bundles.keep_ready(&ready);
        Ok(ready)
    }

    /// Checks the signature of a user's upload against the current keys: the operator may have
    /// added or removed keys since the upload.
    ///
    /// # Errors
    /// `unsigned` if no current key made the signature.
    fn check_signature(&self, user: &str, hash: BundleHash, row: &BundleRow) -> Result<(), Fault> {
        let keys = &self.config.bundles.keys;
        let key = (user.to_owned(), hash);
        if !keys.is_required() || self.bundles.signers().contains_key(&key) {
            return Ok(());
        }
        let source = self.bundles.store.source(hash, row.language)?;
        let signer = match (&source, &row.signature) {
            (Some(source), Some(signature)) => keys.find_signer(source, signature),
            _ => None,
        };
        let Some(signer) = signer else {
            let message = format!("no key that is accepted here has signed the bundle {hash}");
            return Err(Fault::refused(Code::Unsigned, message)
                .remedy("upload it again with a signature, as `Glovebox-Signature`"));
        };
        self.bundles.signers().insert(key, signer.to_owned());
        Ok(())
    }

    /// Returns the name of the key that signed a user's upload. None if the server asks for no
    /// signatures or the signature was not verified since it started.
    pub(crate) fn signer_of(&self, user: &str, hash: BundleHash) -> Option<String> {
        let key = (user.to_owned(), hash);
        self.bundles.signers().get(&key).cloned()
    }

    /// Removes a source that no user has in this language.
    fn remove_unused(&self, hash: BundleHash, language: Language) -> Result<(), Fault> {
        let _rows = self.bundles.lock_rows();
        if !self.owners.is_bundle_used(&hash.to_string(), language)? {
            let mut ready = self.bundles.ready();
            ready.retain(|one| !one.is_of(hash, language));
            drop(ready);
            self.bundles.store.remove(hash, language)?;
        }
        Ok(())
    }

    /// Deletes a bundle of `user`. Returns false if the user has none of this digest.
    pub(crate) fn delete_bundle(&self, user: &str, hash: BundleHash) -> Result<bool, Fault> {
        let name = hash.to_string();
        let Some(row) = self.owners.bundle(user, &name)? else {
            return Ok(false);
        };
        self.owners.remove_bundle(user, &name)?;
        self.bundles.signers().remove(&(user.to_owned(), hash));
        self.remove_unused(hash, row.language)?;
        Ok(true)
    }

    /// Calls one tool of a bundle and accounts for the call.
    pub(crate) fn call_bundle_tool(
        &self,
        tools: &BundleTools,
        tool: &str,
        call: &CallContext<'_>,
        arguments: &Value,
        cancel: &AtomicBool,
    ) -> Result<CallReport, ToolFailure> {
        let place = CallPlace {
            user: call.tenant.to_owned(),
            session: call.session().map(str::to_owned),
            sandbox: None,
            placement: PLACEMENT,
        };
        let id = call.id.to_owned();
        let request = Span::current();
        let begun = self
            .accounting
            .begin_call(&request, &place, id, tool, arguments);
        let called = tools.call(&self.bundles.runner, tool, call, arguments, cancel);
        if matches!(&called, Err(ToolFailure::NotFound(_))) {
            // TRUST: the name of an unknown tool is the client's text; it gets no metric and no
            // audit entry, because no call was made.
            self.accounting.unwatch_call(&place, call.id, tool, None);
        } else {
            let text = match &called {
                Ok(report) => report.value.to_string(),
                Err(failure) => failure.to_string(),
            };
            let end = CallEnd::plain(called.is_ok(), &text);
            self.accounting.end_call(&place, &begun, end);
        }
        called
    }
}
