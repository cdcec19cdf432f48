//! Machines that a backend's service holds for this state directory.

use super::Registry;
use crate::backend::{self, HeldMachine, ServiceCx, ServiceFacts};
use crate::{Name, SandboxSpec};
use glovebox_proto::Fault;
use std::time::{Duration, Instant};

/// Maximum time for the responses of the service.
const SERVICE_WAIT: Duration = Duration::from_mins(1);

impl Registry {
    /// Asks the service of the spec's backend whether it can host sandboxes. Creates none. Only the
    /// options and the credential of the spec are used.
    ///
    /// # Errors
    /// `unsupported` for a backend without a service; the reason for which it cannot host
    /// sandboxes, or for which it did not respond within `wait`.
    pub fn probe_service(&self, spec: &SandboxSpec, wait: Duration) -> Result<ServiceFacts, Fault> {
        backend::probe(&ServiceCx {
            deadline: Instant::now() + wait,
            ..self.service_cx(spec, &[])
        })
    }

    /// Lists the machines that the service of the spec's backend holds. Only the options and the
    /// credential of the spec are used.
    ///
    /// # Errors
    /// `unsupported` for a backend without a service, and the errors of reaching the service.
    pub fn list_held(&self, spec: &SandboxSpec) -> Result<Vec<HeldMachine>, Fault> {
        let known = self.known_names()?;
        backend::list_held(&self.service_cx(spec, &known))
    }

    /// Removes a machine that [`Self::list_held`] returned.
    ///
    /// # Errors
    /// As [`Self::list_held`].
    pub fn remove_held(&self, spec: &SandboxSpec, machine: &HeldMachine) -> Result<(), Fault> {
        let known = self.known_names()?;
        backend::remove_held(&self.service_cx(spec, &known), machine)
    }

    /// Removes the machine that the service of the spec's backend holds for a sandbox that does not
    /// run.
    ///
    /// # Errors
    /// The errors of the service. The machine still exists then.
    pub fn destroy_remote(&self, spec: &SandboxSpec, name: &Name) -> Result<(), Fault> {
        backend::destroy(&self.service_cx(spec, &[]), name)
    }

    fn known_names(&self) -> Result<Vec<Name>, Fault> {
        Ok(self.list()?.into_iter().map(|entry| entry.name).collect())
    }

    fn service_cx<'a>(&'a self, spec: &'a SandboxSpec, known: &'a [Name]) -> ServiceCx<'a> {
        ServiceCx {
            spec,
            state_dir: self.layout.state(),
            known,
            deadline: Instant::now() + SERVICE_WAIT,
        }
    }
}
