//! A command in a sandbox that runs already, and the bare round trip.

use crate::race::{Contestant, Sample, race};
use crate::rival;
use crate::table::Table;
use crate::world::World;
use anyhow::{Result, ensure};
use glovebox_proto::{Exec, Exit};
use glovebox_sandbox::Sandbox;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What is run, as a shell would split it.
pub(crate) const COMMANDS: [&str; 3] = ["true", "echo hi", "sh -c 'echo hi'"];
/// The contestant the promise is about.
pub(crate) const LIBRARY: &str = "glovebox library";
/// What it is compared with.
pub(crate) const DIRECT: &str = "direct spawn, output captured";
const CLI: &str = "glovebox exec, whole process";
const NAME: &str = "bench-exec";

/// Name of the race for one command.
pub(crate) fn group(command: &str) -> String {
    format!("exec `{command}`")
}

fn argv(command: &str) -> Vec<&str> {
    match command.split_once(" -c '") {
        Some((shell, script)) => vec![shell, "-c", script.trim_end_matches('\'')],
        None => command.split(' ').collect(),
    }
}

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let limited = world.sandbox(&world.spec())?;
    let unlimited = world.sandbox(&world.unlimited())?;
    let local = world.sandbox(&world.local())?;
    let named = match start_named(world) {
        Ok(()) => true,
        Err(error) => {
            table.skip("exec", CLI, format!("{error:#}"));
            false
        }
    };
    for command in COMMANDS {
        let argv = argv(command);
        let program = rival::find(argv[0])?;
        let mut contestants = vec![
            Contestant::whole(LIBRARY, || captured(&limited, &argv)),
            Contestant::whole("glovebox library, no limits", || {
                captured(&unlimited, &argv)
            }),
            Contestant::whole("glovebox library, local placement", || {
                captured(&local, &argv)
            }),
            Contestant::whole(DIRECT, || {
                let output = Command::new(&program)
                    .args(&argv[1..])
                    .stdin(Stdio::null())
                    .output()?;
                ensure!(output.status.success(), "{}", output.status);
                Ok(())
            }),
        ];
        if named {
            let mut cli = world.glovebox()?;
            cli.args(["exec", NAME, "--"]).args(&argv);
            contestants.push(Contestant::new(CLI, move || rival::run_once(&mut cli)));
        }
        let outcome = race(contestants, world.rounds(400), world.budget(10));
        table.race(
            &group(command),
            "in a running sandbox, output captured",
            outcome,
            &[DIRECT],
        );
    }
    if named {
        rival::run_once(world.glovebox()?.args(["kill", NAME]))?;
    }
    ping(world, table, &limited, &local)
}

fn captured(sandbox: &Sandbox, argv: &[&str]) -> Result<()> {
    let output = sandbox.exec(Exec::new(argv.iter().copied()))?;
    ensure!(output.report.exit == Exit::Code(0), "{:?}", output.report);
    Ok(())
}

fn start_named(world: &World) -> Result<()> {
    rival::run_once(world.glovebox()?.args(["start", NAME]))?;
    Ok(())
}

fn ping(world: &World, table: &mut Table, native: &Sandbox, local: &Sandbox) -> Result<()> {
    let mut samples = Vec::new();
    for (name, sandbox) in [("native", native), ("local placement", local)] {
        let mut taken = Vec::new();
        for _ in 0..world.rounds(2000) {
            taken.push(sandbox.ping()?);
        }
        samples.push(Sample::of(name, &taken));
    }
    // A pipe there and back between two threads is what the kernel itself charges.
    samples.push(Sample::of(
        "two pipes between two threads",
        &pipes(world.rounds(2000))?,
    ));
    table.race(
        "ping",
        "one empty request and its answer",
        crate::race::Outcome {
            samples,
            dropped: Vec::new(),
        },
        &[],
    );
    Ok(())
}

fn pipes(rounds: usize) -> Result<Vec<Duration>> {
    let (there_out, there_in) = rustix::pipe::pipe()?;
    let (back_out, back_in) = rustix::pipe::pipe()?;
    let echo = std::thread::spawn(move || {
        let mut byte = [0_u8];
        while matches!(rustix::io::read(&there_out, &mut byte), Ok(1)) {
            if rustix::io::write(&back_in, &byte).is_err() {
                break;
            }
        }
    });
    let mut taken = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let began = std::time::Instant::now();
        rustix::io::write(&there_in, b"x")?;
        rustix::io::read(&back_out, &mut [0_u8])?;
        taken.push(began.elapsed());
    }
    drop(there_in);
    // It has nothing left to say.
    let _ = echo.join();
    Ok(taken)
}
