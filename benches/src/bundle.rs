//! Agents and tools of bundles: how long one call of a tool takes, beside what platforms use in its place; how long a
//! bundle takes to be read; what honest calls feel of bombs beside them; what waits for calls costs; and whether any of
//! that grows while calls go on.
//!
//! Each call of the runner has a process and a JavaScript runtime of its own. `isolated-vm` and `vm2` run within one
//! process that lives, so they are faster and protect less; they are here so that the difference has a number.

mod rivals;
mod server;

use crate::idle::{children, pss_of_all, status_kib};
use crate::parallel::at_once;
use crate::race::{Contestant, Sample, race};
use crate::table::Table;
use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use glovebox_bundle::{ConfinedExtractor, EXTRACT_COMMAND, ExtractLimits, Language};
use glovebox_js::tool_call::CallLimits;
use glovebox_runner::{
    CallFailure, CallReport, Engine, FailureKind, RunnerConfig, ToolRequest, ToolRunner,
};
use glovebox_sandbox::{Registry, RegistryConfig};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) const CALL: &str = "one call of a bundle's tool";
/// Over HTTP, as programs call.
pub(crate) const HTTP: &str = "`POST /api/tool`, one connection";
/// By library, where a sandbox of the tenant waits.
pub(crate) const RUNNER: &str = "runner, warm";
/// What a call costs where each has a process of Node.
pub(crate) const NODE: &str = "node, a process for each call";
pub(crate) const EXTRACTION: &str = "a bundle read";
pub(crate) const BOMBS: &str = "64 calls at once, half of them bombs";
pub(crate) const POOL: &str = "waiting for calls";
pub(crate) const STEADY: &str = "200 calls a second";
/// Figures of those groups.
pub(crate) const RESERVE: &str = "a sandbox in reserve";
pub(crate) const RATE: &str = "calls a second";
pub(crate) const GROWTH: &str = "memory of the host process more at the end";

/// What a tool in the middle of the road does.
const TOOL: &str = "export default async ({ words }) => ({ count: words.length, longest: words.reduce((a, b) => (a.length >= b.length ? a : b), '') });";
const BOMB: &str =
    "export default () => { const all = []; for (;;) all.push({ all: 'x'.repeat(1000) }); };";
/// Sizes of the bundles that are read, in KB.
pub(crate) const SIZES_KB: [usize; 2] = [60, 760];
/// At once, half of them bombs.
const CALLS: usize = 64;

static NEVER: AtomicBool = AtomicBool::new(false);

/// Name of a bundle of so many KB, as a contestant.
pub(crate) fn of_size(kb: usize) -> &'static str {
    match kb {
        60 => "60 KB, in a process of its own",
        _ => "760 KB, in a process of its own",
    }
}

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let runner = Runner::new(world)?;
    calls(world, table, &runner)?;
    extraction(world, table);
    bombs(world, table, &runner);
    pool(world, table)?;
    steady(world, table, &runner)
}

/// A runner with a registry of its own.
struct Runner(ToolRunner);

impl Runner {
    fn new(world: &World) -> Result<Self> {
        let registry = Registry::open(RegistryConfig {
            state_dir: world.scratch("tool-state")?,
            max_sandboxes: 64,
            seed_maker: Some(glovebox_workspace::SEED_MAKER),
        })?;
        Ok(Self(ToolRunner::new(
            Arc::new(registry),
            RunnerConfig::default(),
        )?))
    }

    fn call(
        &self,
        tenant: &str,
        engine: Engine,
        code: &str,
        limits: CallLimits,
    ) -> Result<CallReport, CallFailure> {
        let request = ToolRequest {
            tenant,
            tool: "tool",
            session: None,
            engine,
            code,
            input: &input(),
            context: &json!({}),
            call_id: "call-1",
            limits,
            fixed: None,
        };
        self.0.call(&request, &NEVER)
    }

    /// A call whose result is right.
    fn honest(&self, tenant: &str, engine: Engine) -> Result<()> {
        let report = self
            .call(tenant, engine, TOOL, CallLimits::default())
            .map_err(|failure| anyhow::anyhow!("{}: {}", failure.kind, failure.message))?;
        check(&report.value)
    }
}

fn input() -> Value {
    json!({ "words": ["one", "three", "seventeen", "two"] })
}

/// What is written wrong is not fast.
fn check(result: &Value) -> Result<()> {
    ensure!(
        *result == json!({ "count": 4, "longest": "seventeen" }),
        "{result}"
    );
    Ok(())
}

