//! Stage that computes while the tests wait, at the lowest priority, so that it takes no time from
//! them.

use super::timing::{Stage, Timing};
use anyhow::{Result, bail};
use std::thread::{self, JoinHandle};

/// Niceness of the lowest priority (setpriority(2)).
const LOWEST_PRIORITY: i32 = 19;

/// Running stage in a thread.
pub(super) struct BackgroundStage(JoinHandle<(Stage, Result<()>)>);

/// Starts `work` as the stage `title`.
pub(super) fn start(title: &'static str, work: fn() -> Result<()>) -> BackgroundStage {
    BackgroundStage(thread::spawn(move || {
        // Applies to this thread and to the processes that it starts.
        let _ = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
        Stage::of(title, work)
    }))
}

impl BackgroundStage {
    /// Waits for the end of the stage.
    ///
    /// # Errors
    /// The error of the work.
    pub(super) fn finish(self, timing: &mut Timing) -> Result<()> {
        let Ok((stage, result)) = self.0.join() else {
            bail!("a stage in the background panicked");
        };
        timing.push(stage);
        result
    }
}
