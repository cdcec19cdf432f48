//! Writing down what the project looks like while its sandbox already works.

use glovebox_sandbox::WorkspaceLayers;
use glovebox_workspace::{base, complete_held};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The walk over the project. Dropping it stops the walk; what is not finished then is done without.
#[derive(Debug)]
pub struct BaseIndex {
    is_stopped: Arc<AtomicBool>,
    walk: Option<JoinHandle<()>>,
}

impl BaseIndex {
    /// Begins the walk, unless there is no project, or an index already (of a sandbox that lives again) and no git
    /// directory whose objects are to be held.
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
                // Without an index the time of the push decides alone, and what nobody kept cannot be
                // merged later: a failure is no failure.
                if !is_recorded && base::record(&project, &layers.base, pushed, &is_stopped).is_ok()
                {
                    let _ = base::keep(&project, &layers.base, pushed, &layers.hidden, &is_stopped);
                }
                // What is not held yet is shown live; only a clean-up on the host could take it away.
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
