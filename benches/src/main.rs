//! What Glovebox costs, measured beside what a user would otherwise use, in one run.
//!
//! In: a few flags. Out: a table for people, a JSON file for programs, and one line per promise of
//! `SPECIFICATION.md` that says whether it holds here.
//!
//! Machines are noisy and differ. So no bound is a bare time where a ratio can be had: contestants
//! take turns in random order within one loop, so that whatever else the machine does hits all of
//! them alike, and medians are compared. These are measurements, not tests: only a bench that
//! cannot run at all fails, and with `--check` a promise that is broken.

#![expect(clippy::print_stdout, reason = "a table is what this program is for")]

mod bundle;
mod checkpoint;
mod document;
mod egress;
mod exec;
mod files;
mod filter;
mod http;
mod idle;
mod mcp;
mod output;
mod parallel;
mod promise;
mod pull;
mod push;
mod race;
mod rival;
mod running;
mod serve;
mod start;
mod streams;
mod table;
mod timer;
mod tools;
mod turn;
mod verdict;
mod whole;
mod world;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use std::path::PathBuf;
use std::time::Instant;
use table::Table;
use verdict::Standing;
use world::World;

/// Measure Glovebox beside direct processes, bubblewrap and crun.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Options {
    /// Fewer rounds: about half a minute in all
    #[arg(long)]
    quick: bool,
    /// Only these benches: start, whole, exec, files, push, pull, tools, turn, mcp, output, streams, idle, parallel, filter, checkpoint, egress, bundle, serve
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// The `glovebox` program (default: $GLOVEBOX_TEST_BIN, or the one beside this program)
    #[arg(long, value_name = "PATH")]
    glovebox: Option<PathBuf>,
    /// Fail when a promise is missed by more than noise, or is not measured though its bench ran
    #[arg(long, conflicts_with = "quick")]
    check: bool,
    /// Store the results in the checkout at this path too, and make its documents from them
    #[arg(long, value_name = "CHECKOUT", conflicts_with_all = ["quick", "only"])]
    publish: Option<PathBuf>,
    /// Where the results go
    #[arg(default_value = "target/bench/results.json")]
    json: PathBuf,
}

type Bench = fn(&World, &mut Table) -> Result<()>;

const BENCHES: [(&str, Bench); 18] = [
    ("start", start::run),
    ("whole", whole::run),
    ("exec", exec::run),
    ("files", files::run),
    ("push", push::run),
    ("pull", pull::run),
    ("tools", tools::run),
    ("turn", turn::run),
    ("mcp", mcp::run),
    ("output", output::run),
    ("streams", streams::run),
    ("parallel", parallel::run),
    ("filter", filter::run),
    ("checkpoint", checkpoint::run),
    ("egress", egress::run),
    ("bundle", bundle::run),
    ("serve", serve::run),
    // Last: a thousand sandboxes leave the kernel with caches that would be in the others' way.
    ("idle", idle::run),
];

fn main() -> Result<()> {
    if let Some(request) = timer::wanted() {
        return timer::serve(&request);
    }
    let options = Options::parse();
    if let Some(unknown) = options
        .only
        .iter()
        .find(|name| BENCHES.iter().all(|(known, _)| known != name))
    {
        let known: Vec<_> = BENCHES.iter().map(|(name, _)| *name).collect();
        bail!(
            "there is no bench `{unknown}`; there are {}",
            known.join(", ")
        );
    }
    let dir = options
        .json
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .map_or_else(|| PathBuf::from("."), PathBuf::from);
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let began = Instant::now();
    let world = World::new(&dir, options.quick, options.glovebox)?;
    let mut table = Table::new(options.quick);
    for (name, bench) in BENCHES {
        if !options.only.is_empty() && !options.only.iter().any(|wanted| wanted == name) {
            continue;
        }
        eprint_progress(name);
        bench(&world, &mut table).with_context(|| format!("the bench `{name}` cannot run"))?;
    }
    table.judge(promise::judge(&table));
    println!("{table}");
    println!("took {:.0} s", began.elapsed().as_secs_f64());
    let json = serde_json::to_vec_pretty(&table)?;
    std::fs::write(&options.json, json)
        .with_context(|| format!("cannot write {}", options.json.display()))?;
    println!("stored in {}", options.json.display());
    if let Some(root) = &options.publish {
        document::publish(&table, root)?;
        println!("published in {}", root.display());
    }
    if options.check {
        check(&table, &options.only)?;
    }
    Ok(())
}

/// Fails for promises of the benches that ran which are broken or have no number.
fn check(table: &Table, only: &[String]) -> Result<()> {
    let broken: Vec<String> = table
        .promises
        .iter()
        .filter(|verdict| only.is_empty() || only.contains(&verdict.bench))
        .filter(|verdict| verdict.standing == Standing::Promise)
        .filter(|verdict| verdict.is_broken() || verdict.ratio().is_none())
        .map(|verdict| format!("\n  {verdict}"))
        .collect();
    if broken.is_empty() {
        return Ok(());
    }
    bail!(
        "{} of the promises in SPECIFICATION.md do not hold here:{}",
        broken.len(),
        broken.concat()
    )
}

#[expect(clippy::print_stderr, reason = "progress is not part of the results")]
fn eprint_progress(name: &str) {
    eprintln!("... {name}");
}
