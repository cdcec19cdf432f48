//! What a sandbox costs that does nothing: processes, kernel memory, and the host's share.

use crate::rival;
use crate::table::Table;
use crate::world::World;
use anyhow::{Context as _, Result};
use glovebox_sandbox::{Registry, RegistryConfig, Sandbox};
use rustix::process::{Resource, Rlimit};
use std::fs;
use std::time::{Duration, Instant};

pub(crate) const GROUP: &str = "idle";
/// Descriptors the host process holds per sandbox, with room to spare.
const FDS_EACH: u64 = 12;
const NAMED: usize = 50;

/// Name of the figure that counts everything.
pub(crate) fn total(count: usize) -> String {
    format!("{count} sandboxes: all included, each")
}

/// What the machine says about itself, in KiB.
#[derive(Debug, Clone, Copy)]
struct Memory {
    available: f64,
    unreclaimable: f64,
    reclaimable: f64,
    stacks: f64,
    tables: f64,
    per_cpu: f64,
    shared: f64,
}

impl Memory {
    fn read() -> Result<Self> {
        let text = fs::read_to_string("/proc/meminfo")?;
        let field = |name: &str| -> f64 { kib(&text, name).map_or(0.0, |kib| kib as f64) };
        Ok(Self {
            available: field("MemAvailable"),
            unreclaimable: field("SUnreclaim"),
            reclaimable: field("SReclaimable"),
            stacks: field("KernelStack"),
            tables: field("PageTables"),
            per_cpu: field("Percpu"),
            shared: field("Shmem"),
        })
    }

    /// Kernel memory that cannot be taken back while the sandboxes live. Reclaimable caches are
    /// told apart: they belong to the files, and other processes fill them as well.
    fn kernel(&self) -> f64 {
        self.unreclaimable + self.stacks + self.tables + self.per_cpu + self.shared
    }
}

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let counts: &[usize] = if world.is_quick { &[100] } else { &[100, 1000] };
    for &count in counts {
        match room_for(count) {
            Ok(()) => library(world, table, count)?,
            Err(why) => table.skip(GROUP, format!("{count} sandboxes"), format!("{why:#}")),
        }
    }
    let count = if world.is_quick { 10 } else { NAMED };
    if let Err(error) = named(world, table, count) {
        table.skip(GROUP, "named sandboxes", format!("{error:#}"));
    }
    Ok(())
}

/// Whether limits let this process have so many; raises the soft one where it may.
fn room_for(count: usize) -> Result<()> {
    let needed = count as u64 * FDS_EACH + 100;
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        if limit.maximum.is_some_and(|maximum| maximum < needed) {
            anyhow::bail!(
                "they take {needed} descriptors; `ulimit -n` allows {:?}",
                limit.maximum
            );
        }
        rustix::process::setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(needed),
                maximum: limit.maximum,
            },
        )?;
    }
    let pid_max: u64 = fs::read_to_string("/proc/sys/kernel/pid_max")?
        .trim()
        .parse()?;
    anyhow::ensure!(
        pid_max > count as u64 * 3,
        "there are only {pid_max} process ids"
    );
    let kinds = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
    for kind in kinds {
        let path = format!("/proc/sys/user/max_{kind}_namespaces");
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let max: u64 = text.trim().parse()?;
        anyhow::ensure!(max > count as u64 + 50, "{path} is {max}");
    }
    Ok(())
}

fn library(world: &World, table: &mut Table, count: usize) -> Result<()> {
    let spec = world.spec();
    // The first one brings what all share.
    let first = world.sandbox(&spec)?;
    settle();
    let before = Memory::read()?;
    let host_before = private_kib("self")?;
    let guests_before = pss_of_all(&children("self")?);
    let began = Instant::now();
    let sandboxes: Vec<Sandbox> = (0..count)
        .map(|_| world.sandbox(&spec))
        .collect::<Result<_>>()?;
    let started = began.elapsed();
    settle();
    let after = Memory::read()?;
    let guests = pss_of_all(&children("self")?) - guests_before;
    let host = private_kib("self")? - host_before;
    report(
        table,
        &format!("{count} sandboxes"),
        count,
        before,
        after,
        &[("guest processes", guests), ("host process", host)],
    );
    table.figure(
        GROUP,
        format!("{count} sandboxes: started in, each"),
        started.as_secs_f64() * 1e3 / count as f64,
        "ms",
    );
    let began = Instant::now();
    for sandbox in sandboxes {
        sandbox.destroy()?;
    }
    table.figure(
        GROUP,
        format!("{count} sandboxes: ended in, each"),
        began.elapsed().as_secs_f64() * 1e3 / count as f64,
        "ms",
    );
    first.destroy()?;
    Ok(())
}

