//! Pulls that are killed or interrupted at any moment: all of it or nothing.

use crate::workspace::{Tree, look, on_the_host};
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{Person, wait_until};

fn killed(person: &Person, args: &[&str], after: Duration) -> bool {
    let mut command: Command = person.program(person.binary());
    let mut child = command
        .args(args)
        .current_dir(person.project())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(after);
    let was_running = child.try_wait().unwrap().is_none();
    // A command that ended meanwhile is as good.
    let _ = child.kill();
    child.wait().unwrap();
    was_running
}

/// A moment in one of `rounds` parts of `whole`, at random within it.
fn moment(whole: Duration, round: u32, rounds: u32) -> Duration {
    let dice = RandomState::new().hash_one(round) as u32;
    let part = f64::from(round) + f64::from(dice) / f64::from(u32::MAX);
    whole.mul_f64(part / f64::from(rounds))
}

/// Kills pulls of `mib` MiB at random moments: `rounds` times.
fn kill_pulls(person: &Person, mib: u32, rounds: u32) {
    const FILES: u32 = 10;
    for number in 0..64 {
        person.write(format!("project/old/{number}"), format!("old {number}\n"));
    }
    person
        .line("start -q --disk 2GiB --timeout none box")
        .run()
        .expect_code(0);
    let each = mib / FILES;
    let script = format!(
        "head -c {each}M /dev/urandom > /tmp/seed; for i in $(seq 10 19); do (echo $i; cat /tmp/seed) > old/$i; done; \
         rm old/5; mv old/6 moved; mkdir new; for i in $(seq 100); do echo $i > new/$i; done"
    );
    person.script("exec box", &script).run().expect_code(0);
    let before = look(&person.project());
    let destination = |number: u32| -> PathBuf {
        let dir = person.place().root().join(format!("to{number}"));
        let copy = format!("cp -a project {}", dir.display());
        on_the_host(person, person.place().root(), &copy);
        dir
    };
    let words =
        |dir: &Path| ["pull", "-q", "box", "--to", &dir.display().to_string()].map(String::from);
    let whole = destination(1000);
    let begun = Instant::now();
    person.glovebox(words(&whole)).run().expect_code(0);
    let usual = begun.elapsed();
    let after = look(&whole);
    assert_ne!(before, after);
    fs::remove_dir_all(&whole).unwrap();

    let (mut untouched, mut complete) = (0, 0);
    let mut dir = destination(0);
    for round in 0..rounds {
        let words = words(&dir);
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        killed(person, &args, moment(usual, round, rounds));
        // A commit that has begun goes on by itself.
        let mut found = Tree::new();
        let is_settled = wait_until(Duration::from_secs(20), || {
            found = look(&dir);
            found == before || found == after
        });
        let (count, of) = (found.len(), after.len());
        assert!(is_settled, "round {round}: {count} of {of}");
        if found == before {
            untouched += 1;
            if round + 1 != rounds {
                // The next one goes to the same place and meets what this one has left.
                continue;
            }
        } else {
            complete += 1;
        }
        // The next pull finishes the work and cleans up.
        person.glovebox(args).run().expect_code(0);
        assert_eq!(look(&dir), after, "round {round}");
        let names: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert!(
            !names
                .iter()
                .any(|name| name.as_bytes().starts_with(b".glovebox")),
            "{names:?}"
        );
        fs::remove_dir_all(&dir).unwrap();
        dir = destination(round + 1);
    }
    assert!(
        untouched > 0,
        "{untouched} untouched, {complete} complete of {rounds}"
    );
    person.line("kill -q box").run().expect_code(0);
}

#[test]
fn whoever_kills_a_pull_leaves_all_of_it_or_nothing() {
    Person::each(|person| {
        // An ordinary user's pull is the same one; a smaller one shows that.
        let (mib, rounds) = if person.is_root() {
            (500, 20)
        } else {
            (60, 10)
        };
        kill_pulls(person, mib, rounds);
    });
}

/// Waits until a process catches SIGINT, or has ended: before, an interrupt would end it as if it did not know any.
fn await_interruptible(pid: u32) {
    let catches = |status: String| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = u64::from_str_radix(mask.unwrap_or("0").trim(), 16).unwrap();
        mask & (1 << (rustix::process::Signal::INT.as_raw() - 1)) != 0
            || status.contains("State:\tZ")
    };
    let is_ready = wait_until(Duration::from_secs(30), || {
        fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(catches)
    });
    assert!(is_ready, "it never caught SIGINT");
}

#[test]
fn whoever_interrupts_a_pull_leaves_the_host_as_it_was() {
    Person::each(|person| {
        person.line("start -q box").run().expect_code(0);
        person
            .script(
                "exec box",
                "head -c 200M /dev/zero > big; head -c 64M /dev/urandom > other",
            )
            .run()
            .expect_code(0);
        let mut child = person
            .program(person.binary())
            .args(["pull", "box"])
            .current_dir(person.project())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        await_interruptible(child.id());
        std::thread::sleep(Duration::from_millis(150));
        let pid = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let status = child.wait().unwrap();
        let found = look(&person.project());
        match status.code() {
            Some(130) => assert!(found.is_empty(), "{found:?}"),
            // It was quicker.
            other => assert_eq!((other, found.len()), (Some(0), 2)),
        }
        person.line("pull -q box").run().expect_code(0);
        assert_eq!(look(&person.project()).len(), 2);
    });
}
