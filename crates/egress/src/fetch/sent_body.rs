//! Body of a request that is counted when it is sent. The HTTP client polls it only after the
//! connection is made, so that a request that fails earlier counts no bytes.

use crate::record::traffic::{ByteCounts, Direction};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Request body that adds its length to `counts` when it is polled.
#[derive(Debug)]
pub(crate) struct SentBody {
    /// Bytes to send; empty after they have been handed out.
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
