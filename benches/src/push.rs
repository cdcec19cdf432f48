//! A project copied into a sandbox that this machine cannot mount anything into: the first time and
//! again after ten changes, beside what one would otherwise type.
//!
//! All of it happens in memory where there is room: what is compared is copying. A disk takes what was
//! written whenever it pleases, so on one it is rather a matter of whose turn it is when it does.

use crate::race::{Contestant, race};
use crate::table::Table;
use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use glovebox_sandbox::Sandbox;
use glovebox_workspace::copy::{Packing, PushOptions, PushRecords, PushTotals, SandboxRoot, push};
use std::cell::Cell;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// The contestant the promises are about.
pub(crate) const COPY: &str = "glovebox, copy mode";
/// The technique without any tool of its own: an archive as text through a shell.
pub(crate) const TAR: &str = "tar | base64";
pub(crate) const RSYNC: &str = "rsync -a";
pub(crate) const CP: &str = "cp -a";
/// Over what is there already: writing everything once more would take the longest of all, since a file
/// system sees to it that what is written over is on the disk soon.
pub(crate) const NEWER: &str = "cp -au";
/// Races.
pub(crate) const FIRST: &str = "push many files, first time";
pub(crate) const AGAIN: &str = "push many files, after 10 changes";
const LARGE: &str = "push few large files, first time";
const LARGE_AGAIN: &str = "push few large files, after one changed";
/// Few files, 1 GiB together.
pub(crate) const LARGE_FILES: usize = 16;
const LARGE_BYTES: usize = 64 << 20;
/// Rounds of a race after the one that warms up: a round copies gigabytes.
pub(crate) const FIRST_ROUNDS: usize = 3;
const AGAIN_ROUNDS: usize = 5;
/// A file system in memory, where Linux has it.
const MEMORY: &str = "/dev/shm";
/// What the bench takes there at most: a project and its copies, one per contestant.
const FULL_BYTES: u64 = 6 << 30;
const QUICK_BYTES: u64 = 256 << 20;
/// Figures.
pub(crate) const HOST_MEMORY: &str = "peak memory of the pushing process";
pub(crate) const GUEST_MEMORY: &str = "peak memory of the guest";

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let sandbox = world.sandbox(&world.local())?;
    let memory = in_memory(world.is_quick);
    let bench = Bench {
        sandbox,
        dir: match &memory {
            Some(dir) => dir.path().canonicalize()?,
            None => world.scratch("push")?,
        },
        is_in_memory: memory.is_some(),
        next: Cell::new(0),
    };
    let files = if world.is_quick { 2_000 } else { 100_000 };
    let project = bench.dir.join("project");
    make_project(&project, files)?;
    peak_reset("self");
    let guest = bench.sandbox.facts()?.pid.to_string();
    peak_reset(&guest);
    bench.first(world, table, FIRST, &project);
    let change = |round: usize| change_ten(&project, files, round);
    bench.again(world, table, AGAIN, &project, 10, &change)?;
    for (name, pid) in [(HOST_MEMORY, "self"), (GUEST_MEMORY, guest.as_str())] {
        match peak_mib(pid) {
            Some(mib) => table.figure(FIRST, name, mib, "MiB"),
            None => table.skip(FIRST, name, "the kernel does not tell"),
        }
    }
    fs::remove_dir_all(&project)?;
    if !world.is_quick {
        make_large(&project)?;
        bench.first(world, table, LARGE, &project);
        let change = |round: usize| change_large(&project, round);
        bench.again(world, table, LARGE_AGAIN, &project, 1, &change)?;
        fs::remove_dir_all(&project)?;
    }
    Ok(())
}

struct Bench {
    sandbox: Sandbox,
    dir: PathBuf,
    is_in_memory: bool,
    next: Cell<u32>,
}

/// A directory in memory with enough room.
pub(crate) fn in_memory(is_quick: bool) -> Option<tempfile::TempDir> {
    let about = rustix::fs::statvfs(MEMORY).ok()?;
    let wanted = if is_quick { QUICK_BYTES } else { FULL_BYTES };
    if about.f_bavail.saturating_mul(about.f_frsize) < wanted {
        return None;
    }
    let name = "glovebox-bench-";
    tempfile::Builder::new()
        .prefix(name)
        .tempdir_in(MEMORY)
        .ok()
}

impl Bench {
    /// A directory that nobody has used yet.
    fn fresh(&self, name: &str) -> PathBuf {
        self.next.set(self.next.get() + 1);
        self.dir.join(format!("{name}{}", self.next.get()))
    }

    fn push(&self, project: &Path, target: &Path, records: &Path) -> Result<PushTotals> {
        let place = SandboxRoot {
            sandbox: &self.sandbox,
            root: target.as_os_str().as_bytes(),
            packing: Packing::Stored,
        };
        let recorded = PushRecords {
            manifest: &records.join("manifest"),
            index: &records.join("index"),
            spool_dir: records,
        };
        let pushed = push(
            &place,
            project,
            &|_, _| false,
            &recorded,
            PushOptions::default(),
            &mut |_| ControlFlow::Continue(()),
        )?;
        Ok(pushed)
    }

