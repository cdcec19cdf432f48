//! TLS by files of a certificate and its key.

use crate::server::{Server, TOKEN};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use testkit::Person;

/// Sends one request as a client that trusts `root`; the whole answer.
fn ask(
    server: &Server,
    root: Option<CertificateDer<'static>>,
    head: &str,
) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(root);
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(client, TcpStream::connect(&server.addr)?);
    let (_, port) = server.addr.rsplit_once(':').unwrap();
    write!(
        stream,
        "{head}host: localhost:{port}\r\nconnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn with_a_certificate_the_server_speaks_tls_and_nothing_else() {
    Person::each(|person| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let cert = person.write("cert.pem", made.cert.pem());
        let key = person.write("key.pem", made.signing_key.serialize_pem());
        let args = format!("--tls-cert {} --tls-key {}", cert.display(), key.display());
        let server = Server::start(person, &args);
        let root = Some(made.cert.der().clone());

        let live = ask(&server, root.clone(), "GET /health/live HTTP/1.1\r\n").unwrap();
        assert!(
            live.starts_with("HTTP/1.1 200") && live.ends_with("live\n"),
            "{live}"
        );
        let bearer = format!("POST /api/login HTTP/1.1\r\nauthorization: Bearer {TOKEN}\r\n");
        let login = ask(&server, root, &bearer).unwrap();
        assert!(login.contains("; Secure"), "{login}");
        assert!(ask(&server, None, "GET /health/live HTTP/1.1\r\n").is_err());

        let mut plain = TcpStream::connect(&server.addr).unwrap();
        plain
            .write_all(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    });
}

#[test]
fn a_certificate_that_cannot_be_used_is_said_before_the_server_starts() {
    Person::each(|person| {
        let one = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let cert = person.write("cert.pem", one.cert.pem());
        let key = person.write("key.pem", other.signing_key.serialize_pem());
        let (cert, key) = (cert.display(), key.display());
        let said = [
            format!("--tls-cert {cert} --tls-key {key}"),
            format!("--tls-cert {key} --tls-key {key}"),
            format!("--tls-cert {cert} --tls-key {cert}"),
            format!("--tls-cert {cert}"),
            format!("--tls-cert {cert}.not --tls-key {key}"),
        ]
        .map(|args| {
            let ran = person
                .line(&format!("serve --listen 127.0.0.1:0 {args}"))
                .env("GLOVEBOX_SERVER_TOKEN", TOKEN)
                .run();
            assert_ne!(ran.code, 0, "{args}");
            ran.failure(person.place().root())
        });
        insta::assert_snapshot!(said.join("\n\n"), @"
        error: certificate and key cannot be used: keys may not be consistent: KeyMismatch
        hint: name files in PEM: the certificate with its chain, and its private key without a passphrase

        error: the file of the certificate has none
        hint: name files in PEM: the certificate with its chain, and its private key without a passphrase

        error: the key cannot be read: no items found
        hint: name files in PEM: the certificate with its chain, and its private key without a passphrase

        error: --tls-key is missing
        hint: `glovebox serve --help` shows the flags and examples

        error: cannot read [ROOT]/cert.pem.not: No such file or directory (os error 2)
        ");
    });
}

#[test]
fn a_renewed_certificate_is_used_without_a_new_start() {
    let person = Person::myself();
    let make = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (old, new) = (make(), make());
    let cert = person.write("cert.pem", old.cert.pem());
    let key = person.write("key.pem", old.signing_key.serialize_pem());
    let args = format!("--tls-cert {} --tls-key {}", cert.display(), key.display());
    let server = Server::start(&person, &args);
    let is_met_with = |root: &CertificateDer<'static>| {
        ask(&server, Some(root.clone()), "GET /health/live HTTP/1.1\r\n").is_ok()
    };
    let (old_root, new_root) = (old.cert.der().clone(), new.cert.der().clone());
    assert!(is_met_with(&old_root) && !is_met_with(&new_root));
    // One file was replaced and the other not yet: all is as it was, and that is said.
    person.write("cert.pem", new.cert.pem());
    server.told("the renewed certificate is not used problem=\"certificate and key cannot be used");
    assert!(is_met_with(&old_root) && !is_met_with(&new_root));
    person.write("key.pem", new.signing_key.serialize_pem());
    server.told("the certificate was renewed");
    assert!(is_met_with(&new_root) && !is_met_with(&old_root));
}
