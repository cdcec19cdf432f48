//! A large project in a sandbox that mounts it: how soon it is ready, and how soon its changes are
//! back.

use crate::push::{copy_by, file_path, make_project, peak_mib};
use crate::race::{Contestant, race};
use crate::table::Table;
use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use glovebox_proto::{Exec, Exit};
use glovebox_workspace::{HideRules, find_hidden};
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Races.
pub(crate) const READY: &str = "a project of many files, ready in an overlay";
pub(crate) const PULL: &str = "pull of 10 changes out of many files";
/// Contestants.
pub(crate) const MANY: &str = "project of many files";
const FEW: &str = "empty project";
const NAMES: &str = "of which the search for secrets";
pub(crate) const GLOVEBOX: &str = "glovebox pull, whole process";
const RSYNC: &str = "rsync -a";
/// Figures.
pub(crate) const MEMORY: &str = "peak memory of `glovebox pull`";

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let files = if world.is_quick { 2_000 } else { 100_000 };
    let dir = world.scratch("pull")?;
    let project = dir.join("project");
    make_project(&project, files)?;
    let few = dir.join("few");
    fs::create_dir(&few)?;
    ready(world, table, &project, &few);
    let pulled = pull(world, table, &dir, &project, files);
    fs::remove_dir_all(&dir)?;
    pulled
}

/// From nothing to a command that has run in it.
fn ready(world: &World, table: &mut Table, many: &Path, few: &Path) {
    let start = |project: &Path| {
        let began = Instant::now();
        let hidden = find_hidden(project, &HideRules::default())?;
        let mut spec = world.unlimited();
        spec.jail.workspace = Some(project.to_owned());
        spec.jail.hidden = hidden.paths.into_iter().map(|(path, _)| path).collect();
        let sandbox = world.sandbox(&spec)?;
        let took = began.elapsed();
        let listed = sandbox.exec(Exec::new(["test", "-d", "."]))?;
        ensure!(listed.report.exit == Exit::Code(0), "{listed:?}");
        sandbox.destroy()?;
        Ok(took)
    };
    let names = || {
        find_hidden(many, &HideRules::default())?;
        Ok(())
    };
    let contestants = vec![
        Contestant::new(MANY, || start(many)),
        Contestant::new(FEW, || start(few)),
        Contestant::whole(NAMES, names),
    ];
    let outcome = race(contestants, world.rounds(40), world.budget(30));
    let what = "from nothing to a sandbox that takes commands, by library";
    table.race(READY, what, outcome, &[FEW]);
}

fn pull(world: &World, table: &mut Table, dir: &Path, project: &Path, files: usize) -> Result<()> {
    let Ok(mut started) = world.glovebox() else {
        table.skip(PULL, "all", "there is no `glovebox`");
        return Ok(());
    };
    let status = started
        .args([
            "start",
            "-q",
            "--disk",
            "none",
            "--timeout",
            "none",
            "bench",
        ])
        .current_dir(project)
        .status()
        .context("cannot run `glovebox start`")?;
    ensure!(status.success(), "`glovebox start`: {status}");
    let round = Cell::new(0_usize);
    // Even numbers change in the sandbox and odd ones in the project, lest both change the same.
    let changed = |rest: usize| {
        round.set(round.get() + 1);
        let first = round.get() * 7919;
        (0..10_usize).map(move |number| (first + number * 104_729) * 2 % files + rest)
    };
    let peak = Cell::new(0.0_f64);
    let by_pull = || {
        let mut lines = Vec::new();
        for number in changed(0) {
            let path = file_path(Path::new("."), number);
            lines.push(format!("echo {} > {}", round.get(), path.display()));
        }
        let script = lines.join("\n");
        let status = world
            .glovebox()?
            .args(["exec", "-q", "bench", "--", "sh", "-c", &script])
            .status()?;
        ensure!(status.success(), "`glovebox exec`: {status}");
        let mut command = world.glovebox()?;
        command.args(["pull", "-q", "bench"]).stdin(Stdio::null());
        let (took, mib) = watched(&mut command)?;
        peak.set(peak.get().max(mib));
        Ok(took)
    };
    let copy = dir.join("copy");
    fs::create_dir(&copy)?;
    let by_rsync = || {
        for number in changed(1) {
            fs::write(file_path(project, number), format!("{}", round.get()))?;
        }
        copy_by(RSYNC, project, &copy)
    };
    let mut contestants = vec![Contestant::new(GLOVEBOX, by_pull)];
    let has_rsync = Command::new("rsync")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if has_rsync {
        contestants.push(Contestant::new(RSYNC, by_rsync));
    } else {
        table.skip(PULL, RSYNC, "rsync is not installed");
    }
    let outcome = race(contestants, world.rounds(20), world.budget(60));
    let what = "collected, compared with the project, staged, on the disk, in place";
    table.race(PULL, what, outcome, &[RSYNC]);
    table.figure(PULL, MEMORY, peak.get(), "MiB");
    let status = world.glovebox()?.args(["kill", "-q", "bench"]).status()?;
    ensure!(status.success(), "`glovebox kill`: {status}");
    Ok(())
}

/// Runs a command to its end; how long it took and the most memory it was seen to have.
fn watched(command: &mut Command) -> Result<(Duration, f64)> {
    let began = Instant::now();
    let mut child = command.spawn()?;
    let pid = child.id().to_string();
    let mut peak = 0.0_f64;
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "{command:?}: {status}");
            return Ok((began.elapsed(), peak));
        }
        peak = peak.max(peak_mib(&pid).unwrap_or(0.0));
        std::thread::sleep(Duration::from_micros(500));
    }
}
