//! Tunnels and requests through proxies that answer as they should, and through such that do not.

use super::*;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

/// A proxy that gives each connection the next of these answers, and then what came of it: the head
/// of its request.
fn proxy_answering(answers: &'static [&'static str]) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (heads, seen) = channel();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            // A connection of which nothing is read is one for a request by its whole address.
            if let Some(answer) = answer.strip_prefix("CONNECT: ") {
                let _ = heads.send(read_head(&mut stream));
                stream.write_all(answer.as_bytes()).unwrap();
                if answer.ends_with("(end)") {
                    continue;
                }
            }
            open.push(stream);
        }
        drop(heads);
        // Connections stay open until the proxy is asked for more.
        let _ = listener.accept();
    });
    (port, seen)
}

fn read_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn upstream(value: &str, trusted: &[u8]) -> Upstream {
    let find = |name: &str| (name == "all_proxy").then(|| value.to_owned());
    let proxies = MachineProxy::from_variables(find).0.unwrap();
    let mut upstream = Upstream::new(proxies, trusted).unwrap();
    upstream.wait = Duration::from_secs(20);
    upstream
}

fn host() -> Host {
    Host::parse("unknown.example").unwrap()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(work)
}

async fn tunnel(upstream: &Upstream) -> Result<TcpStream, ConnectFailure> {
    let proxy = upstream.proxies().for_tunnel(&host(), 443).unwrap();
    upstream.open_tunnel(proxy, &host(), 443).await
}

async fn http(upstream: &Upstream) -> Result<HttpConnection, ConnectFailure> {
    let proxy = upstream.proxies().for_http(&host(), 80).unwrap();
    upstream.open_http(proxy, &host(), 80).await
}

#[test]
fn tunnel_carries_the_bytes_behind_the_answer_and_names_the_host() {
    let (port, heads) = proxy_answering(&[
        "CONNECT: HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nSSH-2.0 first",
    ]);
    run(async {
        let upstream = upstream(&format!("http://me:p%40ss@127.0.0.1:{port}"), b"");
        let mut stream = tunnel(&upstream).await.unwrap();
        let mut behind = [0; 13];
        stream.read_exact(&mut behind).await.unwrap();
        assert_eq!(&behind, b"SSH-2.0 first");
    });
    assert_eq!(
        heads.recv().unwrap(),
        "CONNECT unknown.example:443 HTTP/1.1\r\nHost: unknown.example:443\r\n\
         Proxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n"
    );
}

#[test]
fn refusal_has_its_status_and_the_variable() {
    let answers = &["CONNECT: HTTP/1.1 407 Who are you\r\nContent-Length: 3\r\n\r\nno!"];
    let (port, _heads) = proxy_answering(answers);
    let upstream = upstream(&format!("127.0.0.1:{port}"), b"");
    // Requests by their whole address would be refused as well.
    let failure = run(http(&upstream)).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "this machine's proxy (`all_proxy`) refused it with status 407: it wants other credentials"
    );
    assert_eq!(failure.word(), "proxy-refused");
}

#[test]
fn proxy_without_an_answer_is_given_up() {
    for answer in [
        "CONNECT: (end)",
        "CONNECT: HTTP/1.1 200 OK\r\nVia: half a head(end)",
        "CONNECT: SSH-2.0 not a proxy\r\n\r\n(end)",
        // These stay open.
        "CONNECT: ",
        "CONNECT: HTTP/1.1 200 OK\r\nVia: half a he",
    ] {
        let answers: &'static [&'static str] = vec![answer].leak();
        let (port, _heads) = proxy_answering(answers);
        let mut upstream = upstream(&format!("127.0.0.1:{port}"), b"");
        upstream.wait = Duration::from_millis(200);
        let failure = run(tunnel(&upstream)).unwrap_err();
        assert_eq!(failure.word(), "proxy-unreached", "{answer}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let failure = run(tunnel(&upstream(&format!("127.0.0.1:{port}"), b""))).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "this machine's proxy (`all_proxy`) does not answer"
    );
}

#[test]
fn head_of_an_answer_is_bounded() {
    let long = format!(
        "CONNECT: HTTP/1.1 200 OK\r\nX: {}\r\n\r\n",
        "x".repeat(MAX_HEAD_BYTES)
    );
    let answers: &'static [&'static str] = vec![&*long.leak()].leak();
    let (port, _heads) = proxy_answering(answers);
    let failure = run(tunnel(&upstream(&format!("127.0.0.1:{port}"), b""))).unwrap_err();
    assert_eq!(failure.word(), "proxy-unreached");
}

#[test]
fn requests_go_by_their_whole_address_where_no_tunnel_is_given_and_that_is_remembered() {
    for refusal in [
        "CONNECT: HTTP/1.1 403 Only port 443\r\n\r\n",
        "CONNECT: HTTP/1.1 405 What\r\n\r\n",
        "CONNECT: HTTP/1.0 501 Unsupported method\r\n\r\n",
    ] {
        let answers: &'static [&'static str] = vec![refusal, "", ""].leak();
        let (port, heads) = proxy_answering(answers);
        let upstream = upstream(&format!("127.0.0.1:{port}"), b"");
        for _ in 0..2 {
            let connection = run(http(&upstream)).unwrap();
            assert!(connection.proxy.is_some(), "{refusal}");
        }
        assert_eq!(heads.iter().count(), 1, "{refusal}");
    }
    let (port, _heads) = proxy_answering(&["CONNECT: HTTP/1.1 200 OK\r\n\r\n"]);
    let connection = run(http(&upstream(&format!("127.0.0.1:{port}"), b""))).unwrap();
    assert!(connection.proxy.is_none());
}

#[test]
fn tls_is_spoken_with_a_proxy_that_wants_it_and_its_certificate_is_checked() {
    let serve = || {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut session = rustls::ServerConnection::new(Arc::new(config)).unwrap();
            let mut tls = rustls::Stream::new(&mut session, &mut stream);
            let mut byte = [0];
            // A client that does not trust the certificate ends here.
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                if tls.read_exact(&mut byte).is_err() {
                    return;
                }
                head.push(byte[0]);
            }
            tls.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello ").unwrap();
            tls.read_exact(&mut byte).unwrap();
            tls.write_all(&byte).unwrap();
        });
        (port, made.cert.pem())
    };
    let (port, certificate) = serve();
    run(async {
        let upstream = upstream(&format!("https://127.0.0.1:{port}"), certificate.as_bytes());
        let mut stream = tunnel(&upstream).await.unwrap();
        stream.write_all(b"!").await.unwrap();
        let mut answer = [0; 7];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"hello !");
    });
    let (port, _) = serve();
    let upstream = upstream(&format!("https://127.0.0.1:{port}"), certificate.as_bytes());
    assert_eq!(
        run(tunnel(&upstream)).unwrap_err().word(),
        "proxy-unreached"
    );
}
