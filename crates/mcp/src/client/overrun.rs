//! Limits on what a server may send. Exceeding one ends its connection, and the reason is kept.
//!
//! TRUST: the SDK starts a task for every request of the server, and does not bound them.

use super::MAX_MESSAGE_BYTES;
use crate::message::read_server;
use crate::transport::Incoming;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::io::{BufRead as _, BufReader, Read};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Maximum number of requests of a server in [`PERIOD`]. The only legitimate ones are pings.
const MAX_REQUESTS: u32 = 100;
const PERIOD: Duration = Duration::from_mins(1);

/// Limit that the server exceeded. Empty if it exceeded none.
#[derive(Debug, Clone, Default)]
pub(super) struct Overrun(Arc<OnceLock<String>>);

impl Overrun {
    pub(super) fn told(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    fn tell(&self, what: String) {
        let _ = self.0.set(what);
    }
}

/// Reads messages, one per line. Returns when the output ends, a line exceeds the limit, or the
/// receiver is dropped.
pub(super) fn read_lines(
    output: impl Read,
    messages: &mpsc::Sender<Incoming<RoleClient>>,
    overrun: &Overrun,
) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        let most = MAX_MESSAGE_BYTES as u64 + 1;
        match output.by_ref().take(most).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
        if line.len() > MAX_MESSAGE_BYTES {
            let most = MAX_MESSAGE_BYTES >> 20;
            overrun.tell(format!("it said more than {most} MiB in one message"));
            return;
        }
        for message in read_server(&line) {
            let message = Incoming::Message(Box::new(message));
            if messages.blocking_send(message).is_err() {
                return;
            }
        }
    }
}

/// Transport that ends when the server makes too many requests.
pub(super) struct BoundedRequests<T> {
    inner: T,
    began: Instant,
    requests: u32,
    overrun: Overrun,
}

impl<T> BoundedRequests<T> {
    pub(super) fn new(inner: T, overrun: &Overrun) -> Self {
        Self {
            inner,
            began: Instant::now(),
            requests: 0,
            overrun: overrun.clone(),
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for BoundedRequests<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await?;
        if !matches!(message, JsonRpcMessage::Request(_)) {
            return Some(message);
        }
        if self.began.elapsed() > PERIOD {
            self.began = Instant::now();
            self.requests = 0;
        }
        self.requests += 1;
        if self.requests > MAX_REQUESTS {
            let what = format!("it made more than {MAX_REQUESTS} requests of its own in a minute");
            self.overrun.tell(what);
            return None;
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
