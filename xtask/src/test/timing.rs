//! Where the time of a run goes: each stage by the clock, and the processor time of what it started.
//!
//! A stage that takes long and computes little waits, and can wait beside others; one that computes can only
//! be given less to do.

use crate::step::say;
use std::fs;
use std::time::{Duration, Instant};

/// Shorter stages are not worth a line.
const LONG: Duration = Duration::from_secs(10);
/// Clock ticks of `/proc` in a second, on every architecture that Linux tells programs about (proc(5)).
const TICKS_PER_SECOND: u64 = 100;

/// The stages so far.
#[derive(Debug, Default)]
pub(super) struct Timing {
    stages: Vec<Stage>,
}

#[derive(Debug)]
struct Stage {
    title: String,
    elapsed: Duration,
    /// Of the stage's processes that have been waited for; not of those that detached themselves.
    processor: Duration,
}

impl Timing {
    /// Does `work` as the stage `title`.
    pub(super) fn of<T>(&mut self, title: &str, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let before = processor_time_of_children();
        let result = work();
        self.stages.push(Stage {
            title: title.to_owned(),
            elapsed: begun.elapsed(),
            processor: processor_time_of_children().saturating_sub(before),
        });
        result
    }

    /// Prints the long stages, in the order in which they were.
    pub(super) fn report(&self) {
        let total: Duration = self.stages.iter().map(|stage| stage.elapsed).sum();
        say(&format!(
            "It took {} s. Stages of {} s and more, and the processor time of their processes:",
            total.as_secs(),
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

fn processor_time_of_children() -> Duration {
    let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    Duration::from_millis(children_ticks(&own) * 1000 / TICKS_PER_SECOND)
}

/// The fields cutime and cstime, the 16th and 17th, of a line of `/proc/PID/stat`. The second is a name in
/// parentheses that may hold anything.
fn children_ticks(stat: &str) -> u64 {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = after_name.split_whitespace().skip(13).take(2);
    fields
        .filter_map(|field| field.parse::<u64>().ok())
        .sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_children_are_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 2 3 4 50 60 700 80 20 0 1 0 99 0 0";
        assert_eq!(children_ticks(stat), 780);
        assert_eq!(children_ticks(""), 0);
    }

    #[test]
    fn what_a_stage_computes_is_counted() {
        let mut timing = Timing::default();
        timing.of("busy", || {
            let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
            std::process::Command::new("sh")
                .args(["-c", script])
                .status()
                .unwrap()
        });
        let stage = &timing.stages[0];
        assert!(stage.processor > Duration::ZERO, "{stage:?}");
    }
}
