//! Queue of sessions: a bounded number run at the same time, and the sessions of one user do not
//! hold up those of others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum numbers of sessions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub running: usize,
    pub running_per_user: usize,
    pub queued: usize,
    pub queued_per_user: usize,
}

/// Position of waiting work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueuePlace {
    pub id: String,
    /// Position in the queue, counted from 1.
    pub position: usize,
    /// Resource for which the work waits, besides its turn. None if it waits for its turn only.
    pub waits_for: Option<String>,
}

/// Queue of work of type `J`.
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
    /// Resource for which the work waits, besides its turn.
    waits_for: Option<String>,
}

/// Decision about starting the work whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Admission<P> {
    /// The work starts, with what was reserved for it.
    Now(P),
    /// A limit of the user is reached; work of other users may start.
    UserWaits(String),
    /// A limit of all users is reached. Later work must not take what this work waits for, so none
    /// starts.
    AllWait(String),
}

/// The work whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    id: String,
    user: String,
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

    /// Returns true if no further work may wait.
    pub(crate) fn is_full(&self) -> bool {
        self.state().waiting.len() >= self.bounds.queued
    }

    /// Returns true if no further work of `user` may wait.
    pub(crate) fn is_full_for(&self, user: &str) -> bool {
        self.counts_of(user).1 >= self.bounds.queued_per_user
    }

    /// Returns true if new work of `user` could start at once.
    pub(crate) fn has_turn_for(&self, user: &str) -> bool {
        let state = self.state();
        let of_user = state.running.get(user).copied().unwrap_or(0);
        state.waiting.is_empty()
            && state.running.values().sum::<usize>() < self.bounds.running
            && of_user < self.bounds.running_per_user
    }

    /// Appends work to the queue. [`Self::take`] returns it when it may start.
    pub(crate) fn push(&self, id: String, user: String, job: J) {
        self.state().waiting.push_back(Waiting {
            id,
            user,
            job,
            waits_for: None,
        });
    }

    /// Takes the next work that may start, with what `admit` reserved for it.
    ///
    /// The work is the earliest of the users with the fewest running sessions. It counts as running
    /// until [`Self::finish`]. The queue is not locked while `admit` runs, so `admit` may block.
    pub(crate) fn take<P>(&self, admit: impl Fn(&str, &str) -> Admission<P>) -> Option<(J, P)> {
        let mut passed = Vec::new();
        loop {
            let Candidate { id, user } = self.candidate(&passed)?;
            match admit(&id, &user) {
                Admission::Now(reserved) => {
                    let mut state = self.state();
                    // The work was removed while `admit` ran: look for the next.
                    let Some(at) = state.waiting.iter().position(|one| one.id == id) else {
                        continue;
                    };
                    let waiting = state.waiting.remove(at)?;
                    *state.running.entry(waiting.user).or_default() += 1;
                    return Some((waiting.job, reserved));
                }
                Admission::UserWaits(what) => {
                    self.note_wait(&id, what);
                    passed.push(user);
                }
                Admission::AllWait(what) => {
                    self.note_wait(&id, what);
                    return None;
                }
            }
        }
    }

    fn candidate(&self, passed: &[String]) -> Option<Candidate> {
        let state = self.state();
        if state.running.values().sum::<usize>() >= self.bounds.running {
            return None;
        }
        let at = next(&state, self.bounds.running_per_user, passed)?;
        let waiting = state.waiting.get(at)?;
        Some(Candidate {
            id: waiting.id.clone(),
            user: waiting.user.clone(),
        })
    }

    fn note_wait(&self, id: &str, what: String) {
        let mut state = self.state();
        if let Some(waiting) = state.waiting.iter_mut().find(|one| one.id == id) {
            waiting.waits_for = Some(what);
        }
    }

    /// Calls `look` with the work that waits under `id`. None if there is none.
    pub(crate) fn peek<T>(&self, id: &str, look: impl FnOnce(&J) -> T) -> Option<T> {
        let state = self.state();
        let waiting = state.waiting.iter().find(|one| one.id == id);
        waiting.map(|waiting| look(&waiting.job))
    }

    /// Records that a session of `user` no longer runs.
    pub(crate) fn finish(&self, user: &str) {
        let mut state = self.state();
        if let Some(count) = state.running.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                state.running.remove(user);
            }
        }
    }

    /// Removes the work that waits under `id`.
    pub(crate) fn remove(&self, id: &str) -> Option<J> {
        let mut state = self.state();
        let at = state.waiting.iter().position(|waiting| waiting.id == id)?;
        state.waiting.remove(at).map(|waiting| waiting.job)
    }

    /// Removes all waiting work.
    pub(crate) fn drain(&self) -> Vec<J> {
        let mut state = self.state();
        state.waiting.drain(..).map(|waiting| waiting.job).collect()
    }

    /// Returns the positions of all waiting work, in order of arrival.
    pub(crate) fn places(&self) -> Vec<QueuePlace> {
        let state = self.state();
        let waiting = state.waiting.iter().zip(1..);
        let places = waiting.map(|(waiting, position)| QueuePlace {
            id: waiting.id.clone(),
            position,
            waits_for: waiting.waits_for.clone(),
        });
        places.collect()
    }

    /// Returns the number of running and of waiting sessions.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state();
        (state.running.values().sum(), state.waiting.len())
    }

    /// Returns the number of running and of waiting sessions of `user`.
    pub(crate) fn counts_of(&self, user: &str) -> (usize, usize) {
        let state = self.state();
        let running = state.running.get(user).copied().unwrap_or(0);
        let waiting = state.waiting.iter().filter(|one| one.user == user);
        (running, waiting.count())
    }
}

