//! The end of a job says which limits have acted and which hosts were refused while it ran; only this side knows.

use crate::backend::Owner;
use crate::handle::{LimitCounts, complete};
use glovebox_proto::{Fault, Reply, decode};

/// The reply with what the owner knows, if it is the end of a job and there is something to know: a limit has acted
/// since the last one, or hosts may be refused. Other replies are passed on unread.
pub(super) fn with_limits(
    payload: &[u8],
    owner: &dyn Owner,
    seen: &LimitCounts,
) -> Option<Result<Reply, Fault>> {
    // Postcard writes the index of a variant first: `Ok`, then `Reply::Exited`.
    const EXITED: [u8; 2] = [0, 3];
    if !payload.starts_with(&EXITED) {
        return None;
    }
    let news = seen.look(owner);
    if !news.oom && !news.fork_refused && owner.egress().is_none() {
        return None;
    }
    match decode::<Result<Reply, Fault>>(payload, "reply") {
        Ok(Ok(Reply::Exited(mut report))) => {
            complete(&mut report, news, owner);
            Some(Ok(Reply::Exited(report)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_proto::encode;

    #[test]
    fn the_end_of_a_job_is_recognised_unread() {
        let report = glovebox_proto::ExitReport::new(
            glovebox_proto::JobId(1),
            glovebox_proto::Exit::Signal(9),
        );
        let bytes = encode(&Ok::<_, Fault>(Reply::Exited(report))).unwrap();
        assert_eq!(bytes[..2], [0, 3]);
    }
}
