//! A backend that exists for the tests alone: a directory of this machine that stands for another one.
//!
//! It proves that a backend is one crate and one line of registration. Its guest is reached as that of a service: over
//! a link that outlives a broken connection, here the standard streams of a shell.

use glovebox_carrier::options::{RECONNECT, times};
use glovebox_carrier::{
    Attempt, Connect, ConnectFailure, Pipe, PipeEnd, Sizes, carry, new_run_dir, start_dir,
};
use glovebox_proto::{Code, Fault};
use glovebox_sandbox::backend::{
    Begun, CreateCx, Driver, GuestPlace, GuestStream, bring_guest, unheld_limits,
};
use glovebox_sandbox::{
    Backend, BackendOption, Capabilities, CheckpointStore, DEFAULT_START_MS, Declaration, Files,
    Place, ProjectChoice, Report, SandboxSpec, StartCost, SubSandboxes, Walls, WorkspaceMode,
};
use glovebox_spec::LimitState;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Word that a sandbox's report repeats.
const GREETING: BackendOption = BackendOption {
    name: "made_up.greeting",
    flag: "greeting",
    variable: "GLOVEBOX_GREETING",
    value: "WORD",
    help: "With `--backend made-up`: the word that the report repeats",
    meaning: "with `backend = \"made-up\"`: the word that the report repeats",
    is_path: false,
    check: check_greeting,
};

static DECLARATION: Declaration = Declaration {
    name: "made-up",
    about: "a directory of this machine that stands for another one",
    settings: &[],
    required: &[],
    options: &[GREETING, RECONNECT],
    credential: None,
    project_choice: ProjectChoice::Never,
    capabilities: Capabilities {
        place: Place::Elsewhere,
        walls: Walls::None,
        files: Files::Copied,
        has_own_dir: true,
        workspace_modes: &[WorkspaceMode::Copy, WorkspaceMode::None],
        keeps_files: false,
        checkpoints: CheckpointStore::None,
        shares_machine: false,
        can_freeze: false,
        networks: &[],
        can_nest: false,
        can_resume: true,
        sub_sandboxes: SubSandboxes::None,
        can_serve: true,
        start: StartCost::Processor,
        start_ms: DEFAULT_START_MS,
    },
};

/// Where shells look for programs.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// The backend.
#[derive(Debug)]
pub struct MadeUp;

impl Driver for MadeUp {
    fn backend(&self) -> Backend {
        Backend::declared(&DECLARATION)
    }

    fn explain(&self, _: &SandboxSpec) -> Result<String, Fault> {
        Ok("the guest in a directory of this machine, without walls\n".to_owned())
    }

    fn summary(&self, spec: &SandboxSpec) -> Vec<String> {
        let greeting = spec.option(GREETING.name).first();
        let greeting = greeting.map(|word| format!("says {word}"));
        greeting.into_iter().collect()
    }

    fn create(&self, cx: &CreateCx<'_>, _: Begun) -> Result<GuestStream, Fault> {
        let home = cx.dir.join("machine");
        fs::create_dir_all(&home).map_err(|error| io_fault("make its directory", &error))?;
        let machine = Machine {
            home,
            cwd: start_dir(cx.spec, cx.name),
            run_dir: new_run_dir(),
        };
        let sizes = Sizes {
            rotate: None,
            ..Sizes::default()
        };
        let guest = carry(Box::new(machine), times(cx.spec), sizes, cx.deadline)?;
        // The sandbox's own directory goes with the sandbox, and nothing else was made.
        guest.into_stream(report(cx), Box::new(|_| Ok(())))
    }
}

/// The directory that stands for a machine.
#[derive(Debug)]
struct Machine {
    /// Home of its login.
    home: PathBuf,
    /// Directory of commands, relative to the home.
    cwd: PathBuf,
    /// Directory of the guest's socket.
    run_dir: String,
}

impl Connect for Machine {
    fn connect(&self, attempt: Attempt, deadline: Instant) -> Result<Pipe, ConnectFailure> {
        let (shell, reader, writer) = self
            .login()
            .map_err(|error| ConnectFailure::Final(io_fault("start a shell", &error)))?;
        let command = match attempt {
            Attempt::First => format!("serve --resume {}", self.run_dir),
            Attempt::Again => format!("link {}", self.run_dir),
        };
        let place = GuestPlace {
            cwd: Some(&self.cwd),
            makes_cwd: true,
            guest_dir: None,
            command: &command,
        };
        let early =
            bring_guest(&reader, &writer, place, deadline).map_err(ConnectFailure::Final)?;
        Ok(Pipe {
            reader,
            writer,
            early,
            end: Box::new(shell),
        })
    }
}

impl Machine {
    fn login(&self) -> io::Result<(Shell, OwnedFd, OwnedFd)> {
        let mut child = Command::new("sh")
            .current_dir(&self.home)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", &self.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let shell = Shell(child);
        match (output, input) {
            (Some(output), Some(input)) => Ok((shell, output.into(), input.into())),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// The shell of one connection. Dropping it ends the connection; the guest is a process of its own.
#[derive(Debug)]
struct Shell(Child);

impl PipeEnd for Shell {}

impl Drop for Shell {
    fn drop(&mut self) {
        // One that has ended already is only waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn io_fault(what: &str, error: &io::Error) -> Fault {
    Fault::failed(Code::Io, format!("cannot {what}: {error}"))
}

fn report(cx: &CreateCx<'_>) -> Report {
    let mut report = Report::new(DECLARATION.name, cx.name.as_str());
    report.limits = unheld_limits(cx.spec, "nothing holds it");
    report.wall("machine", LimitState::Absent, "it is this one");
    if let Some(word) = cx.spec.option(GREETING.name).first() {
        report.wall("greeting", LimitState::Absent, word.clone());
    }
    report
}

fn check_greeting(text: &str) -> Result<(), String> {
    let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase());
    is_word
        .then_some(())
        .ok_or_else(|| "write one word of lower-case letters".to_owned())
}
