//! The end of a job that the kernel ended for want of memory says so; only this side knows.

use crate::backend::Owner;
use crate::handle::grown;
use glovebox_proto::{Fault, Reply, decode};
use std::sync::atomic::AtomicU64;

/// The reply with its memory flag set, if it is the end of a job and the kernel has ended something
/// since the last one. Other replies are passed on unread.
pub(super) fn with_oom(
    payload: &[u8],
    owner: &dyn Owner,
    seen: &AtomicU64,
) -> Option<Result<Reply, Fault>> {
    // Postcard writes the index of a variant first: `Ok`, then `Reply::Exited`.
    const EXITED: [u8; 2] = [0, 3];
    if !payload.starts_with(&EXITED) || !grown(seen, owner) {
        return None;
    }
    match decode::<Result<Reply, Fault>>(payload, "reply") {
        Ok(Ok(Reply::Exited(mut report))) => {
            report.oom = true;
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
        let report = glovebox_proto::ExitReport {
            job: glovebox_proto::JobId(1),
            exit: glovebox_proto::Exit::Signal(9),
            timed_out: false,
            oom: false,
            wall_us: 0,
            user_us: 0,
            system_us: 0,
            max_rss_kib: 0,
            stdout_bytes: 0,
            stderr_bytes: 0,
            killed: 0,
            left_running: 0,
        };
        let bytes = encode(&Ok::<_, Fault>(Reply::Exited(report))).unwrap();
        assert_eq!(bytes[..2], [0, 3]);
    }
}
