//! `cargo xtask test`: everything that a change must pass.
//!
//! 1. Install what is missing (as root on Debian or Ubuntu; otherwise print what is missing).
//! 2. Build the binary, then all tests; download meanwhile what the tests use.
//! 3. Run all tests as the current user, with the examples in the documentation. Suites of a
//!    backend that does not start on this machine are skipped with a line each.
//! 4. As root: run the suites under `tests/` again as an ordinary user that is made for it, from
//!    prebuilt copies. Parts of them take turns (`share`).
//! 5. Without a filter: check the web interface and try it in Chromium.
//! 6. In CI: formatting, lints and licences, with the processor time that the tests leave. A
//!    skipped test is a failure there.
//!
//! A failure does not stop the run, so that one run shows everything that is wrong. At the end it
//! lists each skipped test with its reason, each test that passed only when it was repeated, and
//! the time of each stage.

mod backends;
mod background;
mod examples;
mod program;
mod share;
mod timing;
mod user;

use crate::step::{self, cargo, is_ci, is_root, say, target_dir};
use crate::{check, clients, kernel, musl, packages, projects, web};
use anyhow::{Context, Result, bail};
use backends::{Runnable, StartableBackends};
use clap::Args;
use program::{Program, Tally, programs};
use share::Turn;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use timing::{Stage, Timing};
use user::OrdinaryUser;

/// Suites that try both users themselves, or do not depend on the user.
const BOTH_ALREADY: [&str; 8] = [
    "flow",
    "agent",
    "mcp",
    "serve",
    "kernel",
    "architecture",
    "lies",
    "fuzzing",
];
/// Feature of the tested program. Users get it without traces; linking a second program without
/// them would take minutes. The lints check that it compiles without traces.
const FEATURES: &str = "--features=glovebox/otlp";
/// Number of tests of a program that run at once for each core. Most tests wait for processes and
/// deadlines.
const TESTS_PER_CORE: usize = 2;
/// Variable of the test harness that overrides this number (`cargo test`).
const TEST_THREADS: &str = "RUST_TEST_THREADS";
/// Suites with one test for each core at a time. They compute all the time, or use foreign programs
/// that give up when a reply is late.
const ONE_PER_CORE: [&str; 4] = ["kernel", "fuzzing", "faults", "mcp"];
/// Suites that run after all others: an emulated machine is slow and must not share the processors.
const LAST: [&str; 1] = ["kernel"];
/// Variable with the directory in which tests share results that are the same for all (`testkit`).
const BASES: &str = "GLOVEBOX_TEST_BASES";
/// Suites that start a second program from the place where cargo built it.
const IN_PLACE: [&str; 1] = ["registry"];

/// Suites of the inner loop: promises that must not break, and texts that users read.
const QUICK_SUITES: [&str; 6] = [
    "architecture",
    "conformance",
    "escape",
    "help",
    "usage",
    "config",
];

/// Options of `cargo xtask test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Install nothing
    #[arg(long)]
    no_install: bool,
    /// Do not repeat the suites as an ordinary user
    #[arg(long)]
    no_unprivileged: bool,
    /// For the inner loop: unit tests, snapshots, one pass of conformance and escape as the current user, with the
    /// programs for the inside compiled soon rather than small. Installs nothing
    #[arg(long)]
    quick: bool,
    /// Everything, in CI too: there an ordinary user repeats half of the tests and one emulated machine starts, which by
    /// the commit
    #[arg(long)]
    whole: bool,
    /// Only tests whose name contains this
    filter: Option<String>,
}

