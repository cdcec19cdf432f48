//! Where the time of a run goes: each stage by the clock, and the processor time of what it started.
//!
//! A stage that takes long and computes little waits, and can wait beside others; one that computes can only
//! be given less to do.

use crate::step::{processor_time, say};
use std::time::{Duration, Instant};

/// Shorter stages are not worth a line.
const LONG: Duration = Duration::from_secs(10);

/// The stages so far.
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
    /// Does `work`, and gives what it cost beside its result.
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
    /// Does `work` as the stage `title`.
    pub(super) fn of<T>(&mut self, title: &str, work: impl FnOnce() -> T) -> T {
        let (stage, result) = Stage::of(title, work);
        self.stages.push(stage);
        result
    }

    /// Notes a stage that another thread has done.
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