fn calls(world: &World, table: &mut Table, runner: &Runner) -> Result<()> {
    // The first call of a tenant finds a sandbox in reserve, or makes one.
    runner.0.prepare()?;
    let begun = Instant::now();
    runner.honest("first", Engine::Quickjs)?;
    table.figure(
        CALL,
        "the first of a tenant, with a sandbox in reserve",
        begun.elapsed().as_secs_f64() * 1e3,
        "ms",
    );
    let mut contestants = vec![
        Contestant::whole(RUNNER, || runner.honest("warm", Engine::Quickjs)),
        Contestant::whole("runner, engine `node`: a sandbox for each call", || {
            runner.honest("warm", Engine::Node)
        }),
    ];
    match server::Client::start(world, TOOL) {
        Ok(mut client) => contestants.push(Contestant::whole(HTTP, move || {
            check(&client.call(&input())?)
        })),
        Err(error) => table.skip(CALL, HTTP, format!("{error:#}")),
    }
    match rivals::node() {
        Ok(node) => contestants.push(Contestant::whole(NODE, move || {
            check(&rivals::process(&node, TOOL, &input())?)
        })),
        Err(error) => table.skip(CALL, NODE, format!("{error:#}")),
    }
    for (name, package, driver) in rivals::WITHIN {
        match rivals::Living::start(package, driver) {
            Ok(mut living) => contestants.push(Contestant::whole(name, move || {
                check(&living.call(TOOL, &input())?)
            })),
            Err(error) => table.skip(CALL, name, format!("{error:#}")),
        }
    }
    let outcome = race(contestants, world.rounds(400), world.budget(60));
    table.race(CALL, "a runtime of its own each time", outcome, &[NODE]);
    Ok(())
}

/// A bundle of about so many bytes, with agents, tools, schemas and helpers as bundlers write them.
fn bundle_of(bytes: usize) -> String {
    let mut text = String::from(
        "import { createLightfast } from \"lightfast/client\";\nimport { createAgent } from \"lightfast/agent\";\n\
         import { createTool } from \"lightfast/tool\";\nimport { gateway } from \"@ai-sdk/gateway\";\nimport { z } from \"zod\";\n",
    );
    let mut count = 0;
    // Most of a real bundle is code of packages that no tool needs.
    while text.len() < bytes {
        let _ = write!(
            text,
            "var TABLE{count} = {{ base: {count}, names: [\"a\", \"b\", `c{count}`], nested: {{ limit: {count} + 1 }} }};\n\
             function helper{count}(input, options = {{}}) {{\n  let out = [];\n  for (const item of input.words ?? []) {{\n\
             \x20   if (item.length > TABLE{count}.nested.limit && options.strict !== false) out.push(item.toUpperCase());\n\
             \x20   else out.unshift({{ item, at: out.length, of: TABLE{count}.names.map((name) => name + item) }});\n  }}\n\
             \x20 return out.filter(Boolean);\n}}\n",
        );
        if count % 40 == 0 {
            let _ = write!(
                text,
                "var tool{count} = createTool({{\n  description: \"Finds words, number {count}\",\n  inputSchema: z.object({{ \
                 words: z.array(z.string().min(1)).max(50).describe(\"words\"), limit: z.number().int().default({count}) }}),\n  \
                 execute: async (input) => helper{count}(input, {{ strict: input.limit > {count} }}),\n}});\n",
            );
        }
        count += 1;
    }
    let tools: Vec<String> = (0..count)
        .step_by(40)
        .take(100)
        .map(|n| format!("tool{n}"))
        .collect();
    let _ = writeln!(
        text,
        "export default createLightfast({{ agents: {{ assistant: createAgent({{ name: \"assistant\", system: \"You are helpful\", \
         model: gateway(\"gpt-4\"), tools: {{ {} }} }}) }} }});",
        tools.join(", ")
    );
    text
}

fn extraction(world: &World, table: &mut Table) {
    let program = match world.glovebox() {
        Ok(command) => command.get_program().to_owned(),
        Err(error) => {
            table.skip(EXTRACTION, "all", format!("{error:#}"));
            return;
        }
    };
    let extractor =
        ConfinedExtractor::new([program, EXTRACT_COMMAND.into()], ExtractLimits::default());
    let bundles = SIZES_KB.map(|kb| (kb, bundle_of(kb * 1000)));
    let contestants = bundles.iter().map(|(kb, text)| {
        let extractor = &extractor;
        Contestant::whole(of_size(*kb), move || {
            let read = extractor.extract(text.as_bytes(), Language::JavaScript.into())?;
            let first = read.errors().next();
            ensure!(first.is_none(), "{first:?}");
            ensure!(read.bundle.agents.len() == 1 && !read.bundle.agents[0].tools.is_empty());
            Ok(())
        })
    });
    let outcome = race(contestants.collect(), world.rounds(100), world.budget(20));
    table.race(
        EXTRACTION,
        "as a server reads what is uploaded",
        outcome,
        &[],
    );
}

