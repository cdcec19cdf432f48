//! Limits on the calls of one client: some run, some wait, and more are refused.
//!
//! A waiting call holds its arguments, up to a message of 8 MiB. So the number of waiting calls is
//! bounded, and a call whose client has gone stops waiting. Otherwise one client could fill the
//! memory of a server with calls that it sends and abandons.

use glovebox_proto::{Code, Fault};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum number of running calls. Further calls wait.
const MAX_AT_WORK: usize = 32;
/// Maximum number of waiting calls. Further calls are refused.
const MAX_WAITING: usize = 64;

/// Places for the calls of one client.
#[derive(Debug)]
pub(super) struct CallPlaces {
    at_work: Semaphore,
    waiting: Semaphore,
}

impl CallPlaces {
    pub(super) const fn new() -> Self {
        Self {
            at_work: Semaphore::const_new(MAX_AT_WORK),
            waiting: Semaphore::const_new(MAX_WAITING),
        }
    }

    /// Waits for a place, until `gone` completes. Dropping the permit frees the place.
    ///
    /// # Errors
    /// `busy` if too many calls wait already, `cancelled` if `gone` completed first.
    pub(super) async fn take(
        &self,
        gone: impl Future<Output = ()>,
    ) -> Result<SemaphorePermit<'_>, Fault> {
        // Does not overtake waiting calls: tokio's semaphore hands a freed permit to the first of
        // them.
        if let Ok(place) = self.at_work.try_acquire() {
            return Ok(place);
        }
        let Ok(_waiting) = self.waiting.try_acquire() else {
            let message = format!("{MAX_WAITING} calls of this client wait for their turn");
            return Err(Fault::failed(Code::Busy, message)
                .remedy("wait until some of them have ended")
                .retryable());
        };
        tokio::select! {
            place = self.at_work.acquire() => {
                place.map_err(|error| Fault::failed(Code::Internal, error.to_string()))
            }
            () = gone => Err(Fault::failed(Code::Cancelled, "the call was given up")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test]
    async fn call_that_finds_no_place_waits_unless_too_many_do_or_its_client_has_gone() {
        let places = CallPlaces::new();
        let mut at_work = Vec::new();
        for _ in 0..MAX_AT_WORK {
            at_work.push(places.take(pending()).await.unwrap());
        }
        // A client that has gone takes no waiting place.
        for _ in 0..2 * MAX_WAITING {
            let left = places.take(ready(())).await;
            assert_eq!(left.unwrap_err().code, Code::Cancelled);
        }
        let mut waiting: Vec<_> = (0..MAX_WAITING)
            .map(|_| Box::pin(places.take(pending())))
            .collect();
        for call in &mut waiting {
            assert!(futures_pending(call).await);
        }
        assert_eq!(places.take(pending()).await.unwrap_err().code, Code::Busy);
        // The first waiting call gets the freed place.
        at_work.pop();
        assert!(waiting.remove(0).await.is_ok());
        drop(waiting);
        at_work.clear();
        assert!(places.take(pending()).await.is_ok());
    }

    /// Polls a call once. Returns true if it waits.
    async fn futures_pending<F: Future + Unpin>(call: &mut F) -> bool {
        tokio::select! {
            biased;
            _ = call => false,
            () = ready(()) => true,
        }
    }
}
