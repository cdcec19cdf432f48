//! Counts what a connection carries, and stops or slows it where a limit says so.

use crate::accounts::{Account, Flow};
use crate::control::Control;
use crate::pump::reset;
use crate::traffic::{Direction, Traffic};
use glovebox_proto::EgressReason;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Counts one connection. Dropping it ends the connection's records.
#[derive(Debug)]
pub(crate) struct Meter {
    control: Arc<Control>,
    traffic: Arc<Traffic>,
    account: Arc<Account>,
    host: String,
    port: u16,
    is_stopped: AtomicBool,
}

impl Meter {
    pub(crate) fn new(
        control: Arc<Control>,
        traffic: Arc<Traffic>,
        account: Arc<Account>,
        host: String,
        port: u16,
    ) -> Self {
        Self {
            control,
            traffic,
            account,
            host,
            port,
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Counts bytes of the program's end of the connection: those it sent when they have been read, those it
    /// receives when they have been written.
    pub(crate) fn count(&self, direction: Direction, bytes: usize) -> Flow {
        let bytes = bytes as u64;
        self.traffic.bytes.add(direction, bytes);
        self.account.bytes.add(direction, bytes);
        let flow = self.control.accounts.count(direction, bytes);
        if flow == Flow::Stop && !self.is_stopped.swap(true, Ordering::Relaxed) {
            let reason = EgressReason::ByteLimit;
            self.control
                .refuse(&self.host, Some(self.port), reason, None);
        }
        flow
    }

    /// Most bytes that are to be taken at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.control.accounts.most_at_once()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.traffic.end();
        self.control.accounts.close();
    }
}

/// The program's end of a connection, metered.
#[derive(Debug)]
pub(crate) struct Metered {
    stream: TcpStream,
    meter: Arc<Meter>,
    /// Until when nothing more is taken.
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
            Flow::Go => Ok(()),
            Flow::Wait(wait) => {
                self.pause = Some(Box::pin(tokio::time::sleep(wait)));
                Ok(())
            }
            Flow::Stop => {
                // An orderly end could be taken for the whole answer.
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