/// Honest calls alone, and beside as many that take all the memory they may have.
fn bombs(world: &World, table: &mut Table, runner: &Runner) {
    for (what, has_bombs) in [
        ("honest calls alone", false),
        ("honest calls beside bombs", true),
    ] {
        let taken = Mutex::new(Vec::new());
        let mut failed = None;
        for _ in 0..world.rounds(16).min(16) {
            let number = AtomicUsize::new(0);
            let result = at_once(if has_bombs { CALLS } else { CALLS / 2 }, || {
                let is_bomb = has_bombs && number.fetch_add(1, Ordering::Relaxed) % 2 == 1;
                let begun = Instant::now();
                if !is_bomb {
                    runner.honest("honest", Engine::Quickjs)?;
                    let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
                    taken.push(begun.elapsed());
                    return Ok(());
                }
                let limits = CallLimits {
                    memory_bytes: 24 << 20,
                    wall_ms: 5000,
                    ..CallLimits::default()
                };
                let failure = runner.call("bombs", Engine::Quickjs, BOMB, limits).err();
                let kind = failure.context("a bomb came to a result")?.kind;
                ensure!(
                    matches!(
                        kind,
                        FailureKind::Memory | FailureKind::Timeout | FailureKind::Busy
                    ),
                    "{kind}"
                );
                Ok(())
            });
            failed = failed.or_else(|| result.err());
        }
        let taken = taken.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = failed {
            table.skip(BOMBS, what, format!("{error:#}"));
            continue;
        }
        let sample = Sample::of(what, &taken);
        table.figure(BOMBS, format!("{what}: p50"), sample.p50_us / 1e3, "ms");
        table.figure(BOMBS, bombs_p95(has_bombs), sample.p95_us / 1e3, "ms");
    }
}

/// Name of the figure that says how long all but a few honest calls took.
pub(crate) const fn bombs_p95(has_bombs: bool) -> &'static str {
    if has_bombs {
        "honest calls beside bombs: p95"
    } else {
        "honest calls alone: p95"
    }
}

/// What there is before anybody calls.
fn pool(world: &World, table: &mut Table) -> Result<()> {
    let before = (pss_of_all(&children("self")?), status_kib("self", "VmRSS")?);
    let begun = Instant::now();
    let runner = Runner::new(world)?;
    runner.0.prepare()?;
    table.figure(
        POOL,
        format!("{RESERVE}: made in"),
        begun.elapsed().as_secs_f64() * 1e3,
        "ms",
    );
    let mut guests = Vec::new();
    for child in children("self")? {
        guests.push(child);
        guests.extend(children(&child.to_string())?);
    }
    let processes = pss_of_all(&guests) - before.0;
    let host = status_kib("self", "VmRSS")?.saturating_sub(before.1);
    table.figure(POOL, format!("{RESERVE}: its processes"), processes, "KiB");
    table.figure(
        POOL,
        format!("{RESERVE}: the host process more"),
        host as f64,
        "KiB",
    );
    table.figure(POOL, reserve_total(), processes + host as f64, "KiB");
    Ok(())
}

/// Name of the figure that counts everything.
pub(crate) fn reserve_total() -> String {
    format!("{RESERVE}: all included")
}

/// So many calls for a while: whether they keep up, and what is left of them.
fn steady(world: &World, table: &mut Table, runner: &Runner) -> Result<()> {
    const PER_SECOND: u32 = 200;
    const THREADS: u32 = 4;
    let lasts = Duration::from_secs(if world.is_quick { 3 } else { 60 });
    // What grows once has grown.
    at_once(THREADS as usize, || {
        (0..20).try_for_each(|_| runner.honest("steady", Engine::Quickjs))
    })?;
    let before = status_kib("self", "VmRSS")?;
    let processes = || -> Result<usize> { Ok(children("self")?.len()) };
    let processes_before = processes()?;
    let made = AtomicUsize::new(0);
    let begun = Instant::now();
    at_once(THREADS as usize, || {
        let mut next = begun;
        while begun.elapsed() < lasts {
            runner.honest("steady", Engine::Quickjs)?;
            made.fetch_add(1, Ordering::Relaxed);
            next += Duration::from_secs(1) / (PER_SECOND / THREADS);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    })?;
    let rate = made.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    let growth = status_kib("self", "VmRSS")?.saturating_sub(before);
    table.figure(STEADY, RATE, rate, "a second");
    table.figure(STEADY, between_calls(), 1e6 / rate, "us");
    table.figure(STEADY, GROWTH, growth as f64, "KiB");
    table.figure(
        STEADY,
        "processes more at the end",
        processes()?.saturating_sub(processes_before) as f64,
        "",
    );
    Ok(())
}

/// Name of the figure that says how far calls were apart.
pub(crate) const fn between_calls() -> &'static str {
    "time from call to call"
}
