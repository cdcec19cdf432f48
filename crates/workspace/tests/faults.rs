//! A pull that is killed, or fails, at every step: the destination is unchanged or complete.
//!
//! strace(1) kills the process at the nth call of each system call that an apply makes, or makes
//! that call fail. The process is this test program itself, running the one test that pulls.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod fixture;

use fixture::{Fixture, Tree};
use glovebox_proto::Code;
use glovebox_workspace::apply::Destination;
use glovebox_workspace::{Options, Resolution};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::{has_program, skip};

/// Variable with the path of the fixture for the process under test.
const PLACE: &str = "GLOVEBOX_TEST_PLACE";
/// System calls with which a pull changes a destination and its staging directory.
const CALLS: [&str; 13] = [
    "fchmodat",
    "fchmod",
    "fdatasync",
    "flock",
    "fstatfs",
    "fsync",
    "getrandom",
    "mkdirat",
    "openat2",
    "renameat2",
    "symlinkat",
    "unlinkat",
    "write",
];
/// Numbers of the calls to fail: all of the first ones, then fewer.
const TURNS: [u32; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 50];

/// A project, and a sandbox with every kind of change to it.
fn prepare() -> Fixture {
    let fixture = Fixture::new(1);
    for (name, text) in [
        ("edit", "old"),
        ("gone", "g"),
        ("mode", "m"),
        ("dir/in/side", "i"),
    ] {
        fixture.host(name, text);
    }
    fixture.host("to-dir", "f");
    fixture.host("to-file/x", "f");
    symlink("edit", fixture.project().join("link")).unwrap();
    fixture.push();
    fixture.host("conflict", "host");
    fixture.layer(0, "conflict", "sandbox");
    fixture.layer(0, "edit", "new!");
    fixture.whiteout(0, "gone");
    fixture.layer(0, "mode", "m");
    fixture.make_executable(0, "mode");
    fixture.whiteout(0, "dir");
    fixture.layer(0, "new/name", "n");
    fixture.layer_link(0, "link", "new/name");
    fixture.layer_link(0, "new/link", "../edit");
    fixture.layer(0, "to-dir/now/in", "d");
    fixture.layer(0, "to-file", "now a file");
    fixture
}

/// Body of the process under test.
#[test]
#[ignore = "run by the others, under strace"]
fn pull_once() {
    let place = std::env::var_os(PLACE).unwrap();
    let fixture = Fixture::at(Path::new(&place), 1);
    match fixture.pull(Options::all(Resolution::Theirs)) {
        Ok(_) => println!("applied"),
        Err(error) => println!("failed: {error}"),
    }
}

struct PullRun {
    said: String,
    was_hit: bool,
}

/// Pulls while strace injects a fault into the nth call.
fn pull(fixture: &Fixture, call: &str, inject: &str, turn: u32) -> PullRun {
    let log = fixture.scratch().join("trace");
    let output = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(&log)
        .args(["-e", &format!("trace={call}")])
        .args(["-e", &format!("inject={call}:{inject}:when={turn}")])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "pull_once"])
        .env(PLACE, fixture.root())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let trace = fs::read_to_string(&log)
        .unwrap_or_else(|_| panic!("{call}: {}", String::from_utf8_lossy(&output.stderr)));
    fs::remove_file(&log).unwrap();
    PullRun {
        said: String::from_utf8_lossy(&output.stdout).into_owned(),
        was_hit: trace.contains("(INJECTED)") || trace.contains("+++ killed by SIGKILL +++"),
    }
}

fn can_trace() -> bool {
    has_program("strace")
        && Command::new("strace")
            .args(["-qq", "-o", "/dev/null", "true"])
            .status()
            .is_ok_and(|status| status.success())
}

/// The destination before and after an undisturbed pull.
fn twins() -> (Tree, Tree) {
    let fixture = prepare();
    let before = fixture.tree();
    fixture.pull(Options::all(Resolution::Theirs)).unwrap();
    (before, fixture.tree())
}

fn sweep(inject: &str, check: impl Fn(&Fixture, &PullRun, &str)) {
    for call in CALLS {
        for turn in TURNS {
            let fixture = prepare();
            let ran = pull(&fixture, call, inject, turn);
            check(&fixture, &ran, &format!("{call} {inject} {turn}"));
            if !ran.was_hit {
                break;
            }
        }
    }
}

#[test]
fn killed_at_every_step() {
    if !can_trace() {
        skip!("needs strace and the right to trace");
    }
    let (before, after) = twins();
    sweep("signal=KILL", |fixture, ran, what| {
        // The next access to the destination recovers it from the killed pull.
        drop(Destination::open(&fixture.project(), None).unwrap());
        let now = fixture.tree();
        assert!(now == before || now == after, "{what}: {:?}", now.lines());
        if ran.said.contains("applied") {
            assert_eq!(now, after, "{what}");
        }
        // The same pull then succeeds.
        if now == before {
            fixture.pull(Options::all(Resolution::Theirs)).unwrap();
            assert_eq!(fixture.tree(), after, "{what}");
        }
    });
}

#[test]
fn failing_at_every_step() {
    if !can_trace() {
        skip!("needs strace and the right to trace");
    }
    let (before, after) = twins();
    for errno in ["EIO", "ENOSPC"] {
        sweep(&format!("error={errno}"), |fixture, ran, what| {
            // The next pull repeats a failed undo and a failed removal.
            let has_staging = fixture.tree() != fixture.tree().without_staging();
            if has_staging {
                drop(Destination::open(&fixture.project(), None).unwrap());
            }
            let now = fixture.tree();
            if ran.said.contains("applied") {
                assert_eq!(now, after, "{what}");
            } else if ran.said.contains("failed: ") {
                assert_eq!(now, before, "{what}: {}", ran.said);
            } else {
                // The call that failed was the one that writes the message.
                assert!(now == before || now == after, "{what}: {:?}", now.lines());
            }
        });
    }
}

#[test]
fn a_full_disk_leaves_the_destination_as_it_was() {
    if !testkit::is_root() {
        testkit::skip_because!(testkit::SkipReason::needs_root(
            "to mount a small file system"
        ));
    }
    if !has_program("mount") {
        skip!("needs mount");
    }
    let small = SmallFileSystem::mount("size=3m");
    let fixture = prepare();
    fixture.layer(0, "large", &"x".repeat(2 << 20));
    let error = fixture
        .pull_to(&small.path(), None, Options::default())
        .unwrap_err();
    assert_eq!(error.fault.code, Code::NoSpace, "{error}");
    assert_eq!(fs::read_dir(small.path()).unwrap().count(), 0);
    // A file system without free inodes.
    drop(small);
    let small = SmallFileSystem::mount("size=64m,nr_inodes=10");
    let error = fixture
        .pull_to(&small.path(), None, Options::default())
        .unwrap_err();
    assert_eq!(error.fault.code, Code::NoSpace, "{error}");
    assert_eq!(fs::read_dir(small.path()).unwrap().count(), 0);
}

/// A small file system. Dropping it unmounts it.
struct SmallFileSystem(tempfile::TempDir);

impl SmallFileSystem {
    fn mount(options: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("small");
        fs::create_dir(&path).unwrap();
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(&path)
            .status()
            .unwrap();
        assert!(status.success());
        Self(temp)
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("small")
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}
