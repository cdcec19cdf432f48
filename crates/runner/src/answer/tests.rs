//! What is made of an answer, and of an end without one.

use super::*;
use glovebox_js::tool_call::{LogLevel, frame};
use glovebox_js::tool_fetch::{FetchCall, RedirectMode};
use glovebox_proto::JobId;
use proptest::prelude::*;
use serde_json::json;

fn limits() -> CallLimits {
    CallLimits {
        wall_ms: 1000,
        ..CallLimits::default()
    }
}

fn said(message: &Value) -> Vec<u8> {
    frame(message.to_string().as_bytes())
}

fn ended(exit: Exit) -> ExitReport {
    ExitReport::new(JobId(1), exit)
}

fn judged(bytes: &[u8], end: &ExitReport, wall_ms: u64) -> Result<Value, CallFailure> {
    let mut answer = Answer::new(limits(), None);
    answer.take(bytes);
    answer
        .judge(Some(end), Duration::from_millis(wall_ms))
        .map(|(value, _, _)| value)
}

fn kind(bytes: &[u8], end: &ExitReport, wall_ms: u64) -> FailureKind {
    judged(bytes, end, wall_ms).unwrap_err().kind
}

#[test]
fn a_value_is_what_its_text_says() {
    let bytes = said(&json!({ "is": "value", "json": "{\"a\":[1,null]}", "warnings": [] }));
    let value = judged(&bytes, &ended(Exit::Code(0)), 5).unwrap();
    assert_eq!(value, json!({ "a": [1, null] }));
}

#[test]
fn whether_a_call_was_late_is_told_by_the_host() {
    let bytes = said(&json!({
        "is": "error", "kind": "interrupted", "name": "", "message": "late", "stack": ""
    }));
    let end = ended(Exit::Code(0));
    assert_eq!(kind(&bytes, &end, 1001), FailureKind::Timeout);
    assert_eq!(kind(&bytes, &end, 20), FailureKind::Killed);
    let mut killed = ended(Exit::Signal(SIGKILL));
    killed.timed_out = true;
    assert_eq!(kind(b"", &killed, 1060), FailureKind::Timeout);
}

#[test]
fn an_end_without_an_answer_has_a_kind_by_its_signal() {
    for (signal, expected) in [
        (SIGSYS, FailureKind::Killed),
        (SIGXCPU, FailureKind::Cpu),
        (SIGKILL, FailureKind::Memory),
        (11, FailureKind::Killed),
        (SIGABRT, FailureKind::Memory),
    ] {
        assert_eq!(
            kind(b"", &ended(Exit::Signal(signal)), 5),
            expected,
            "{signal}"
        );
    }
    assert_eq!(kind(b"", &ended(Exit::Code(0)), 5), FailureKind::Killed);
    // The end of a program that gets no memory is a call that the filter does not allow, and it has said why.
    let mut answer = Answer::new(limits(), None);
    answer.complain(b"memory allocation of 67108864 bytes failed\n");
    answer.complain(&vec![b'x'; 1 << 20]);
    assert!(answer.complaint.len() <= MAX_COMPLAINT_BYTES);
    let end = ended(Exit::Signal(SIGSYS));
    let failure = answer.judge(Some(&end), Duration::ZERO).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Memory);
    let mut out_of_memory = ended(Exit::Signal(SIGKILL));
    out_of_memory.oom = true;
    assert_eq!(kind(b"", &out_of_memory, 5), FailureKind::Memory);
}

#[test]
fn a_frame_that_is_torn_or_too_large_or_nonsense_is_no_answer() {
    let end = ended(Exit::Code(0));
    let whole = said(&json!({ "is": "value", "json": "1", "warnings": [] }));
    assert_eq!(
        kind(&whole[..whole.len() - 1], &end, 5),
        FailureKind::Killed
    );
    assert_eq!(kind(&[0xff; 16], &end, 5), FailureKind::Killed);
    assert_eq!(kind(&frame(b"[]"), &end, 5), FailureKind::Killed);
    let other = said(&json!({ "is": "value", "json": "1 2", "warnings": [] }));
    assert_eq!(kind(&other, &end, 5), FailureKind::Killed);
    let large = "x".repeat((1 << 20) + 1);
    let large = said(&json!({ "is": "value", "json": format!("\"{large}\""), "warnings": [] }));
    assert_eq!(kind(&large, &end, 5), FailureKind::Killed);
}

