//! Servers that speak TLS, with an authority of the tests' own. What they are asked is written down, and what they
//! answer holds what they were told.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// An authority, and a certificate of it for every name in `.test` that tests use.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    server: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "authority of the tests");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let names = ["api.test", "other.test", "third.test"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        let server = params.signed_by(&key, &issuer).unwrap();
        Self {
            issuer,
            server,
            key,
        }
    }

    /// Its certificate, for who is to trust it.
    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Certificate and key of the servers, for programs that want them as files.
    pub(super) fn server_pems(&self) -> (String, String) {
        (self.server.pem(), self.key.serialize_pem())
    }

    fn config(&self) -> Arc<ServerConfig> {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.server.der().clone()], key)
            .unwrap();
        Arc::new(config)
    }
}

/// A server on loopback; it keeps the heads of the requests it got.
pub(super) struct Server {
    pub(super) port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// One behind TLS. `secret` is what answers are to hold.
    pub(super) fn https(authority: &Authority, secret: &'static str) -> Self {
        let config = authority.config();
        Self::start(move |stream, seen| {
            let Ok(connection) = ServerConnection::new(Arc::clone(&config)) else {
                return;
            };
            let mut stream = StreamOwned::new(connection, stream);
            while serve(&mut stream, seen, secret).is_some() {}
            stream.conn.send_close_notify();
            let _ = stream.flush();
        })
    }

    /// One without.
    pub(super) fn http() -> Self {
        Self::start(|mut stream, seen| while serve(&mut stream, seen, "").is_some() {})
    }

    fn start(work: impl Fn(TcpStream, &Mutex<Vec<String>>) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (work, kept) = (Arc::new(work), Arc::clone(&seen));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (work, seen) = (Arc::clone(&work), Arc::clone(&kept));
                thread::spawn(move || work(stream, &seen));
            }
        });
        Self { port, seen }
    }

    /// The heads that arrived since this was asked last.
    pub(super) fn take_seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

/// One request and its answer; `None` when the connection is over.
fn serve(stream: &mut (impl Read + Write), seen: &Mutex<Vec<String>>, secret: &str) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        (stream.read(&mut byte).ok()? > 0).then_some(())?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    seen.lock().unwrap().push(head.clone());
    let value_of = |name: &str| {
        let line = head
            .lines()
            .find(|line| line.to_lowercase().starts_with(&format!("{name}: ")))?;
        Some(line[name.len() + 2..].to_owned())
    };
    let length: usize = value_of("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let whole = |headers: &str, body: &[u8]| {
        let length = body.len();
        let mut answer =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{headers}\r\n").into_bytes();
        answer.extend_from_slice(body);
        answer
    };
    let path = head.split(' ').nth(1)?;
    match path.split('?').next()? {
        // All that was said, as it was.
        "/echo" => {
            let told = value_of("authorization").unwrap_or_default();
            let answer = whole(&format!("X-Told: {told}\r\n"), head.as_bytes());
            stream.write_all(&answer).ok()?;
        }
        // The value at many places of a large answer.
        "/big" => {
            let mut answer = Vec::new();
            for number in 0..200 {
                answer.extend_from_slice(&vec![b'x'; 16_000 + 37 * number]);
                answer.extend_from_slice(secret.as_bytes());
            }
            answer.extend_from_slice(format!("\n{length} bytes\n").as_bytes());
            stream.write_all(&whole("", &answer)).ok()?;
        }
        // The value, cut in the middle.
        "/cut" => {
            let (one, two) = secret.split_at(secret.len() / 2);
            for part in [
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                &format!("{:x}\r\n{one}\r\n", one.len()),
                &format!("{:x}\r\n{two}\r\n", two.len()),
                "4\r\nend\n\r\n0\r\n\r\n",
            ] {
                stream.write_all(part.as_bytes()).ok()?;
                stream.flush().ok()?;
                thread::sleep(Duration::from_millis(100));
            }
        }
        // Events, one after the other.
        "/events" => {
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).ok()?;
            for number in 0..3 {
                let event = format!("data: {number} {secret}\n\n");
                stream.write_all(event.as_bytes()).ok()?;
                stream.flush().ok()?;
                thread::sleep(Duration::from_millis(500));
            }
            return None;
        }
        // Nobody is let in.
        "/keyed" => {
            let answer = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(answer.as_bytes()).ok()?;
        }
        "/gzip-on-the-way" => {
            let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\n\x1f\x08x\r\n0\r\n\r\n";
            stream.write_all(answer.as_bytes()).ok()?;
        }
        "/gzip" => {
            let answer = whole("Content-Encoding: gzip\r\n", b"\x1f\x8b not that");
            stream.write_all(&answer).ok()?;
        }
        // From here on something else is spoken: what comes is said again, and the value.
        "/upgrade" => {
            let head =
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
            stream.write_all(head.as_bytes()).ok()?;
            stream.flush().ok()?;
            let mut part = [0; 4];
            stream.read_exact(&mut part).ok()?;
            stream.write_all(&part).ok()?;
            stream.write_all(secret.as_bytes()).ok()?;
            stream.flush().ok()?;
            return None;
        }
        _ => stream.write_all(&whole("", b"hello\n")).ok()?,
    }
    stream.flush().ok()
}
