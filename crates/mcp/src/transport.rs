//! Transport for the SDK whose messages were read by [`crate::message`] before.

use rmcp::service::{RxJsonRpcMessage, ServiceRole, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use tokio::io::{AsyncWrite, Empty, empty};
use tokio::sync::mpsc;

/// Messages that are queued for the SDK. Reading pauses while the queue is full.
pub(crate) const MAX_WAITING: usize = 16;

/// Step of a connection.
pub(crate) enum Incoming<R: ServiceRole> {
    /// Message for the SDK.
    Message(Box<RxJsonRpcMessage<R>>),
    /// Reply to a message that the SDK does not see.
    Refused(Box<TxJsonRpcMessage<R>>),
}

/// Transport over a queue of read messages. Ends when the sender of the queue is dropped.
pub(crate) struct ReadTransport<R: ServiceRole, W: AsyncWrite> {
    incoming: mpsc::Receiver<Incoming<R>>,
    outgoing: AsyncRwTransport<R, Empty, W>,
    /// Reply that is being sent. `receive` may be cancelled at any await, and the reply must not be
    /// lost then.
    answer: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send>>>,
}

impl<R: ServiceRole, W: AsyncWrite> fmt::Debug for ReadTransport<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadTransport(..)")
    }
}

impl<R, W> ReadTransport<R, W>
where
    R: ServiceRole,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(crate) fn new(incoming: mpsc::Receiver<Incoming<R>>, output: W) -> Self {
        Self {
            incoming,
            outgoing: AsyncRwTransport::new(empty(), output),
            answer: None,
        }
    }
}

impl<R, W> Transport<R> for ReadTransport<R, W>
where
    R: ServiceRole,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<R>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.outgoing.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<R>> {
        loop {
            if let Some(answer) = &mut self.answer {
                let sent = answer.await;
                self.answer = None;
                sent.ok()?;
            }
            match self.incoming.recv().await? {
                Incoming::Message(message) => return Some(*message),
                Incoming::Refused(answer) => {
                    self.answer = Some(Box::pin(self.outgoing.send(*answer)));
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.outgoing.close().await
    }
}
