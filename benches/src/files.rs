//! Reading and writing files through the guest, beside doing it directly.

use crate::race::{Contestant, race};
use crate::table::Table;
use crate::world::World;
use anyhow::{Result, ensure};
use glovebox_proto::WriteMode;
use glovebox_sandbox::Sandbox;
use std::fs;
use std::path::Path;

/// Bytes.
pub(crate) const SMALL: usize = 4 << 10;
const MIDDLE: usize = 1 << 20;
/// Bytes.
pub(crate) const LARGE: usize = 100 << 20;
/// The contestant the promises are about.
pub(crate) const NATIVE: &str = "glovebox, native";
/// The guest without walls, as an ordinary process.
pub(crate) const LOCAL: &str = "glovebox, local placement";
/// No guest at all.
pub(crate) const DIRECT: &str = "direct file I/O";

/// Name of the race for one direction and size.
pub(crate) fn group(verb: &str, size: usize) -> String {
    match size {
        LARGE => format!("{verb} 100 MiB"),
        MIDDLE => format!("{verb} 1 MiB"),
        _ => format!("{verb} 4 KiB"),
    }
}

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let native = world.sandbox(&world.unlimited())?;
    let local = world.sandbox(&world.local())?;
    let here = world.scratch("files")?;
    for (size, rounds) in [(SMALL, 1000), (MIDDLE, 200), (LARGE, 12)] {
        let content: Vec<u8> = (0..size).map(|index| (index / 7) as u8).collect();
        let name = format!("bench-{size}");
        let shared = world.workspace.join(&name);
        fs::write(&shared, &content)?;
        let contestants = vec![
            Contestant::whole(NATIVE, || read(&native, &name, size)),
            Contestant::whole(LOCAL, || read(&local, &name, size)),
            Contestant::whole(DIRECT, || {
                ensure!(fs::read(&shared)?.len() == size, "short file");
                Ok(())
            }),
        ];
        let outcome = race(contestants, world.rounds(rounds), world.budget(6));
        table.race(
            &group("read", size),
            "a file of the workspace, as a whole",
            outcome,
            &[DIRECT, LOCAL],
        );

        let target = format!("out-{size}");
        let contestants = vec![
            Contestant::whole(NATIVE, || write(&native, &target, &content)),
            Contestant::whole(LOCAL, || write(&local, &target, &content)),
            Contestant::whole(DIRECT, || replace(&here, &target, &content)),
        ];
        let outcome = race(contestants, world.rounds(rounds), world.budget(8));
        table.race(
            &group("write", size),
            "a new file beside it, renamed over it",
            outcome,
            &[DIRECT, LOCAL],
        );
        fs::remove_file(&shared)?;
        // Written by the guest that has no walls, so in the real workspace.
        fs::remove_file(world.workspace.join(&target))?;
    }
    Ok(())
}

fn read(sandbox: &Sandbox, name: &str, size: usize) -> Result<()> {
    let content = sandbox.read_file(name.as_bytes(), 1 << 30)?;
    ensure!(
        content.len() == size,
        "{} bytes instead of {size}",
        content.len()
    );
    Ok(())
}

fn write(sandbox: &Sandbox, name: &str, content: &[u8]) -> Result<()> {
    sandbox.write_file(name.as_bytes(), WriteMode::Replace, content)?;
    Ok(())
}

/// What the guest does, without the guest.
fn replace(dir: &Path, name: &str, content: &[u8]) -> Result<()> {
    let fresh = dir.join(format!("{name}.new"));
    fs::write(&fresh, content)?;
    fs::rename(&fresh, dir.join(name))?;
    Ok(())
}
