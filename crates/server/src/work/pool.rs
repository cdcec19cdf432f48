//! The server's pool of warm sandboxes: how sessions take them, and how the pool is reported.

use super::health::ComponentHealth;
use super::request::lay_session;
use super::tools::Unheard;
use super::workspaces::workspaces_dir;
use super::{App, TaskLimits};
use crate::config::ServerConfig;
use glovebox_proto::Fault;
use glovebox_session::agent::AgentWorkplace;
use glovebox_session::work::{PoolConfig, WarmPool, WarmSandbox, WorkContext};

/// Name of the health component.
const POOL: &str = "pool";

/// Opens the pool. It starts no sandboxes until `begin_pool`. Returns None if the server has no
/// pool.
pub(super) fn open(config: &ServerConfig) -> Result<Option<WarmPool>, Fault> {
    let pool = PoolConfig {
        size: config.pool,
        dir: config.state_dir.join("server/pool"),
        workspaces: workspaces_dir(&config.state_dir),
    };
    // A server without a pool still opens an existing one, which removes what an earlier server
    // left in it.
    if config.pool == 0 && !pool.dir.exists() {
        return Ok(None);
    }
    let settings = lay_session(config, None, TaskLimits::default());
    let mut settings = settings.map_err(glovebox_session::Error::into_fault)?;
    // Warm sandboxes belong to no user yet, so they mount no caches; sessions that take them have
    // none either.
    settings.cache.value = false;
    let caller = WorkContext {
        host: &config.host,
        registry: &config.registry,
        supervisor: &config.supervisor,
        frontend: &Unheard,
    };
    let opened = AgentWorkplace::open_pool(&caller, settings, pool)?;
    Ok(Some(opened).filter(|_| config.pool > 0))
}

impl App {
    /// Begins to start sandboxes, over workspaces that belong to no session yet.
    pub(super) fn begin_pool(&self) {
        if let Some(pool) = &self.pool {
            pool.begin();
        }
    }

    /// Takes a warm sandbox for a session. None if none is ready.
    pub(super) fn take_warm(&self) -> Option<WarmSandbox> {
        self.pool.as_ref()?.take()
    }

    /// Records that a session began, in a warm sandbox or in one that it started.
    pub(super) fn note_begun(&self, is_warm: bool) {
        if let Some(pool) = &self.pool {
            self.metrics.session_begun(is_warm);
            pool.note_demand();
        }
    }

    /// Gives up one warm sandbox to make room for another. Returns false if there is none.
    pub(super) fn give_up_warm(&self) -> bool {
        self.pool.as_ref().is_some_and(WarmPool::make_room)
    }

    /// Ends the pool and all warm sandboxes.
    pub(crate) fn close_pool(&self) {
        if let Some(pool) = &self.pool {
            pool.close();
        }
    }

    /// Returns the number of warm sandboxes and of those that were lost. None without a pool.
    pub(crate) fn pool_counts(&self) -> Option<(usize, u64)> {
        let status = self.pool.as_ref()?.status();
        Some((status.ready, status.lost))
    }

    /// Returns the health of the pool. It is always ready: sessions also begin without a warm
    /// sandbox, only later.
    pub(super) fn check_pool(&self) -> Option<ComponentHealth> {
        let status = self.pool.as_ref()?.status();
        let mut detail = format!("{} of {} sandboxes wait", status.ready, status.size);
        if let Some(problem) = status.problem {
            detail = format!("{detail}; the last could not be started: {problem}");
        }
        Some(ComponentHealth {
            name: POOL,
            is_ready: true,
            detail,
        })
    }
}
