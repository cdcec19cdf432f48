//! A large project in a sandbox that mounts it: how soon it is ready, and how soon its changes are
//! back.

use crate::push::{
    CP, FIRST_ROUNDS, LARGE_FILES, NEWER, RSYNC, TAR, copy_by, file_path, in_memory, make_large,
    make_project, peak_mib, rivals,
};
use crate::race::{Contestant, race};
use crate::table::Table;
use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use glovebox_proto::{Exec, Exit};
use glovebox_workspace::{HideRules, find_hidden};
use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Races.
pub(crate) const READY: &str = "a project of many files, ready in an overlay";
pub(crate) const PULL: &str = "pull of 10 changes out of many files";
const PULL_FIRST: &str = "pull of many new files";
const LARGE_FIRST: &str = "pull of few large new files";
const LARGE_AGAIN: &str = "pull of one change in few large files";
/// Contestants.
pub(crate) const MANY: &str = "project of many files";
const FEW: &str = "empty project";
const NAMES: &str = "of which the search for secrets";
pub(crate) const GLOVEBOX: &str = "glovebox pull, whole process";
const COPY: &str = "the same, copy mode";
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
    let pulled = pulls(world, table, &dir, &project, files);
    fs::remove_dir_all(&dir)?;
    pulled
}

fn pulls(world: &World, table: &mut Table, dir: &Path, project: &Path, files: usize) -> Result<()> {
    if let Err(error) = world.glovebox() {
        table.skip(PULL, "all", format!("{error:#}"));
        return Ok(());
    }
    let part = |name: &str| {
        let dir = dir.join(name);
        fs::create_dir(&dir).map(|()| dir)
    };
    // What is compared is copying: removing as many files from a disk again takes longer.
    let memory = in_memory(world.is_quick);
    let place = match &memory {
        Some(place) => place.path().canonicalize()?,
        None => part("first")?,
    };
    first(world, table, (PULL_FIRST, &place, project))?;
    let script = |round, share| ten(files, round, share);
    let peak_mib = again(world, table, (PULL, &part("again")?, project), &script)?;
    table.figure(PULL, MEMORY, peak_mib, "MiB");
    if !world.is_quick {
        let large = dir.join("large");
        make_large(&large)?;
        first(world, table, (LARGE_FIRST, &place, &large))?;
        let dir = part("large-again")?;
        again(world, table, (LARGE_AGAIN, &dir, &large), &one_large)?;
    }
    Ok(())
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

/// A named sandbox that changes are made in, and pulled from.
struct Side<'a> {
    world: &'a World,
    name: &'static str,
    peak_mib: Cell<f64>,
}

impl<'a> Side<'a> {
    /// One that has the project mounted, and one that has a copy below `dir`, over a carrier.
    fn both(world: &'a World, dir: &Path, project: &Path) -> Result<[Self; 2]> {
        let carrier = format!("env -C {} sh", dir.display());
        let copy = ["--backend", "command", "--carrier", &carrier];
        let copy = [&copy[..], &["--workspace", "copy"]].concat();
        Ok([
            Self::start(world, "overlay", project, &[])?,
            Self::start(world, "copied", project, &copy)?,
        ])
    }

    fn start(world: &'a World, name: &'static str, project: &Path, how: &[&str]) -> Result<Self> {
        let status = world
            .glovebox()?
            .args(["start", "-q", "--disk", "none", "--timeout", "none"])
            .args(how)
            .arg(name)
            .current_dir(project)
            .status()
            .context("cannot run `glovebox start`")?;
        ensure!(status.success(), "`glovebox start`: {status}");
        Ok(Self {
            world,
            name,
            peak_mib: Cell::new(0.0),
        })
    }

    fn run(&self, script: &str) -> Result<()> {
        let status = self
            .world
            .glovebox()?
            .args(["exec", "-q", self.name, "--", "sh", "-c", script])
            .status()?;
        ensure!(status.success(), "`glovebox exec`: {status}");
        Ok(())
    }

    fn pull(&self, words: &[&str]) -> Result<Duration> {
        let mut command = self.world.glovebox()?;
        command
            .args(["pull", "-q", self.name])
            .args(words)
            .stdin(Stdio::null());
        let (took, mib) = watched(&mut command)?;
        self.peak_mib.set(self.peak_mib.get().max(mib));
        Ok(took)
    }

