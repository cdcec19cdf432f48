//! Standard input as messages: what is no message gets an answer, where the SDK says nothing.

use rmcp::model::{ErrorCode, ErrorData, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader, DuplexStream, duplex,
};
use tokio::sync::mpsc;

/// Longest message of the client, in bytes.
pub(super) const MAX_MESSAGE_BYTES: usize = 8 << 20;
/// Bytes on their way to the SDK.
const ON_THE_WAY_BYTES: usize = 64 << 10;
/// Answers that wait to be sent before nothing more is read.
const MAX_ANSWERS: usize = 16;

/// An error to send, and the id of the request that it answers, where that could be read.
pub(super) type Complaint = (ErrorData, Option<RequestId>);

/// Method by which clients of versions without sessions ask for the server's abilities.
const DISCOVER: &str = "server/discover";

/// Refuses `message` if it is a request `server/discover`; returns the error and the request's id.
///
/// The SDK answers it in a way that makes clients give up instead of going on with `initialize`.
pub(super) fn refuse_discovery(message: &[u8]) -> Option<(ErrorData, RequestId)> {
    #[derive(Deserialize)]
    struct Head {
        id: Value,
        method: String,
    }
    let head: Head = serde_json::from_slice(message).ok()?;
    if head.method != DISCOVER {
        return None;
    }
    let id = serde_json::from_value(head.id).ok()?;
    Some((
        ErrorData::new(ErrorCode::METHOD_NOT_FOUND, head.method, None),
        id,
    ))
}

/// Passes on the lines of `input` that are JSON; the others are answered by what comes second.
pub(super) fn messages(
    input: impl AsyncRead + Send + Unpin + 'static,
) -> (DuplexStream, mpsc::Receiver<Complaint>) {
    let (near, far) = duplex(ON_THE_WAY_BYTES);
    let (complain, complaints) = mpsc::channel(MAX_ANSWERS);
    // It ends with the input, or when nobody listens any more.
    tokio::spawn(pass_on(BufReader::new(input), near, complain));
    (far, complaints)
}

// TRUST: a line is of any length, and anything may be in it.
async fn pass_on(
    mut input: BufReader<impl AsyncRead + Unpin>,
    mut output: DuplexStream,
    complain: mpsc::Sender<Complaint>,
) -> Option<()> {
    let mut line = Vec::new();
    let mut is_too_long = false;
    loop {
        let read = input
            .fill_buf()
            .await
            .ok()
            .filter(|read| !read.is_empty())?;
        let end = read.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(read.len(), |end| end + 1);
        is_too_long |= line.len() + taken > MAX_MESSAGE_BYTES;
        if is_too_long {
            line.clear();
        } else {
            line.extend_from_slice(&read[..taken]);
        }
        input.consume(taken);
        if end.is_none() {
            continue;
        }
        if is_too_long {
            let most = MAX_MESSAGE_BYTES >> 20;
            let message = format!("a message has at most {most} MiB");
            complain
                .send((ErrorData::invalid_request(message, None), None))
                .await
                .ok()?;
        } else if line.iter().all(u8::is_ascii_whitespace) {
            // Nothing was said.
        } else if let Err(error) = serde_json::from_slice::<IgnoredAny>(&line) {
            let message = format!("the message is not JSON: {error}");
            complain
                .send((ErrorData::parse_error(message, None), None))
                .await
                .ok()?;
        } else if let Some((error, id)) = refuse_discovery(&line) {
            complain.send((error, Some(id))).await.ok()?;
        } else {
            output.write_all(&line).await.ok()?;
        }
        line.clear();
        is_too_long = false;
    }
}

/// A transport that also sends those answers.
pub(super) struct Answering<T> {
    inner: T,
    complaints: mpsc::Receiver<Complaint>,
}

impl<T> Answering<T> {
    pub(super) const fn new(inner: T, complaints: mpsc::Receiver<Complaint>) -> Self {
        Self { inner, complaints }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Answering<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            tokio::select! {
                received = self.inner.receive() => return received,
                Some((error, id)) = self.complaints.recv() => {
                    // Receiving may be given up at any await, and the answer must not be lost with it.
                    tokio::spawn(self.inner.send(TxJsonRpcMessage::<RoleServer>::error(error, id)));
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
