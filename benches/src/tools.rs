//! The agent's tools through their whole layer: beside the same tool without walls, beside `bash -c` in the
//! same sandbox, and searches of a large tree beside `rg`.

use crate::parallel::at_once;
use crate::race::{Contestant, race};
use crate::rival;
use crate::table::Table;
use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use glovebox_proto::Exec;
use glovebox_spec::Layers;
use glovebox_tools::ToolSession;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The tool through the layer, in a sandbox.
pub(crate) const TOOL: &str = "the tool, native";
/// The same with the layers of files in memory: what of it is the disk's.
const MEMORY: &str = "the tool, native, layers in memory";
/// The tool through the layer, without walls.
pub(crate) const LOCAL: &str = "the tool, local placement";
/// What one would type instead, in a sandbox of its own: what a guest does after a command, and files that
/// are still on their way to the disk, are not to hit whoever comes next.
const TYPED: &str = "`bash -c` in a sandbox";
/// The program everybody knows.
pub(crate) const RG: &str = "rg";
/// Files of the large tree.
const TREE_FILES: usize = 100_000;
/// Searches of it.
pub(crate) const GREP: &str = "Grep in 100k files";
const GLOB: &str = "Glob in 100k files";

static NEVER: AtomicBool = AtomicBool::new(false);

/// The tools that the promise is about, each with its arguments and what one would type instead.
pub(crate) const FILE_TOOLS: [&str; 5] = ["Read", "Write", "Edit", "List", "Grep"];

/// Name of the race of one tool.
pub(crate) fn group(tool: &str) -> String {
    format!("{tool}, 4 KiB file")
}

fn arguments(tool: &str) -> (Value, &'static str) {
    match tool {
        "Read" => (json!({ "path": "dir/small" }), "cat -n dir/small"),
        "Write" => (
            json!({ "path": "dir/out", "content": "line of text\n".repeat(315), "overwrite": true }),
            "head -c 4096 dir/small > dir/.out && mv dir/.out dir/out",
        ),
        // Every edit makes the next one possible.
        "Edit" => (
            json!({ "path": "dir/edit", "edits": [
                { "old": "first word", "new": "second word\nmore" },
                { "old": "second word\nmore", "new": "first word" },
            ] }),
            "sed -i 's/first word/second word/; s/second word/first word/' dir/edit",
        ),
        "List" => (json!({ "path": "dir" }), "ls -la dir"),
        _ => (
            json!({ "pattern": "first", "path": "dir/small" }),
            "grep -n first dir/small",
        ),
    }
}

