//! From nothing to `true` having run and everything being gone again.

use crate::race::{Contestant, Sample, race};
use crate::rival;
use crate::table::Table;
use crate::world::World;
use anyhow::{Result, ensure};
use glovebox_proto::{Exec, Exit};
use glovebox_sandbox::SandboxSpec;
use glovebox_spec::Layers;
use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) const GROUP: &str = "start";
/// The contestant the promise is about.
pub(crate) const DEFAULT: &str = "glovebox library, default limits, disk";
/// Its rival.
pub(crate) const BWRAP: &str = "bubblewrap";
const SPAWN: &str = "posix_spawn";
pub(crate) const CRUN: &str = "crun run, no cgroups";

/// Where the time of one start went.
#[derive(Default)]
struct Phases {
    create: Vec<Duration>,
    exec: Vec<Duration>,
    destroy: Vec<Duration>,
}

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let phases = RefCell::new(Phases::default());
    let specs = [
        (DEFAULT, world.spec()),
        (
            "glovebox library, default limits, memory",
            World::with_layers(world.spec(), Layers::Memory),
        ),
        ("glovebox library, no limits, disk", world.unlimited()),
        (
            "glovebox library, no limits, memory",
            World::with_layers(world.unlimited(), Layers::Memory),
        ),
    ];
    let mut contestants: Vec<Contestant<'_>> = specs
        .iter()
        .map(|(name, spec)| {
            let phases = (*name == DEFAULT).then_some(&phases);
            Contestant::whole(*name, move || once(world, spec, phases))
        })
        .collect();
    contestants.push(Contestant::new(SPAWN, || {
        rival::run_once(&mut rival::quiet(Path::new("/bin/true")))
    }));
    match rival::bubblewrap(&["/bin/true"]) {
        Ok(mut bwrap) => {
            contestants.push(Contestant::new(BWRAP, move || rival::run_once(&mut bwrap)));
        }
        Err(error) => table.skip(GROUP, BWRAP, format!("{error:#}")),
    }
    match world
        .scratch("crun-start")
        .and_then(|dir| rival::crun(&dir, &["/bin/true"]))
    {
        Ok(mut timer) => contestants.push(Contestant::new(CRUN, move || timer.run())),
        Err(error) => table.skip(GROUP, CRUN, format!("{error:#}")),
    }
    let outcome = race(contestants, world.rounds(300), world.budget(25));
    table.race(
        GROUP,
        "start + `true` + gone again",
        outcome,
        &[BWRAP, SPAWN],
    );

    let phases = phases.into_inner();
    for (name, taken) in [
        ("create", &phases.create),
        ("exec", &phases.exec),
        ("destroy", &phases.destroy),
    ] {
        table.figure(
            GROUP,
            format!("{name}, p50"),
            Sample::of(name, taken).p50_us,
            "us",
        );
    }
    marks(world, table)
}

/// What the sandbox itself tells about the course of its start, in starts that are not timed.
fn marks(world: &World, table: &mut Table) -> Result<()> {
    let mut marks: Vec<(String, Vec<u64>)> = Vec::new();
    for _ in 0..world.rounds(60) {
        let sandbox = world.sandbox(&world.spec())?;
        let report = sandbox.report()?;
        for (index, (name, at)) in report.timings_us.into_iter().enumerate() {
            if index == marks.len() {
                marks.push((name, Vec::new()));
            }
            marks[index].1.push(at);
        }
        sandbox.destroy()?;
    }
    for (name, mut at) in marks {
        at.sort_unstable();
        let p50 = at.get(at.len() / 2).copied().unwrap_or_default();
        table.figure(GROUP, format!("mark `{name}`, p50"), p50 as f64, "us");
    }
    Ok(())
}

fn once(world: &World, spec: &SandboxSpec, phases: Option<&RefCell<Phases>>) -> Result<()> {
    let began = Instant::now();
    let sandbox = world.sandbox(spec)?;
    let created = began.elapsed();
    let output = sandbox.exec(Exec::new(["/bin/true"]))?;
    let executed = began.elapsed();
    ensure!(
        output.report.exit == Exit::Code(0),
        "`true` ended with {:?}",
        output.report
    );
    sandbox.destroy()?;
    if let Some(phases) = phases {
        let mut phases = phases.borrow_mut();
        phases.create.push(created);
        phases.exec.push(executed.saturating_sub(created));
        phases
            .destroy
            .push(began.elapsed().saturating_sub(executed));
    }
    Ok(())
}
