//! Processors that commands start on if processor time is limited. Programs that ask the kernel for
//! the number of processors then make as many threads as the limit allows.
//!
//! From the processors that this process may use and the limit, this module computes a smaller set,
//! or `None` if the limit has room for all of them. The set is information only: the control group
//! enforces the limit, and a command may choose other processors (sched_setaffinity(2)).

use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

/// Number of processors in the kernel's mask of fixed size.
const MAX_PROCESSORS: usize = 1024;

/// A set of processors as sched_setaffinity(2) takes it.
pub(crate) type Mask = [u64; MAX_PROCESSORS / 64];

/// Processors by their numbers, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processors(Vec<u32>);

impl Processors {
    /// Returns the processors that the calling thread may use. Empty if the kernel does not report
    /// them: on machines with more processors than [`MAX_PROCESSORS`].
    pub fn of_this_thread() -> Self {
        let Ok(set) = rustix::thread::sched_getaffinity(None) else {
            return Self(Vec::new());
        };
        let numbers = 0..MAX_PROCESSORS.min(CpuSet::MAX_CPU);
        Self(
            numbers
                .filter(|number| set.is_set(*number))
                .filter_map(|number| u32::try_from(number).ok())
                .collect(),
        )
    }

    /// Returns as many of these processors as a limit in thousandths of a processor needs, at least
    /// one. `None` if that is all of them.
    ///
    /// `seed` decides where the choice begins, so that many sandboxes spread over the machine.
    #[must_use]
    pub fn choose(&self, cpu_millis: u32, seed: u64) -> Option<Self> {
        let count = usize::try_from(cpu_millis.div_ceil(1000)).ok()?.max(1);
        let all = self.0.len();
        if count >= all {
            return None;
        }
        let first = usize::try_from(seed % all as u64).ok()?;
        let mut chosen: Vec<u32> = self
            .0
            .iter()
            .cycle()
            .skip(first)
            .take(count)
            .copied()
            .collect();
        chosen.sort_unstable();
        Some(Self(chosen))
    }

    /// Returns the number of processors.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the set as the kernel takes it. Numbers beyond the mask are left out.
    pub(crate) fn mask(&self) -> Mask {
        let mut mask: Mask = [0; MAX_PROCESSORS / 64];
        for number in &self.0 {
            if let Some(word) = mask.get_mut(*number as usize / 64) {
                *word |= 1 << (number % 64);
            }
        }
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_chooses_as_many_processors_as_it_needs() {
        let machine = Processors(vec![0, 1, 4, 5]);
        let chosen = |millis, seed| machine.choose(millis, seed).map(|chosen| chosen.0);
        assert_eq!(chosen(1, 0), Some(vec![0]));
        assert_eq!(chosen(1000, 2), Some(vec![4]));
        assert_eq!(chosen(1001, 2), Some(vec![4, 5]));
        assert_eq!(chosen(2000, 3), Some(vec![0, 5]));
        assert_eq!(chosen(3000, u64::MAX), Some(vec![0, 1, 5]));
        assert_eq!(chosen(3001, 0), None);
        assert_eq!(chosen(u32::MAX, 0), None);
        assert_eq!(Processors(Vec::new()).choose(1, 7), None);
    }

    #[test]
    fn the_mask_has_a_bit_for_each() {
        let mask = Processors(vec![0, 63, 64, 1023, 5000]).mask();
        assert_eq!((mask[0], mask[1], mask[15]), (1 | 1 << 63, 1, 1 << 63));
        assert_eq!(mask.iter().map(|word| word.count_ones()).sum::<u32>(), 4);
    }

    #[test]
    fn this_thread_has_processors() {
        let own = std::thread::available_parallelism().unwrap().get();
        // A control group can lower the library's number, and nothing raises it.
        assert!(Processors::of_this_thread().count() >= own);
    }
}
