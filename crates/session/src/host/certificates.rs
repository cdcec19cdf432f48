//! Certificate files that this user trusts.

use super::passed::CERTIFICATES;
use glovebox_settings::Surroundings;
use std::path::{Path, PathBuf};

/// Locations of the system's certificate bundle, one file with all authorities.
const SYSTEM: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/ssl/cert.pem",
];

/// Returns the file that server certificates are verified with, from `SSL_CERT_FILE` or the system,
/// followed by those that the user names for single programs.
pub fn trusted_certificates(host: &Surroundings) -> Vec<PathBuf> {
    let named = |name: &str| host.var(name).map(|path| host.absolute(Path::new(path)));
    let system = || SYSTEM.iter().map(PathBuf::from).find(|path| path.is_file());
    let mut files: Vec<_> = named("SSL_CERT_FILE").or_else(system).into_iter().collect();
    let others = CERTIFICATES.iter().filter(|name| **name != "SSL_CERT_DIR");
    for path in others.filter_map(|name| named(name)) {
        if path.is_file() && !files.contains(&path) {
            files.push(path);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_trusts_for_all_programs_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let (mine, others) = (dir.path().join("mine.pem"), dir.path().join("others.pem"));
        std::fs::write(&others, "").unwrap();
        let (mine_text, others_text) = (mine.to_str().unwrap(), others.to_str().unwrap());
        let vars = [
            ("PIP_CERT", others_text),
            ("CURL_CA_BUNDLE", "/no/such/file"),
            ("NODE_EXTRA_CA_CERTS", others_text),
            ("SSL_CERT_DIR", "/etc"),
            ("SSL_CERT_FILE", mine_text),
        ];
        let host = Surroundings::fixed(dir.path(), dir.path(), &vars);
        // A file that is named for all and not there is told where it is read.
        assert_eq!(trusted_certificates(&host), [mine.clone(), others.clone()]);
        let host = Surroundings::fixed(dir.path(), dir.path(), &vars[..1]);
        assert_eq!(trusted_certificates(&host).last(), Some(&others));
    }
}
