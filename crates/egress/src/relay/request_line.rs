//! Percent-encodes characters of request lines that clients send unencoded and that the HTTP
//! library refuses: quotation marks, angle brackets, backquotes, non-ASCII letters.
//!
//! That happens only where a request line must begin: at the start of the connection, and after a
//! request and its response were transferred completely and no byte came beyond them. Elsewhere
//! bytes pass unchanged. If it is uncertain that a line begins, nothing is encoded, and the library
//! refuses such characters.

use crate::memory::HTTP1_BYTES;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Progress of a connection, shared by its reader and the responses to its requests.
#[derive(Debug, Default)]
pub(super) struct RequestBounds {
    /// Bytes that were handed on behind the head of the present request.
    behind_head: AtomicU64,
    /// True if the next byte begins a request.
    is_between: AtomicBool,
}

/// Stream of requests whose request lines are encoded.
#[derive(Debug)]
pub(super) struct RequestReader<S> {
    inner: S,
    bounds: Arc<RequestBounds>,
    part: Part,
    /// Bytes to hand on, beginning at `sent`.
    ready: Vec<u8>,
    sent: usize,
}

/// Part of a request that the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The request line.
    Line,
    /// The rest of the head. `is_at_line_start` is true if only a carriage return came since the
    /// last line ended.
    Head { is_at_line_start: bool },
    /// All bytes behind the head.
    Behind,
}

impl<S> RequestReader<S> {
    pub(super) fn new(inner: S) -> Self {
        Self {
            inner,
            bounds: Arc::default(),
            part: Part::Line,
            ready: Vec::new(),
            sent: 0,
        }
    }

    /// Returns the progress of the connection.
    pub(super) fn bounds(&self) -> Arc<RequestBounds> {
        Arc::clone(&self.bounds)
    }

    /// Hands bytes of `ready` on, at most to the end of a head. Returns false if there are none.
    fn hand_on(&mut self, out: &mut ReadBuf<'_>) -> bool {
        let rest = &self.ready[self.sent..];
        let mut rest = &rest[..rest.len().min(out.remaining())];
        if rest.is_empty() {
            return false;
        }
        if let Part::Head { is_at_line_start } = &mut self.part {
            let end = find_end(rest, is_at_line_start);
            if let Some(end) = end {
                rest = &rest[..end];
                self.part = Part::Behind;
                self.bounds.behind_head.store(0, Ordering::Relaxed);
            }
        } else if self.part == Part::Behind {
            self.bounds.add_behind(rest.len());
            // These bytes came before the request had ended, so that it is uncertain where the next
            // one begins.
            self.bounds.is_between.store(false, Ordering::Relaxed);
        }
        out.put_slice(rest);
        self.sent += rest.len();
        if self.sent == self.ready.len() {
            self.ready.clear();
            self.sent = 0;
        }
        true
    }
}

impl RequestBounds {
    fn add_behind(&self, bytes: usize) {
        self.behind_head.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Marks the end of the response to a request with a body of `body_bytes`.
    fn end(&self, body_bytes: u64) {
        if self.behind_head.load(Ordering::Relaxed) == body_bytes {
            self.is_between.store(true, Ordering::Relaxed);
        }
    }
}

/// Returns the position behind the empty line that ends a head.
fn find_end(bytes: &[u8], is_at_line_start: &mut bool) -> Option<usize> {
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' if *is_at_line_start => return Some(at + 1),
            b'\n' => *is_at_line_start = true,
            b'\r' => {}
            _ => *is_at_line_start = false,
        }
    }
    None
}

/// Encodes the refused characters between the first and the last space of a line.
fn encode_line(line: &[u8]) -> Vec<u8> {
    let blank = |byte: &u8| *byte == b' ';
    let (Some(first), Some(last)) = (line.iter().position(blank), line.iter().rposition(blank))
    else {
        return line.to_vec();
    };
    let mut encoded = Vec::with_capacity(line.len());
    for (at, byte) in line.iter().enumerate() {
        let is_refused = matches!(byte, b'"' | b'<' | b'>' | b'`' | 0x7f..);
        if is_refused && at > first && at < last {
            encoded.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            encoded.push(*byte);
        }
    }
    encoded
}