/// Runs all stages.
///
/// # Errors
/// If the build or a test fails.
pub(crate) fn run(args: &TestArgs) -> Result<()> {
    let mut tally = Tally::default();
    let installs = !args.no_install && !args.quick;
    if installs {
        tally.timing.of("install what building needs", || {
            packages::install_missing()?;
            musl::install_missing();
            anyhow::Ok(())
        })?;
    }
    let (built, fetched) = thread::scope(|scope| {
        // Downloads leave the processors to the compiler.
        let fetching = installs.then(|| scope.spawn(fetch_what_tests_drive));
        let built = build(args.quick, &mut tally.timing);
        (built, fetching.map(thread::ScopedJoinHandle::join))
    });
    if let Some(Ok(stage)) = fetched {
        tally.timing.push(stage);
    }
    let built = built?;
    if !args.quick {
        run_examples(args, &mut tally)?;
    }
    // Not beside the cargo commands above: cargo locks the target directory, and one would wait.
    let lints = is_ci().then(|| background::start("formatting, lints, licences", check::run));
    let ran = run_built(args, &built, &mut tally);
    if let Some(lints) = lints
        && let Err(error) = lints.finish(&mut tally.timing)
    {
        tally.failed.push(format!("{error:#}"));
    }
    ran?;
    report(&tally)
}

/// Downloads foreign programs that tests use, with their dependencies. Prints those that are not
/// available; their tests are skipped.
fn fetch_what_tests_drive() -> Stage {
    let (stage, ()) = Stage::of("fetch what the tests drive", || {
        clients::install_missing();
        projects::install_missing();
        kernel::install_missing();
    });
    stage
}

/// Builds the binary, then all tests. Returns cargo's messages about the tests. With `is_quick` the
/// programs for the inside of a sandbox are compiled fast instead of small.
fn build(is_quick: bool, timing: &mut Timing) -> Result<String> {
    let cargo = |arguments: &[&str]| {
        let mut command = cargo(arguments);
        if is_quick {
            command.env(step::GUEST_PROFILE, "quick");
        }
        command
    };
    timing.of("build glovebox", || {
        step::run(
            "build glovebox",
            &mut cargo(&["build", "--locked", "--workspace", "--bins", FEATURES]),
        )
    })?;
    say("==> build all tests");
    timing.of("build all tests", || {
        step::output(&mut cargo(&[
            "test",
            "--locked",
            "--workspace",
            FEATURES,
            "--no-run",
            "--message-format",
            "json-render-diagnostics",
        ]))
    })
}

fn run_examples(args: &TestArgs, tally: &mut Tally) -> Result<()> {
    for package in examples::packages_with_examples()? {
        let name = package.file_name().unwrap_or_default().to_string_lossy();
        let title = format!("examples in the documentation of {name}");
        let mut examples = cargo(["test", "--locked", "--doc", "--manifest-path"]);
        examples
            .arg(package.join("Cargo.toml"))
            .args(args.filter.iter());
        let run = || step::run(&title, &mut examples);
        if let Err(error) = tally.timing.of(&title, run) {
            tally.failed.push(format!("{error:#}"));
        }
    }
    Ok(())
}

/// Runs the programs that cargo's messages name, and the web interface.
fn run_built(args: &TestArgs, built: &str, tally: &mut Tally) -> Result<()> {
    let binary = target_dir().join("debug/glovebox");
    let skip_log = target_dir().join("skipped-tests.txt");
    let _ = fs::remove_file(&skip_log);
    // On the same file system as the tests' own directories, so that files can be renamed between
    // them.
    let bases = ScratchDir::new("bases")?;
    let backends = StartableBackends::ask(&binary)?;
    let mut programs = programs(built);
    programs.sort_by_key(|program| LAST.contains(&program.name.as_str()));
    link_suites(&programs)?;
    let filter: Vec<String> = args.filter.iter().cloned().collect();
    let turn = if args.whole || args.quick || !filter.is_empty() {
        Turn::default()
    } else {
        Turn::choose()
    };
    for program in &programs {
        if args.quick && !is_quick(program) {
            continue;
        }
        let command = || {
            let mut command = Command::new(&program.path);
            command
                .env("CARGO_MANIFEST_DIR", &program.package)
                .current_dir(&program.package);
            set_variables(&mut command, program, &binary, &skip_log);
            command.env(BASES, &bases.0);
            command
        };
        let title = title(program);
        let mut filter = filter.clone();
        match backends.runnable(program) {
            Runnable::Whole => {}
            Runnable::Only(tests, why) => {
                leave_out(&format!("{title}, but for {tests}"), &why, tally);
                filter = vec![tests.to_owned()];
            }
            Runnable::Nothing(why) => {
                leave_out(&title, &why, tally);
                continue;
            }
        }
        if LAST.contains(&program.name.as_str()) {
            filter.extend(turn.machine_args());
        }
        tally.run(&title, command, &filter)?;
    }
    if args.quick {
        report_skips(&skip_log);
        return Ok(());
    }
    if filter.is_empty()
        && let Err(error) = tally.timing.of("web interface", || web::test(&binary))
    {
        tally.failed.push(format!("{error:#}"));
    }
    if is_root() && !args.no_unprivileged && backends.has_native() {
        again_unprivileged(&programs, &filter, turn, &binary, &skip_log, tally)?;
    }
    report_skips(&skip_log);
    Ok(())
}

