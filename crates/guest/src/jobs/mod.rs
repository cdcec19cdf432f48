//! Commands: the table of jobs, their processes and streams, their ends and the requests that wait
//! for them.
//!
//! In: requests about jobs, events of their descriptors and processes, timers. Out: frames and
//! answers, through [`Requests`]. Nothing here depends on the event loop, which calls a method of
//! [`Jobs`] and goes on.
//!
//! ```text
//! job      one job's state
//! start    a command begins; old jobs are forgotten
//! streams  output into log and link, input to the command
//! ending   deadlines, kills, reaping, the report
//! waiting  requests that wait for a job or read its log
//! extra_streams  terminal and descriptors beside the standard streams
//! stops    commands that a signal has stopped, and the clients to tell
//! ports    which job holds a port
//! denials  which walls a failed command has met
//! ```

mod denials;
mod ending;
mod extra_streams;
mod job;
mod ports;
mod start;
mod stops;
mod streams;
mod waiting;

pub(crate) use job::Waiter;

use crate::log::LogText;
use crate::network_use::NetworkUse;
use crate::programs::Programs;
use crate::requests::Requests;
use crate::resolver::Resolver;
use glovebox_jail::confine::MonitorClient;
use glovebox_jail::process::Wardens;
use glovebox_proto::{Code, Fault, JobId, JobInfo};
use job::{Job, JobEnding};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::process::{Pid, Resource};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Settings that all commands start from.
#[derive(Debug)]
pub(crate) struct CommandDefaults {
    /// Base environment of commands.
    pub(crate) env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Absolute directory in which commands and relative paths begin.
    pub(crate) cwd: Arc<[u8]>,
    /// Standard stream of commands that have none.
    pub(crate) dev_null: OwnedFd,
    /// Programs opened in advance, before a command starts.
    pub(crate) programs: Arc<Programs>,
    /// Resource limits of each command, soft and hard.
    pub(crate) limits: Vec<(Resource, u64)>,
    /// True if the guest is the init of a pid namespace.
    pub(crate) is_init: bool,
    /// Process that opens terminals if the guest may not.
    pub(crate) monitor: Option<MonitorClient>,
}

/// Jobs that are over, and the size of their logs.
#[derive(Debug, Default)]
struct FinishedJobs {
    /// Job ids, oldest first.
    ids: VecDeque<JobId>,
    memory_bytes: usize,
    spill_bytes: u64,
}

/// All jobs and their processes.
pub(crate) struct Jobs {
    defaults: CommandDefaults,
    wardens: Wardens,
    /// True if supervisor and pre-exec child for the next command are to be created when idle.
    is_pair_due: bool,
    table: BTreeMap<JobId, Job>,
    by_warden: HashMap<Pid, JobId>,
    finished: FinishedJobs,
    next_job: u32,
    /// Attempts of commands to use a network that the sandbox does not have.
    network: Option<NetworkUse>,
    /// Streams with more to read than one turn allows.
    ready_streams: Vec<(JobId, usize)>,
    /// Time until which the loop polls for the end of a command instead of sleeping.
    spin_until: Option<Instant>,
    /// Buffer that output is read to before it is logged and sent.
    scratch: Vec<u8>,
    /// True during a freeze: jobs that are asked to end are then not continued until the freeze
    /// ends.
    is_frozen: bool,
}

impl Jobs {
    /// Returns the home directory of commands; empty if there is none.
    pub(crate) fn home(&self) -> &[u8] {
        let mut variables = self.defaults.env.iter().rev();
        variables
            .find(|(name, _)| name == b"HOME")
            .map_or(&[], |(_, home)| home)
    }

    /// Creates an empty table.
    pub(crate) fn new(
        defaults: CommandDefaults,
        wardens: Wardens,
        network: Option<NetworkUse>,
    ) -> Self {
        Self {
            is_pair_due: defaults.is_init,
            defaults,
            wardens,
            table: BTreeMap::new(),
            by_warden: HashMap::new(),
            finished: FinishedJobs::default(),
            next_job: 1,
            network,
            ready_streams: Vec::new(),
            spin_until: None,
            scratch: Vec::new(),
            is_frozen: false,
        }
    }

