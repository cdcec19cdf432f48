//! End of jobs: by themselves, at their deadline or on request; and the answers to waiting
//! requests.

use super::Jobs;
use super::denials;
use super::job::{DRAIN_BYTES, JobEnding, STDERR, STDOUT, Waiter};
use crate::fault;
use crate::requests::Requests;
use crate::timers::Timer;
use glovebox_jail::process::{Census, CommandEnd, CommandNews, ReapedChild, TreeKill};
use glovebox_proto::{Background, JobId, Reply, RequestId};
use rustix::process::{Pid, Signal};
use std::cell::OnceCell;
use std::time::{Duration, Instant};

/// Maximum pause between two rounds of killing.
const MAX_PAUSE_MS: u64 = 50;

impl Jobs {
    /// Processes the supervisors' messages about commands that ended or were stopped.
    pub(crate) fn note_ends(&mut self, requests: &mut Requests) {
        while let Some((warden, news)) = self.wardens.next_news() {
            let Some(&id) = self.by_warden.get(&warden) else {
                continue;
            };
            match news {
                CommandNews::Ended(end) => self.command_ended(requests, id, end),
                CommandNews::Stopped(signal) => self.command_stopped(requests, id, signal),
            }
        }
    }

    /// Reaps dead children: command supervisors, and orphans that the guest has inherited.
    pub(crate) fn reap_children(&mut self, requests: &mut Requests) {
        let mut has_strays = false;
        while let Some(gone) = self.wardens.reap() {
            match gone {
                ReapedChild::Stray(_) => has_strays = true,
                ReapedChild::Warden {
                    warden,
                    end,
                    was_killed,
                } => {
                    has_strays |= was_killed;
                    if let Some(id) = self.by_warden.remove(&warden) {
                        self.warden_gone(requests, id, end);
                    }
                }
            }
        }
        if has_strays && let Ok(census) = Census::take() {
            // Their deaths bring the loop back here, because the guest inherits their children in
            // turn.
            self.wardens.kill_strays(&census);
        }
    }

    fn command_ended(&mut self, requests: &mut Requests, id: JobId, end: CommandEnd) {
        let Some(job) = self.table.get_mut(&id) else {
            return;
        };
        if job.end.is_some() {
            return;
        }
        job.end = Some(end);
        job.is_gone |= end.is_empty;
        let leaves_some = !job.is_gone;
        if leaves_some && job.background == Background::Kill && matches!(job.ending, JobEnding::No)
        {
            self.start_killing(requests, id);
        }
        self.advance(requests, id);
    }

    fn warden_gone(&mut self, requests: &mut Requests, id: JobId, end: Option<CommandEnd>) {
        let Some(job) = self.table.get_mut(&id) else {
            return;
        };
        job.end = job.end.or(end);
        job.is_gone = true;
        self.advance(requests, id);
    }

    /// Asks a job to end: sends SIGTERM to all its processes, and SIGKILL after `grace_ms`. Without
    /// grace they are killed at once.
    pub(super) fn begin_end(&mut self, requests: &mut Requests, id: JobId, grace_ms: u64) {
        let Some(job) = self.table.get_mut(&id) else {
            return;
        };
        if job.is_gone || matches!(job.ending, JobEnding::Killing(..)) {
            return;
        }
        if grace_ms == 0 {
            return self.start_killing(requests, id);
        }
        let fresh = requests.timers.after_ms(grace_ms, Timer::Grace(id));
        if let JobEnding::Asked(old) = job.ending {
            // Asked before: the shorter grace applies.
            let (sooner, later) = if fresh < old {
                (fresh, old)
            } else {
                (old, fresh)
            };
            if sooner != later {
                requests.timers.unset(later);
            }
            job.ending = JobEnding::Asked(sooner);
            return;
        }
        job.ending = JobEnding::Asked(fresh);
        let (warden, command) = (job.warden, job.command);
        if let Ok(census) = Census::take() {
            census.signal_tree(warden, Signal::TERM);
            // A stopped process would not handle SIGTERM. A frozen one does when the freeze ends.
            if !self.is_frozen {
                census.signal_tree(warden, Signal::CONT);
            }
        } else if job.end.is_none() {
            let _ = rustix::process::kill_process_group(command, Signal::TERM);
            let _ = rustix::process::kill_process_group(command, Signal::CONT);
        }
    }

