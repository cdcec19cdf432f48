//! The guest's program, and where it belongs in a container.

use glovebox_proto::Fault;
use std::fmt;
use std::sync::Arc;

type Unpack = dyn Fn() -> Result<Vec<u8>, Fault> + Send + Sync;

/// The guest: its sum, and how its bytes are had.
#[derive(Clone)]
pub struct GuestProgram {
    sha256: String,
    unpack: Arc<Unpack>,
}

impl GuestProgram {
    /// Takes the SHA-256 in hex and a function that unpacks the bytes, which is called only when
    /// they are missing there.
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
    /// Directory in which the guest's program is kept. None: a directory for caches.
    pub guest_dir: Option<String>,
    /// Working directory of the guest, made if it is missing. None: the one that the service gives
    /// to commands.
    pub cwd: Option<String>,
    /// Whether that directory must be there already.
    pub needs_cwd: bool,
}