    /// Returns a descriptor that is readable when a command has ended.
    pub(crate) fn ring(&self) -> BorrowedFd<'_> {
        self.wardens.ring()
    }

    /// Returns the resolver that answers name lookups if there is no network.
    pub(crate) fn resolver(&self) -> Option<&Resolver> {
        self.network.as_ref().and_then(NetworkUse::resolver)
    }

    /// Answers name lookups that have arrived.
    pub(crate) fn answer_questions(&mut self) {
        if let Some(network) = &mut self.network {
            network.answer_questions();
        }
    }

    /// Does the work that is cheapest while no command runs.
    pub(crate) fn prepare_while_idle(&mut self) {
        if self.by_warden.is_empty() {
            self.prepare_pair();
            if let Some(network) = &mut self.network {
                network.read_idle();
            }
        }
    }

    /// Returns true if streams have more to read, so that the event loop must not sleep.
    pub(crate) fn has_ready_streams(&self) -> bool {
        !self.ready_streams.is_empty()
    }

    /// Returns true if a command is about to end, so that the event loop polls instead of sleeping.
    pub(crate) fn is_end_expected(&mut self) -> bool {
        self.spin_until = self.spin_until.filter(|until| Instant::now() < *until);
        self.spin_until.is_some()
    }

    /// Stops polling: a command or a child has ended.
    pub(crate) const fn end_has_come(&mut self) {
        self.spin_until = None;
    }

    /// Continues with the streams that had more to read than one turn allows.
    pub(crate) fn read_ready_streams(&mut self, requests: &mut Requests) {
        for (job, stream) in std::mem::take(&mut self.ready_streams) {
            self.output_ready(requests, job, stream);
        }
    }

    /// Resumes all jobs after the link has room again or a freeze has ended.
    pub(crate) fn resume(&mut self, requests: &mut Requests) {
        let jobs: Vec<JobId> = self.table.keys().copied().collect();
        for job in jobs {
            self.poll_job(requests, job);
            self.tell_stop(requests, job);
        }
        // Frames that arrived earlier cause no new event; this entry makes the next turn come at
        // once.
        self.ready_streams.push((JobId(0), 0));
    }

    /// Replaces the Landlock ruleset of commands that start from now on.
    pub(crate) fn renew(&mut self, landlock: Option<OwnedFd>) {
        self.wardens.renew(landlock);
    }

    /// Sets whether a freeze is in progress, during which stopped processes are not continued.
    pub(crate) const fn set_frozen(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
    }

    /// Returns the supervisors of all jobs that have processes left.
    pub(crate) fn wardens(&self) -> impl Iterator<Item = Pid> {
        self.by_warden.keys().copied()
    }

    /// Returns the supervisors of the jobs that were asked to end.
    pub(crate) fn wardens_asked_to_end(&self) -> Vec<Pid> {
        self.table
            .values()
            .filter(|job| matches!(job.ending, JobEnding::Asked(_)))
            .map(|job| job.warden)
            .collect()
    }

    /// Lists all remembered jobs.
    pub(crate) fn list(&self) -> Vec<JobInfo> {
        self.table.values().map(Job::info).collect()
    }

    /// Returns a job's log for searching.
    pub(crate) fn log_text(&self, job: JobId) -> Result<LogText, Fault> {
        Ok(self.get(job)?.log.text())
    }

    fn get(&self, job: JobId) -> Result<&Job, Fault> {
        self.table.get(&job).ok_or_else(|| no_such_job(job))
    }

    fn get_mut(&mut self, job: JobId) -> Result<&mut Job, Fault> {
        self.table.get_mut(&job).ok_or_else(|| no_such_job(job))
    }
}

fn no_such_job(job: JobId) -> Fault {
    Fault::failed(Code::JobNotFound, format!("there is no job {job}"))
        .remedy("finished jobs are forgotten after a while; list the jobs to see which are known")
}

fn ended(job: JobId) -> Fault {
    Fault::failed(Code::JobEnded, format!("job {job} has ended"))
}