fn call(tools: &ToolSession, tool: &str, arguments: &Value) -> Result<()> {
    let outcome = tools.call(tool, arguments.clone(), &NEVER)?;
    ensure!(!outcome.is_error, "{}", outcome.text);
    Ok(())
}

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let dir = world.workspace.join("dir");
    fs::create_dir_all(&dir)?;
    let small = format!("first word\n{}", "a line of the file\n".repeat(215));
    for name in ["small", "edit"] {
        fs::write(dir.join(name), &small)?;
    }
    let native = ToolSession::new(Arc::new(world.sandbox(&world.unlimited())?));
    let in_memory = World::with_layers(world.unlimited(), Layers::Memory);
    let memory = ToolSession::new(Arc::new(world.sandbox(&in_memory)?));
    let local = ToolSession::new(Arc::new(world.sandbox(&world.local())?));
    let other = world.sandbox(&world.unlimited())?;
    for tool in FILE_TOOLS {
        let (arguments, line) = arguments(tool);
        let contestants = vec![
            Contestant::whole(TOOL, || call(&native, tool, &arguments)),
            Contestant::whole(MEMORY, || call(&memory, tool, &arguments)),
            Contestant::whole(LOCAL, || call(&local, tool, &arguments)),
        ];
        let outcome = race(contestants, world.rounds(400), world.budget(4));
        table.race(&group(tool), "through the whole layer", outcome, &[LOCAL]);
        // A race of its own: processes that start in between leave caches and processors cold.
        let contestants = vec![
            Contestant::whole(TOOL, || call(&native, tool, &arguments)),
            Contestant::whole(TYPED, || {
                other.exec(Exec::new(["bash", "-c", line]))?;
                Ok(())
            }),
        ];
        let outcome = race(contestants, world.rounds(200), world.budget(4));
        table.race(
            &format!("{}, or typed", group(tool)),
            "a call after a command elsewhere",
            outcome,
            &[TYPED],
        );
    }
    let echo = json!({ "command": "echo hi" });
    let contestants = vec![
        Contestant::whole(TOOL, || call(&native, "Bash", &echo)),
        Contestant::whole(LOCAL, || call(&local, "Bash", &echo)),
        Contestant::whole(TYPED, || {
            other.exec(Exec::new(["bash", "-c", "echo hi"]))?;
            Ok(())
        }),
    ];
    let outcome = race(contestants, world.rounds(200), world.budget(6));
    table.race(
        "Bash, `echo hi`",
        "through the whole layer",
        outcome,
        &[LOCAL, TYPED],
    );

    let (read, _) = arguments("Read");
    for count in [10, 50, 200] {
        let contestants = vec![
            Contestant::whole(TOOL, || at_once(count, || call(&native, "Read", &read))),
            Contestant::whole(LOCAL, || at_once(count, || call(&local, "Read", &read))),
        ];
        let outcome = race(contestants, world.rounds(40), world.budget(4));
        table.race(
            &format!("{count} calls of Read at once"),
            "threads included, until all have their answer",
            outcome,
            &[LOCAL],
        );
    }
    search(world, table)
}

/// A tree of many small files, and searches through all of it.
fn search(world: &World, table: &mut Table) -> Result<()> {
    let tree = world.workspace.join("tree");
    for index in 0..TREE_FILES {
        let dir = tree.join(format!("d{:03}", index / 500));
        if index % 500 == 0 {
            fs::create_dir_all(&dir)?;
        }
        let kind = if index % 10 == 0 { "rs" } else { "txt" };
        let needle = if index % 1000 == 7 {
            "needle here\n"
        } else {
            ""
        };
        let content = format!("{}{needle}", "some words on a line of text\n".repeat(20));
        fs::write(dir.join(format!("f{index:06}.{kind}")), content)?;
    }
    let native = ToolSession::new(Arc::new(world.sandbox(&world.unlimited())?));
    let local = ToolSession::new(Arc::new(world.sandbox(&world.local())?));
    let rg = rival::find("rg");
    if let Err(error) = &rg {
        table.skip(GREP, RG, format!("{error:#}"));
    }
    let rg = rg.ok();
    for (group, tool, arguments, words) in [
        (
            GREP,
            "Grep",
            json!({ "pattern": "needle h\\w+", "path": "tree" }),
            &["-n", "--hidden", "needle h\\w+"][..],
        ),
        (
            GLOB,
            "Glob",
            json!({ "pattern": "*.rs", "path": "tree" }),
            &["--files", "--hidden", "-g", "*.rs"],
        ),
    ] {
        let mut contestants = vec![
            Contestant::whole(TOOL, || call(&native, tool, &arguments)),
            Contestant::whole(LOCAL, || call(&local, tool, &arguments)),
        ];
        if let Some(rg) = &rg {
            contestants.push(Contestant::whole(RG, || ripgrep(rg, words, &tree)));
        }
        let outcome = race(contestants, world.rounds(15), world.budget(20));
        table.race(group, "everything in the page cache", outcome, &[RG, LOCAL]);
    }
    fs::remove_dir_all(&tree)?;
    Ok(())
}

fn ripgrep(rg: &Path, words: &[&str], tree: &Path) -> Result<()> {
    let output = Command::new(rg).args(words).arg(tree).output();
    let output = output.context("cannot run rg")?;
    ensure!(
        output.status.success() && !output.stdout.is_empty(),
        "{output:?}"
    );
    Ok(())
}
