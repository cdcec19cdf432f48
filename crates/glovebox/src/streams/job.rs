//! Finding out which job a request became.
//!
//! A request that runs a command is answered only when the command ends, so its job's number is not
//! known while it runs; signals and a new terminal size need it. The job list tells, unless another
//! client started the same command at the same moment: then nothing is said rather than something
//! done to a stranger's job.

use glovebox_proto::{Exec, JobId, JobInfo, JobState, Request};
use glovebox_sandbox::Sandbox;
use std::time::{Duration, Instant};

/// Clocks and queues between here and the guest; two starts closer than this cannot be told apart.
const SLACK: Duration = Duration::from_millis(50);

/// What is known about the job behind a request.
#[derive(Debug)]
pub(super) enum Job {
    /// Its number.
    Known(JobId),
    /// Its command, and when it was sent.
    Sent {
        /// The command.
        exec: Exec,
        /// When it was sent.
        at: Instant,
    },
    /// The request runs nothing.
    None,
}

impl Job {
    /// What a request itself tells.
    pub(super) fn of(request: &Request) -> Self {
        match request {
            Request::Exec(exec) => Self::Sent {
                exec: exec.clone(),
                at: Instant::now(),
            },
            Request::JobAttach { job, .. } => Self::Known(*job),
            _ => Self::None,
        }
    }

    /// The job's number, when it runs and can be told apart from all others.
    pub(super) fn id(&mut self, sandbox: &Sandbox) -> Option<JobId> {
        match self {
            Self::Known(job) => Some(*job),
            Self::None => None,
            Self::Sent { exec, at } => {
                let found = only_match(&sandbox.jobs().ok()?, exec, at.elapsed())?;
                *self = Self::Known(found);
                Some(found)
            }
        }
    }
}

fn only_match(jobs: &[JobInfo], exec: &Exec, elapsed: Duration) -> Option<JobId> {
    let mut candidates = jobs.iter().filter(|job| {
        matches!(job.state, JobState::Running)
            && job.argv == exec.argv
            && job.has_pty == exec.pty.is_some()
            && Duration::from_millis(job.age_ms) <= elapsed + SLACK
    });
    let first = candidates.next()?;
    let is_alone =
        candidates.all(|other| first.age_ms.abs_diff(other.age_ms) > SLACK.as_millis() as u64);
    is_alone.then_some(first.job)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u32, command: &str, age_ms: u64) -> JobInfo {
        JobInfo {
            job: JobId(id),
            argv: Exec::new([command]).argv,
            age_ms,
            has_pty: false,
            has_input: false,
            state: JobState::Running,
            output_bytes: 0,
        }
    }

    #[test]
    fn the_oldest_of_the_same_command_not_older_than_the_request_is_ours() {
        let exec = Exec::new(["sleep"]);
        let elapsed = Duration::from_secs(2);
        let jobs = [
            job(1, "sleep", 9000),
            job(2, "make", 1990),
            job(3, "sleep", 1990),
            job(4, "sleep", 500),
        ];
        assert_eq!(only_match(&jobs, &exec, elapsed), Some(JobId(3)));
    }

    #[test]
    fn two_of_the_same_moment_are_not_told_apart() {
        let exec = Exec::new(["sleep"]);
        let jobs = [job(3, "sleep", 1990), job(4, "sleep", 1985)];
        assert_eq!(only_match(&jobs, &exec, Duration::from_secs(2)), None);
    }
}
