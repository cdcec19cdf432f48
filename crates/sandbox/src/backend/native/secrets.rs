//! Secrets of a sandbox: storage of their values, and placeholders for commands.
//!
//! Inputs: secrets with values, and files of certificates. Results: an interceptor for the egress
//! proxy, placeholders in the environment, and one file inside with all certificates that programs
//! are to trust: those of this machine, and that of the sandbox's own CA, whose key stays outside.

use crate::fault;
use crate::report::Report;
use crate::spec::SandboxSpec;
use glovebox_egress::{Interceptor, java_truststore};
use glovebox_jail::private_memory;
use glovebox_proto::{Code, Fault};
use glovebox_spec::{Isolation, LimitState, ReplacedFile};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// File inside with the certificates that programs are to trust.
const BUNDLE: &str = "/run/glovebox/ca-certificates.crt";
/// Environment variables that name such a file, each for some programs.
const VARIABLES: [&str; 10] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "DENO_CERT",
    "NIX_SSL_CERT_FILE",
];
/// The same certificates for Java, which does not read the other file.
const JAVA_TRUSTSTORE: &str = "/run/glovebox/truststore.jks";
/// Variable whose value every JVM adds to its options.
const JAVA_VARIABLE: &str = "JAVA_TOOL_OPTIONS";
const JAVA_TRUSTSTORE_OPTION: &str = "-Djavax.net.ssl.trustStore=";
/// Maximum size of a certificate file, in bytes. That of a whole system has about 200 KiB.
const MAX_CERTIFICATE_BYTES: u64 = 4 << 20;
/// File in a sandbox's directory with the token of its placeholders, which is not secret.
const TOKEN: &str = "placeholder";
const TOKEN_BYTES: usize = 16;

/// Prepared secrets of a sandbox.
#[derive(Debug)]
pub(super) struct PreparedSecrets {
    pub(super) interceptor: Interceptor,
    /// Ways in which values could reach the disk or other processes, one sentence each.
    weaknesses: Vec<String>,
}

/// Prepares the secrets of `wanted`, and adds placeholders and certificates to `jail`. `None` if
/// there are no secrets.
pub(super) fn prepare(
    wanted: &SandboxSpec,
    jail: &mut Isolation,
    dir: &Path,
) -> Result<Option<PreparedSecrets>, Fault> {
    if wanted.secrets.is_empty() {
        return Ok(None);
    }
    let mut weaknesses = Vec::new();
    if let Err(error) = private_memory::hide_from_others() {
        weaknesses.push(format!(
            "processes of the same user could read the values of secrets from the memory of the sandbox's owner: {error}"
        ));
    }
    let values = wanted.secrets.iter().filter_map(|secret| secret.value());
    let mut failure = None;
    for value in values {
        failure = private_memory::keep_in_memory(value.as_bytes())
            .err()
            .or(failure);
    }
    if let Some(error) = failure {
        weaknesses.push(format!(
            "values of secrets may be written to swap: memory cannot be locked ({error}); `ulimit -l` says how much may be"
        ));
    }
    let mut trusted = Vec::new();
    for path in &wanted.certificates {
        trusted.push(read_certificates(path)?);
    }
    let authorities = trusted.first().map(String::as_str).unwrap_or_default();
    let interceptor = Interceptor::new(&wanted.secrets, &token(dir)?, authorities.as_bytes())
        .map_err(|error| {
            let path = wanted.certificates.first();
            let place = path.map_or_else(String::new, |path| format!(" with {}", path.display()));
            Fault::failed(
                Code::Unavailable,
                format!("secrets cannot be filled in{place}: {error}"),
            )
            .remedy(
                "install the certificates of this system (`ca-certificates`), or name a file with them in SSL_CERT_FILE",
            )
        })?;
    for (name, placeholder) in interceptor.environment() {
        jail.env
            .push((name.as_str().to_owned(), placeholder.to_owned()));
    }
    for name in VARIABLES {
        match jail.env.iter_mut().find(|(own, _)| own == name) {
            // The bundle contains the certificates of that file.
            Some((_, value)) if wanted.certificates.contains(&PathBuf::from(&*value)) => {
                BUNDLE.clone_into(value);
            }
            Some(_) => {}
            None => jail.env.push((name.to_owned(), BUNDLE.to_owned())),
        }
    }
    trust_in_java(&mut jail.env);
    trusted.push(interceptor.certificate());
    let bundle = trusted.concat();
    jail.replaced.push(ReplacedFile {
        path: JAVA_TRUSTSTORE.into(),
        content: java_truststore(&bundle),
    });
    jail.replaced.push(ReplacedFile {
        path: BUNDLE.into(),
        content: bundle.into_bytes(),
    });
    Ok(Some(PreparedSecrets {
        interceptor,
        weaknesses,
    }))
}

