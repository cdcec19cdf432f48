//! Limits on the number of simultaneous calls, in total and for each tenant.

use crate::call::{CallFailure, FailureKind};
use crate::process::LOOK;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum time that a call waits for its turn.
const QUEUE: Duration = Duration::from_secs(10);

/// Counters of running calls with their limits.
#[derive(Debug)]
pub(crate) struct Gate {
    max: usize,
    /// Limit of one tenant. Its further calls wait without delaying those of other tenants.
    max_of_tenant: usize,
    running: Mutex<Running>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Running {
    all: usize,
    of_tenants: HashMap<String, usize>,
}

/// Permission to run one call, returned when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    gate: &'a Gate,
    tenant: &'a str,
}

impl Gate {
    pub(crate) fn new(max: usize, max_of_tenant: usize) -> Self {
        Self {
            max,
            max_of_tenant,
            running: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn, up to [`QUEUE`].
    ///
    /// # Errors
    /// [`FailureKind::Busy`] if none is free in time, or [`FailureKind::Cancelled`] if the call is
    /// cancelled.
    pub(crate) fn enter<'a>(
        &'a self,
        tenant: &'a str,
        cancel: &AtomicBool,
    ) -> Result<Turn<'a>, CallFailure> {
        self.enter_until(tenant, cancel, Instant::now() + QUEUE)
    }

    fn enter_until<'a>(
        &'a self,
        tenant: &'a str,
        cancel: &AtomicBool,
        until: Instant,
    ) -> Result<Turn<'a>, CallFailure> {
        let mut running = self.running();
        loop {
            let own = running.of_tenants.get(tenant).copied().unwrap_or_default();
            if running.all < self.max && own < self.max_of_tenant {
                running.all += 1;
                running.of_tenants.insert(tenant.to_owned(), own + 1);
                return Ok(Turn { gate: self, tenant });
            }
            if cancel.load(Ordering::Relaxed) {
                return Err(CallFailure::given_up());
            }
            if Instant::now() >= until {
                let message = "too many tools run at the same time; try again";
                return Err(CallFailure::new(FailureKind::Busy, message));
            }
            (running, _) = self
                .changed
                .wait_timeout(running, LOOK)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut running = self.gate.running();
        running.all -= 1;
        if let Some(own) = running.of_tenants.get_mut(self.tenant) {
            *own -= 1;
            if *own == 0 {
                running.of_tenants.remove(self.tenant);
            }
        }
        drop(running);
        // All waiters are woken, because the first one may belong to a tenant that is at its limit.
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_some_of_the_places_and_leaves_the_others() {
        let gate = Gate::new(3, 2);
        let never = AtomicBool::new(false);
        let soon = || Instant::now() + Duration::from_millis(200);
        let enter = |tenant| gate.enter_until(tenant, &never, soon());
        let first = enter("a").unwrap();
        let second = enter("a").unwrap();
        assert_eq!(enter("a").unwrap_err().kind, FailureKind::Busy);
        let other = enter("b").unwrap();
        assert_eq!(enter("c").unwrap_err().kind, FailureKind::Busy);
        std::thread::scope(|scope| {
            let late = |tenant: &'static str| {
                let (gate, never) = (&gate, &never);
                scope.spawn(move || {
                    let until = Instant::now() + Duration::from_secs(20);
                    gate.enter_until(tenant, never, until).is_ok()
                })
            };
            // This one waits for its tenant's places, and the one behind it does not wait for it.
            let (own, another) = (late("a"), late("c"));
            drop(other);
            assert!(another.join().unwrap());
            drop(first);
            assert!(own.join().unwrap());
        });
        drop(second);
        assert!(gate.running().of_tenants.is_empty());
        assert_eq!(gate.running().all, 0);
        let given_up = AtomicBool::new(true);
        let _all = [enter("a").unwrap(), enter("a").unwrap()];
        assert_eq!(
            gate.enter("a", &given_up).unwrap_err().kind,
            FailureKind::Cancelled
        );
    }
}
