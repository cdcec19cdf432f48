//! Counting limits: at most so many slots per key, such as a user's name, and so many in total.

use glovebox_proto::Code;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A limited number of slots, and the number taken per key.
#[derive(Debug)]
pub(super) struct Places {
    per_key: usize,
    in_all: usize,
    taken: Mutex<HashMap<String, usize>>,
}

/// Reason for which no slot is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// All slots of this key are taken.
    OfKey,
    /// All slots are taken, by any key.
    AtAll,
}

impl NoPlace {
    /// Returns the code of the failure: `busy` if the user's own slots are taken, `unavailable` if
    /// those of all users are.
    pub(super) const fn code(self) -> Code {
        match self {
            Self::OfKey => Code::Busy,
            Self::AtAll => Code::Unavailable,
        }
    }
}

/// A slot, which is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    key: String,
    places: Arc<Places>,
}

impl Places {
    pub(super) fn new(per_key: usize, in_all: usize) -> Arc<Self> {
        Arc::new(Self {
            per_key,
            in_all,
            taken: Mutex::default(),
        })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if slots of `key` are taken.
    pub(super) fn has_taken(&self, key: &str) -> bool {
        self.taken().contains_key(key)
    }

    /// Takes a slot for `key` without waiting.
    ///
    /// # Errors
    /// Says whether the slots of the key or all slots are taken.
    pub(super) fn take(self: &Arc<Self>, key: &str) -> Result<Place, NoPlace> {
        let mut taken = self.taken();
        let of_all: usize = taken.values().sum();
        let of_key = taken.get(key).copied().unwrap_or_default();
        if of_key >= self.per_key {
            return Err(NoPlace::OfKey);
        }
        if of_all >= self.in_all {
            return Err(NoPlace::AtAll);
        }
        taken.insert(key.to_owned(), of_key + 1);
        Ok(Place {
            key: key.to_owned(),
            places: Arc::clone(self),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(count) = taken.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_cannot_take_all_places() {
        let places = Places::new(4, 10);
        let of_ann: Vec<_> = std::iter::from_fn(|| places.take("ann").ok()).collect();
        assert_eq!(of_ann.len(), 4);
        assert_eq!(places.take("ann").unwrap_err(), NoPlace::OfKey);
        let of_bob = places.take("bob").unwrap();
        let others: Vec<_> = (0..)
            .map_while(|n: u32| places.take(&n.to_string()).ok())
            .collect();
        assert_eq!(others.len(), 10 - 4 - 1);
        assert_eq!(places.take("new").unwrap_err(), NoPlace::AtAll);
        drop((of_ann, of_bob, others));
        places.take("ann").unwrap();
        assert!(places.taken().is_empty());
    }
}
