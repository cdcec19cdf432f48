//! Durations of a run: elapsed time of each stage, and processor time of its processes.
//!
//! A stage that takes long and computes little is waiting, and can wait beside others. A stage that
//! computes can only be given less to do.

use crate::step::{processor_time, say};
use std::time::{Duration, Instant};

/// Minimum duration of a stage that the report lists.
const LONG: Duration = Duration::from_secs(10);

/// Finished stages of a run.
#[derive(Debug)]
pub(super) struct Timing {
    begun: Instant,
    stages: Vec<Stage>,
}

/// One part of a run.
#[derive(Debug)]
pub(super) struct Stage {
    title: String,
    elapsed: Duration,
    processor: Duration,
}

impl Stage {
    /// Runs `work`. Returns its duration and its result.
    pub(super) fn of<T>(title: &str, work: impl FnOnce() -> T) -> (Self, T) {
        let begun = Instant::now();
        let before = processor_time();
        let result = work();
        let stage = Self {
            title: title.to_owned(),
            elapsed: begun.elapsed(),
            processor: processor_time().saturating_sub(before),
        };
        (stage, result)
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            stages: Vec::new(),
        }
    }
}

impl Timing {
    /// Runs `work` as the stage `title`.
    pub(super) fn of<T>(&mut self, title: &str, work: impl FnOnce() -> T) -> T {
        let (stage, result) = Stage::of(title, work);
        self.stages.push(stage);
        result
    }

    /// Records a stage that another thread has finished.
    pub(super) fn push(&mut self, stage: Stage) {
        self.stages.push(stage);
    }

    /// Prints the long stages, in the order in which they ended.
    pub(super) fn report(&self) {
        say(&format!(
            "It took {} s. Stages of {} s and more, and the processor time of their processes:",
            self.begun.elapsed().as_secs(),
            LONG.as_secs()
        ));
        for stage in self.stages.iter().filter(|stage| stage.elapsed >= LONG) {
            say(&format!(
                "{:6} s {:6} s  {}",
                stage.elapsed.as_secs(),
                stage.processor.as_secs(),
                stage.title
            ));
        }
    }
}
