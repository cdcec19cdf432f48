//! Places for what may be open at the same time: so many under one key, such as a user's name, and so many at all.

use glovebox_proto::Code;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many are taken under each key.
#[derive(Debug)]
pub(super) struct Places {
    per_key: usize,
    in_all: usize,
    taken: Mutex<HashMap<String, usize>>,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// All places of this key are taken.
    OfKey,
    /// All places are taken, by whomever.
    AtAll,
}

impl NoPlace {
    /// Code of the failure: `busy` where the user's own places are taken, `unavailable` where those of all users are.
    pub(super) const fn code(self) -> Code {
        match self {
            Self::OfKey => Code::Busy,
            Self::AtAll => Code::Unavailable,
        }
    }
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

    /// A place under `key`.
    ///
    /// # Errors
    /// Whose places are all taken.
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
