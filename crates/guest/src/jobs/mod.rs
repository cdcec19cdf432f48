//! Everything about commands: the table of jobs, their processes, streams, ends and who waits for them.
//!
//! In: requests about jobs, events of their descriptors and processes, timers. Out: frames and answers, by way of
//! [`Requests`]. Nothing here knows the event loop: it calls a job's method, and goes on.
//!
//! ```text
//! job      one job's state
//! start    a command begins; old jobs are forgotten
//! streams  output into log and link, input to the command
//! ending   deadlines, kills, reaping, the report
//! waiting  requests that wait for a job or read its log
//! extra_streams  terminal and descriptors beside the standard streams
//! stops    commands that are stopped, and who is told
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

/// What commands start from.
#[derive(Debug)]
pub(crate) struct CommandDefaults {
    /// Environment that commands start from.
    pub(crate) env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Absolute directory that relative paths and commands start from.
    pub(crate) cwd: Arc<[u8]>,
    /// Where an input that is not wanted comes from.
    pub(crate) dev_null: OwnedFd,
    /// Programs that are opened before a command starts.
    pub(crate) programs: Arc<Programs>,
    /// Limits of each command, soft and hard.
    pub(crate) limits: Vec<(Resource, u64)>,
    /// Whether the guest is the init of a pid namespace.
    pub(crate) is_init: bool,
    /// Who opens terminals, where this process may not.
    pub(crate) monitor: Option<MonitorClient>,
}

/// Jobs that are over, and what their logs hold.
#[derive(Debug, Default)]
struct FinishedJobs {
    /// Oldest first.
    ids: VecDeque<JobId>,
    memory_bytes: usize,
    spill_bytes: u64,
}

/// All jobs, and the processes they consist of.
pub(crate) struct Jobs {
    defaults: CommandDefaults,
    wardens: Wardens,
    /// Warden and child for the next command are to be made when there is time.
    is_pair_due: bool,
    table: BTreeMap<JobId, Job>,
    by_warden: HashMap<Pid, JobId>,
    finished: FinishedJobs,
    next_job: u32,
    /// What commands tried over a network that there is not.
    network: Option<NetworkUse>,
    /// Streams with more to read than one turn allows.
    ready_streams: Vec<(JobId, usize)>,
    /// Until when the loop looks for the end of a command again and again instead of falling asleep.
    spin_until: Option<Instant>,
    /// Where output is read to before it is logged and sent.
    scratch: Vec<u8>,
    /// Who is asked to end is not continued: the freeze does that when it ends.
    is_frozen: bool,
}

impl Jobs {
    /// Returns the home directory that commands are given; empty without one.
    pub(crate) fn home(&self) -> &[u8] {
        let mut variables = self.defaults.env.iter().rev();
        variables
            .find(|(name, _)| name == b"HOME")
            .map_or(&[], |(_, home)| home)
    }

    /// No job yet.
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

    /// Readable when a command has ended.
    pub(crate) fn ring(&self) -> BorrowedFd<'_> {
        self.wardens.ring()
    }

    /// Who answers look-ups of names, where there is no network.
    pub(crate) fn resolver(&self) -> Option<&Resolver> {
        self.network.as_ref().and_then(NetworkUse::resolver)
    }

    /// Answers look-ups that have arrived.
    pub(crate) fn answer_questions(&mut self) {
        if let Some(network) = &mut self.network {
            network.answer_questions();
        }
    }

    /// Does what is best done while no command runs.
    pub(crate) fn prepare_while_idle(&mut self) {
        if self.by_warden.is_empty() {
            self.prepare_pair();
            if let Some(network) = &mut self.network {
                network.read_idle();
            }
        }
    }

    /// Whether the event loop is not to fall asleep: there is more to read.
    pub(crate) fn has_ready_streams(&self) -> bool {
        !self.ready_streams.is_empty()
    }

    /// Whether the event loop is not to fall asleep: a command is about to end.
    pub(crate) fn is_end_expected(&mut self) -> bool {
        self.spin_until = self.spin_until.filter(|until| Instant::now() < *until);
        self.spin_until.is_some()
    }

    /// A command or a child has ended.
    pub(crate) const fn end_has_come(&mut self) {
        self.spin_until = None;
    }

    /// Goes on with the streams that had more to read than one turn allows.
    pub(crate) fn read_ready_streams(&mut self, requests: &mut Requests) {
        for (job, stream) in std::mem::take(&mut self.ready_streams) {
            self.output_ready(requests, job, stream);
        }
    }

    /// The link has room again, or nothing is frozen any more: goes on with everything that waited for it.
    pub(crate) fn resume(&mut self, requests: &mut Requests) {
        let jobs: Vec<JobId> = self.table.keys().copied().collect();
        for job in jobs {
            self.poll_job(requests, job);
            self.tell_stop(requests, job);
        }
        // Frames that had arrived already report no event of their own; this makes the next turn
        // come at once.
        self.ready_streams.push((JobId(0), 0));
    }

    /// Confines the commands that start from now on by other rules.
    pub(crate) fn renew(&mut self, landlock: Option<OwnedFd>) {
        self.wardens.renew(landlock);
    }

    /// From now on stopped processes stay stopped, or not any more.
    pub(crate) const fn set_frozen(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
    }

    /// The wardens of all jobs that are not gone.
    pub(crate) fn wardens(&self) -> impl Iterator<Item = Pid> {
        self.by_warden.keys().copied()
    }

    /// The wardens of the jobs that were asked to end.
    pub(crate) fn wardens_asked_to_end(&self) -> Vec<Pid> {
        self.table
            .values()
            .filter(|job| matches!(job.ending, JobEnding::Asked(_)))
            .map(|job| job.warden)
            .collect()
    }

    /// All jobs that are remembered.
    pub(crate) fn list(&self) -> Vec<JobInfo> {
        self.table.values().map(Job::info).collect()
    }

    /// The log of a job, to be searched.
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
