//! Whose turn it is: a bounded number of sessions work at the same time, and no user waits behind another's many.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many at the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub running: usize,
    pub running_per_user: usize,
    pub queued: usize,
    pub queued_per_user: usize,
}

/// Work of type `J` that waits for its turn.
#[derive(Debug)]
pub(crate) struct Queue<J> {
    bounds: Bounds,
    state: Mutex<State<J>>,
}

#[derive(Debug)]
struct State<J> {
    running: HashMap<String, usize>,
    waiting: VecDeque<Waiting<J>>,
}

#[derive(Debug)]
struct Waiting<J> {
    id: String,
    user: String,
    job: J,
}

impl<J> Queue<J> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            state: Mutex::new(State {
                running: HashMap::new(),
                waiting: VecDeque::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no more can wait, of all users.
    pub(crate) fn is_full(&self) -> bool {
        self.state().waiting.len() >= self.bounds.queued
    }

    /// Whether no more of `user` can wait.
    pub(crate) fn is_full_for(&self, user: &str) -> bool {
        self.counts_of(user).1 >= self.bounds.queued_per_user
    }

    /// Puts work at the end. What can begin now is returned by [`Self::take`].
    pub(crate) fn push(&self, id: String, user: String, job: J) {
        self.state().waiting.push_back(Waiting { id, user, job });
    }

    /// The next work that may begin, if any: of users with the fewest running sessions the one that came first. Its
    /// user has one more running session from here on, until [`Self::finish`].
    pub(crate) fn take(&self) -> Option<J> {
        let mut state = self.state();
        if state.running.values().sum::<usize>() >= self.bounds.running {
            return None;
        }
        let at = next(&state, self.bounds.running_per_user)?;
        let waiting = state.waiting.remove(at)?;
        *state.running.entry(waiting.user).or_default() += 1;
        Some(waiting.job)
    }

    /// A session of `user` does not work any more.
    pub(crate) fn finish(&self, user: &str) {
        let mut state = self.state();
        if let Some(count) = state.running.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                state.running.remove(user);
            }
        }
    }

    /// Takes what waits under `id` out.
    pub(crate) fn remove(&self, id: &str) -> Option<J> {
        let mut state = self.state();
        let at = state.waiting.iter().position(|waiting| waiting.id == id)?;
        state.waiting.remove(at).map(|waiting| waiting.job)
    }

    /// Takes out all that waits.
    pub(crate) fn drain(&self) -> Vec<J> {
        let mut state = self.state();
        state.waiting.drain(..).map(|waiting| waiting.job).collect()
    }

    /// Everybody who waits, with their places from 1, in the order they came.
    pub(crate) fn places(&self) -> Vec<(String, usize)> {
        let state = self.state();
        let ids = state.waiting.iter().map(|waiting| waiting.id.clone());
        ids.zip(1..).collect()
    }

    /// How many work, and how many wait.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.running.values().sum(), state.waiting.len())
    }

    /// How many of `user` work, and how many wait.
    pub(crate) fn counts_of(&self, user: &str) -> (usize, usize) {
        let state = self.state();
        let running = state.running.get(user).copied().unwrap_or(0);
        let waiting = state.waiting.iter().filter(|one| one.user == user);
        (running, waiting.count())
    }
}

fn next<J>(state: &State<J>, per_user: usize) -> Option<usize> {
    let running = |user: &str| state.running.get(user).copied().unwrap_or(0);
    let candidates = state.waiting.iter().enumerate();
    candidates
        .map(|(at, waiting)| (running(&waiting.user), at))
        .filter(|(count, _)| *count < per_user)
        .min()
        .map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_much_work_does_not_keep_others_waiting() {
        let queue = Queue::new(Bounds {
            running: 3,
            running_per_user: 2,
            queued: 4,
            queued_per_user: 3,
        });
        for (id, user) in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")] {
            queue.push(id.to_owned(), user.to_owned(), id);
        }
        assert!(queue.is_full() && queue.is_full_for("a") && !queue.is_full_for("b"));
        assert_eq!(queue.counts_of("a"), (0, 3));
        assert_eq!(queue.take(), Some("a1"));
        assert_eq!(queue.take(), Some("b1"), "b has nothing that works yet");
        assert_eq!(queue.take(), Some("a2"));
        assert_eq!(queue.take(), None, "three work");
        queue.finish("b");
        assert_eq!(queue.take(), None, "a has two that work");
        assert_eq!(queue.places(), [("a3".to_owned(), 1)]);
        queue.finish("a");
        assert_eq!(queue.counts(), (1, 1));
        assert_eq!(queue.take(), Some("a3"));
    }

    #[test]
    fn what_waits_can_be_taken_out() {
        let queue = Queue::new(Bounds {
            running: 1,
            running_per_user: 1,
            queued: 9,
            queued_per_user: 9,
        });
        for id in ["1", "2", "3"] {
            queue.push(id.to_owned(), "a".to_owned(), id);
        }
        assert_eq!(queue.remove("2"), Some("2"));
        assert_eq!(queue.remove("2"), None);
        assert_eq!(queue.drain(), ["1", "3"]);
        assert_eq!(queue.take(), None);
    }
}