/// Prints that tests are skipped. In CI, where native sandboxes start, that is a failure.
fn leave_out(title: &str, why: &str, tally: &mut Tally) {
    let line = format!("skipped: {title}: {why}");
    say(&line);
    if is_ci() {
        tally.failed.push(line);
    }
}

/// Returns true if `--quick` runs a program: unit tests, and the suites in [`QUICK_SUITES`].
fn is_quick(program: &Program) -> bool {
    !program.is_suite || QUICK_SUITES.contains(&program.name.as_str())
}

/// Returns the title with which a program's run is announced.
fn title(program: &Program) -> String {
    let package = program.package.file_name().unwrap_or_default();
    if program.is_suite {
        format!("{}: {}", package.to_string_lossy(), program.name)
    } else {
        format!(
            "{}: unit tests of {}",
            package.to_string_lossy(),
            program.name
        )
    }
}

/// Returns the directory with links to all test programs, by package and name, for tests that run
/// other tests.
fn suites_dir() -> PathBuf {
    target_dir().join("suites")
}

fn link_suites(programs: &[Program]) -> Result<()> {
    let _ = fs::remove_dir_all(suites_dir());
    for program in programs {
        let dir = suites_dir().join(program.package.file_name().unwrap_or_default());
        fs::create_dir_all(&dir)?;
        let link = dir.join(&program.name);
        // A library and a program may have the same name. No test needs the second of them.
        if !link.exists() {
            symlink(&program.path, link)?;
        }
    }
    Ok(())
}

fn set_variables(command: &mut Command, program: &Program, binary: &Path, skip_log: &Path) {
    if !ONE_PER_CORE.contains(&program.name.as_str()) && std::env::var_os(TEST_THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        command.env(TEST_THREADS, (cores * TESTS_PER_CORE).to_string());
    }
    command
        .env("GLOVEBOX_TEST_BIN", binary)
        .env("GLOVEBOX_TEST_CLIENTS", clients::dir())
        .env("GLOVEBOX_TEST_SUITES", suites_dir())
        .env("GLOVEBOX_TEST_SKIP_LOG", skip_log);
    if is_ci() {
        command.env("GLOVEBOX_TEST_NO_SKIP", "1");
    }
}

