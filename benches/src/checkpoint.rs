//! What a checkpoint, a restore and a fork cost against how much was written.

use crate::race::Sample;
use crate::table::Table;
use crate::world::World;
use anyhow::{Result, ensure};
use glovebox_proto::{Exec, Exit};
use glovebox_sandbox::{Name, Supervisor};
use std::time::{Duration, Instant};

pub(crate) const GROUP: &str = "checkpoint";
/// The amount the promise is about, in the words of the table.
pub(crate) const LARGEST: &str = "1 GiB";

const SIZES: [(&str, u64); 3] = [("0", 0), ("100 MiB", 100), (LARGEST, 1024)];

/// Name of the figure of one operation at one size.
pub(crate) fn figure(operation: &str, size: &str) -> String {
    format!("{operation} at {size}, p50")
}

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let Ok(command) = world.glovebox() else {
        table.skip(GROUP, "all", "there is no `glovebox` to be a supervisor");
        return Ok(());
    };
    let supervisor = Supervisor {
        exe: command.get_program().into(),
    };
    for (size, mib) in SIZES {
        let name = Name::parse("grown")?;
        let spec = world.unlimited();
        world.registry.start(&spec, &name, &supervisor)?;
        let sandbox = world.registry.connect(&name)?;
        let script = format!("dd if=/dev/zero of=data bs=1M count={mib} 2>/dev/null");
        let written = sandbox.exec(Exec::new(["sh", "-c", &script]))?;
        ensure!(written.report.exit == Exit::Code(0), "{written:?}");
        let mut taken: [Vec<Duration>; 4] = Default::default();
        for round in 0..world.rounds(80) {
            let fork = Name::parse(&format!("fork-{round}"))?;
            let touched = sandbox.exec(Exec::new(["sh", "-c", "echo x >> data"]))?;
            ensure!(touched.report.exit == Exit::Code(0), "{touched:?}");
            let mut time = |index: usize, work: &mut dyn FnMut() -> Result<()>| {
                let began = Instant::now();
                work()?;
                taken[index].push(began.elapsed());
                anyhow::Ok(())
            };
            let registry = &world.registry;
            let mut id = String::new();
            time(0, &mut || {
                id = registry.checkpoint(&name, None, false)?.id;
                Ok(())
            })?;
            let mut forked = None;
            time(1, &mut || {
                forked = Some(registry.fork(&name, &fork, Some(&id))?);
                Ok(())
            })?;
            if let Some(forked) = forked {
                time(2, &mut || {
                    registry.start(&forked.spec, &fork, &supervisor)?;
                    Ok(())
                })?;
            }
            time(3, &mut || {
                registry.restore(&name, &id)?;
                Ok(())
            })?;
            registry.kill(&fork)?;
        }
        for (operation, taken) in ["checkpoint", "fork", "start of a fork", "restore"]
            .into_iter()
            .zip(&taken)
        {
            let p50 = Sample::of(operation, taken).p50_us;
            table.figure(GROUP, figure(operation, size), p50, "us");
        }
        world.registry.kill(&name)?;
    }
    Ok(())
}
