//! Interceptor between programs and hosts that have a secret: the values, the authority that
//! programs trust, and the certificates that this machine trusts.

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

/// Secrets and certificates that a proxy needs to intercept TLS.
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

/// Error of creating an interceptor.
#[derive(Debug, thiserror::Error)]
pub enum InterceptorError {
    /// A secret's value has not been read.
    #[error("a secret has no value")]
    NoValue,
    /// The trusted certificates contain none that can be parsed.
    #[error("there is no certificate of an authority in it")]
    NoCertificates,
    /// The authority or the TLS configuration could not be created.
    #[error("cannot make the certificate of the sandbox: {0}")]
    Authority(io::Error),
}

impl Interceptor {
    /// Creates an interceptor for these secrets. `token` makes the placeholders unique to one
    /// sandbox: letters and digits, not secret. `trusted` are certificates (PEM) that servers'
    /// certificates are checked against.
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

    /// Returns the environment variables for commands: the name of each secret with its
    /// placeholder.
    pub fn environment(&self) -> impl Iterator<Item = (&SecretName, &str)> {
        self.vault.environment()
    }

    /// Returns the certificate (PEM) that programs inside must trust.
    pub fn certificate(&self) -> String {
        self.authority.pem()
    }

    /// Returns the first secret for this host and port.
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
