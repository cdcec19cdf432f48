//! The body of a request, counted when it goes out: nothing asks for it before there is a connection.

use crate::record::traffic::{ByteCounts, Direction};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// See the module.
#[derive(Debug)]
pub(crate) struct SentBody {
    /// Empty when it has gone out.
    bytes: Bytes,
    counts: Arc<ByteCounts>,
}

impl SentBody {
    pub(crate) fn new(bytes: Vec<u8>, counts: Arc<ByteCounts>) -> Self {
        Self {
            bytes: bytes.into(),
            counts,
        }
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.is_empty() {
            return Poll::Ready(None);
        }
        self.counts.add(Direction::Sent, bytes.len() as u64);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
