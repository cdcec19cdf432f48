//! Sandboxes that wait for sessions: when they are taken, and how the pool is told of.

use super::health::ComponentHealth;
use super::request::lay_session;
use super::tools::Unheard;
use super::workspaces::workspaces_dir;
use super::{App, TaskLimits};
use crate::config::ServerConfig;
use glovebox_proto::Fault;
use glovebox_session::agent::AgentWorkplace;
use glovebox_session::work::{PoolConfig, WarmPool, WarmSandbox, WorkContext};

/// The component of health.
const POOL: &str = "pool";

/// The pool, where the server is to have one. It has yet to begin.
pub(super) fn open(config: &ServerConfig) -> Result<Option<WarmPool>, Fault> {
    let pool = PoolConfig {
        size: config.pool,
        dir: config.state_dir.join("server/pool"),
        workspaces: workspaces_dir(&config.state_dir),
    };
    // Without one of its own a server still removes what an earlier one has left.
    if config.pool == 0 && !pool.dir.exists() {
        return Ok(None);
    }
    let settings = lay_session(config, None, TaskLimits::default());
    let mut settings = settings.map_err(glovebox_session::Error::into_fault)?;
    // They are started for nobody yet, so they keep no caches; neither do the sessions that take them.
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
    /// Begins to start sandboxes, over workspaces that no session has yet.
    pub(super) fn begin_pool(&self) {
        if let Some(pool) = &self.pool {
            pool.begin();
        }
    }

    /// A sandbox that waits for a session, if there is one.
    pub(super) fn take_warm(&self) -> Option<WarmSandbox> {
        self.pool.as_ref()?.take()
    }

    /// A session has begun, in a sandbox that waited for it or in one that it started.
    pub(super) fn note_begun(&self, is_warm: bool) {
        if let Some(pool) = &self.pool {
            self.metrics.session_begun(is_warm);
            pool.note_demand();
        }
    }

    /// Gives up one sandbox that waits, because there can be no more beside it. False when there is none.
    pub(super) fn give_up_warm(&self) -> bool {
        self.pool.as_ref().is_some_and(WarmPool::make_room)
    }

    /// Ends all that wait.
    pub(crate) fn close_pool(&self) {
        if let Some(pool) = &self.pool {
            pool.close();
        }
    }

    /// How many wait, and how many that waited were lost.
    pub(crate) fn pool_counts(&self) -> Option<(usize, u64)> {
        let status = self.pool.as_ref()?.status();
        Some((status.ready, status.lost))
    }

    /// How the pool stands. Sessions begin without it, too, only later.
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
