//! The `glovebox` command: arguments, terminal and exit codes around the sandbox crate. It is a
//! library, so that a program with further backends needs one line; `main.rs` is the program with
//! the standard backends.
//!
//! ```text
//! args          the command line         validated, nothing touched
//! backends      backends of this program in addition to the built-in ones
//! surroundings  the only reader of environment variables and the current directory
//! cmd           one file per command
//! sync          a sandbox's changes: collected, displayed, applied
//! streams       a command's streams, signals and terminal
//! render        text for people, objects for programs
//! exit          errors and exit codes
//! ```
//!
//! `run` and `exec` stand in for the command they run: its output and exit code are theirs. The
//! binary holds no sandbox logic; it only translates the command line into requests.

mod args;
mod backends;
mod cmd;
mod exit;
mod render;
mod streams;
mod surroundings;
mod sync;
mod usage;

pub use backends::standard_backends;

use args::{CheckpointAction, Cli, Command};
use cmd::Cx;
use exit::{CommandError, CommandResult, Kind};
use glovebox_sandbox::backend::Driver;
use serde_json::json;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the command line of this process with `backends` in addition to the built-in ones, in the
/// order of help and completion. Returns the exit code of the process.
pub fn main_with(backends: Vec<Box<dyn Driver>>) -> ExitCode {
    // Must come before anything opens a file: descriptors that are open now are the caller's, and
    // any that we open later would be taken for one of them.
    streams::note_inherited();
    give_back_terminal_on_panic();
    glovebox_sandbox::backend::register(backends);
    let argv: Vec<OsString> = std::env::args_os().collect();
    let code = match Cli::read(&argv) {
        Ok(cli) => run(cli),
        Err(error) => usage::explain(&error, &argv),
    };
    ExitCode::from(code)
}

fn run(cli: Cli) -> u8 {
    let is_json = cli.is_json;
    let cx = Cx::new(cli.global);
    let is_stand_in = matches!(cli.command, Command::Run(_) | Command::Exec(_));
    match dispatch(&cx, cli.command) {
        Ok(code) => code,
        Err(error) => {
            tell(&cx, &error, is_json);
            exit_code(&error, is_stand_in)
        }
    }
}

/// Reports why a command failed: to a program on standard output, to a person on standard error.
fn tell(cx: &Cx, error: &CommandError, is_json: bool) {
    if is_json && error.kind != Kind::BrokenPipe {
        // A reader that has closed standard output still gets the exit code.
        let _ = render::print(render::failure(error, &json!({})));
    }
    if error.kind != Kind::Interrupted {
        cx.talk.error(error);
    }
}

fn exit_code(error: &CommandError, is_stand_in: bool) -> u8 {
    if is_stand_in {
        error.stand_in_code()
    } else {
        error.exit_code()
    }
}

fn dispatch(cx: &Cx, mut command: Command) -> CommandResult {
    if let Some(code) = settle_name(cx, &mut command)? {
        return Ok(code);
    }
    match command {
        Command::Agent(args) => cmd::agent::run(cx, &args),
        Command::Sessions(args) => cmd::sessions::run(cx, &args),
        Command::Replay(args) => cmd::replay::run(cx, &args),
        Command::Init(args) => cmd::init::run(cx, &args),
        Command::Run(args) => cmd::run::run(cx, &args),
        Command::Start(args) => cmd::start::run(cx, &args),
        Command::List(args) => cmd::list::run(cx, &args),
        Command::Exec(args) => cmd::exec::run(cx, &args),
        Command::Attach(args) => cmd::attach::run(cx, &args),
        Command::Stop(args) => cmd::stop::run(cx, &args),
        Command::Prune(args) => cmd::prune::run(cx, &args),
        Command::Cache(args) => cmd::cache::run(cx, &args),
        Command::Net(args) => cmd::net::run(cx, &args),
        Command::Ports(args) => cmd::ports::run(cx, &args),
        Command::Expose(args) => cmd::expose::run(cx, &args),
        Command::Rename(args) => cmd::rename::run(cx, &args),
        Command::Stats(args) => cmd::stats::run(cx, &args),
        Command::Cp(args) => cmd::cp::run(cx, &args),
        Command::Kill(args) => cmd::kill::run(cx, &args),
        Command::Checkpoint(args) => cmd::checkpoint::run(cx, &args),
        Command::Checkpoints(args) => cmd::checkpoint::list(cx, &args),
        Command::Restore(args) => cmd::checkpoint::restore(cx, &args),
        Command::Fork(args) => cmd::checkpoint::fork(cx, &args),
        Command::Diff(args) => cmd::diff::run(cx, &args),
        Command::Pull(args) => cmd::pull::run(cx, &args),
        Command::Push(args) => cmd::push::run(cx, &args),
        Command::Logs(args) => cmd::logs::run(cx, &args),
        Command::Info(args) => cmd::info::run(cx, &args),
        Command::Tools(args) => cmd::tools::list(cx, &args),
        Command::Call(args) => cmd::tools::call(cx, &args),
        Command::Why(args) => cmd::why::run(cx, &args),
        Command::Bundle(args) => cmd::bundle::run(cx, &args),
        Command::Mcp(args) => cmd::mcp::run(cx, &args),
        Command::Serve(args) => cmd::serve::run(cx, &args),
        Command::Token(args) => cmd::token::run(cx, &args),
        Command::Audit(args) => cmd::audit::run(cx, &args),
        Command::Doctor(args) => cmd::doctor::run(cx, &args),
        Command::Demo(args) => cmd::demo::run(cx, &args),
        Command::Completions(args) => cmd::completions::run(&args),
        Command::Config(args) => cmd::config::run(cx, &args),
        Command::Help(args) => Ok(cmd::help::run(&args)),
        Command::Extract => Ok(glovebox_bundle::serve_extraction()),
        Command::Complete(args) => cmd::complete::run(cx, &args),
        Command::Supervise(args) => cmd::supervise::run(&args),
        Command::Commit(args) => Ok(cmd::commit::run(&args)),
        Command::Man(args) => cmd::man::run(&args),
    }
}

/// Fills in the sandbox of the current project if the command line names none. Returns an exit code
/// if that failed and the failure has been printed as JSON.
fn settle_name(cx: &Cx, command: &mut Command) -> Result<Option<u8>, CommandError> {
    let (name, is_json) = match command {
        Command::Attach(args) => (&mut args.name, false),
        Command::Checkpoint(args) => match &mut args.action {
            Some(CheckpointAction::Delete(args)) => (&mut args.one.name, args.one.json),
            None => (&mut args.name, args.json),
        },
        Command::Checkpoints(args) => (&mut args.name, args.json),
        Command::Restore(args) => (&mut args.one.name, args.one.json),
        Command::Fork(args) => (&mut args.name, args.json),
        Command::Diff(args) => (&mut args.name, args.json),
        // The backup to restore may belong to a sandbox that has been removed.
        Command::Pull(args) if args.undo.is_some() => return Ok(None),
        Command::Pull(args) => {
            cmd::commits::refuse_name_as_branch(cx, args)?;
            (&mut args.name, args.json)
        }
        Command::Logs(args) => (&mut args.name, args.json),
        Command::Info(args) => (&mut args.name, args.json),
        Command::Ports(args) => (&mut args.name, args.json),
        Command::Expose(args) => (&mut args.name, args.json),
        Command::Net(args) => match args.action.sandbox() {
            Some(found) => found,
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    cmd::here::settle(cx, name, is_json)
}

/// Restores the terminal in a panic: a terminal left in raw mode would not echo.
fn give_back_terminal_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        streams::restore_terminal();
        report(info);
    }));
}
