//! Questions of rules, put to the client's user with `elicitation/create` on the stream of the
//! call.
//!
//! A call waits for the answer on its own thread, and the asynchronous task of the call puts the
//! question. A call puts one question at a time. Every answer that is not a clear yes counts as a
//! no.

use glovebox_proto::visible::{self, HiddenCharacters};
use glovebox_tools::policy::{Ask, PermitAnswer, PermitQuestion};
use rmcp::model::{
    ClientResult, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, Request,
    ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleServer, ServiceError};
use serde_json::Value;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Maximum time for the user's answer.
const ASK_WAIT: Duration = Duration::from_mins(10);
/// Interval at which a waiting call checks for its cancellation.
const LOOK: Duration = Duration::from_millis(50);
/// Maximum size of arguments that a question shows, in bytes. They are shown whole or not at all,
/// because clients cannot show the rest on demand.
const MAX_SHOWN_BYTES: usize = 64 << 10;
/// Name of the only field of an answer.
const FIELD: &str = "allow";

/// Asker of the client that made a call.
#[derive(Debug)]
pub(super) struct Asker {
    /// `None` if the client cannot ask its user.
    to: Option<mpsc::Sender<PendingQuestion>>,
}

/// Question to be put to the client.
#[derive(Debug)]
pub(super) struct PendingQuestion {
    message: String,
    answer: SyncSender<PermitAnswer>,
    given_up: CancellationToken,
}

impl Asker {
    /// Creates the asker of a call, and the receiver of its questions.
    pub(super) fn new(peer: &Peer<RoleServer>) -> (Self, mpsc::Receiver<PendingQuestion>) {
        let (to, questions) = mpsc::channel(1);
        let can_ask = peer.peer_info().is_some_and(|client| {
            let elicitation = client.capabilities.elicitation.as_ref();
            // Clients of older protocol versions declare no kind; all of them mean forms.
            elicitation.is_some_and(|kinds| kinds.form.is_some() || kinds.url.is_none())
        });
        let to = can_ask.then_some(to);
        (Self { to }, questions)
    }
}

impl Ask for Asker {
    fn ask(&self, question: &PermitQuestion<'_>) -> PermitAnswer {
        let Some(to) = &self.to else {
            let why = "this client has not declared that its user can be asked (`elicitation`)";
            return PermitAnswer::Unasked(why.to_owned());
        };
        let gone =
            || PermitAnswer::Deny("the call was given up before there was an answer".to_owned());
        let Some(message) = write_message(question) else {
            let kib = MAX_SHOWN_BYTES >> 10;
            return PermitAnswer::Deny(format!(
                "the arguments are longer than the {kib} KiB that a user can be shown; make smaller calls"
            ));
        };
        let given_up = CancellationToken::new();
        // The question is withdrawn on every way out of this function.
        let _end = given_up.clone().drop_guard();
        let (answer, answered) = sync_channel(1);
        let query = PendingQuestion {
            message,
            answer,
            given_up,
        };
        if question.cancel.load(Ordering::Relaxed) || to.blocking_send(query).is_err() {
            return gone();
        }
        loop {
            match answered.recv_timeout(LOOK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) if !question.cancel.load(Ordering::Relaxed) => {}
                Err(_) => return gone(),
            }
        }
    }
}

/// Renders the question for the user. `None` if the arguments are too long to be shown whole.
// TRUST: a model chose the arguments. All of them are shown, and characters that could disguise
// them are escaped.
fn write_message(question: &PermitQuestion<'_>) -> Option<String> {
    let arguments = visible::line_of_text(&question.arguments.to_string());
    if arguments.len() > MAX_SHOWN_BYTES {
        return None;
    }
    let mut hidden = HiddenCharacters::default();
    count_hidden(question.arguments, &mut hidden);
    let warning = if hidden.is_empty() {
        String::new()
    } else {
        format!("Warning: {hidden}.\n\n")
    };
    Some(format!(
        "{warning}{} is to be called with {arguments}\n\nThe rule `{}` ({}) asks about that. May this call be made?",
        question.tool,
        visible::line_of_text(&question.verdict.rule),
        visible::line_of_text(&question.verdict.source),
    ))
}

/// Counts characters in arguments that are invisible or control a display. JSON text escapes some
/// of them already.
fn count_hidden(value: &Value, hidden: &mut HiddenCharacters) {
    match value {
        Value::String(text) => hidden.add(text.as_bytes()),
        Value::Array(items) => items.iter().for_each(|item| count_hidden(item, hidden)),
        Value::Object(fields) => {
            for (name, value) in fields {
                hidden.add(name.as_bytes());
                count_hidden(value, hidden);
            }
        }
        _ => {}
    }
}

/// Puts a question to the client. Returns when it is answered or withdrawn.
pub(super) async fn put(peer: &Peer<RoleServer>, query: PendingQuestion) {
    let schema = ElicitationSchema::builder()
        .required_bool_with(FIELD, |field| field.title("Allow this call"))
        .build();
    let answer = match schema {
        Ok(schema) => ask(peer, query.message, schema, &query.given_up).await,
        Err(error) => Some(PermitAnswer::Deny(error.to_owned())),
    };
    if let Some(answer) = answer {
        // Fails only if the call has ended.
        let _ = query.answer.try_send(answer);
    }
}

