//! System calls with random arguments, made inside a sandbox, with canaries outside.
//!
//! A program (`fuzzer.c`) calls everything there is with arguments that are random and odd. Whatever the filter
//! answers must be what the table says. Afterwards nothing outside may have changed, and the sandbox must have
//! ended in order with nothing left.
//!
//! `GLOVEBOX_FUZZ_SECONDS` says for how long, per user (default 10; 60 in CI), and `GLOVEBOX_FUZZ_SEED` with which
//! seed to begin. A test that fails names the seeds it has used. Everything is tried as whoever runs the tests
//! and, when that is root, as an ordinary user too.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]
#![expect(
    clippy::print_stdout,
    reason = "seeds and counts, shown when a test fails"
)]

mod canaries;
mod table;

use canaries::Canaries;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use table::Call;
use testkit::{Person, Process, has_program, skip, wait_until};

/// How long one sandbox is fuzzed. Several are, one after the other: what a run changes in a sandbox must not keep
/// the rest of the time from being used.
const ROUND: Duration = Duration::from_secs(5);
/// How much longer than that a round may take.
const HANG: Duration = Duration::from_mins(1);
/// Seeds that are tried every time, for a second each.
const FIXED_SEEDS: [u64; 3] = [1, 7, 4711];

/// Fuzzing fills the machine: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

const SOURCE: &str = include_str!("fuzzer.c");

#[test]
fn random_system_calls_change_nothing_outside() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_program("gcc") || !has_program("perl") {
        skip!("needs gcc and perl");
    }
    let begin = number("GLOVEBOX_FUZZ_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        now.as_secs()
    });
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    let default = if is_ci { 60 } else { 10 };
    let time = Duration::from_secs(number("GLOVEBOX_FUZZ_SECONDS").unwrap_or(default));
    Person::each(|person| {
        let scene = Scene::new(person, &table::real());
        let mut total = Counts::default();
        for seed in FIXED_SEEDS {
            total.add(&scene.round(seed, Duration::from_secs(1)).unwrap());
        }
        let started = Instant::now();
        for seed in begin.. {
            let left = time.saturating_sub(started.elapsed());
            if left.is_zero() {
                break;
            }
            let round = left.clamp(Duration::from_secs(1), ROUND);
            total.add(&scene.round(seed, round).unwrap());
        }
        println!("as {}: {total:?}", person.name());
        // Otherwise nothing was tried.
        assert!(total.get("calls") > 10_000, "{total:?}");
        assert!(total.get("checked") > 1_000, "{total:?}");
        assert!(total.get("succeeded") > 60, "{total:?}");
        scene.canaries.assert_untouched();
        person.assert_nothing_left();
    });
}

/// The twin: a table that is wrong about one call and one argument is found out.
#[test]
fn a_table_that_is_wrong_is_noticed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_program("gcc") || !has_program("perl") {
        skip!("needs gcc and perl");
    }
    let person = Person::myself();
    for change in [
        (|calls| table::set_verdict(calls, "getppid", "refused")) as fn(&mut Vec<Call>),
        |calls| table::set_verdict(calls, "kcmp", "unsupported"),
        |calls| table::set_rule_error(calls, "socketpair", libc::EPERM),
    ] {
        let mut calls = table::real();
        change(&mut calls);
        let scene = Scene::new(&person, &calls);
        let complaint = scene.round(1, Duration::from_secs(3)).unwrap_err();
        assert!(complaint.contains("mismatch"), "{complaint}");
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable)
        .ok()
        .filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap())
}

/// What the fuzzer counted, by name.
#[derive(Debug, Default)]
struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// From the last line, before which a worker may have written what it liked.
    fn parse(out: &str) -> Self {
        let counts = out.rfind("calls=").and_then(|at| out.get(at..));
        let pairs = counts.unwrap_or_default().split_whitespace();
        let pairs = pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(pairs.collect())
    }

    fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Sums; of what is not a sum, the largest.
    fn add(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            let own = self.0.entry(name.clone()).or_default();
            *own = if name == "succeeded" {
                (*own).max(*value)
            } else {
                *own + value
            };
        }
    }
}

/// A person's project with the fuzzer in it, and canaries around it.
struct Scene<'a> {
    person: &'a Person,
    canaries: Canaries,
}

impl<'a> Scene<'a> {
    fn new(person: &'a Person, calls: &[Call]) -> Self {
        let source = person.write("build/fuzzer.c", SOURCE);
        person.write("project/table", table::text(calls));
        let program = person.project().join("fuzzer");
        let built = Command::new("gcc")
            .args(["-O1", "-o"])
            .args([&program, &source])
            .status()
            .unwrap();
        assert!(built.success(), "the fuzzer does not compile");
        person.own(&person.project());
        Self {
            person,
            canaries: Canaries::plant(person),
        }
    }

    /// Fuzzes one sandbox from its start to its end.
    fn round(&self, seed: u64, time: Duration) -> Result<Counts, String> {
        println!("as {}: seed {seed} for {time:?}", self.person.name());
        let seconds = time.as_secs().max(1);
        let timeout = format!("{}s", seconds + 20);
        let mut command = self
            .person
            .glovebox(["run", "--quiet", "--no-toolchains", "--timeout", &timeout])
            .args([
                "--pids", "200", "--memory", "512MiB", "--disk", "256MiB", "--apply", "never", "--",
            ])
            .args(["/workspace/fuzzer", "/workspace/table"])
            .args([seed.to_string(), seconds.to_string()])
            .args(self.canaries.words())
            .command;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let is_over = wait_until(time + HANG, || child.try_wait().unwrap().is_some());
        if !is_over {
            for process in Process::descendants(child.id()) {
                let _ = Command::new("kill")
                    .args(["-9", &process.id.to_string()])
                    .status();
            }
            let _ = child.kill();
        }
        let output = child.wait_with_output().unwrap();
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        let code = output.status.code();
        println!("{code:?} {} {}", out.trim(), err.trim());
        let fail = |what: &str| Err(format!("seed {seed}: {what}: {code:?} {out} {err}"));
        if !is_over {
            return fail("it hangs");
        }
        if err.contains("panicked") {
            return fail("a panic");
        }
        self.canaries.assert_untouched();
        let left = self.person.sandboxes();
        if !left.is_empty() {
            return fail(&format!("it leaves {left:?}"));
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        if mounts.contains(&self.person.place().root().display().to_string()) {
            return fail("it leaves a mount");
        }
        match code {
            Some(0) if out.contains("calls=") => Ok(Counts::parse(&out)),
            // The filter answered something else than the table says.
            Some(1) => fail("mismatch"),
            // The coordinator itself was hit, by a signal or a limit.
            Some(124 | 128..) => Ok(Counts::default()),
            _ => fail("an end out of order"),
        }
    }
}
