//! Bytes into a command of `glovebox run` and out of it, by the kind of stream: what it costs that input is lent, and that
//! descriptors from 3 on are carried.

use crate::race::{Contestant, race};
use crate::table::Table;
use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

const GROUP: &str = "streams";
const FROM_FILE: &str = "standard input from a file";
const TO_STDOUT: &str = "standard output";

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let bytes: u64 = if world.is_quick { 64 << 20 } else { 1 << 30 };
    if let Err(error) = world.glovebox() {
        table.skip(GROUP, "glovebox run", format!("{error:#}"));
        return Ok(());
    }
    let file = world.scratch("streams")?.join("input");
    File::create(&file)?.set_len(bytes)?;
    let glovebox = |flags: &[&str], script: &str| -> Result<Command> {
        let mut command = world.glovebox()?;
        command
            .args(["run", "--quiet", "--apply", "never"])
            .args(flags)
            .args(["--", "sh", "-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Ok(command)
    };
    let zeroes = format!("head -c {bytes} /dev/zero");
    let contestants = vec![
        Contestant::whole(FROM_FILE, || {
            let mut command = glovebox(&[], "cat >/dev/null")?;
            succeed(command.stdin(File::open(&file)?))
        }),
        Contestant::whole("standard input from a pipe", || {
            feed(&mut glovebox(&[], "cat >/dev/null")?, &file)
        }),
        Contestant::whole(TO_STDOUT, || drain(&mut glovebox(&[], &zeroes)?, bytes)),
        Contestant::whole("a descriptor, `--fd 3`", || {
            let inner = glovebox(&["--fd", "3"], &format!("{zeroes} >&3"))?;
            // A shell opens it, as for its users.
            let mut command = Command::new("sh");
            for (name, value) in inner.get_envs() {
                command.env(name, value.unwrap_or_default());
            }
            command
                .args(["-c", "exec \"$@\" 3>&1 >/dev/null", "sh"])
                .arg(inner.get_program())
                .args(inner.get_args())
                .stdin(Stdio::null());
            if let Some(dir) = inner.get_current_dir() {
                command.current_dir(dir);
            }
            drain(&mut command, bytes)
        }),
    ];
    let outcome = race(contestants, world.rounds(8).min(5), world.budget(40));
    for sample in &outcome.samples {
        let rate = bytes as f64 / (1 << 20) as f64 / (sample.p50_us / 1e6);
        table.figure(GROUP, sample.contestant.clone(), rate, "MiB/s");
    }
    let what = format!("{bytes} bytes through `glovebox run`, its start included");
    table.race(GROUP, &what, outcome, &[FROM_FILE, TO_STDOUT]);
    Ok(())
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// Runs a command whose input is a pipe that another program fills.
fn feed(command: &mut Command, file: &Path) -> Result<()> {
    let mut source = Command::new("cat")
        .arg(file)
        .stdout(Stdio::piped())
        .spawn()?;
    let pipe: OwnedFd = source.stdout.take().context("no output")?.into();
    succeed(command.stdin(pipe))?;
    source.wait()?;
    Ok(())
}

/// Runs a command and reads its output, which must have this size.
fn drain(command: &mut Command, wanted: u64) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut pipe = child.stdout.take().context("no output")?;
    let mut buffer = vec![0_u8; 64 << 10];
    let mut seen = 0;
    loop {
        match pipe.read(&mut buffer)? {
            0 => break,
            count => seen += count as u64,
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "{status}");
    ensure!(seen == wanted, "{seen} bytes instead of {wanted}");
    Ok(())
}