    /// Kills all processes of a job, in rounds until none is left.
    pub(crate) fn start_killing(&mut self, requests: &mut Requests, id: JobId) {
        let Some(job) = self.table.get_mut(&id) else {
            return;
        };
        if let JobEnding::Asked(timer) = job.ending {
            requests.timers.unset(timer);
        }
        job.ending = JobEnding::Killing(Box::new(TreeKill::new()), None);
        let census = Census::take().ok();
        self.kill_round(requests, id, census.as_ref());
    }

    fn kill_round(&mut self, requests: &mut Requests, id: JobId, census: Option<&Census>) {
        let Some(job) = self.table.get_mut(&id) else {
            return;
        };
        let (warden, command, has_ended) = (job.warden, job.command, job.end.is_some());
        let JobEnding::Killing(kill, timer) = &mut job.ending else {
            return;
        };
        let has_worked = census.is_some_and(|census| kill.round(warden, census).is_ok());
        if !has_worked {
            // Without /proc only the process group can be reached. Killing the supervisor also
            // kills the command itself.
            if !has_ended {
                let _ = rustix::process::kill_process_group(command, Signal::KILL);
            }
            let _ = rustix::process::kill_process(warden, Signal::KILL);
        }
        job.killed = u32::try_from(kill.killed(Some(command))).unwrap_or(u32::MAX);
        let pause_ms = (1_u64 << kill.rounds().min(6)).min(MAX_PAUSE_MS);
        *timer = Some(requests.timers.after_ms(pause_ms, Timer::Round(id)));
    }

    /// Runs the next round of killing a job's processes unless all are gone. `census` is shared by
    /// all jobs of a turn.
    pub(crate) fn kill_again(
        &mut self,
        requests: &mut Requests,
        id: JobId,
        census: &OnceCell<Option<Census>>,
    ) {
        let is_gone = self.table.get(&id).is_none_or(|job| job.is_gone);
        if !is_gone {
            let census = census.get_or_init(|| Census::take().ok());
            self.kill_round(requests, id, census.as_ref());
        }
    }

    /// Handles a job's deadline.
    pub(crate) fn deadline_passed(&mut self, requests: &mut Requests, id: JobId) {
        let Some(job) = self.table.get_mut(&id) else {
            return;
        };
        job.deadline = None;
        if job.end.is_none() && !job.is_gone {
            job.timed_out = true;
            let grace_ms = job.grace_ms;
            self.begin_end(requests, id, grace_ms);
        }
    }

    /// Advances a job towards its end as far as possible now: drains its output, writes the report,
    /// closes it and answers waiting requests.
    pub(super) fn advance(&mut self, requests: &mut Requests, id: JobId) {
        let Some(job) = self.table.get_mut(&id) else {
            return;
        };
        if job.end.is_none() && !job.is_gone {
            return;
        }
        if job.report.is_none() {
            if (job.ends_whole() && !job.is_gone) || !self.drain(requests, id) {
                return;
            }
            let Some(job) = self.table.get_mut(&id) else {
                return;
            };
            let left_running = if job.is_gone {
                0
            } else {
                count_alive(job.warden)
            };
            let tail = denials::output_tail(job);
            let mut denials = denials::find(job, &tail, self.network.as_mut());
            if let Some(job) = self.table.get(&id) {
                denials.extend(self.find_taken_ports(job, &tail));
            }
            let Some(job) = self.table.get_mut(&id) else {
                return;
            };
            job.write_report(left_running, denials);
            job.is_draining = job.is_gone;
            if let Some(deadline) = job.deadline.take() {
                requests.timers.unset(deadline);
            }
        }
        let Some(job) = self.table.get(&id) else {
            return;
        };
        if job.is_gone && !job.is_over && self.drain(requests, id) {
            self.close(requests, id);
        }
        self.answer_waiters(requests, id);
    }

