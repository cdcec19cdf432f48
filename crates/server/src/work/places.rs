//! Places for what may be open at the same time: so many under one key, such as a user's name, and so many at all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many are taken under each key.
#[derive(Debug)]
pub(super) struct Places {
    per_key: usize,
    in_all: usize,
    taken: Mutex<HashMap<String, usize>>,
}

/// One place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
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

    /// A place under `key`; `None` while there is none.
    pub(super) fn take(self: &Arc<Self>, key: &str) -> Option<Place> {
        let mut taken = self.taken();
        let of_all: usize = taken.values().sum();
        let of_key = taken.get(key).copied().unwrap_or_default();
        if of_key >= self.per_key || of_all >= self.in_all {
            return None;
        }
        taken.insert(key.to_owned(), of_key + 1);
        Some(Place {
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
        let of_ann: Vec<_> = std::iter::from_fn(|| places.take("ann")).collect();
        assert_eq!(of_ann.len(), 4);
        let of_bob = places.take("bob").unwrap();
        let others: Vec<_> = (0..)
            .map_while(|n: u32| places.take(&n.to_string()))
            .collect();
        assert_eq!(others.len(), 10 - 4 - 1);
        drop((of_ann, of_bob, others));
        places.take("ann").unwrap();
        assert!(places.taken().is_empty());
    }
}
