//! What goes on in a sandbox while its layers are frozen, and after.

use crate::checkpoints::{Ground, picture};
use crate::name;
use glovebox_proto::{Code, Exec, Exit, JobId, Reply, Request};
use glovebox_sandbox::Sandbox;
use std::fs;
use std::time::{Duration, Instant};

fn await_job(sandbox: &Sandbox, job: JobId) {
    let wait_ms = Some(60_000);
    match sandbox.call(Request::JobWait { job, wait_ms }).unwrap() {
        Reply::Exited(report) => assert_eq!(report.exit, Exit::Code(0)),
        other => panic!("{other:?}"),
    }
}

/// What a sandbox is besides its files stays when they are frozen under it, and when they go back.
#[test]
fn an_idle_sandbox_lives_through_a_checkpoint_and_a_restore() {
    let ground = Ground::new();
    ground.start("a");
    let sandbox = ground.place.registry.connect(&name("a")).unwrap();
    let job = sandbox
        .start_job(Exec::new([
            "sh",
            "-c",
            "echo said; echo 1 > one; echo r > /tmp/root",
        ]))
        .unwrap();
    await_job(&sandbox, job);
    ground.sh("a", "echo kept > /dev/shm/kept");
    let boot = "cat /proc/1/stat | cut -d' ' -f22; cat /dev/shm/kept";
    let before = ground.sh("a", boot);
    let remembers = |when: &str| {
        // Over the same connection.
        let request = Request::JobRead {
            job,
            offset: 0,
            max_bytes: 100,
            wait_ms: 0,
        };
        match sandbox.call(request).unwrap() {
            Reply::Log { chunks, .. } => {
                assert_eq!(chunks[0].bytes.as_slice(), b"said\n", "{when}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(ground.sh("a", boot), before, "{when}");
        // The walls stand around the new directories.
        let outside = "(echo x > /etc/new) 2>/dev/null; (echo x > /new) 2>/dev/null; \
                       ls -d /etc/new /new 2>/dev/null; ls /.. | wc -l; ls / | wc -l";
        let (above, own) = ground.sh("a", outside).trim().split_once('\n').map_or_else(
            || panic!("something was written outside"),
            |(above, own)| (above.to_owned(), own.to_owned()),
        );
        assert_eq!(above, own, "{when}");
        let mode = glovebox_proto::WriteMode::Replace;
        assert!(
            sandbox.write_file(b"/etc/new", mode, b"x").is_err(),
            "{when}"
        );
    };
    ground.checkpoint("a");
    remembers("after a checkpoint");
    let written = ground.sh(
        "a",
        "cat one /tmp/root; echo 2 > two; echo 1b > one; echo r2 > /tmp/root; mkdir /tmp/d; \
         rm base; cat one /tmp/root; ls",
    );
    assert_eq!(written, "1\nr\n1b\nr2\none\ntwo\n");
    // Through the guest's own threads as well.
    let mode = glovebox_proto::WriteMode::CreateNew;
    sandbox.write_file(b"/workspace/three", mode, b"3").unwrap();
    ground.checkpoint("a");
    // Only the workspace.
    ground.sh("a", "echo 4 > four");
    ground.checkpoint("a");
    remembers("after more checkpoints");
    assert_eq!(
        ground.sh("a", "ls; cat /tmp/root; ls -d /tmp/d"),
        "four\none\nthree\ntwo\nr2\n/tmp/d\n"
    );
    ground.restore("a", "v1");
    remembers("after a restore");
    assert_eq!(
        ground.sh("a", "cat one /tmp/root; ls; ls -d /tmp/d 2>/dev/null; true"),
        "1\nr\nbase\none\n"
    );
    // Everything that is mounted in the root is there as it was.
    let mounts = "cut -d' ' -f5,6 /proc/self/mountinfo | sort";
    let after = ground.sh("a", mounts);
    ground.start("b");
    assert_eq!(after, ground.sh("b", mounts));
}

/// Frozen layers are out of reach of whatever still has them open: a file that is open for writing
/// keeps them from being frozen under it.
#[test]
fn what_is_open_for_writing_is_not_frozen_under_its_writer() {
    let ground = Ground::new();
    ground.start("a");
    let sandbox = ground.place.registry.connect(&name("a")).unwrap();
    // A log that outgrows memory continues in a file in the sandbox, which the guest has open.
    let mut exec = Exec::new(["sh", "-c", "echo 1 > one; seq 3000000"]);
    exec.timeout_ms = Some(60_000);
    let job = sandbox.start_job(exec).unwrap();
    await_job(&sandbox, job);
    assert_eq!(ground.checkpoint("a"), "v1");
    let before: Vec<_> = ground.layers().iter().map(|path| picture(path)).collect();
    ground.sh("a", "cat one; echo 2 >> one; echo 2 > two");
    let after: Vec<_> = ground.layers().iter().map(|path| picture(path)).collect();
    assert_eq!(before, after);
    ground.restore("a", "v1");
    assert_eq!(ground.sh("a", "cat one; ls"), "1\nbase\none\n");
}

#[test]
fn what_runs_is_not_pulled_the_ground_from() {
    let ground = Ground::new();
    ground.start("a");
    ground.sh("a", "echo 1 > one");
    let sandbox = ground.place.registry.connect(&name("a")).unwrap();
    let job = sandbox
        .start_job(Exec::new([
            "sh",
            "-c",
            "i=0; while :; do i=$((i+1)); echo $i > count; ln -f count hard; done",
        ]))
        .unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while ground.sh("a", "ls").lines().all(|file| file != "hard") {
        assert!(Instant::now() < until, "the job has not begun");
    }
    let refused = ground
        .place
        .registry
        .checkpoint(&name("a"), None, false)
        .unwrap_err();
    assert_eq!(refused.code, Code::Busy);
    assert!(refused.remedy.unwrap().to_string().contains("`live`"));
    let taken = ground
        .place
        .registry
        .checkpoint(&name("a"), Some("live"), true)
        .unwrap();
    assert_eq!(
        (taken.id.as_str(), taken.comment.as_deref()),
        ("v1", Some("live"))
    );
    let count = |text: &str| {
        ground
            .sh(text, "cat count")
            .trim()
            .parse::<u64>()
            .unwrap_or(0)
    };
    let (first, until) = (count("a"), Instant::now() + Duration::from_secs(10));
    while count("a") <= first {
        assert!(Instant::now() < until, "the job has stopped");
    }
    assert!(sandbox.jobs().unwrap().iter().any(|one| one.job == job));
    ground.fork("a", "b", Some("v1"));
    assert_eq!(
        ground.sh("b", "cat one; ls; [ count -ef hard ] || echo apart"),
        "1\nbase\ncount\nhard\none\n"
    );
    // Going back ends what runs.
    ground.restore("a", "v1");
    assert_eq!(ground.sh("a", "cat one; cat count > /dev/null"), "1\n");
    let again = ground.place.registry.connect(&name("a")).unwrap();
    let loops =
        |one: &glovebox_proto::JobInfo| one.argv.iter().any(|word| word.starts_with(b"i=0"));
    assert!(!again.jobs().unwrap().iter().any(loops));
}

/// A client that holds a supervised sandbox still and dies lets it go.
#[test]
fn a_dead_client_leaves_nothing_frozen() {
    let ground = Ground::new();
    ground.start("a");
    let sandbox = ground.place.registry.connect(&name("a")).unwrap();
    sandbox
        .start_job(Exec::new(["sh", "-c", "while :; do echo x >> n; done"]))
        .unwrap();
    let layers = ground
        .place
        .registry
        .workspace_layers(&name("a"))
        .unwrap()
        .layers;
    let size = || fs::metadata(layers[0].join("n")).map_or(0, |meta| meta.len());
    let moves = |from: u64| {
        let until = Instant::now() + Duration::from_secs(10);
        while size() <= from {
            assert!(Instant::now() < until, "it stands still");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    moves(0);
    for (verb, word) in [("freeze", "frozen"), ("hold", "held")] {
        let mut client = crate::actor(&[verb, &ground.place.state().display().to_string(), "a"]);
        assert_eq!(crate::said(&mut client), word);
        let still = size();
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(size(), still);
        client.kill().unwrap();
        client.wait().unwrap();
        moves(still);
    }
    let held = sandbox.freeze().unwrap();
    let still = size();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(size(), still);
    drop(held);
    moves(still);
}
