//! What the system-call filter and the namespaces cost a running command: a loop of the cheapest
//! system call, inside and outside.

use crate::race::{Contestant, race};
use crate::rival;
use crate::table::Table;
use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use glovebox_proto::{Exec, Exit};
use glovebox_sandbox::Sandbox;
use std::process::{Command, Stdio};
use std::time::Duration;

const GROUP: &str = "system calls";
const CALLS: u32 = 200_000;
const OUTSIDE: &str = "outside";

/// Prints nanoseconds for `CALLS` calls of getppid(2).
const C_LOOP: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 1;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (long i = 0; i < count; i++) syscall(SYS_getppid);
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%ld\n", (b.tv_sec - a.tv_sec) * 1000000000L + (b.tv_nsec - a.tv_nsec));
    return 0;
}
"#;

/// The same in Perl, whose own share is large.
const PERL_LOOP: &str = "use Time::HiRes 'clock_gettime'; my $a = clock_gettime(1); \
     for (1..$ARGV[0]) { getppid } printf \"%d\\n\", (clock_gettime(1) - $a) * 1e9";

pub(crate) fn run(world: &World, table: &mut Table) -> Result<()> {
    let (argv, how) = match compiled(world) {
        Ok(argv) => (argv, "in C"),
        Err(_) => match rival::find("perl") {
            Ok(perl) => {
                let words = [
                    perl.display().to_string(),
                    "-e".to_owned(),
                    PERL_LOOP.to_owned(),
                ];
                (words.to_vec(), "in Perl")
            }
            Err(error) => {
                table.skip(
                    GROUP,
                    "the loop",
                    format!("neither gcc nor perl: {error:#}"),
                );
                return Ok(());
            }
        },
    };
    let mut outside: Vec<String> = argv.clone();
    outside.push(CALLS.to_string());
    let mut inside = outside.clone();
    if how == "in C" {
        "/workspace/calls".clone_into(&mut inside[0]);
    }
    let native = world.sandbox(&world.unlimited())?;
    let contestants = vec![
        Contestant::new(OUTSIDE, || {
            let output = Command::new(&outside[0])
                .args(&outside[1..])
                .stdin(Stdio::null())
                .output()?;
            ensure!(output.status.success(), "{}", output.status);
            whole_loop(&output.stdout)
        }),
        Contestant::new("inside, filtered", || filtered(&native, &inside)),
    ];
    let outcome = race(contestants, world.rounds(60), world.budget(6));
    for sample in &outcome.samples {
        table.figure(
            GROUP,
            format!("one getppid {how}, {}", sample.contestant),
            sample.p50_us * 1e3 / f64::from(CALLS),
            "ns",
        );
    }
    table.race(
        GROUP,
        &format!("{CALLS} of getppid, {how}"),
        outcome,
        &[OUTSIDE],
    );
    Ok(())
}

fn filtered(sandbox: &Sandbox, argv: &[String]) -> Result<Duration> {
    let output = sandbox.exec(Exec::new(argv.iter().map(String::as_str)))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.report.exit == Exit::Code(0),
        "{:?}: {said}",
        output.report.exit
    );
    whole_loop(&output.stdout)
}

fn whole_loop(stdout: &[u8]) -> Result<Duration> {
    let text = String::from_utf8_lossy(stdout);
    let nanos: u64 = text
        .trim()
        .parse()
        .with_context(|| format!("not a number: {text}"))?;
    Ok(Duration::from_nanos(nanos))
}

fn compiled(world: &World) -> Result<Vec<String>> {
    let gcc = rival::find("gcc").or_else(|_| rival::find("cc"))?;
    let source = world.scratch("filter")?.join("calls.c");
    std::fs::write(&source, C_LOOP)?;
    let target = world.workspace.join("calls");
    rival::run_once(
        rival::quiet(&gcc)
            .args(["-O2", "-o"])
            .arg(&target)
            .arg(&source),
    )?;
    Ok(vec![target.display().to_string()])
}