#[test]
fn what_comes_after_the_answer_is_not_heard() {
    let first = said(&json!({ "is": "value", "json": "1", "warnings": [] }));
    let second = said(&json!({ "is": "value", "json": "2", "warnings": [] }));
    let value = judged(&[first, second].concat(), &ended(Exit::Code(0)), 5).unwrap();
    assert_eq!(value, json!(1));
}

fn record(text: String) -> Vec<u8> {
    let record = LogRecord {
        level: LogLevel::Info,
        text,
    };
    frame(&serde_json::to_vec(&CallMessage::Log(record)).unwrap())
}

#[test]
fn a_log_beyond_its_bound_is_not_of_the_program_around_a_tool() {
    let mut answer = Answer::new(limits(), None);
    for _ in 0..65 {
        assert!(answer.take(&record("x".repeat(1000))));
    }
    assert!(!answer.is_broken());
    assert!((0..10).any(|_| !answer.take(&record("x".repeat(1000)))));
    assert!(answer.is_broken());
    let failure = answer.judge(None, Duration::ZERO).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Killed);
    assert!(
        (60..70).contains(&failure.log.len()),
        "{}",
        failure.log.len()
    );
    // Records without text are bounded as well.
    let mut answer = Answer::new(limits(), None);
    assert!((0..70_000).any(|_| !answer.take(&record(String::new()))));
}

/// What the process does after its answer, or after it broke the rules, changes neither.
#[test]
fn a_process_that_was_ended_has_said_what_counts() {
    let mut answer = Answer::new(limits(), None);
    let value = said(&json!({ "is": "value", "json": "1", "warnings": [] }));
    assert!(!answer.take(&value));
    assert!(!answer.is_broken());
    let (value, ..) = answer.judge(None, Duration::ZERO).unwrap();
    assert_eq!(value, json!(1));
    let mut answer = Answer::new(limits(), None);
    assert!(!answer.take(&[0xff; 8]));
    assert!(answer.is_broken());
    let failure = answer.judge(None, Duration::ZERO).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Killed);
    let mut answer = Answer::new(limits(), None);
    assert!(answer.take(&frame(b"{}")[..5]));
    let failure = answer
        .judge(Some(&ended(Exit::Signal(11))), Duration::ZERO)
        .unwrap_err();
    assert!(
        failure.message.ends_with("in the middle of a message"),
        "{failure:?}"
    );
}

fn request(id: u32) -> Vec<u8> {
    let call = FetchCall {
        id,
        method: "GET".to_owned(),
        url: "http://a.example/".to_owned(),
        headers: Vec::new(),
        body: String::new(),
        redirect: RedirectMode::Follow,
    };
    frame(&serde_json::to_vec(&CallMessage::Fetch(call)).unwrap())
}

fn abort(id: u32) -> Vec<u8> {
    frame(&serde_json::to_vec(&CallMessage::FetchAbort { id }).unwrap())
}

#[test]
fn requests_are_heard_in_turn_and_as_many_as_were_granted() {
    let grant = Some(FetchGrant {
        requests: 2,
        sent_bytes: 10,
    });
    let mut answer = Answer::new(limits(), grant);
    assert!(answer.take(&[request(1), abort(1), request(2)].concat()));
    let asked = answer.take_asked();
    assert!(
        matches!(
            asked.as_slice(),
            [FetchMessage::Begin(first), FetchMessage::Abort(1), FetchMessage::Begin(second)] if (first.id, second.id) == (1, 2)
        ),
        "{asked:?}"
    );
    assert!(answer.take_asked().is_empty());
    // One more, one twice, one out of turn, one that was never begun, one that was not granted.
    for (grant, bytes) in [
        (grant, [request(1), request(2), request(3)].concat()),
        (grant, [request(1), request(1)].concat()),
        (grant, request(2)),
        (grant, abort(1)),
        (grant, abort(0)),
        (None, request(1)),
        (None, abort(1)),
    ] {
        let mut answer = Answer::new(limits(), grant);
        assert!(!answer.take(&bytes), "{bytes:?}");
        let value = said(&json!({ "is": "value", "json": "1", "warnings": [] }));
        assert!(!answer.take(&value), "{bytes:?}");
        let failure = answer
            .judge(Some(&ended(Exit::Code(0))), Duration::ZERO)
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::Killed, "{failure:?}");
    }
}

proptest! {
    #[test]
    fn nothing_that_arrives_is_a_panic(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 0..16)) {
        let mut answer = Answer::new(limits(), None);
        for piece in &pieces {
            answer.take(piece);
        }
        let _ = answer.judge(Some(&ended(Exit::Code(0))), Duration::ZERO);
    }
}
