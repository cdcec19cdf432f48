//! One connection over HTTP to a server of `glovebox`, which is kept open.

use anyhow::{Context as _, Result, ensure};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Child;

/// Where a server says that it is, on its standard error. What it says later is read and thrown away.
pub(crate) fn place_of(server: &mut Child) -> Result<String> {
    let told = server.stderr.take().context("no standard error")?;
    let mut told = BufReader::new(told).lines();
    let place = told.find_map(|line| {
        let line = line.ok()?;
        let (_, url) = line.split_once("http://")?;
        Some(url.split('/').next()?.trim().to_owned())
    });
    // What it says later must not fill its pipe.
    std::thread::spawn(move || told.for_each(drop));
    place.context("the server does not say where it is")
}

/// A connection, and the headers of all its requests.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    headers: String,
}

impl Connection {
    pub(crate) fn open(place: &str, token: &str) -> Result<Self> {
        let stream = TcpStream::connect(place)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
            headers: format!("Host: {place}\r\nAuthorization: Bearer {token}\r\n"),
        })
    }

    /// Sends a header with every request from now on.
    pub(crate) fn header(&mut self, name: &str, value: &str) {
        self.headers.extend([name, ": ", value, "\r\n"]);
    }

    /// Makes a request: the head of the answer in small letters, and its body.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        body: &str,
    ) -> Result<(String, String)> {
        let mut all = Vec::new();
        let head = self.ask_in_pieces(method, path, kind, body, |piece| {
            all.extend_from_slice(piece);
        })?;
        Ok((head, String::from_utf8(all)?))
    }

    /// Makes a request: the head of the answer. `each` gets its body, as it comes where it is sent in pieces.
    pub(crate) fn ask_in_pieces(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        body: &str,
        mut each: impl FnMut(&[u8]),
    ) -> Result<String> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{}Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            self.headers,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            ensure!(
                self.stream.read_line(&mut head)? > 0,
                "the server hung up: {head}"
            );
        }
        let head = head.to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut piece = Vec::new();
        if let Some(length) = length {
            piece.resize(length.trim().parse()?, 0);
            self.stream.read_exact(&mut piece)?;
            each(&piece);
        } else if head.contains("transfer-encoding: chunked") {
            loop {
                let mut size = String::new();
                self.stream.read_line(&mut size)?;
                let size = usize::from_str_radix(size.trim(), 16)?;
                piece.resize(size + 2, 0);
                self.stream.read_exact(&mut piece)?;
                each(&piece[..size]);
                if size == 0 {
                    break;
                }
            }
        }
        Ok(head)
    }
}
