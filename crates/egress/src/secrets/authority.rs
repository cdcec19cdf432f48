//! Certificate authority of one sandbox. Programs inside trust it to identify the proxy in the
//! place of hosts that have a secret.
//!
//! Its key is made when the sandbox starts and never leaves this process. Name constraints limit
//! its certificate to these hosts, so that even a stolen key is of no use for others.

use crate::policy::name::Name;
use crate::secrets::secret::Secret;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
};
use rustls::crypto::ring::sign::any_ecdsa_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// Lifetime of certificates, in days. Some clients refuse server certificates that are valid for
/// more than 398 days.
const AUTHORITY_DAYS: i64 = 3650;
const SERVER_DAYS: i64 = 30;
/// Age at which a server certificate is replaced.
const KEPT: Duration = Duration::from_hours(24);
/// Maximum number of cached certificates. A wildcard rule could create any number of them.
const MAX_KEPT: usize = 1000;

type Kept = HashMap<Name, (Instant, Arc<CertifiedKey>)>;

/// Authority that issues certificates which the programs of one sandbox trust.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    kept: Mutex<Kept>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority(..)")
    }
}

impl Authority {
    /// Creates an authority for the hosts of these secrets.
    pub(crate) fn new(secrets: &[Secret]) -> io::Result<Self> {
        let mut params = params("Glovebox sandbox authority", AUTHORITY_DAYS);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let hosts = secrets.iter().flat_map(Secret::hosts);
        let names = hosts.filter_map(|(rule, _)| rule.name());
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: names
                .map(|name| GeneralSubtree::DnsName(name.to_string()))
                .collect(),
            excluded_subtrees: Vec::new(),
        });
        let key = KeyPair::generate().map_err(io::Error::other)?;
        Ok(Self {
            issuer: CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)?,
            kept: Mutex::default(),
        })
    }

    /// Returns the authority's certificate (PEM), which programs inside must trust.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Returns a certificate for a host, with its key.
    pub(crate) fn certify(&self, name: &Name) -> io::Result<Arc<CertifiedKey>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, key)) = kept.get(name)
            && made.elapsed() < KEPT
        {
            return Ok(Arc::clone(key));
        }
        let made = Arc::new(self.make(name).map_err(io::Error::other)?);
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(name.clone(), (Instant::now(), Arc::clone(&made)));
        Ok(made)
    }

    fn make(&self, name: &Name) -> Result<CertifiedKey, Box<dyn std::error::Error + Send + Sync>> {
        let mut params = params("Glovebox", SERVER_DAYS);
        params.subject_alt_names = vec![rcgen::SanType::DnsName(name.as_str().try_into()?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(CertifiedKey::new(
            vec![certificate.der().clone()],
            any_ecdsa_type(&key)?,
        ))
    }
}

fn params(subject: &str, days: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut names = DistinguishedName::new();
    // No common name, because some clients would read it as the name of a host.
    names.push(DnType::OrganizationName, subject);
    params.distinguished_name = names;
    let now = OffsetDateTime::now_utc();
    // The clock of this machine may be set back after the certificate was made.
    params.not_before = now - time::Duration::days(1);
    params.not_after = now + time::Duration::days(days - 1);
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

    #[test]
    fn it_is_believed_for_hosts_of_secrets_and_for_no_others() {
        let authority = Authority::new(&["T=env:T@a.test,*.b.test".parse().unwrap()]).unwrap();
        let mut roots = RootCertStore::empty();
        let own = CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap();
        roots.add(own).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
        let is_believed = |name: &str| {
            let key = authority.certify(&Name::parse(name).unwrap()).unwrap();
            let server = ServerName::try_from(name.to_owned()).unwrap();
            let now = UnixTime::now();
            rustls::client::danger::ServerCertVerifier::verify_server_cert(
                &*verifier,
                &key.cert[0],
                &[],
                &server,
                &[],
                now,
            )
            .is_ok()
        };
        assert!(is_believed("a.test") && is_believed("x.y.b.test"));
        assert!(!is_believed("c.test") && !is_believed("ba.test"));
        let name = Name::parse("a.test").unwrap();
        let one = authority.certify(&name).unwrap();
        assert!(Arc::ptr_eq(&one, &authority.certify(&name).unwrap()));
    }
}
