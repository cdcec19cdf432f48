//! Checkpoints that a backend's service keeps of a sandbox's machine.

use super::{ServiceCx, driver};
use crate::Name;
use glovebox_proto::{Code, Fault, Setting};

/// Checkpoints at a service. They hold files, not processes.
pub trait ServiceCheckpoints {
    /// Makes a checkpoint of a sandbox's machine, while its commands go on. Returns the id that the
    /// service gives it: `v` and a number.
    ///
    /// # Errors
    /// The errors of reaching the service. There may be a checkpoint nevertheless.
    fn create(&self, cx: &ServiceCx<'_>, name: &Name, comment: &str) -> Result<String, Fault>;

    /// Checks that the machine can be restored to a checkpoint. Changes nothing.
    ///
    /// # Errors
    /// `not-found` if the service has no such checkpoint, `unsupported` if the machine may not be
    /// restored, and the errors of reaching the service.
    fn check(&self, cx: &ServiceCx<'_>, name: &Name, id: &str) -> Result<(), Fault>;

    /// Restores the machine to a checkpoint. Its processes end, the guest among them. May be
    /// repeated.
    ///
    /// # Errors
    /// A retryable fault if it is unknown whether the machine has the files of the checkpoint;
    /// otherwise it has those from before.
    fn restore(&self, cx: &ServiceCx<'_>, name: &Name, id: &str) -> Result<(), Fault>;
}

/// Returns the checkpoints at the service of the spec's backend.
///
/// # Errors
/// `unsupported` if the backend has none.
pub(crate) fn checkpoints(cx: &ServiceCx<'_>) -> Result<&'static dyn ServiceCheckpoints, Fault> {
    let backend = cx.spec.backend;
    driver(backend)?.checkpoints().ok_or_else(|| {
        Fault::failed(
            Code::Unsupported,
            format!("the backend `{backend}` keeps no checkpoints at a service"),
        )
        .remedy(["choose another one with ".into(), Setting::Backend.into()])
    })
}
