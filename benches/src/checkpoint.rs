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
    let name = Name::parse("grown")?;
    let mut measured = Ok(());
    for (size, mib) in SIZES {
        let subject = Subject {
            world,
            name: &name,
            supervisor: &supervisor,
            mib,
        };
        measured = measured.and_then(|()| subject.measure(size, table));
        // Whatever happened, no supervisor outlives the bench.
        for entry in world.registry.list()? {
            if entry.is_supervised {
                world.registry.kill(&entry.name)?;
            }
        }
    }
    measured
}

/// A sandbox in which so much is written again before each checkpoint.
struct Subject<'a> {
    world: &'a World,
    name: &'a Name,
    supervisor: &'a Supervisor,
    mib: u64,
}

impl Subject<'_> {
    fn measure(&self, size: &str, table: &mut Table) -> Result<()> {
        let registry = &self.world.registry;
        registry.start(&self.world.unlimited(), self.name, self.supervisor)?;
        let empty = registry.checkpoint(self.name, None, false)?.id;
        let mut taken: [Vec<Duration>; 4] = Default::default();
        let rounds = if self.mib < 1000 { 80 } else { 16 };
        for round in 0..self.world.rounds(rounds) {
            let fork = Name::parse(&format!("fork-{round}"))?;
            self.write()?;
            let began = Instant::now();
            let id = registry.checkpoint(self.name, None, false)?.id;
            taken[0].push(began.elapsed());

            let began = Instant::now();
            let forked = registry.fork(self.name, &fork, Some(&id))?;
            taken[1].push(began.elapsed());

            let began = Instant::now();
            registry.start(&forked.spec, &fork, self.supervisor)?;
            taken[2].push(began.elapsed());
            registry.kill(&fork)?;

            let began = Instant::now();
            registry.restore(self.name, &id)?;
            taken[3].push(began.elapsed());

            // Back to nothing, so that the disk holds it once.
            registry.restore(self.name, &empty)?;
            registry.delete_checkpoint(self.name, &id)?;
        }
        for (operation, taken) in ["checkpoint", "fork", "start of a fork", "restore"]
            .into_iter()
            .zip(&taken)
        {
            let p50 = Sample::of(operation, taken).p50_us;
            table.figure(GROUP, figure(operation, size), p50, "us");
        }
        Ok(())
    }

    /// Writes it, and lets the disk have it: how fast that takes it is not what is measured.
    fn write(&self) -> Result<()> {
        let sandbox = self.world.registry.connect(self.name)?;
        let script = format!(
            "dd if=/dev/zero of=data bs=1M count={} 2>/dev/null && sync data && echo x > touched",
            self.mib
        );
        let written = sandbox.exec(Exec::new(["sh", "-c", &script]))?;
        ensure!(written.report.exit == Exit::Code(0), "{written:?}");
        Ok(())
    }
}
