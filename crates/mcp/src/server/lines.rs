//! Standard input as messages, one per line.

use crate::message::{ClientMessage, read_client};
use crate::transport::{Incoming, MAX_WAITING, ReadTransport};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage};
use rmcp::service::{RoleServer, TxJsonRpcMessage};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, BufReader};
use tokio::sync::mpsc;

/// Maximum size of a message of the client, in bytes.
const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// Creates the transport that reads messages from `input` and writes those of the server to
/// `output`.
pub(super) fn transport<W: AsyncWrite + Send + Unpin + 'static>(
    input: impl AsyncRead + Send + Unpin + 'static,
    output: W,
) -> ReadTransport<RoleServer, W> {
    let (send, incoming) = mpsc::channel(MAX_WAITING);
    // The task ends with the input, or when the transport is dropped.
    tokio::spawn(read_lines(BufReader::new(input), send));
    ReadTransport::new(incoming, output)
}

// TRUST: the client chooses the length and content of a line.
async fn read_lines(
    mut input: BufReader<impl AsyncRead + Unpin>,
    send: mpsc::Sender<Incoming<RoleServer>>,
) -> Option<()> {
    let mut line = Vec::new();
    let mut is_too_long = false;
    let mut is_introduced = false;
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
            let error =
                ErrorData::invalid_request(format!("a message has at most {most} MiB"), None);
            let answer = TxJsonRpcMessage::<RoleServer>::error(error, None);
            send.send(Incoming::Refused(Box::new(answer))).await.ok()?;
        } else if !line.iter().all(u8::is_ascii_whitespace) {
            match read_client(&line) {
                ClientMessage::Decoded(message, _) => {
                    is_introduced |= is_introduction(&message);
                    // Before `initialize`, a message that is not a request would make the SDK end
                    // the connection.
                    if is_introduced || matches!(*message, JsonRpcMessage::Request(_)) {
                        send.send(Incoming::Message(message)).await.ok()?;
                    }
                }
                ClientMessage::Refused(answers) => {
                    for answer in answers {
                        let answer = JsonRpcMessage::Error(answer);
                        send.send(Incoming::Refused(Box::new(answer))).await.ok()?;
                    }
                }
            }
        }
        line.clear();
        is_too_long = false;
    }
}

fn is_introduction(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(request)
        if matches!(request.request, ClientRequest::InitializeRequest(_)))
}
