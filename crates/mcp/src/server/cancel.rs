//! Cancelled requests. A user's cancellation ends the command; a client that only stops waiting
//! leaves it running.
//!
//! The notification with the reason and the cancellation of the request itself arrive in any order,
//! and may cross the reply.

use super::Session;
use glovebox_proto::{JobId, Request};
use rmcp::model::RequestId;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Lower-case phrases in the reason of a cancellation by the user. Reasons of client timeouts
/// contain none of them.
const USERS_WORDS: [&str; 4] = [
    "user-cancel",
    "user cancel",
    "cancelled by the user",
    "interrupted by user",
];
/// Maximum wait for the reason of a cancelled request.
const REASON_WAIT: Duration = Duration::from_millis(250);
/// Maximum time by which a cancellation may follow the reply that it crossed.
const CROSSING: Duration = Duration::from_mins(1);
/// Maximum number of requests that are remembered for a client.
const MAX_REMEMBERED: usize = 256;
/// Time between SIGTERM and SIGKILL for the command of a cancelled call, in milliseconds.
const GRACE_MS: u64 = 2_000;

/// Cancelled requests of one client, and commands that outlived the replies to their requests.
#[derive(Debug, Default)]
pub(super) struct Cancellations {
    seen: Mutex<Seen>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Seen {
    /// Cancelled requests. The flag is true if the user cancelled.
    cancelled: VecDeque<(RequestId, bool)>,
    running: VecDeque<RunningCommand>,
}

/// Command that went on after its request was answered.
#[derive(Debug)]
struct RunningCommand {
    request: RequestId,
    job: JobId,
    session: Arc<dyn Session>,
    answered: Instant,
}

impl Cancellations {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a cancellation. Ends the command of a request that was answered just before, if the
    /// user cancelled.
    pub(super) fn note(&self, request: RequestId, reason: Option<&str>) {
        let is_users = reason.is_some_and(is_users_wish);
        let crossed = {
            let mut seen = self.seen();
            let mut running = seen.running.iter();
            let at = running.position(|command| command.request == request);
            let crossed = at.and_then(|at| seen.running.remove(at));
            if crossed.is_none() {
                push(&mut seen.cancelled, (request, is_users));
            }
            crossed
        };
        self.news.notify_waiters();
        if let Some(command) = crossed
            && is_users
            && command.answered.elapsed() < CROSSING
        {
            // Ending it may block. An error means that the command has ended already.
            tokio::task::spawn_blocking(move || {
                let _ = command.session.tools().sandbox().call(Request::JobKill {
                    job: command.job,
                    grace_ms: GRACE_MS,
                });
            });
        }
    }

    /// Returns true if the user cancelled this request. Waits up to [`REASON_WAIT`] for the reason.
    pub(super) async fn is_users(&self, request: &RequestId) -> bool {
        let deadline = tokio::time::Instant::now() + REASON_WAIT;
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // Registers before the check. A notification between the check and the wait would be
            // lost.
            news.as_mut().enable();
            let found = {
                let mut seen = self.seen();
                let at = seen.cancelled.iter().position(|(id, _)| id == request);
                at.and_then(|at| seen.cancelled.remove(at))
            };
            if let Some((_, is_users)) = found {
                return is_users;
            }
            if tokio::time::timeout_at(deadline, news).await.is_err() {
                return false;
            }
        }
    }

    /// Records that a request was answered while its command goes on.
    pub(super) fn note_running(&self, request: RequestId, job: JobId, session: Arc<dyn Session>) {
        let command = RunningCommand {
            request,
            job,
            session,
            answered: Instant::now(),
        };
        push(&mut self.seen().running, command);
    }
}

/// Appends an entry, and removes the oldest one at the limit.
fn push<T>(remembered: &mut VecDeque<T>, one: T) {
    if remembered.len() >= MAX_REMEMBERED {
        remembered.pop_front();
    }
    remembered.push_back(one);
}

/// Returns true if the reason of a cancellation says that the user cancelled.
fn is_users_wish(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    USERS_WORDS.iter().any(|words| reason.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_of_a_user_are_a_users_wish() {
        for (reason, is_users) in [
            ("Request interrupted by user", true),
            ("AbortError: user-cancel", true),
            ("User cancelled the tool", true),
            ("Cancelled by the user", true),
            ("McpError: request timed out", false),
            ("the user agent went away", false),
            ("", false),
        ] {
            assert_eq!(is_users_wish(reason), is_users, "{reason}");
        }
    }

    #[tokio::test]
    async fn reasons_are_found_before_and_after_they_are_asked_for() {
        let cancellations = Arc::new(Cancellations::default());
        let id = |number| RequestId::Number(number);
        cancellations.note(id(1), Some("user cancelled"));
        assert!(cancellations.is_users(&id(1)).await);
        cancellations.note(id(2), None);
        assert!(!cancellations.is_users(&id(2)).await);
        let asked = tokio::spawn({
            let cancellations = Arc::clone(&cancellations);
            async move { cancellations.is_users(&RequestId::Number(3)).await }
        });
        tokio::task::yield_now().await;
        cancellations.note(id(3), Some("user cancelled"));
        assert!(asked.await.unwrap());
        assert!(!cancellations.is_users(&id(4)).await);
    }
}
