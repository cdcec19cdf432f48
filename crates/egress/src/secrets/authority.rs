//! The authority of one sandbox: it vouches, inside, for the proxy in the place of hosts that have a secret.
//!
//! Its key is made when the sandbox starts and never leaves this process. Its certificate says for which names it may
//! be believed, so that even its key would be of use for no others.

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

/// How long certificates hold. Clients refuse those of servers that hold longer than 398 days.
const AUTHORITY_DAYS: i64 = 3650;
const SERVER_DAYS: i64 = 30;
/// When a certificate of a server is made anew.
const KEPT: Duration = Duration::from_hours(24);
/// Most certificates that are kept; a pattern would have them without end.
const MAX_KEPT: usize = 1000;

type Kept = HashMap<Name, (Instant, Arc<CertifiedKey>)>;

/// Makes certificates that programs of one sandbox believe.
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
    /// Makes one for the hosts of these secrets.
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

    /// Its certificate, for whoever is to believe it.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for a host, with its key.
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
    // No common name: some clients would take it for one of a host.
    names.push(DnType::OrganizationName, subject);
    params.distinguished_name = names;
    let now = OffsetDateTime::now_utc();
    // Clocks inside and outside are one, but a host's may be set back.
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
