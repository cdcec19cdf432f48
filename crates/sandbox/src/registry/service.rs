//! Machines that a backend's service holds for this state directory.

use super::Registry;
use crate::backend::{self, HeldMachine, ServiceCx, ServiceFacts};
use crate::{Name, SandboxSpec};
use glovebox_proto::Fault;
use std::time::{Duration, Instant};

/// Most time that the service has for its answers.
const SERVICE_WAIT: Duration = Duration::from_mins(1);

impl Registry {
    /// Asks the service of the spec's backend whether sandboxes can be there, and makes none. Of the spec only options
    /// and credential count.
    ///
    /// # Errors
    /// `unsupported` for a backend without such a service; why there can be none, or no answer within `wait`.
    pub fn probe_service(&self, spec: &SandboxSpec, wait: Duration) -> Result<ServiceFacts, Fault> {
        backend::probe(&ServiceCx {
            deadline: Instant::now() + wait,
            ..self.service_cx(spec, &[])
        })
    }

    /// Machines that the service of the spec's backend holds. Of the spec only options and credential count.
    ///
    /// # Errors
    /// `unsupported` for a backend without such a service; what keeps the service from answering.
    pub fn list_held(&self, spec: &SandboxSpec) -> Result<Vec<HeldMachine>, Fault> {
        let known = self.known_names()?;
        backend::list_held(&self.service_cx(spec, &known))
    }

    /// Removes such a machine.
    ///
    /// # Errors
    /// As [`Self::list_held`].
    pub fn remove_held(&self, spec: &SandboxSpec, machine: &HeldMachine) -> Result<(), Fault> {
        let known = self.known_names()?;
        backend::remove_held(&self.service_cx(spec, &known), machine)
    }

    /// Removes what the service of the spec's backend holds for a sandbox that does not run.
    ///
    /// # Errors
    /// What keeps the service from removing it: it is still there then.
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
