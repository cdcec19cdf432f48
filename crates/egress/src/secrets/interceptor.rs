//! What a proxy needs to stand between programs and hosts that have a secret: the values, the authority that programs
//! believe, and the certificates that this machine trusts.

use crate::outward::tls_client;
use crate::policy::name::Host;
use crate::secrets::authority::Authority;
use crate::secrets::secret::{Secret, SecretName};
use crate::secrets::swap::Vault;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::io;

/// See the module.
pub struct Interceptor {
    vault: Vault,
    authority: Authority,
    client: ClientConfig,
}

impl fmt::Debug for Interceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interceptor(..)")
    }
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum InterceptorError {
    /// A secret has not been read.
    #[error("a secret has no value")]
    NoValue,
    /// There is nothing to check servers with.
    #[error("there is no certificate of an authority in it")]
    NoCertificates,
    /// No authority could be made.
    #[error("cannot make the certificate of the sandbox: {0}")]
    Authority(io::Error),
}

impl Interceptor {
    /// Holds these secrets. `token` makes their placeholders those of one sandbox: letters and digits, nothing secret.
    /// `trusted` are the certificates (PEM) that servers are checked with.
    ///
    /// # Errors
    /// [`InterceptorError`].
    pub fn new(secrets: &[Secret], token: &str, trusted: &[u8]) -> Result<Self, InterceptorError> {
        let vault = Vault::new(secrets, token).ok_or(InterceptorError::NoValue)?;
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_slice_iter(trusted).filter_map(Result::ok);
        let (added, _) = roots.add_parsable_certificates(certificates);
        if added == 0 {
            return Err(InterceptorError::NoCertificates);
        }
        Ok(Self {
            vault,
            authority: Authority::new(secrets).map_err(InterceptorError::Authority)?,
            client: tls_client::config(roots).map_err(InterceptorError::Authority)?,
        })
    }

    /// Variables for commands: each name with its placeholder.
    pub fn environment(&self) -> impl Iterator<Item = (&SecretName, &str)> {
        self.vault.environment()
    }

    /// The certificate that programs inside must trust, in PEM.
    pub fn certificate(&self) -> String {
        self.authority.pem()
    }

    /// The first of the secrets for this host, if it has any.
    pub(crate) fn secret_for(&self, host: &Host, port: u16) -> Option<&SecretName> {
        self.vault.secret_for(host, port)
    }

    pub(crate) fn vault(&self) -> &Vault {
        &self.vault
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(crate) fn client(&self) -> &ClientConfig {
        &self.client
    }
}