    fn first(&self, world: &World, table: &mut Table, group: &str, project: &Path) {
        let by_copy = || {
            let (target, records) = (self.fresh("target"), self.fresh("records"));
            fs::create_dir(&records)?;
            let began = Instant::now();
            let pushed = self.push(project, &target, &records)?;
            let took = began.elapsed();
            ensure!(
                pushed.files > 0 && pushed.conflicts.is_empty(),
                "nothing was pushed"
            );
            fs::remove_dir_all(records)?;
            fs::remove_dir_all(target)?;
            Ok(took)
        };
        let by = |program: &'static str| {
            move || {
                let target = self.fresh("target");
                fs::create_dir(&target)?;
                let took = copy_by(program, project, &target)?;
                fs::remove_dir_all(target)?;
                Ok(took)
            }
        };
        let mut contestants = vec![Contestant::new(COPY, by_copy)];
        for program in rivals(table, group, CP) {
            contestants.push(Contestant::new(program, by(program)));
        }
        let what = if self.is_in_memory {
            "into an empty directory, both in memory"
        } else {
            "into an empty directory, both on the same disk"
        };
        let outcome = race(contestants, FIRST_ROUNDS, world.budget(60));
        table.race(group, what, outcome, &[TAR]);
    }

    /// `change` makes so many changes, other ones in each round.
    fn again(
        &self,
        world: &World,
        table: &mut Table,
        group: &str,
        project: &Path,
        changes: u64,
        change: &dyn Fn(usize) -> Result<()>,
    ) -> Result<()> {
        let records = self.fresh("records");
        fs::create_dir(&records)?;
        let target = self.fresh("target");
        self.push(project, &target, &records)?;
        let round = Cell::new(0_usize);
        let change = || -> Result<()> {
            round.set(round.get() + 1);
            change(round.get())
        };
        let by_copy = || {
            change()?;
            let began = Instant::now();
            let pushed = self.push(project, &target, &records)?;
            ensure!(pushed.files >= changes, "{} files", pushed.files);
            Ok(began.elapsed())
        };
        let by = |program: &'static str, target: PathBuf| {
            move || {
                change()?;
                copy_by(program, project, &target)
            }
        };
        let mut contestants = vec![Contestant::new(COPY, by_copy)];
        for program in rivals(table, group, NEWER) {
            let target = self.fresh("target");
            fs::create_dir(&target)?;
            copy_by(program, project, &target)?;
            contestants.push(Contestant::new(program, by(program, target)));
        }
        let outcome = race(contestants, AGAIN_ROUNDS, world.budget(60));
        table.race(
            group,
            "over what the first push has brought",
            outcome,
            &[TAR],
        );
        Ok(())
    }
}

/// Who is there to be compared with.
pub(crate) fn rivals(table: &mut Table, group: &str, cp: &'static str) -> Vec<&'static str> {
    let mut found = vec![TAR, cp];
    let has_rsync = Command::new("rsync")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if has_rsync {
        found.push(RSYNC);
    } else {
        table.skip(group, RSYNC, "rsync is not installed");
    }
    found
}

pub(crate) fn copy_by(program: &str, project: &Path, target: &Path) -> Result<Duration> {
    let script = match program {
        TAR => "tar -C \"$1\" -cf - . | base64 -w0 | base64 -d | tar -C \"$2\" -xf -",
        CP => "cp -a \"$1/.\" \"$2\"",
        NEWER => "cp -au \"$1/.\" \"$2\"",
        _ => "rsync -a \"$1/\" \"$2\"",
    };
    let began = Instant::now();
    let status = Command::new("sh")
        .args(["-c", script, "sh"])
        .args([project, target])
        .stdin(Stdio::null())
        .status()
        .context("cannot run a shell")?;
    ensure!(status.success(), "{program} failed: {status}");
    Ok(began.elapsed())
}

pub(crate) fn file_path(project: &Path, number: usize) -> PathBuf {
    project.join(format!(
        "dir{}/part{}/file{number}.rs",
        number % 40,
        number % 1000
    ))
}

/// Many small files of a few hundred bytes to a few KiB, a day old.
pub(crate) fn make_project(project: &Path, files: usize) -> Result<()> {
    let line = "let answer = compute(&input, 42).context(\"cannot compute\")?;\n";
    let text = line.repeat(80);
    let day = SystemTime::now() - Duration::from_hours(24);
    for number in 0..files {
        let path = file_path(project, number);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let size = 200 + number * 7919 % 4000;
        fs::write(&path, format!("// {number}\n{}", &text[..size]))?;
        fs::File::options()
            .append(true)
            .open(&path)?
            .set_modified(day)?;
    }
    Ok(())
}

fn change_ten(project: &Path, files: usize, round: usize) -> Result<()> {
    for number in 0..10 {
        let number = (round * 7919 + number * 104_729) % files;
        fs::write(file_path(project, number), format!("round {round}"))?;
    }
    Ok(())
}

/// Changes one of the large files in its middle.
fn change_large(project: &Path, round: usize) -> Result<()> {
    let path = project.join(format!("large{}", round % LARGE_FILES));
    let file = fs::File::options().write(true).open(path)?;
    let change = format!("round {round}");
    Ok(file.write_all_at(change.as_bytes(), LARGE_BYTES as u64 / 2)?)
}

/// Few files with content that does not repeat.
pub(crate) fn make_large(project: &Path) -> Result<()> {
    fs::create_dir_all(project)?;
    let mut state = 1_u64;
    let mut content = vec![0_u8; LARGE_BYTES];
    for number in 0..LARGE_FILES {
        for word in content.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        fs::write(project.join(format!("large{number}")), &content)?;
    }
    Ok(())
}

/// Forgets what a process has used at most so far.
fn peak_reset(pid: &str) {
    // Where the kernel does not allow it, the peak is that of the whole life: too much, never too little.
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

pub(crate) fn peak_mib(pid: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}