/// Runs the suites of `tests/` as an ordinary user. That user may be unable to reach cargo and the
/// project's directory, so the built programs are copied to a directory of its own.
fn again_unprivileged(
    programs: &[Program],
    filter: &[String],
    turn: Turn,
    binary: &Path,
    skip_log: &Path,
    tally: &mut Tally,
) -> Result<()> {
    let tests = step::root().join("tests");
    let user = OrdinaryUser::new();
    let place = Place::new(&user)?;
    let binary = place.lend(binary)?;
    // Tests start this program from their own directory.
    place.lend(&target_dir().join("debug/glovebox-contract"))?;
    let log = place.dir.0.join("home/skipped-tests.txt");
    let can_reach_target = user
        .command(&target_dir().join("debug/glovebox"))
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    let suites = programs
        .iter()
        .filter(|program| program.is_suite && program.package == tests)
        .filter(|suite| !BOTH_ALREADY.contains(&suite.name.as_str()));
    for suite in suites {
        if !can_reach_target && IN_PLACE.contains(&suite.name.as_str()) {
            let why = format!(
                "{} is not repeated: an ordinary user cannot reach {}",
                suite.name,
                target_dir().display()
            );
            say(&why);
            if is_ci() {
                tally.failed.push(why);
            }
            continue;
        }
        let program = place.lend(&suite.path)?;
        let command = || {
            let mut command = user.command(&program);
            command
                .env("HOME", place.dir.0.join("home"))
                .env("TMPDIR", place.dir.0.join("tmp"))
                .env("CARGO_MANIFEST_DIR", &tests)
                .current_dir(place.dir.0.join("home"));
            set_variables(&mut command, suite, &binary, &log);
            command.env(BASES, place.dir.0.join("bases"));
            if is_ci() {
                // Tests that only root can set up were part of the run as root.
                command.env("GLOVEBOX_TEST_NO_SKIP", "but-for-root");
            }
            command
        };
        let title = format!("{} as an ordinary user", title(suite));
        let list = step::output(command().args(["--list", "--format", "terse"]))?;
        let args = [filter, &turn.test_args(&suite.name, &list)].concat();
        tally.run(&title, command, &args)?;
    }
    // Appends that user's list to this one: the user could not write to it.
    if let Ok(skipped) = fs::read_to_string(&log) {
        let mut all = fs::read_to_string(skip_log).unwrap_or_default();
        for line in skipped.lines() {
            all.push_str("as an ordinary user: ");
            all.push_str(line);
            all.push('\n');
        }
        fs::write(skip_log, all)?;
    }
    Ok(())
}

/// Directory below the temporary directory. Dropping it removes the directory.
struct ScratchDir(PathBuf);

impl ScratchDir {
    fn new(name: &str) -> Result<Self> {
        let name = format!("glovebox-xtask-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Directories that an ordinary user may use.
struct Place {
    dir: ScratchDir,
}

impl Place {
    fn new(user: &OrdinaryUser) -> Result<Self> {
        let place = Self {
            dir: ScratchDir::new("user")?,
        };
        let root = &place.dir.0;
        fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
        for name in ["home", "tmp", "bases", "bin"] {
            let dir = root.join(name);
            fs::create_dir(&dir)?;
            if name != "bin" {
                chown(&dir, Some(user.id()), Some(user.group()))?;
            }
        }
        Ok(place)
    }

    fn lend(&self, program: &Path) -> Result<PathBuf> {
        let copy = self
            .dir
            .0
            .join("bin")
            .join(program.file_name().unwrap_or_default());
        fs::copy(program, &copy).with_context(|| format!("cannot copy {}", program.display()))?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
        Ok(copy)
    }
}

fn report_skips(log: &Path) {
    let skipped = fs::read_to_string(log).unwrap_or_default();
    if skipped.is_empty() {
        say("No test was skipped.");
        return;
    }
    say(&format!("Skipped, {} in all:", skipped.lines().count()));
    for line in skipped.lines() {
        say(&format!("  {line}"));
    }
}

/// Prints the summary of a run.
///
/// # Errors
/// If something failed, with the command lines to repeat it.
fn report(tally: &Tally) -> Result<()> {
    tally.timing.report();
    if !tally.unsteady.is_empty() {
        say("Unsteady, passed only when repeated by themselves:");
        for test in &tally.unsteady {
            say(&format!("  {test}"));
        }
    }
    if !tally.failed.is_empty() {
        bail!(
            "these failed; repeat them with:\n  {}",
            tally.failed.join("\n  ")
        );
    }
    say("All tests passed.");
    Ok(())
}
