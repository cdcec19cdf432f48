//! Program's end of a connection as a stream whose bytes a meter counts.

use crate::record::accounts::FlowControl;
use crate::record::meter::Meter;
use crate::record::traffic::Direction;
use crate::relay::pump::reset;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Program's end of a connection, metered.
#[derive(Debug)]
pub(crate) struct Metered {
    stream: TcpStream,
    meter: Arc<Meter>,
    /// Pause of a rate limit, during which no bytes are transferred.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Metered {
    pub(crate) const fn new(stream: TcpStream, meter: Arc<Meter>) -> Self {
        Self {
            stream,
            meter,
            pause: None,
        }
    }

    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        Poll::Ready(())
    }

    fn count(&mut self, direction: Direction, bytes: usize) -> io::Result<()> {
        match self.meter.count(direction, bytes) {
            FlowControl::Go => Ok(()),
            FlowControl::Wait(wait) => {
                self.pause = Some(Box::pin(tokio::time::sleep(wait)));
                Ok(())
            }
            FlowControl::Stop => {
                // A reset, because the program could take an orderly end for the end of a complete
                // response.
                reset(&self.stream);
                Err(io::ErrorKind::QuotaExceeded.into())
            }
        }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_pause(cx));
        // Nothing is read during a pause, so that the flow control of TCP slows the program down.
        let most = this.meter.most_at_once().min(buf.remaining());
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
        ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
        let length = part.filled().len();
        buf.advance(length);
        Poll::Ready(this.count(Direction::Sent, length))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_pause(cx));
        let part = buf.get(..this.meter.most_at_once()).unwrap_or(buf);
        let length = ready!(Pin::new(&mut this.stream).poll_write(cx, part))?;
        Poll::Ready(this.count(Direction::Received, length).map(|()| length))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