/// Adds the trust store to the options of JVMs, unless they name one already.
fn trust_in_java(environment: &mut Vec<(String, String)>) {
    let options =
        format!("{JAVA_TRUSTSTORE_OPTION}{JAVA_TRUSTSTORE} -Djavax.net.ssl.trustStoreType=JKS");
    match environment
        .iter_mut()
        .find(|(name, _)| name == JAVA_VARIABLE)
    {
        Some((_, own)) if own.contains(JAVA_TRUSTSTORE_OPTION) => {}
        Some((_, own)) => *own = format!("{own} {options}"),
        None => environment.push((JAVA_VARIABLE.to_owned(), options)),
    }
}

impl PreparedSecrets {
    /// Adds the secrets to the isolation report: names and hosts, no values.
    pub(super) fn tell(&self, wanted: &SandboxSpec, report: &mut Report) {
        let names: Vec<_> = wanted
            .secrets
            .iter()
            .map(|secret| format!("{} for {}", secret.name, hosts(secret)))
            .collect();
        report.wall(
            "secrets",
            LimitState::Enforced,
            format!(
                "values stay with the owner, which ends TLS to these hosts and fills them in: {}",
                names.join("; ")
            ),
        );
        report.degraded.extend(self.weaknesses.iter().cloned());
    }
}

/// Describes the handling of secrets, one line for each.
pub(super) fn explain(wanted: &SandboxSpec) -> String {
    let mut text = String::new();
    if !wanted.secrets.is_empty() {
        text.push_str("secrets that the owner fills in, where it ends TLS\n");
    }
    for secret in &wanted.secrets {
        let _ = writeln!(
            text,
            "  {} from {} for {}",
            secret.name,
            secret.source.to_string().escape_debug(),
            hosts(secret)
        );
    }
    text
}

fn hosts(secret: &glovebox_egress::Secret) -> String {
    let hosts: Vec<_> = secret.hosts().map(|(host, _)| host.to_string()).collect();
    hosts.join(", ")
}

/// Returns the random token in the sandbox's placeholders. A resumed sandbox gets the same token,
/// because commands may have written placeholders to files.
fn token(dir: &Path) -> Result<String, Fault> {
    let path = dir.join(TOKEN);
    let is_one = |text: &String| {
        text.len() == 2 * TOKEN_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if let Some(token) = fs::read_to_string(&path).ok().filter(is_one) {
        return Ok(token);
    }
    let mut bytes = [0; TOKEN_BYTES];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| fault::plain_io("cannot get random bytes", errno))?;
    let token = bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let written = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, token.as_bytes()));
    written.map_err(|error| fault::io("write", &path, error))?;
    Ok(token)
}

/// Returns the certificates in a file. Other content is dropped, such as a private key.
pub(super) fn read_certificates(path: &Path) -> Result<String, Fault> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_CERTIFICATE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| fault::io("read the certificates in", path, error))?;
    if bytes.len() as u64 > MAX_CERTIFICATE_BYTES {
        return Err(Fault::failed(
            Code::TooLarge,
            format!(
                "{} has more than 4 MiB, too much for a file of certificates",
                path.display()
            ),
        ));
    }
    Ok(certificates_in(&String::from_utf8_lossy(&bytes)))
}

fn certificates_in(text: &str) -> String {
    let mut found = String::new();
    let mut is_within = false;
    for line in text.lines().map(str::trim_end) {
        is_within |= line == "-----BEGIN CERTIFICATE-----";
        if is_within {
            found.push_str(line);
            found.push('\n');
        }
        is_within &= line != "-----END CERTIFICATE-----";
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_stays_that_of_its_sandbox() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = token(one.path()).unwrap();
        assert_eq!(first.len(), 32);
        assert_eq!(token(one.path()).unwrap(), first);
        assert_ne!(token(other.path()).unwrap(), first);
        fs::write(one.path().join(TOKEN), "not one").unwrap();
        assert_eq!(token(one.path()).unwrap().len(), 32);
    }

    #[test]
    fn java_keeps_the_options_it_has() {
        let after = |own: &str| {
            let mut environment = vec![(JAVA_VARIABLE.to_owned(), own.to_owned())];
            trust_in_java(&mut environment);
            environment.remove(0).1
        };
        assert!(after("-Xmx1g").starts_with("-Xmx1g -Djavax.net.ssl.trustStore=/run/"));
        let own = "-Djavax.net.ssl.trustStore=/mine";
        assert_eq!(after(own), own);
    }

    #[test]
    fn only_certificates_are_taken_from_a_file_of_them() {
        let text = "# mine\r\n-----BEGIN CERTIFICATE-----\r\nAAAA\r\n-----END CERTIFICATE-----\r\n\
                    -----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n";
        assert_eq!(
            certificates_in(text),
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        );
    }
}
