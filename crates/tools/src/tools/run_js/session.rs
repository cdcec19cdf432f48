//! A session: the program that runs scripts, as a job. It comes into the sandbox when it is first wanted,
//! as a file that removes itself once it runs, so nothing of it stays.

use super::super::token;
use crate::call::{Call, given_up};
use glovebox_proto::{
    Background, Class, Code, Exec, Fault, JobId, JobInfo, JobState, LogCaps, Request, Stdin,
    WriteMode,
};
use glovebox_sandbox::{SCRIPTS_BYTES, SCRIPTS_HASH};
use serde_bytes::ByteBuf;

/// The second word of a session's command line. The third is the program's digest, so that sessions of
/// other versions are not mistaken for ours, and the last one its name.
pub(crate) const MARK: &str = "glovebox-script";
/// Sessions at a time: each holds memory until the sandbox ends.
const MAX_SESSIONS: usize = 4;
/// Where a program can be put and run, the most likely first.
const PLACES: [&str; 3] = ["/tmp", "/dev/shm", "/var/tmp"];
/// What is kept of what it says for those who come later: nothing is read from there.
const LOG: LogCaps = LogCaps {
    head_bytes: 4096,
    tail_bytes: 64 << 10,
    spill_bytes: 0,
};

/// A session at work.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) job: JobId,
    pub(super) is_new: bool,
}

impl Session {
    /// The one of this name, or a new one.
    ///
    /// # Errors
    /// `busy` when there are too many; whatever keeps the program from being started.
    pub(super) fn open(call: &Call<'_>, name: &str) -> Result<Self, Fault> {
        let jobs = call.sandbox().jobs()?;
        let ours = |info: &&JobInfo| is_script_session(info);
        let known = jobs.iter().filter(ours).find(|info| {
            word(info, 2) == SCRIPTS_HASH.as_bytes() && word(info, 3) == name.as_bytes()
        });
        if let Some(info) = known {
            return Ok(Self {
                job: info.job,
                is_new: false,
            });
        }
        if jobs.iter().filter(ours).count() >= MAX_SESSIONS {
            let message = format!("there are {MAX_SESSIONS} JavaScript sessions already");
            return Err(Fault::failed(Code::Busy, message)
                .remedy("use one of them, or end one with Job (`list`, then `kill`)"));
        }
        Ok(Self {
            job: start(call, name)?,
            is_new: true,
        })
    }
}

/// Whether a job is nothing but a session of scripts that waits for the next one.
pub fn is_script_session(info: &JobInfo) -> bool {
    info.state == JobState::Running && word(info, 1) == MARK.as_bytes()
}

fn word(info: &JobInfo, at: usize) -> &[u8] {
    info.argv.get(at).map_or(&[], |word| &word[..])
}

/// Brings the program in and starts it.
fn start(call: &Call<'_>, name: &str) -> Result<JobId, Fault> {
    let mut last = None;
    for place in PLACES {
        if call.is_given_up() {
            return Err(given_up());
        }
        // A name that nobody knows before, and a new file: nothing that is there is written to.
        let path = format!("{place}/.glovebox-js-{}", token());
        let started = match call.write(&path, WriteMode::CreateNew, 0o700, SCRIPTS_BYTES) {
            Ok(_) => call.sandbox().start_job(Exec {
                clear_env: true,
                stdin: Stdin::Stream,
                stream_output: false,
                log: LOG,
                background: Background::Kill,
                ..Exec::new([path.as_str(), MARK, SCRIPTS_HASH, name])
            }),
            Err(fault) => Err(fault),
        };
        match started {
            Err(fault) if fault.class != Class::Lost => {
                // It may not even be there; what matters is that it does not stay.
                let _ = call.sandbox().call(Request::Remove {
                    path: ByteBuf::from(path),
                    recursive: false,
                });
                last = Some(fault);
            }
            started => return started,
        }
    }
    let why = last.map(|fault| fault.message).unwrap_or_default();
    Err(Fault::failed(
        Code::Unsupported,
        format!("the program that runs scripts cannot be started in this sandbox: {why}"),
    )
    .remedy(format!(
        "it needs one of {} to be writable and to let programs run; use Code or Bash instead",
        PLACES.join(", ")
    )))
}
