//! A second process for tests of the registry.
//!
//! `actor __supervise --state DIR NAME` is a supervisor. `actor start DIR NAME MAX` makes or gets a
//! sandbox of the `host` backend and says what happened. `actor own DIR NAME MAX` makes one of its
//! own, says `ready`, and keeps it until its standard input ends. `actor freeze DIR NAME` holds one
//! still, says `frozen`, and keeps it so until its standard input ends. `actor hold DIR NAME` has its
//! guest do that and says `held`.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "its test reads them"
)]

use glovebox_sandbox::{
    Backend, Name, Registry, RegistryConfig, SandboxSpec, Supervisor, supervise,
};
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match act(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn act(words: &[&str]) -> Result<(), String> {
    match words {
        ["__supervise", "--state", dir, name] => {
            let name = Name::parse(name).map_err(|error| error.to_string())?;
            supervise(&PathBuf::from(dir), &name, drop).map_err(|fault| fault.to_string())
        }
        ["start", dir, name, max] => {
            let (registry, name) = open(dir, name, max)?;
            let exe = std::env::current_exe().map_err(|error| error.to_string())?;
            let spec = SandboxSpec::new(Backend::HOST);
            let started = registry.start(&spec, &name, &Supervisor { exe });
            match started {
                Ok((_, started)) => println!("{started:?}"),
                Err(fault) => println!("{}", fault.code),
            }
            Ok(())
        }
        ["freeze", dir, name] => {
            let (registry, name) = open(dir, name, "16")?;
            let sandbox = registry.connect(&name).map_err(|fault| fault.to_string())?;
            let _frozen = sandbox.freeze().map_err(|fault| fault.to_string())?;
            println!("frozen");
            std::io::stdin()
                .read_to_end(&mut Vec::new())
                .map_err(|error| error.to_string())?;
            Ok(())
        }
        ["hold", dir, name] => {
            let (registry, name) = open(dir, name, "16")?;
            let sandbox = registry.connect(&name).map_err(|fault| fault.to_string())?;
            let _held = sandbox
                .freeze_commands()
                .map_err(|fault| fault.to_string())?;
            println!("held");
            std::io::stdin()
                .read_to_end(&mut Vec::new())
                .map_err(|error| error.to_string())?;
            Ok(())
        }
        ["own", dir, name, max] => {
            let (registry, name) = open(dir, name, max)?;
            let spec = SandboxSpec::new(Backend::HOST);
            let _sandbox = registry
                .create(&spec, Some(name))
                .map_err(|fault| fault.code.to_string())?;
            println!("ready");
            std::io::stdin()
                .read_to_end(&mut Vec::new())
                .map_err(|error| error.to_string())?;
            Ok(())
        }
        _ => Err(format!("actor: what is {words:?}?")),
    }
}

fn open(dir: &str, name: &str, max: &str) -> Result<(Registry, Name), String> {
    let max_sandboxes = max.parse().map_err(|_| "no number".to_owned())?;
    let config = RegistryConfig {
        state_dir: PathBuf::from(dir),
        max_sandboxes,
        seed_maker: None,
    };
    let registry = Registry::open(config).map_err(|fault| fault.to_string())?;
    Ok((
        registry,
        Name::parse(name).map_err(|error| error.to_string())?,
    ))
}
