//! The same as a user types it: a whole process from start to end.

use crate::race::{Contestant, race};
use crate::rival;
use crate::start::{BWRAP, CRUN};
use crate::table::Table;
use crate::world::World;
use anyhow::Result;

pub(crate) const GROUP: &str = "whole";
/// The contestant the promise is about.
pub(crate) const GLOVEBOX: &str = "glovebox run -- true";

#[expect(clippy::unnecessary_wraps, reason = "all benches have one signature")]
pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let mut contestants = Vec::new();
    let flags: [(&str, &[&str]); 2] = [
        (GLOVEBOX, &["run", "--quiet", "--", "true"]),
        (
            "glovebox run, no limits, memory -- true",
            &[
                "run", "--quiet", "--layers", "memory", "--memory", "none", "--cpus", "none",
                "--pids", "none", "--disk", "none", "--", "true",
            ],
        ),
    ];
    for (name, args) in flags {
        match world.glovebox() {
            Ok(mut glovebox) => {
                glovebox.args(args);
                contestants.push(Contestant::new(name, move || {
                    rival::run_once(&mut glovebox)
                }));
            }
            Err(error) => table.skip(GROUP, name, format!("{error:#}")),
        }
    }
    if let Ok(mut glovebox) = world.glovebox() {
        glovebox.arg("--version");
        contestants.push(Contestant::new("glovebox --version", move || {
            rival::run_once(&mut glovebox)
        }));
    }
    match rival::bubblewrap(&["true"]) {
        Ok(mut bwrap) => {
            contestants.push(Contestant::new(BWRAP, move || rival::run_once(&mut bwrap)));
        }
        Err(error) => table.skip(GROUP, BWRAP, format!("{error:#}")),
    }
    match world
        .scratch("crun-whole")
        .and_then(|dir| rival::crun(&dir, &["/bin/true"]))
    {
        Ok(mut timer) => contestants.push(Contestant::new(CRUN, move || timer.run())),
        Err(error) => table.skip(GROUP, CRUN, format!("{error:#}")),
    }
    let outcome = race(contestants, world.rounds(200), world.budget(20));
    table.race(GROUP, "whole processes, as typed", outcome, &[BWRAP]);
    Ok(())
}
