//! DNS server of a sandbox with egress rules. A listed name resolves to its stand-in address; any
//! other name does not exist.
//!
//! No query for an unlisted name leaves the host, so that names cannot carry data out. A listed
//! name is looked up before it is answered, so that a name that does not exist outside does not
//! resolve inside either.

use crate::ConnectFailure;
use crate::policy::name::{Host, Name};
use crate::state::{ProxyState, ReachError};
use glovebox_proto::EgressReason;
use glovebox_proto::dns::{AnswerCode, MAX_PACKET_BYTES, Question, is_local};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Lifetime of an answer. Short, because rules can be added and can expire.
const TTL_SECS: u32 = 5;
/// Maximum number of queries in progress. Further ones wait in the socket's buffer; those that do
/// not fit are dropped by the kernel and repeated by the client.
const MAX_AT_ONCE: usize = 64;
/// Maximum time to wait for the next query on a connection.
const IDLE_WAIT: Duration = Duration::from_secs(30);

/// Answers queries until the runtime ends.
pub(crate) async fn serve(socket: UdpSocket, state: Arc<ProxyState>) {
    let socket = Arc::new(socket);
    let places = Arc::new(Semaphore::new(MAX_AT_ONCE));
    let mut packet = [0_u8; MAX_PACKET_BYTES + 1];
    loop {
        // The permit comes before the packet is read: otherwise queries beyond the limit would pile
        // up in this process instead of in the socket's buffer.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        // An error here belongs to an earlier answer whose client has closed its socket.
        let Ok((length, from)) = socket.recv_from(&mut packet).await else {
            tokio::task::yield_now().await;
            continue;
        };
        // TRUST: any program inside can send anything here; a packet that is not a query is
        // dropped.
        let Some(question) = packet.get(..length).and_then(Question::parse) else {
            continue;
        };
        let (socket, state) = (Arc::clone(&socket), Arc::clone(&state));
        tokio::spawn(async move {
            let answer = answer(&state, &question).await;
            let _ = socket.send_to(&answer, from).await;
            drop(place);
        });
    }
}

/// Answers the queries of one connection (RFC 7766), one after the other, until it ends or is idle.
///
/// # Errors
/// The connection broke off.
pub(crate) async fn serve_stream(mut stream: TcpStream, state: &ProxyState) -> io::Result<()> {
    loop {
        let length = timeout(IDLE_WAIT, stream.read_u16()).await??;
        // TRUST: any program inside can send anything here; whatever is not a query ends the
        // connection.
        if usize::from(length) > MAX_PACKET_BYTES {
            return Ok(());
        }
        let mut packet = vec![0; usize::from(length)];
        timeout(IDLE_WAIT, stream.read_exact(&mut packet)).await??;
        let Some(question) = Question::parse(&packet) else {
            return Ok(());
        };
        let answer = answer(state, &question).await;
        let length = u16::try_from(answer.len()).unwrap_or(u16::MAX);
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend(answer);
        stream.write_all(&framed).await?;
    }
}

async fn answer(state: &ProxyState, question: &Question) -> Vec<u8> {
    if is_local(question.name()) {
        return question.answer(AnswerCode::NoSuchName, None, TTL_SECS);
    }
    let name = std::str::from_utf8(question.name())
        .ok()
        .and_then(|text| Name::parse(text).ok());
    let Some(name) = name else {
        let shown = String::from_utf8_lossy(question.name());
        state.refuse(&shown, None, EgressReason::Never);
        return question.answer(AnswerCode::NoSuchName, None, TTL_SECS);
    };
    match state.reach(&Host::Name(name.clone()), None).await {
        Ok(_) => {}
        Err(ReachError::Failed(ConnectFailure::NoResolverAnswer)) => {
            return question.answer(AnswerCode::ServerFailed, None, TTL_SECS);
        }
        Err(_) => return question.answer(AnswerCode::NoSuchName, None, TTL_SECS),
    }
    match state.stand_in(&name) {
        Some(address) => question.answer(AnswerCode::Found, Some(address), TTL_SECS),
        None => question.answer(AnswerCode::ServerFailed, None, TTL_SECS),
    }
}