impl<S: AsyncRead + Unpin> AsyncRead for RequestReader<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.part != Part::Line && this.hand_on(out) {
            return Poll::Ready(Ok(()));
        }
        if this.part == Part::Behind && this.bounds.is_between.swap(false, Ordering::Relaxed) {
            this.part = Part::Line;
        }
        if this.part == Part::Behind {
            let before = out.filled().len();
            ready!(Pin::new(&mut this.inner).poll_read(cx, out))?;
            this.bounds.add_behind(out.filled().len() - before);
            return Poll::Ready(Ok(()));
        }
        loop {
            // A line that is longer than the library accepts is handed on, so that the library
            // refuses it.
            let end = this.ready.iter().position(|byte| *byte == b'\n');
            let line = match (this.part, end) {
                (Part::Line, Some(end)) => Some(end + 1),
                (Part::Line, None) if this.ready.len() >= HTTP1_BYTES => Some(this.ready.len()),
                _ => None,
            };
            if let Some(end) = line {
                let mut all = encode_line(&this.ready[..end]);
                let is_empty = matches!(all.as_slice(), b"\r\n" | b"\n");
                all.extend_from_slice(&this.ready[end..]);
                this.ready = all;
                if is_empty {
                    // The library skips empty lines before a request.
                    let length = end.min(out.remaining());
                    out.put_slice(&this.ready[..length]);
                    this.ready.drain(..length);
                    return Poll::Ready(Ok(()));
                }
                this.part = Part::Head {
                    is_at_line_start: false,
                };
            }
            if this.part != Part::Line && this.hand_on(out) {
                return Poll::Ready(Ok(()));
            }
            let mut bytes = [0_u8; 8 << 10];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                // At the end of the stream an incomplete line is handed on unchanged.
                this.part = Part::Head {
                    is_at_line_start: false,
                };
                this.hand_on(out);
                return Poll::Ready(Ok(()));
            }
            this.ready.extend_from_slice(read.filled());
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RequestReader<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

/// Body of a response. The end of this body is also the end of its request.
#[derive(Debug)]
pub(super) struct LastBody<B> {
    inner: B,
    /// Progress to update at the end, and the length of the request's body. `None` if the length is
    /// unknown.
    ends: Option<(Arc<RequestBounds>, u64)>,
}

impl<B> LastBody<B> {
    pub(super) const fn new(inner: B, ends: Option<(Arc<RequestBounds>, u64)>) -> Self {
        Self { inner, ends }
    }
}

impl<B> Drop for LastBody<B> {
    fn drop(&mut self) {
        if let Some((bounds, body_bytes)) = self.ends.take() {
            bounds.end(body_bytes);
        }
    }
}

impl<B> Body for LastBody<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(test)
    }

    /// Reads everything in steps of `step` bytes.
    fn read(input: &[u8], step: usize) -> String {
        run(async {
            let mut reader = RequestReader::new(input);
            let mut all = Vec::new();
            loop {
                let mut part = vec![0; step];
                let length = reader.read(&mut part).await.unwrap();
                if length == 0 {
                    return String::from_utf8_lossy(&all).into_owned();
                }
                all.extend_from_slice(&part[..length]);
            }
        })
    }

    #[test]
    fn first_lines_are_encoded_and_nothing_else() {
        let head = "GET /a\"b\u{e9}<c>?`d{e} HTTP/1.1\r\nX: \"<>\"\r\n\r\n";
        let expected = "GET /a%22b%C3%A9%3Cc%3E?%60d{e} HTTP/1.1\r\nX: \"<>\"\r\n\r\n";
        let body = "GET /\"x HTTP/1.1\r\n";
        for step in [1, 2, 7, 64, 4096] {
            let input = format!("{head}{body}");
            let output = read(input.as_bytes(), step);
            assert_eq!(output, format!("{expected}{body}"), "{step}");
        }
    }

    #[test]
    fn next_request_begins_where_the_last_one_certainly_ended() {
        let plain = "GET / HTTP/1.1\r\n\r\n";
        let next = "GET /\" HTTP/1.1\r\n\r\n";
        // What is written, the length of the body that is told of, and what of `next` is read then.
        for (first, behind, body_bytes, expected) in [
            (plain, "", 0, "GET /%22 HTTP/1.1\r\n\r\n"),
            (plain, "body", 4, "GET /%22 HTTP/1.1\r\n\r\n"),
            // The answer ended before the body did, or a request came together with the one before.
            (plain, "bo", 4, next),
            (plain, next, 0, next),
        ] {
            let read = run(async {
                let (mut client, server) = tokio::io::duplex(1024);
                let mut reader = RequestReader::new(server);
                let bounds = reader.bounds();
                client
                    .write_all(format!("{first}{behind}").as_bytes())
                    .await
                    .unwrap();
                let mut head = vec![0; first.len()];
                reader.read_exact(&mut head).await.unwrap();
                let mut rest = vec![0; behind.len()];
                let is_read_before = body_bytes > 0;
                if is_read_before {
                    reader.read_exact(&mut rest).await.unwrap();
                }
                bounds.end(body_bytes);
                if !is_read_before {
                    reader.read_exact(&mut rest).await.unwrap();
                }
                client.write_all(next.as_bytes()).await.unwrap();
                let mut read = vec![0; expected.len()];
                reader.read_exact(&mut read).await.unwrap();
                String::from_utf8(read).unwrap()
            });
            assert_eq!(read, expected, "{behind:?} {body_bytes}");
        }
    }

    #[test]
    fn what_is_no_request_passes() {
        for text in ["", "\r\n", "no end", "\u{e9}\u{e9}\r\n\r\n", "a \"b\""] {
            assert_eq!(read(text.as_bytes(), 3), text);
        }
    }
}
