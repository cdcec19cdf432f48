//! The name server of such a sandbox: a listed name has the address that stands in for it, any other does not exist.
//!
//! No question leaves the host for a name that is not listed, so that names cannot carry anything out. A listed one is
//! looked up before it is answered: whoever asks for what nobody knows is told so.

use crate::ConnectFailure;
use crate::policy::name::{Host, Name};
use crate::state::{ProxyState, ReachError};
use glovebox_proto::EgressReason;
use glovebox_proto::dns::{AnswerCode, MAX_PACKET_BYTES, Question, is_local};
use std::sync::Arc;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;

/// How long an answer holds. Short: what is listed may change.
const TTL_SECS: u32 = 5;
/// Questions that are worked on at once; more wait in the socket, and what does not fit there is asked again.
const MAX_AT_ONCE: usize = 64;

/// Answers questions until the runtime ends.
pub(crate) async fn serve(socket: UdpSocket, state: Arc<ProxyState>) {
    let socket = Arc::new(socket);
    let places = Arc::new(Semaphore::new(MAX_AT_ONCE));
    let mut packet = [0_u8; MAX_PACKET_BYTES + 1];
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        // An asker that has gone shows as an error here, and means nothing.
        let Ok((length, from)) = socket.recv_from(&mut packet).await else {
            tokio::task::yield_now().await;
            continue;
        };
        // TRUST: any command can send anything here; what is not a question is dropped.
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
