//! Streaming of bodies that are too large for memory, between blocking code and the connection. How
//! long either side may keep the other waiting is limited.

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use std::io::{self, Read as _, Write};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::io::{StreamReader, SyncIoBridge};

/// Maximum time between two pieces of a body, and for a whole body.
const CHUNK_WAIT: Duration = Duration::from_secs(30);
const BODY_WAIT: Duration = Duration::from_mins(30);
/// Maximum bytes and time of reading a body whose response is already decided.
const MAX_DISCARDED_BYTES: u64 = 64 << 20;
const DISCARD_WAIT: Duration = Duration::from_secs(5);
/// Size of a piece in bytes, and the number of pieces that may wait for the client.
const PIECE_BYTES: usize = 64 << 10;
const MAX_PIECES: usize = 8;

/// Request body as a blocking reader.
#[derive(Debug)]
pub(super) struct BodyReader<S>(SyncIoBridge<StreamReader<S, Bytes>>);

impl<S: Stream<Item = io::Result<Bytes>> + Unpin> io::Read for BodyReader<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

/// Returns a reader of a body of at most `max_bytes`. It fails with [`io::ErrorKind::FileTooLarge`]
/// if the body is longer, and with [`io::ErrorKind::TimedOut`] if the client pauses for too long.
// TRUST: a client may send a body of any size, as slowly as it likes.
pub(super) fn reader(
    body: Body,
    max_bytes: u64,
) -> BodyReader<impl Stream<Item = io::Result<Bytes>> + Unpin> {
    let end = Instant::now() + BODY_WAIT;
    let start = (body.into_data_stream(), max_bytes);
    let pieces = stream::try_unfold(start, move |(mut body, left)| async move {
        let Some(piece) = next_piece(&mut body, end).await? else {
            return Ok(None);
        };
        let left = left
            .checked_sub(piece.len() as u64)
            .ok_or(io::ErrorKind::FileTooLarge)?;
        Ok::<_, io::Error>(Some((piece, (body, left))))
    });
    BodyReader(SyncIoBridge::new(StreamReader::new(Box::pin(pieces))))
}

async fn next_piece(body: &mut BodyDataStream, end: Instant) -> io::Result<Option<Bytes>> {
    let waited = timeout_at(end.min(Instant::now() + CHUNK_WAIT), body.next());
    match waited.await {
        Ok(piece) => piece.transpose().map_err(io::Error::other),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Reads and drops the rest of a body, up to a limit of bytes and time, so that a client that is
/// still sending can read the response.
pub(super) fn discard(body: impl io::Read) {
    let begun = std::time::Instant::now();
    let mut body = body.take(MAX_DISCARDED_BYTES);
    let mut block = vec![0; PIECE_BYTES];
    while begun.elapsed() < DISCARD_WAIT && body.read(&mut block).is_ok_and(|count| count > 0) {}
}

/// Writing end of a response body. Writes fail if the client has gone or takes no bytes for too
/// long.
#[derive(Debug)]
pub(super) struct BodyWriter {
    runtime: Handle,
    /// Channel of pieces. None marks the end of the body.
    pieces: mpsc::Sender<Option<Bytes>>,
    piece: Vec<u8>,
}

/// Returns a response body and its blocking writer. If the writer is dropped without `finish`, the
/// body ends with an error, so that the client does not take it for complete.
pub(super) fn writer() -> (BodyWriter, Body) {
    let (pieces, written) = mpsc::channel::<Option<Bytes>>(MAX_PIECES);
    let body = stream::unfold(Some(written), |written| async {
        let mut written = written?;
        match written.recv().await {
            Some(Some(piece)) => Some((Ok(piece), Some(written))),
            Some(None) => None,
            None => Some((Err(io::Error::from(io::ErrorKind::UnexpectedEof)), None)),
        }
    });
    let writer = BodyWriter {
        runtime: Handle::current(),
        pieces,
        piece: Vec::with_capacity(PIECE_BYTES),
    };
    (writer, Body::from_stream(body))
}

impl BodyWriter {
    fn send(&self, piece: Option<Bytes>) -> io::Result<()> {
        let sent = async { timeout(CHUNK_WAIT, self.pieces.send(piece)).await };
        match self.runtime.block_on(sent) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Sends the buffered rest and marks the end of the body.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.send(None)
    }
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..count]);
        if self.piece.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.send(Some(piece.into()))
    }
}