async fn ask(
    peer: &Peer<RoleServer>,
    message: String,
    requested_schema: ElicitationSchema,
    given_up: &CancellationToken,
) -> Option<PermitAnswer> {
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema,
    };
    let request = ServerRequest::ElicitRequest(Request::new(params));
    let sent = peer
        .send_cancellable_request(request, PeerRequestOptions::no_options())
        .await;
    let mut open = match sent {
        Ok(open) => open,
        Err(error) => return Some(unanswered(&error)),
    };
    let (answer, why) = tokio::select! {
        answered = &mut open.rx => return Some(match answered {
            Ok(Ok(ClientResult::ElicitResult(result))) => read(&result),
            Ok(Ok(_)) => not_understood(),
            Ok(Err(error)) => unanswered(&error),
            Err(_) => PermitAnswer::Deny("the client is gone".to_owned()),
        }),
        () = given_up.cancelled() => (None, "the call has ended"),
        () = tokio::time::sleep(ASK_WAIT) => {
            let minutes = ASK_WAIT.as_secs() / 60;
            (Some(PermitAnswer::Deny(format!("nobody answered within {minutes} minutes"))), "nobody answered in time")
        }
    };
    // A client that ignores this goes on showing a question whose answer has no effect.
    let _ = open.cancel(Some(why.to_owned())).await;
    answer
}

/// Interprets the reply of a client.
// TRUST: only the one object that says yes counts. Nothing else of the reply is kept or shown.
fn read(result: &ElicitResult) -> PermitAnswer {
    let said = || {
        let fields = result.content.as_ref()?.as_object()?;
        let only = fields.len() == 1;
        fields.get(FIELD)?.as_bool().filter(|_| only)
    };
    match result.action {
        ElicitationAction::Accept => match said() {
            Some(true) => PermitAnswer::Once,
            Some(false) => PermitAnswer::Deny("the user said no".to_owned()),
            None => not_understood(),
        },
        ElicitationAction::Decline => PermitAnswer::Deny("the user said no".to_owned()),
        ElicitationAction::Cancel => PermitAnswer::Deny("the user closed the question".to_owned()),
        _ => not_understood(),
    }
}

fn not_understood() -> PermitAnswer {
    PermitAnswer::Deny("the client's answer is neither yes nor no".to_owned())
}

fn unanswered(error: &ServiceError) -> PermitAnswer {
    // TRUST: the client's words, escaped here and bounded by the policy gate.
    let error = visible::line_of_text(&error.to_string());
    PermitAnswer::Deny(format!("the client could not ask its user: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{CancelledNotificationParam, ClientCapabilities, ClientConfig, ErrorData};
    use rmcp::service::{NotificationContext, RequestContext};
    use rmcp::{ClientHandler, RoleClient, ServerHandler, ServiceExt as _};
    use serde_json::json;

    fn result(action: ElicitationAction, content: Option<Value>) -> PermitAnswer {
        let mut result = ElicitResult::new(action);
        result.content = content;
        read(&result)
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        let accept = |content| result(ElicitationAction::Accept, content);
        assert_eq!(accept(Some(json!({ "allow": true }))), PermitAnswer::Once);
        for content in [
            None,
            Some(json!({})),
            Some(json!(true)),
            Some(json!({ "allow": false })),
            Some(json!({ "allow": "true" })),
            Some(json!({ "allow": 1 })),
            Some(json!({ "Allow": true })),
            Some(json!({ "allow": true, "more": 1 })),
            Some(json!([{ "allow": true }])),
        ] {
            assert!(
                matches!(accept(content.clone()), PermitAnswer::Deny(_)),
                "{content:?}"
            );
        }
        for action in [ElicitationAction::Decline, ElicitationAction::Cancel] {
            let answer = result(action, Some(json!({ "allow": true })));
            assert!(matches!(answer, PermitAnswer::Deny(_)));
        }
    }

    /// Client whose user looks at the question and goes away.
    struct SilentClient {
        asked: mpsc::UnboundedSender<&'static str>,
    }

    impl ClientHandler for SilentClient {
        fn get_info(&self) -> ClientConfig {
            let mut info = ClientConfig::default();
            info.capabilities = ClientCapabilities::builder().enable_elicitation().build();
            info
        }

        async fn create_elicitation(
            &self,
            _question: ElicitRequestParams,
            _cx: RequestContext<RoleClient>,
        ) -> Result<ElicitResult, ErrorData> {
            self.asked.send("asked").unwrap();
            std::future::pending().await
        }

        async fn on_cancelled(
            &self,
            _which: CancelledNotificationParam,
            _cx: NotificationContext<RoleClient>,
        ) {
            self.asked.send("cancelled").unwrap();
        }
    }

    struct Server;

    impl ServerHandler for Server {}

    /// Tokio's paused clock stands still while any task can run, and advances when all wait.
    #[tokio::test(start_paused = true)]
    async fn a_question_nobody_answers_is_a_no_in_the_end_and_is_taken_back() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (asked, mut seen) = mpsc::unbounded_channel();
        let (server, client) = tokio::join!(Server.serve(near), SilentClient { asked }.serve(far));
        let (server, _client) = (server.unwrap(), client.unwrap());
        let (answer, answered) = sync_channel(1);
        let query = PendingQuestion {
            message: "May it?".to_owned(),
            answer,
            given_up: CancellationToken::new(),
        };
        let begun = tokio::time::Instant::now();
        put(server.peer(), query).await;
        assert_eq!(begun.elapsed().as_secs(), ASK_WAIT.as_secs());
        let why = "nobody answered within 10 minutes".to_owned();
        assert_eq!(answered.try_recv(), Ok(PermitAnswer::Deny(why)));
        for word in ["asked", "cancelled"] {
            let next = tokio::time::timeout(ASK_WAIT, seen.recv()).await;
            assert_eq!(next, Ok(Some(word)));
        }
    }
}