fn next<J>(state: &State<J>, per_user: usize, passed: &[String]) -> Option<usize> {
    let running = |user: &str| state.running.get(user).copied().unwrap_or(0);
    let candidates = state.waiting.iter().enumerate();
    candidates
        .filter(|(_, waiting)| !passed.contains(&waiting.user))
        .map(|(at, waiting)| (running(&waiting.user), at))
        .filter(|(count, _)| *count < per_user)
        .min()
        .map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes the next work if only the numbers of sessions limit it.
    fn take(queue: &Queue<&'static str>) -> Option<&'static str> {
        let taken = queue.take(|_, _| Admission::Now(()));
        taken.map(|(job, ())| job)
    }

    #[test]
    fn who_waits_for_resources_keeps_the_place_and_other_users_go_on() {
        let queue = Queue::new(Bounds {
            running: 9,
            running_per_user: 9,
            queued: 9,
            queued_per_user: 9,
        });
        for (id, user) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c")] {
            queue.push(id.to_owned(), user.to_owned(), id);
        }
        let own_quota = |id: &str, user: &str| match user {
            "a" => Admission::UserWaits("its own".to_owned()),
            _ => Admission::Now(id.to_owned()),
        };
        let taken = queue.take(own_quota);
        assert_eq!(
            taken,
            Some(("b1", "b1".to_owned())),
            "a's quota is a's matter"
        );
        let places = queue.places();
        assert_eq!(places[0].waits_for.as_deref(), Some("its own"));
        assert_eq!(places[1].waits_for, None, "it waits for its turn");
        // Later work must not take a shared resource for which earlier work waits.
        let shared = |_: &str, user: &str| match user {
            "a" => Admission::AllWait("memory".to_owned()),
            _ => Admission::Now(()),
        };
        assert_eq!(queue.take(shared), None);
        assert_eq!(take(&queue), Some("a1"));
    }

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
        assert_eq!(take(&queue), Some("a1"));
        assert_eq!(take(&queue), Some("b1"), "b has nothing that works yet");
        assert_eq!(take(&queue), Some("a2"));
        assert_eq!(take(&queue), None, "three work");
        queue.finish("b");
        assert_eq!(take(&queue), None, "a has two that work");
        let places = queue.places();
        assert_eq!(
            (places.len(), places[0].id.as_str(), places[0].position),
            (1, "a3", 1)
        );
        queue.finish("a");
        assert_eq!(queue.counts(), (1, 1));
        assert_eq!(take(&queue), Some("a3"));
    }

    #[test]
    fn who_comes_has_a_turn_where_nobody_waits_and_one_more_may_work() {
        let queue = Queue::new(Bounds {
            running: 2,
            running_per_user: 1,
            queued: 9,
            queued_per_user: 9,
        });
        let begin = |id: &'static str, user: &str| {
            queue.push(id.to_owned(), user.to_owned(), id);
            assert_eq!(take(&queue), Some(id));
        };
        assert!(queue.has_turn_for("a"));
        begin("a1", "a");
        assert!(!queue.has_turn_for("a"), "a has as many as a user may have");
        assert!(queue.has_turn_for("b"));
        begin("b1", "b");
        assert!(!queue.has_turn_for("c"), "two work");
        queue.finish("a");
        assert!(queue.has_turn_for("a") && queue.has_turn_for("c"));
        queue.push("b2".to_owned(), "b".to_owned(), "b2");
        assert!(!queue.has_turn_for("c"), "somebody waits");
        assert_eq!(queue.remove("b2"), Some("b2"));
        assert!(queue.has_turn_for("c"));
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
        assert_eq!(take(&queue), None);
    }
}