fn named(world: &World, table: &mut Table, count: usize) -> Result<()> {
    let registry = Registry::open(RegistryConfig {
        state_dir: world.cli_state()?,
        max_sandboxes: 1200,
        seed_maker: Some(glovebox_workspace::SEED_MAKER),
    })?;
    let name = |index: usize| format!("idle-{index}");
    rival::run_once(world.glovebox()?.args(["start", &name(0)]))?;
    settle();
    let before = Memory::read()?;
    let first = pss_of_named(&registry)?;
    for index in 1..=count {
        rival::run_once(world.glovebox()?.args(["start", &name(index)]))?;
    }
    settle();
    let after = Memory::read()?;
    let (supervisors, guests) = pss_of_named(&registry)?;
    let parts = [
        ("supervisors", supervisors - first.0),
        ("guest processes", guests - first.1),
    ];
    report(
        table,
        &format!("{count} named sandboxes"),
        count,
        before,
        after,
        &parts,
    );
    for index in 0..=count {
        rival::run_once(world.glovebox()?.args(["kill", &name(index)]))?;
    }
    Ok(())
}

fn report(
    table: &mut Table,
    what: &str,
    count: usize,
    before: Memory,
    after: Memory,
    processes: &[(&str, f64)],
) {
    let count_f = count as f64;
    let mut all = 0.0;
    for (name, kib) in processes {
        table.figure(GROUP, format!("{what}: {name}, each"), kib / count_f, "KiB");
        all += kib;
    }
    let kernel = after.kernel() - before.kernel();
    table.figure(
        GROUP,
        format!("{what}: kernel, each"),
        kernel / count_f,
        "KiB",
    );
    table.figure(
        GROUP,
        format!("{what}: all included, each"),
        (all + kernel) / count_f,
        "KiB",
    );
    let caches = after.reclaimable - before.reclaimable;
    table.figure(
        GROUP,
        format!("{what}: reclaimable caches beside that, each"),
        caches / count_f,
        "KiB",
    );
    let available = before.available - after.available;
    table.figure(
        GROUP,
        format!("{what}: less available memory, whoever uses it, each"),
        available / count_f,
        "KiB",
    );
}

/// Time for what the kernel does later.
fn settle() {
    std::thread::sleep(Duration::from_millis(700));
}

/// Supervisors and guests of all sandboxes of a registry, in KiB.
fn pss_of_named(registry: &Registry) -> Result<(f64, f64)> {
    let supervisors: Vec<u32> = registry
        .list()?
        .into_iter()
        .filter_map(|entry| entry.pid)
        .collect();
    let mut guests = Vec::new();
    for supervisor in &supervisors {
        guests.extend(children(&supervisor.to_string())?);
    }
    Ok((pss_of_all(&supervisors), pss_of_all(&guests)))
}

/// Child processes of all threads of a process.
pub(crate) fn children(pid: &str) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let Ok(text) = fs::read_to_string(thread.path().join("children")) else {
            continue;
        };
        found.extend(
            text.split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    Ok(found)
}

/// Proportional share of all of them; shared pages count once over all who share them.
pub(crate) fn pss_of_all(pids: &[u32]) -> f64 {
    pids.iter()
        .filter_map(|pid| {
            kib(
                &fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?,
                "Pss",
            )
        })
        .sum::<u64>() as f64
}

fn private_kib(pid: &str) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let sum = ["Private_Clean", "Private_Dirty"]
        .iter()
        .filter_map(|name| kib(&text, name))
        .sum::<u64>();
    Ok(sum as f64)
}

/// A field of `/proc/PID/status`, in KiB.
pub(crate) fn status_kib(pid: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    kib(&text, name).with_context(|| format!("/proc/{pid}/status has no {name}"))
}

fn kib(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found == name).then(|| value.trim().trim_end_matches("kB").trim().parse().ok())?
    })
}
