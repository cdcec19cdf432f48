//! The guest's program, and its place in a container.

use glovebox_proto::Fault;
use glovebox_sandbox::random_hex;
use std::fmt;
use std::sync::Arc;

type Unpack = dyn Fn() -> Result<Vec<u8>, Fault> + Send + Sync;

/// The guest's program: its checksum, and a function that unpacks it.
#[derive(Clone)]
pub struct GuestProgram {
    sha256: String,
    unpack: Arc<Unpack>,
}

impl GuestProgram {
    /// Creates the program from its SHA-256 in hex and a function that unpacks its bytes. The
    /// function is called only if the program is missing in the container.
    pub fn new(
        sha256: impl Into<String>,
        unpack: impl Fn() -> Result<Vec<u8>, Fault> + Send + Sync + 'static,
    ) -> Self {
        let sha256 = sha256.into();
        Self {
            sha256,
            unpack: Arc::new(unpack),
        }
    }

    pub(crate) fn sha256(&self) -> &str {
        &self.sha256
    }

    pub(crate) fn unpack(&self) -> Result<Vec<u8>, Fault> {
        (self.unpack)()
    }
}

impl fmt::Debug for GuestProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GuestProgram").field(&self.sha256).finish()
    }
}

/// Places in the container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Directory in which the guest's program is kept. None: a cache directory.
    pub guest_dir: Option<String>,
    /// Working directory of the guest, created if it is missing. None: the default of the service.
    pub cwd: Option<String>,
    /// True if the working directory must exist already.
    pub needs_cwd: bool,
    /// Sandbox that the guest belongs to. None: nothing in the container is marked.
    pub tenant: Option<Tenant>,
}

/// Sandbox with whose data the sessions and the directory in a container are marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Id of the state directory that has the sandbox.
    pub owner: String,
    /// Name of the sandbox.
    pub name: String,
    /// Id of this life of the sandbox: a directory claimed with it may be claimed again.
    pub life: String,
    /// True if the working directory is the sandbox's own.
    pub has_own_dir: bool,
}

/// Prefix of the ids of all sessions of commands.
pub(crate) const SESSION: &str = "glovebox";

impl Tenant {
    /// Returns the id of a new session of commands.
    fn session(&self, random: &str) -> String {
        let Self { owner, name, .. } = self;
        format!("{SESSION}-{owner}-{name}-{random}")
    }

    /// Returns the name of the sandbox that a session of the owner belongs to. None if it is no
    /// such session.
    pub(crate) fn sandbox_of_session<'a>(owner: &str, session: &'a str) -> Option<&'a str> {
        let rest = session.strip_prefix(SESSION)?.strip_prefix('-')?;
        let rest = rest.strip_prefix(owner)?.strip_prefix('-')?;
        rest.rsplit_once('-').map(|(name, _)| name)
    }
}

impl Placement {
    /// Returns the id of a new session of commands.
    pub(crate) fn session(&self) -> String {
        let random = random_hex();
        match &self.tenant {
            Some(tenant) => tenant.session(&random),
            None => format!("{SESSION}-{random}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_tells_its_sandbox_to_the_owner_alone() {
        let tenant = Tenant {
            owner: "0123456789abcdef".to_owned(),
            name: "my-lab_2".to_owned(),
            life: String::new(),
            has_own_dir: true,
        };
        let session = tenant.session("77");
        let of = |owner: &str| Tenant::sandbox_of_session(owner, &session);
        assert_eq!(of("0123456789abcdef"), Some("my-lab_2"));
        assert_eq!(of("0123456789abcdee"), None);
        assert_eq!(Tenant::sandbox_of_session("77", "glovebox-77"), None);
    }
}