    /// Delivers the job's remaining output. Returns false while some is still to be delivered.
    fn drain(&mut self, requests: &mut Requests, id: JobId) -> bool {
        let Some(job) = self.table.get_mut(&id) else {
            return true;
        };
        if !job.is_draining {
            job.is_draining = true;
            for output in job.outputs.iter_mut().flatten() {
                output.drain = DRAIN_BYTES;
                output.is_readable = true;
            }
            for stream in &mut job.extras {
                stream.begin_drain();
            }
        }
        for stream in &mut job.extras {
            stream.advance(requests);
        }
        if !job.is_drained() {
            self.pump(requests, id, STDOUT);
            self.pump(requests, id, STDERR);
        }
        self.table.get(&id).is_none_or(super::job::Job::is_drained)
    }

    /// Releases a job that has no processes left and whose output is delivered.
    fn close(&mut self, requests: &mut Requests, id: JobId) {
        let Some(job) = self.table.get_mut(&id) else {
            return;
        };
        job.is_over = true;
        job.outputs = [None, None];
        job.input = None;
        job.terminal = None;
        job.log.finish();
        match std::mem::replace(&mut job.ending, JobEnding::No) {
            JobEnding::No | JobEnding::Killing(_, None) => {}
            JobEnding::Asked(timer) | JobEnding::Killing(_, Some(timer)) => {
                requests.timers.unset(timer);
            }
        }
        if let Some(report) = &mut job.report {
            report.left_running = 0;
            report.killed = job.killed;
            report.stdout_bytes = job.output_bytes[STDOUT];
            report.stderr_bytes = job.output_bytes[STDERR];
        }
        self.finish(requests, id);
    }

    /// Answers the requests whose condition now holds.
    pub(super) fn answer_waiters(&mut self, requests: &mut Requests, id: JobId) {
        let Some(job) = self.table.get_mut(&id) else {
            return;
        };
        let Some(report) = job.report.clone() else {
            return;
        };
        let (is_over, total) = (job.is_over, job.log.total());
        for stream in &mut job.extras {
            stream.close();
            stream.advance(requests);
        }
        let mut answers: Vec<RequestId> = Vec::new();
        let mut given_up = None;
        if let Some(owner) = job.owner.take() {
            // The job is drained, so its follower has received everything.
            job.followers.retain(|follower| follower.request != owner);
            if job.is_cancelled {
                given_up = Some(owner);
            } else {
                answers.push(owner);
            }
        }
        job.followers.retain(|follower| {
            let is_done = follower.cursor == total && (is_over || !follower.until_over);
            if is_done {
                answers.push(follower.request);
            }
            !is_done
        });
        job.waiters.retain(|waiter| match waiter {
            Waiter::Settled(request) => {
                answers.push(*request);
                false
            }
            Waiter::Over(request) if is_over => {
                answers.push(*request);
                false
            }
            Waiter::Over(_) | Waiter::Log { .. } => true,
        });
        job.feeders
            .retain(|feeder| !answers.contains(&feeder.request));
        job.listeners
            .retain(|listener| !answers.contains(&listener.request));
        if let Some(owner) = given_up {
            requests.answer(owner, &Err(fault::cancelled()));
        }
        for request in answers {
            requests.answer(request, &Ok(Reply::Exited(report.clone())));
        }
        self.answer_readers(requests, id);
    }

    /// Kills all processes and waits until they are gone, for at most `patience`. Blocks.
    pub(crate) fn end_everything(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        let mut kills: Vec<(Pid, TreeKill)> = Vec::new();
        loop {
            while self.wardens.reap().is_some() {}
            let Ok(census) = Census::take() else { return };
            let strays = self.wardens.kill_strays(&census);
            kills.retain(|(warden, _)| self.wardens.is_warden(*warden));
            for warden in self.wardens.pids() {
                if !kills.iter().any(|(known, _)| *known == warden) {
                    kills.push((warden, TreeKill::new()));
                }
            }
            if (kills.is_empty() && strays == 0) || Instant::now() > until {
                return;
            }
            for (warden, kill) in &mut kills {
                let _ = kill.round(*warden, &census);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn count_alive(warden: Pid) -> u32 {
    let Ok(census) = Census::take() else { return 0 };
    let alive = census
        .descendants_of(warden)
        .into_iter()
        .filter(|member| member.is_alive)
        .count();
    u32::try_from(alive).unwrap_or(u32::MAX)
}