    fn kill(self) -> Result<()> {
        let status = self
            .world
            .glovebox()?
            .args(["kill", "-q", self.name])
            .status()?;
        ensure!(status.success(), "`glovebox kill`: {status}");
        Ok(())
    }
}

/// Changes of what is there, by scripts: two sandboxes and the rivals each change other paths, so that none
/// of them is a conflict.
fn again(
    world: &World,
    table: &mut Table,
    (group, dir, project): (&str, &Path, &Path),
    script: &dyn Fn(usize, usize) -> String,
) -> Result<f64> {
    let [overlay, copied] = Side::both(world, dir, project)?;
    let round = Cell::new(0_usize);
    let next = || {
        round.set(round.get() + 1);
        round.get()
    };
    let by = |side: &Side<'_>, share: usize| {
        side.run(&script(next(), share))?;
        side.pull(&[])
    };
    let mut contestants = vec![
        Contestant::new(GLOVEBOX, || by(&overlay, 0)),
        Contestant::new(COPY, || by(&copied, 1)),
    ];
    for (index, program) in rivals(table, group, NEWER).into_iter().enumerate() {
        let copy = dir.join(format!("copy{index}"));
        fs::create_dir(&copy)?;
        copy_by(program, project, &copy)?;
        let next = &next;
        contestants.push(Contestant::new(program, move || {
            let status = Command::new("sh")
                .args(["-c", &script(next(), 2)])
                .current_dir(project)
                .status()?;
            ensure!(status.success(), "the change: {status}");
            copy_by(program, project, &copy)
        }));
    }
    let outcome = race(contestants, world.rounds(10), world.budget(30));
    let what = "collected, compared with the project, staged, on the disk, in place";
    table.race(group, what, outcome, &[RSYNC, TAR]);
    let peak_mib = overlay.peak_mib.get().max(copied.peak_mib.get());
    overlay.kill()?;
    copied.kill()?;
    Ok(peak_mib)
}

/// All of a project, made anew in the sandbox and pulled into an empty directory.
fn first(
    world: &World,
    table: &mut Table,
    (group, dir, project): (&str, &Path, &Path),
) -> Result<()> {
    let [overlay, copied] = Side::both(world, dir, project)?;
    for side in [&overlay, &copied] {
        side.run(
            "mkdir new && for name in dir* large*; do [ ! -e $name ] || cp -a $name new; done",
        )?;
    }
    let count = Cell::new(0_u32);
    let target = || {
        count.set(count.get() + 1);
        dir.join(format!("to{}", count.get()))
    };
    let by = |side: &Side<'_>| {
        let target = target();
        fs::create_dir(&target)?;
        let words = ["--from", "/workspace/new", "--to"];
        let took = side.pull(&[&words[..], &[&target.display().to_string()]].concat())?;
        fs::remove_dir_all(target)?;
        Ok(took)
    };
    let mut contestants = vec![
        Contestant::new(GLOVEBOX, || by(&overlay)),
        Contestant::new(COPY, || by(&copied)),
    ];
    for program in rivals(table, group, CP) {
        let target = &target;
        contestants.push(Contestant::new(program, move || {
            let target = target();
            fs::create_dir(&target)?;
            let took = copy_by(program, project, &target)?;
            fs::remove_dir_all(target)?;
            Ok(took)
        }));
    }
    let outcome = race(contestants, FIRST_ROUNDS, world.budget(60));
    let what =
        "of what the sandbox has made, into an empty directory, in memory where there is room";
    table.race(group, what, outcome, &[RSYNC, TAR]);
    overlay.kill()?;
    copied.kill()
}

/// Ten small files, by a script in the project.
fn ten(files: usize, round: usize, share: usize) -> String {
    let mut script = String::new();
    for number in 0..10 {
        let number = (round * 7919 + number * 104_729) * 4 % files + share;
        let path = file_path(Path::new("."), number);
        // Writing into a string cannot fail.
        let _ = writeln!(script, "echo {round} > {}", path.display());
    }
    script
}

/// One of the large files, in its middle.
fn one_large(round: usize, share: usize) -> String {
    let number = round * 4 % LARGE_FILES + share;
    format!("printf %s {round} | dd of=large{number} bs=1M seek=32 conv=notrunc status=none")
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
