//! Bodies that are too large to be held: read by code that waits, written by code that waits, with a bound on how long
//! either side may keep the other waiting.

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use std::io::{self, Read as _, Write};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::io::{StreamReader, SyncIoBridge};

/// How long a client may rest in the middle of a body, and how long a body may take.
const CHUNK_WAIT: Duration = Duration::from_secs(30);
const BODY_WAIT: Duration = Duration::from_mins(30);
/// What is read of a body whose fate is decided, and for how long.
const MAX_DISCARDED_BYTES: u64 = 64 << 20;
const DISCARD_WAIT: Duration = Duration::from_secs(5);
/// Bytes that are sent at a time, and how many such pieces may wait for the client.
const PIECE_BYTES: usize = 64 << 10;
const MAX_PIECES: usize = 8;

/// The body of a request as a reader for a thread that may wait.
#[derive(Debug)]
pub(super) struct BodyReader<S>(SyncIoBridge<StreamReader<S, Bytes>>);

impl<S: Stream<Item = io::Result<Bytes>> + Unpin> io::Read for BodyReader<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

/// Reads a body of at most `max_bytes`. More is [`io::ErrorKind::FileTooLarge`], a client that rests too long
/// [`io::ErrorKind::TimedOut`].
// TRUST: a body is of any size and comes as slowly as its sender likes.
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

/// Reads on for a while and forgets what comes.
pub(super) fn discard(body: impl io::Read) {
    let begun = std::time::Instant::now();
    let mut body = body.take(MAX_DISCARDED_BYTES);
    let mut block = vec![0; PIECE_BYTES];
    while begun.elapsed() < DISCARD_WAIT && body.read(&mut block).is_ok_and(|count| count > 0) {}
}

/// The writing end of an answer's body. A client that takes nothing for too long, or has gone, is an error.
#[derive(Debug)]
pub(super) struct BodyWriter {
    runtime: Handle,
    /// Pieces, and nothing after the last one.
    pieces: mpsc::Sender<Option<Bytes>>,
    piece: Vec<u8>,
}

/// A body, and where its bytes are written by a thread that may wait. A body whose writer goes without having finished
/// it is cut off, so that its reader does not take it for all of it.
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

    /// That was all of it.
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
