//! Many at once.

use crate::race::{Contestant, race};
use crate::rival;
use crate::start::{BWRAP, GROUP as START};
use crate::table::Table;
use crate::world::World;
use anyhow::{Result, anyhow, ensure};
use glovebox_proto::{Exec, Exit};
use std::path::Path;

const STARTS: usize = 16;
const EXECS: usize = 200;

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let spec = world.spec();
    let mut contestants = vec![Contestant::whole("glovebox library", || {
        at_once(STARTS, || {
            let sandbox = world.sandbox(&spec)?;
            let output = sandbox.exec(Exec::new(["/bin/true"]))?;
            ensure!(output.report.exit == Exit::Code(0), "{:?}", output.report);
            Ok(sandbox.destroy()?)
        })
    })];
    match rival::bubblewrap(&["/bin/true"]) {
        Ok(_) => contestants.push(Contestant::whole(BWRAP, || {
            at_once(STARTS, || {
                rival::run_once(&mut rival::bubblewrap(&["/bin/true"])?).map(drop)
            })
        })),
        Err(error) => table.skip(START, BWRAP, format!("{error:#}")),
    }
    let outcome = race(contestants, world.rounds(30), world.budget(8));
    table.race(
        "16 starts at once",
        "until all 16 are gone again",
        outcome,
        &[BWRAP],
    );

    let sandbox = world.sandbox(&world.unlimited())?;
    let contestants = vec![
        Contestant::whole("glovebox library", || {
            at_once(EXECS, || {
                let output = sandbox.exec(Exec::new(["/bin/true"]))?;
                ensure!(output.report.exit == Exit::Code(0), "{:?}", output.report);
                Ok(())
            })
        }),
        Contestant::whole("direct spawn", || {
            at_once(EXECS, || {
                let output = rival::quiet(Path::new("/bin/true"))
                    .stdout(std::process::Stdio::piped())
                    .output()?;
                ensure!(output.status.success(), "{}", output.status);
                Ok(())
            })
        }),
    ];
    let outcome = race(contestants, world.rounds(20), world.budget(6));
    table.race(
        "200 execs at once",
        "in one sandbox, until all have ended",
        outcome,
        &["direct spawn"],
    );
    Ok(())
}

/// Runs `work` on `count` threads; the first failure is the answer.
pub(crate) fn at_once(count: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(&work)).collect();
        let mut result = Ok(());
        for thread in threads {
            let ended = thread
                .join()
                .map_err(|_| anyhow!("a thread panicked"))
                .flatten();
            result = result.and(ended);
        }
        result
    })
}
