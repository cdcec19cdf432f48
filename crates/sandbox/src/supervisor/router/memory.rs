//! Completion of exit reports by the supervisor: only it knows which limits have acted and which
//! hosts were refused.

use crate::backend::Owner;
use crate::handle::{LimitCounts, complete};
use glovebox_proto::{Fault, Reply, decode};

/// Adds the owner's facts to a reply that reports a command's exit, if a limit has acted since the
/// last one or hosts may have been refused. Returns `None` for any other reply, which is passed on
/// unchanged.
pub(super) fn with_limits(
    payload: &[u8],
    owner: &dyn Owner,
    seen: &LimitCounts,
) -> Option<Result<Reply, Fault>> {
    // Postcard encodes the index of a variant first: `Ok`, then `Reply::Exited`.
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
