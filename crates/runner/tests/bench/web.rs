//! A server of HTTP on loopback that answers as its paths say, for tools that may reach it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) struct Web {
    pub(crate) port: u16,
    /// Requests so far.
    pub(crate) asked: Arc<AtomicUsize>,
}

impl Web {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || answer(stream, &counted));
            }
        });
        Self { port, asked }
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn answer(mut stream: TcpStream, counted: &AtomicUsize) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    counted.fetch_add(1, Ordering::SeqCst);
    let mut say = |status: &str, headers: &str, body: &[u8]| {
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n",
            body.len()
        );
        let _ = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body));
    };
    match head.split(' ').nth(1).unwrap_or_default() {
        "/json" => say(
            "200 OK",
            "content-type: application/json\r\n",
            b"{\"a\":[1,\"\xc3\xa9\"]}",
        ),
        "/echo" => say("200 OK", "", &[head.as_bytes(), b"\n", &body].concat()),
        "/bytes" => say("200 OK", "", &(0..=255).collect::<Vec<u8>>()),
        "/missing" => say("404 Not Here", "", b"no"),
        "/away" => say("302 Found", "location: http://evil.example/\r\n", b""),
        "/round" => say("302 Found", "location: /json\r\n", b""),
        "/heavy" => say(
            "302 Found",
            "location: /json\r\n",
            &vec![b'x'; (4 << 20) - 100],
        ),
        "/large" => say("200 OK", "", &vec![b'x'; (4 << 20) + 1]),
        "/fits" => say("200 OK", "", &vec![b'x'; 4 << 20]),
        "/hostile" => say(
            "200 <script>",
            "__proto__: x\r\nconstructor: y\r\nset-cookie: a=1, b\r\nset-cookie: c=2\r\nx: \u{ff}\u{80}\r\ncontent-encoding: gzip\r\n",
            b"not gzip",
        ),
        "/slow" => {
            std::thread::sleep(Duration::from_secs(20));
            say("200 OK", "", b"late");
        }
        "/endless" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        _ => say("200 OK", "", b"ok"),
    }
}
