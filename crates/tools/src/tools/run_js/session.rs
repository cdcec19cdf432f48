//! Session of scripts: a job that runs the script program. The program is sent to the sandbox on
//! first use, into sealed memory of the guest, and is executed from there. It has no name in the
//! file system, so no command can replace it.

use crate::call::{Call, given_up};
use crate::hint::{Hint, with_hint};
use glovebox_proto::{
    Background, Class, Code, Exec, Fault, JobId, JobInfo, JobState, LogCaps, Remedy, Stdin,
    WriteMode,
};
use glovebox_sandbox::SCRIPTS;
use serde_bytes::ByteBuf;

/// Second word of a session's command line. The third is the digest of the program, so that
/// sessions of other versions are not reused. The last is the session's name.
pub(crate) const MARK: &str = "glovebox-script";
/// Maximum number of sessions at a time: each holds memory until the sandbox ends.
const MAX_SESSIONS: usize = 4;
/// Name prefix of the program among the programs that the guest holds. The digest follows.
const PROGRAM: &str = "/glovebox-js/";
/// Small log: nothing is read from it, as scripts read the live stream.
const LOG: LogCaps = LogCaps {
    head_bytes: 4096,
    tail_bytes: 64 << 10,
    spill_bytes: 0,
};

/// Running session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) job: JobId,
    pub(super) is_new: bool,
}

impl Session {
    /// Returns the session of this name, and starts it if there is none.
    ///
    /// # Errors
    /// `busy` if there are too many sessions; `unsupported` with the reason if the program cannot
    /// be started.
    pub(super) fn open(call: &Call<'_>, name: &str) -> Result<Self, Fault> {
        let jobs = call.sandbox().jobs()?;
        let ours = |info: &&JobInfo| is_script_session(info);
        let known = jobs.iter().filter(ours).find(|info| {
            word(info, 2) == SCRIPTS.blake3().as_bytes() && word(info, 3) == name.as_bytes()
        });
        if let Some(info) = known {
            return Ok(Self {
                job: info.job,
                is_new: false,
            });
        }
        if jobs.iter().filter(ours).count() >= MAX_SESSIONS {
            let message = format!("there are {MAX_SESSIONS} JavaScript sessions already");
            let hint = Hint::new(
                &["Job"],
                "use one of them, or end one with Job (`list`, then `kill`)",
            );
            let hint = call.hint([hint, Hint::new(&[], "use one of them")]);
            return Err(with_hint(Fault::failed(Code::Busy, message), hint));
        }
        Ok(Self {
            job: start(call, name)?,
            is_new: true,
        })
    }
}

/// Returns true if a job is a script session that is still running.
pub fn is_script_session(info: &JobInfo) -> bool {
    info.state == JobState::Running && word(info, 1) == MARK.as_bytes()
}

fn word(info: &JobInfo, at: usize) -> &[u8] {
    info.argv.get(at).map_or(&[], |word| &word[..])
}

/// Starts the program. Sends it to the guest first if the guest does not hold it yet.
fn start(call: &Call<'_>, name: &str) -> Result<JobId, Fault> {
    let program = format!("{PROGRAM}{}", SCRIPTS.blake3());
    let exec = Exec {
        clear_env: true,
        stdin: Stdin::Stream,
        stream_output: false,
        log: LOG,
        background: Background::Kill,
        program: Some(ByteBuf::from(program.as_bytes())),
        ..Exec::new(["glovebox-js", MARK, SCRIPTS.blake3(), name])
    };
    match call.sandbox().start_job(exec.clone()) {
        Err(fault) if fault.code == Code::NotFound => {}
        started => return started.map_err(|fault| cannot_start(call, fault)),
    }
    if call.is_given_up() {
        return Err(given_up());
    }
    SCRIPTS
        .unpack()
        .and_then(|bytes| call.write(&program, WriteMode::Program, 0, &bytes))
        .and_then(|_| call.sandbox().start_job(exec))
        .map_err(|fault| cannot_start(call, fault))
}

fn cannot_start(call: &Call<'_>, fault: Fault) -> Fault {
    if fault.class == Class::Lost || fault.code == Code::Cancelled {
        return fault;
    }
    let why = fault.message;
    let hint = fault.remedy.or_else(|| {
        let hint = call.hint([
            Hint::new(&["Code", "Bash"], "use Code or Bash instead"),
            Hint::new(&["Bash"], "use Bash instead"),
            Hint::new(&["Code"], "use Code instead"),
        ]);
        hint.map(Remedy::from)
    });
    let message = format!("the program that runs scripts cannot be started in this sandbox: {why}");
    with_hint(Fault::failed(Code::Unsupported, message), hint)
}
