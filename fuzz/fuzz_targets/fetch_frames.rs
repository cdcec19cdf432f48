//! What a process that runs a tool asks to be fetched, and what it is answered: whatever arrives is a request within bounds
//! or an error, a request never leads elsewhere than its address says, and answers come back as they were.
#![no_main]

use glovebox_egress::{FetchRequest, Redirects};
use glovebox_js::tool_call::{CallMessage, FrameDecoder, frame};
use glovebox_js::tool_fetch::{
    FetchAnswer, FetchCall, FetchFailure, FetchOutcome, FetchReply, MAX_REPLY_BYTES, RedirectMode,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct RequestParts {
    id: u32,
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    redirect: u8,
}

#[derive(Debug, Arbitrary)]
struct ReplyParts {
    id: u32,
    status: u16,
    text: String,
    headers: Vec<(String, String)>,
    body: String,
    is_failure: bool,
}

fn reply(one: ReplyParts) -> FetchReply {
    let outcome = if one.is_failure {
        FetchOutcome::Failure(FetchFailure {
            code: one.text.clone(),
            message: one.body,
            host: one.text,
            port: one.status,
            reason: String::new(),
        })
    } else {
        FetchOutcome::Answer(FetchAnswer {
            status: one.status,
            status_text: one.text.clone(),
            url: one.text,
            is_redirected: one.id % 2 == 0,
            headers: one.headers,
            body: one.body,
        })
    };
    FetchReply { id: one.id, outcome }
}

fuzz_target!(|input: (Vec<RequestParts>, Vec<ReplyParts>, usize, &[u8])| {
    let (asked, answered, step, garbage) = input;
    for one in asked {
        let redirect = [RedirectMode::Follow, RedirectMode::Error, RedirectMode::Manual][usize::from(one.redirect) % 3];
        let redirects = [Redirects::Follow, Redirects::Refuse, Redirects::Return][usize::from(one.redirect) % 3];
        // The request itself: an error, or one whose host can be decided on.
        let parsed = FetchRequest::parse(&one.method, &one.url, &one.headers, one.body.clone(), redirects);
        if let Ok(request) = parsed {
            request.target().expect("a request that was taken has a host");
        }
        let message = CallMessage::Fetch(FetchCall {
            id: one.id,
            method: one.method,
            url: one.url,
            headers: one.headers,
            body: String::from_utf8_lossy(&one.body).into_owned(),
            redirect,
        });
        let json = serde_json::to_vec(&message).expect("a message is JSON");
        assert_eq!(serde_json::from_slice::<CallMessage>(&json).expect("it can be read"), message);
    }
    // Answers, and then anything, in pieces.
    let replies: Vec<_> = answered.into_iter().map(reply).collect();
    let mut stream: Vec<u8> = Vec::new();
    for one in &replies {
        stream.extend(frame(&serde_json::to_vec(one).expect("a reply is JSON")));
    }
    stream.extend_from_slice(garbage);
    let mut decoder = FrameDecoder::new(MAX_REPLY_BYTES);
    let mut found = Vec::new();
    'stream: for piece in stream.chunks(step % 4096 + 1) {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some(json)) => match serde_json::from_slice::<FetchReply>(&json) {
                    Ok(reply) => found.push(reply),
                    Err(_) => break 'stream,
                },
                Err(_) => break 'stream,
            }
        }
    }
    assert!(found.len() >= replies.len() && found[..replies.len()] == replies);
});
