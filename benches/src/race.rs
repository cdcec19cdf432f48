//! Contestants that take turns, and the statistics of what they took.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// One way of doing the thing that is measured.
pub(crate) struct Contestant<'a> {
    name: String,
    run: Box<dyn FnMut() -> Result<Duration> + 'a>,
}

impl<'a> Contestant<'a> {
    /// `run` does it once and says how long the part that counts has taken.
    pub(crate) fn new(name: impl Into<String>, run: impl FnMut() -> Result<Duration> + 'a) -> Self {
        Self {
            name: name.into(),
            run: Box::new(run),
        }
    }

    /// As [`Self::new`], where everything counts.
    pub(crate) fn whole(name: impl Into<String>, mut run: impl FnMut() -> Result<()> + 'a) -> Self {
        Self::new(name, move || {
            let began = Instant::now();
            run()?;
            Ok(began.elapsed())
        })
    }
}

/// What one contestant took, in microseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Whose it is.
    pub(crate) contestant: String,
    /// Number of measurements.
    pub(crate) n: usize,
    /// Median.
    pub(crate) p50_us: f64,
    /// 95th percentile.
    pub(crate) p95_us: f64,
    /// Smallest: what a quiet machine would show.
    pub(crate) min_us: f64,
}

impl Sample {
    /// The statistics of these measurements.
    pub(crate) fn of(contestant: impl Into<String>, taken: &[Duration]) -> Self {
        let mut micros: Vec<f64> = taken.iter().map(|time| time.as_secs_f64() * 1e6).collect();
        micros.sort_by(f64::total_cmp);
        let at =
            |part: f64| micros.get(((micros.len() as f64 - 1.0).max(0.0) * part).round() as usize);
        Self {
            contestant: contestant.into(),
            n: micros.len(),
            p50_us: at(0.5).copied().unwrap_or(f64::NAN),
            p95_us: at(0.95).copied().unwrap_or(f64::NAN),
            min_us: at(0.0).copied().unwrap_or(f64::NAN),
        }
    }
}

/// What became of a race.
pub(crate) struct Outcome {
    /// One per contestant that finished.
    pub(crate) samples: Vec<Sample>,
    /// Who dropped out, and why.
    pub(crate) dropped: Vec<(String, String)>,
}

/// Lets all contestants take turns for `rounds` rounds, or until `budget` is spent. The order
/// within a round is random: nobody always comes after the one who leaves the most behind.
pub(crate) fn race(contestants: Vec<Contestant<'_>>, rounds: usize, budget: Duration) -> Outcome {
    let mut running: Vec<(Contestant<'_>, Vec<Duration>)> = contestants
        .into_iter()
        .map(|contestant| (contestant, Vec::with_capacity(rounds)))
        .collect();
    let mut dropped = Vec::new();
    let warm_up = (rounds / 20).clamp(1, 5);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let began = Instant::now();
    for round in 0..rounds + warm_up {
        if round > warm_up + 2 && began.elapsed() > budget {
            break;
        }
        dice.shuffle(&mut running);
        running.retain_mut(|(contestant, taken)| match (contestant.run)() {
            Ok(time) => {
                if round >= warm_up {
                    taken.push(time);
                }
                true
            }
            Err(error) => {
                dropped.push((contestant.name.clone(), format!("{error:#}")));
                false
            }
        });
    }
    let mut samples: Vec<Sample> = running
        .iter()
        .map(|(contestant, taken)| Sample::of(&contestant.name, taken))
        .collect();
    samples.sort_by(|a, b| a.p50_us.total_cmp(&b.p50_us));
    Outcome { samples, dropped }
}

/// A small generator (xorshift64); the same order in every run.
struct Dice(u64);

impl Dice {
    fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            list.swap(last, (self.0 % (last as u64 + 1)) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let taken: Vec<Duration> = (1..=100).rev().map(Duration::from_micros).collect();
        let sample = Sample::of("x", &taken);
        assert_eq!(
            (
                sample.n,
                sample.min_us.round(),
                sample.p50_us.round(),
                sample.p95_us.round()
            ),
            (100, 1.0, 51.0, 95.0)
        );
    }

    #[test]
    fn who_fails_drops_out_and_the_others_go_on() {
        let outcome = race(
            vec![
                Contestant::whole("good", || Ok(())),
                Contestant::new("bad", || anyhow::bail!("no legs")),
            ],
            10,
            Duration::from_secs(5),
        );
        assert_eq!(outcome.samples.len(), 1);
        assert_eq!(outcome.samples[0].n, 10);
        assert_eq!(outcome.dropped, [("bad".to_owned(), "no legs".to_owned())]);
    }
}
