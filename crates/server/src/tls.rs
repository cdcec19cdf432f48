//! TLS from the files of a certificate and its key, which are read again when they change.

use glovebox_proto::{Code, Fault};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_rustls::TlsAcceptor;

/// Maximum number of certificates in a chain.
const MAX_CHAIN: usize = 16;
const MAX_PEM_BYTES: u64 = 1 << 20;

/// TLS configuration of the server.
#[derive(Clone)]
pub struct Tls {
    chain: PathBuf,
    key: PathBuf,
    state: Arc<Mutex<TlsState>>,
}

struct TlsState {
    acceptor: TlsAcceptor,
    /// Versions of the files when they were last read, valid or not.
    version: [Option<FileVersion>; 2],
}

/// Metadata that changes when a file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl From<Metadata> for FileVersion {
    fn from(found: Metadata) -> Self {
        Self {
            inode: found.ino(),
            size: found.size(),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

impl Tls {
    /// Reads a certificate, followed by its chain, and the private key, each from a PEM file.
    ///
    /// # Errors
    /// Fails if a file is invalid or the key does not belong to the certificate.
    pub fn open(chain: PathBuf, key: PathBuf) -> Result<Self, Fault> {
        // Before the files are read: a change in between leads to another read instead of being
        // missed.
        let version = versions(&chain, &key);
        let acceptor = read_acceptor(&chain, &key)?;
        let state = Arc::new(Mutex::new(TlsState { acceptor, version }));
        Ok(Self { chain, key, state })
    }

    fn state(&self) -> MutexGuard<'_, TlsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the acceptor for the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.state().acceptor.clone()
    }

    /// Reads the files again if they have changed, and returns true if they had. Invalid files
    /// leave the acceptor unchanged and are reported once for each change.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn renew(&self) -> Result<bool, Fault> {
        let version = versions(&self.chain, &self.key);
        if self.state().version == version {
            return Ok(false);
        }
        let acceptor = read_acceptor(&self.chain, &self.key);
        let mut state = self.state();
        // Also for invalid files, so that they are reported once and not at every check.
        state.version = version;
        state.acceptor = acceptor?;
        Ok(true)
    }
}

fn versions(chain: &Path, key: &Path) -> [Option<FileVersion>; 2] {
    [chain, key].map(|path| path.metadata().ok().map(FileVersion::from))
}

fn read_acceptor(chain: &Path, key: &Path) -> Result<TlsAcceptor, Fault> {
    acceptor(&read_pem(chain)?, &read_pem(key)?)
}

fn read_pem(path: &Path) -> Result<Vec<u8>, Fault> {
    let mut pem = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_PEM_BYTES).read_to_end(&mut pem));
    read.map_err(|error| {
        Fault::failed(Code::Io, format!("cannot read {}: {error}", path.display()))
    })?;
    Ok(pem)
}

fn acceptor(chain: &[u8], key: &[u8]) -> Result<TlsAcceptor, Fault> {
    let chain = CertificateDer::pem_slice_iter(chain)
        .take(MAX_CHAIN + 1)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| invalid(&format!("the certificate cannot be read: {error}")))?;
    if chain.is_empty() {
        return Err(invalid("the file of the certificate has none"));
    }
    if chain.len() > MAX_CHAIN {
        return Err(invalid(&format!(
            "the file of the certificate has more than {MAX_CHAIN}"
        )));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| invalid(&format!("the key cannot be read: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| invalid(&format!("certificate and key cannot be used: {error}")))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn invalid(message: &str) -> Fault {
    Fault::failed(Code::InvalidArgument, message).remedy(
        "name files in PEM: the certificate with its chain, and its private key without a passphrase",
    )
}
