//! Records the project's state while its sandbox is already working.

use glovebox_sandbox::WorkspaceLayers;
use glovebox_workspace::{base, complete_held};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Walk over the project. Dropping it stops the walk; an incomplete index is not used.
#[derive(Debug)]
pub struct BaseIndex {
    is_stopped: Arc<AtomicBool>,
    walk: Option<JoinHandle<()>>,
}

impl BaseIndex {
    /// Starts the walk. `None` without a project, or if there is an index already (of a resumed
    /// sandbox) and no git directory whose objects must be held.
    pub fn begin(layers: WorkspaceLayers) -> Option<Self> {
        let project = layers.project?;
        let is_recorded = layers.base.exists();
        if is_recorded && layers.seed.is_none() {
            return None;
        }
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_stopped);
        let walk = std::thread::Builder::new()
            .name("base".to_owned())
            .spawn(move || {
                let is_stopped = || stop.load(Ordering::Relaxed);
                let pushed = layers.pushed_unix_ns;
                // Failures are ignored. Without an index, only the time of the push decides; files
                // that were not kept cannot be merged later.
                if !is_recorded && base::record(&project, &layers.base, pushed, &is_stopped).is_ok()
                {
                    let _ = base::keep(&project, &layers.base, pushed, &layers.hidden, &is_stopped);
                }
                // Objects that are not held yet are shown live; only a clean-up on the host could
                // remove them.
                if let Some(seed) = &layers.seed {
                    complete_held(seed, &is_stopped);
                }
            })
            .ok()?;
        Some(Self {
            is_stopped,
            walk: Some(walk),
        })
    }
}

impl Drop for BaseIndex {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        if let Some(walk) = self.walk.take() {
            // A walk that panicked has written nothing.
            let _ = walk.join();
        }
    }
}
