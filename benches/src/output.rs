//! A flood of output: how fast it flows, and how much memory it takes on its way.

use crate::race::{Contestant, race};
use crate::table::Table;
use crate::world::World;
use crate::{idle, rival};
use anyhow::{Context as _, Result, bail, ensure};
use glovebox_proto::{Exec, Exit, Reply, Request};
use glovebox_sandbox::{Incoming, Sandbox};
use std::io::Read as _;
use std::process::{Command, Stdio};

pub(crate) const GROUP: &str = "output";
/// Largest resident set of this process meanwhile, above what it was before.
pub(crate) const HOST_MEMORY: &str = "growth of the host process";
/// Largest resident set of the guest.
pub(crate) const GUEST_MEMORY: &str = "peak of the guest process";

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let bytes: u64 = if world.is_quick { 256 << 20 } else { 1 << 30 };
    let count = bytes.to_string();
    let sandbox = world.sandbox(&world.unlimited())?;
    let head = rival::find("head")?;
    let before = idle::status_kib("self", "VmRSS")?;
    // Starts the high-water mark afresh (proc(5), clear_refs).
    std::fs::write("/proc/self/clear_refs", "5")?;
    let contestants = vec![
        Contestant::whole("glovebox, streamed", || streamed(&sandbox, &count, bytes)),
        Contestant::whole("a pipe, 64 KiB reads", || {
            piped(Command::new(&head).args(["-c", &count, "/dev/zero"]), bytes)
        }),
    ];
    let outcome = race(contestants, world.rounds(8).min(5), world.budget(20));
    for sample in &outcome.samples {
        let rate = bytes as f64 / (1 << 20) as f64 / (sample.p50_us / 1e6);
        table.figure(GROUP, sample.contestant.clone(), rate, "MiB/s");
    }
    let what = format!("`head -c {count} /dev/zero`");
    table.race(GROUP, &what, outcome, &["a pipe, 64 KiB reads"]);
    let peak = idle::status_kib("self", "VmHWM")?;
    table.figure(
        GROUP,
        HOST_MEMORY,
        peak.saturating_sub(before) as f64 / 1024.0,
        "MiB",
    );
    let guests = idle::children("self")?;
    let guest = guests.iter().max().context("the guest has no process")?;
    table.figure(
        GROUP,
        GUEST_MEMORY,
        idle::status_kib(&guest.to_string(), "VmHWM")? as f64 / 1024.0,
        "MiB",
    );
    Ok(())
}

fn streamed(sandbox: &Sandbox, count: &str, wanted: u64) -> Result<()> {
    let mut stream = sandbox.open(Request::Exec(Exec::new(["head", "-c", count, "/dev/zero"])))?;
    let mut seen = 0;
    loop {
        match stream.recv() {
            Incoming::Data { bytes, .. } => seen += bytes.len() as u64,
            Incoming::Reply(Ok(Reply::Exited(report))) => {
                ensure!(report.exit == Exit::Code(0), "{:?}", report.exit);
                ensure!(seen == wanted, "{seen} bytes instead of {wanted}");
                return Ok(());
            }
            Incoming::Reply(Ok(other)) => bail!("an unexpected answer: {other:?}"),
            Incoming::Reply(Err(fault)) => return Err(fault.into()),
        }
    }
}

fn piped(command: &mut Command, wanted: u64) -> Result<()> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut pipe = child.stdout.take().context("no output")?;
    let mut buffer = vec![0_u8; 64 << 10];
    let mut seen = 0;
    loop {
        match pipe.read(&mut buffer)? {
            0 => break,
            count => seen += count as u64,
        }
    }
    child.wait()?;
    ensure!(seen == wanted, "{seen} bytes instead of {wanted}");
    Ok(())
}
