//! TLS by a certificate and its key. Without them the server speaks plain HTTP.

use glovebox_proto::{Code, Fault};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Certificates of one chain.
const MAX_CHAIN: usize = 16;

/// How clients are met that speak TLS.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

impl Tls {
    /// From a certificate, followed by those that lead to one that clients know, and its private key, both in PEM.
    ///
    /// # Errors
    /// What cannot be read as that, and a key that is not the certificate's.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, Fault> {
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
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    pub(crate) const fn acceptor(&self) -> &TlsAcceptor {
        &self.0
    }
}

fn invalid(message: &str) -> Fault {
    Fault::failed(Code::InvalidArgument, message).remedy(
        "name files in PEM: the certificate with its chain, and its private key without a passphrase",
    )
}
