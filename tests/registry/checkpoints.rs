//! Checkpoints, forks and the layers they share, with real supervisors.

use crate::{Place, name, signal, supervisor};
use glovebox_proto::{Code, Exec, Exit, JobId, Reply, Request};
use glovebox_sandbox::{Backend, Sandbox, SandboxSpec, Started, State};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A place with a project and native sandboxes.
struct Ground {
    place: Place,
}

impl Ground {
    fn new() -> Self {
        let place = Place::new();
        let ground = Self { place };
        fs::create_dir(ground.project()).unwrap();
        fs::write(ground.project().join("base"), "base\n").unwrap();
        ground
    }

    fn project(&self) -> PathBuf {
        self.place.temp.path().join("project")
    }

    fn spec(&self) -> SandboxSpec {
        let mut spec = SandboxSpec::new(Backend::Native);
        spec.jail.workspace = Some(self.project());
        spec.jail.env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        spec
    }

    fn start(&self, text: &str) -> Started {
        let started = self
            .place
            .registry
            .start(&self.spec(), &name(text), &supervisor());
        started.unwrap().1
    }

    fn sh(&self, text: &str, script: &str) -> String {
        let sandbox = self.place.registry.connect(&name(text)).unwrap();
        let mut exec = Exec::new(["sh", "-c", script]);
        exec.timeout_ms = Some(60_000);
        let output = sandbox.exec(exec).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            output.report.exit,
            Exit::Code(0),
            "`{script}` in {text}: {said}"
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn checkpoint(&self, text: &str) -> String {
        self.place
            .registry
            .checkpoint(&name(text), None, false)
            .unwrap()
            .id
    }

    fn restore(&self, text: &str, id: &str) {
        self.place.registry.restore(&name(text), id).unwrap();
    }

    fn fork(&self, text: &str, new: &str, from: Option<&str>) {
        let forked = self
            .place
            .registry
            .fork(&name(text), &name(new), from)
            .unwrap();
        let (_, started) = self
            .place
            .registry
            .start(&forked.spec, &name(new), &supervisor())
            .unwrap();
        assert_eq!(started, Started::Resumed);
    }

    fn layers(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = fs::read_dir(self.place.state().join("layers"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
            .collect();
        found.sort();
        found
    }

    fn kill_supervisor(&self, text: &str) {
        let pid = self.place.entry(text).unwrap().pid.unwrap();
        signal(pid, "-KILL");
        let until = Instant::now() + Duration::from_secs(5);
        while self.place.entry(text).unwrap().state != State::Lost {
            assert!(Instant::now() < until, "it still lives");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn await_job(sandbox: &Sandbox, job: JobId) {
    let wait_ms = Some(60_000);
    match sandbox.call(Request::JobWait { job, wait_ms }).unwrap() {
        Reply::Exited(report) => assert_eq!(report.exit, Exit::Code(0)),
        other => panic!("{other:?}"),
    }
}

/// Names, kinds, modes and contents below a directory.
fn picture(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            found.insert(
                path.clone(),
                format!("{:o} {} {content:?}", meta.mode(), meta.uid()),
            );
            if meta.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

#[test]
fn a_sandbox_goes_back_to_what_it_was() {
    let ground = Ground::new();
    ground.start("a");
    ground.sh("a", "echo 1 > one; mkdir -p d/e; echo x > d/e/f; echo r > /tmp/root; rm base; chmod 711 /workspace");
    assert_eq!(ground.checkpoint("a"), "v1");
    assert_eq!(
        ground.sh("a", "cat one d/e/f /tmp/root; ls; stat -c %a ."),
        "1\nx\nr\nd\none\n711\n"
    );
    ground.sh(
        "a",
        "rm -r d; mkdir d; echo 2 > two; echo 1b >> one; rm /tmp/root; echo back > base",
    );
    assert_eq!(ground.checkpoint("a"), "v2");
    assert_eq!(
        ground.sh("a", "find . -type f | sort; cat one base"),
        "./base\n./one\n./two\n1\n1b\nback\n"
    );
    ground.sh("a", "rm one two");
    ground.restore("a", "v2");
    assert_eq!(
        ground.sh("a", "find . -type f | sort; ls -A d"),
        "./base\n./one\n./two\n"
    );
    ground.restore("a", "v1");
    assert_eq!(
        ground.sh("a", "find . -type f | sort; cat /tmp/root"),
        "./d/e/f\n./one\nr\n"
    );
    // Later ones stay, and time goes on from the one that was restored.
    ground.sh("a", "echo 3 > three");
    assert_eq!(ground.checkpoint("a"), "v3");
    let found = ground.place.registry.checkpoints(&name("a")).unwrap();
    let list: Vec<_> = found
        .list
        .iter()
        .map(|one| (one.id.as_str(), one.parent.as_deref()))
        .collect();
    assert_eq!(list, [("v1", None), ("v2", Some("v1")), ("v3", Some("v1"))]);
    assert_eq!(found.current.as_deref(), Some("v3"));
    let missing = ground.place.registry.restore(&name("a"), "v9").unwrap_err();
    assert_eq!(missing.code, Code::NotFound);
    assert_eq!(
        ground
            .place
            .registry
            .restore(&name("a"), "../v1")
            .unwrap_err()
            .code,
        Code::NotFound
    );
    assert_eq!(ground.sh("a", "cat three"), "3\n");
    assert_eq!(
        fs::read_to_string(ground.project().join("base")).unwrap(),
        "base\n"
    );
}

/// Probe 48: forks of one checkpoint know nothing of each other, and what they share stays as it is,
/// whatever is done to it.
#[test]
fn probe_48_checkpoint_isolation() {
    let ground = Ground::new();
    ground.start("base");
    ground.sh(
        "base",
        "echo shared > file; mkdir dir; echo in > dir/in; echo t > /tmp/t; seq 10000 > big",
    );
    ground.checkpoint("base");
    let before: Vec<_> = ground.layers().iter().map(|path| picture(path)).collect();
    ground.fork("base", "a", Some("v1"));
    ground.fork("base", "b", Some("v1"));
    // Owned by the sandbox user in each, whoever wrote it.
    assert_eq!(
        ground.sh("a", "stat -c '%u %g' file dir /tmp/t"),
        "1000 1000\n".repeat(3)
    );
    // Probe 49, for frozen layers.
    ground.sh(
        "a",
        "echo a >> file; chmod 700 dir; touch -d @1 dir/in; ln big hard; echo l >> hard; rm dir/in; \
         mv big moved; setfattr -n user.x -v 1 moved 2>/dev/null; rm /tmp/t; mkdir new; true",
    );
    assert_eq!(
        ground.sh("b", "cat file dir/in /tmp/t; wc -l < big; ls"),
        "shared\nin\nt\n10000\nbase\nbig\ndir\nfile\n"
    );
    assert_eq!(ground.sh("base", "cat file dir/in"), "shared\nin\n");
    ground.fork("a", "c", None);
    ground.sh("c", "echo c >> file");
    assert_eq!(
        ground.sh("c", "cat file; ls"),
        "shared\na\nc\nbase\ndir\nfile\nhard\nmoved\nnew\n"
    );
    ground.fork("c", "d", None);
    assert_eq!(
        ground.sh("d", "cat file; stat -c %u file moved; tail -n 1 hard"),
        "shared\na\nc\n1000\n1000\nl\n"
    );
    assert_eq!(ground.sh("a", "cat file"), "shared\na\n");
    let after: Vec<_> = before
        .iter()
        .map(|one| {
            picture(
                one.keys()
                    .next()
                    .unwrap()
                    .ancestors()
                    .find(|path| path.parent().is_some_and(|up| up.ends_with("layers")))
                    .unwrap(),
            )
        })
        .collect();
    assert_eq!(before, after);
    // The end of one is not the end of what another stands on.
    for gone in ["base", "a", "c"] {
        ground.place.registry.kill(&name(gone)).unwrap();
        assert_eq!(
            ground.sh("d", "cat file; wc -l < moved"),
            "shared\na\nc\n10001\n"
        );
    }
    ground.restore("d", "v0");
    assert_eq!(ground.sh("b", "cat file"), "shared\n");
    for gone in ["b", "d"] {
        ground.place.registry.kill(&name(gone)).unwrap();
    }
    assert_eq!(ground.layers(), Vec::<PathBuf>::new());
    ground.place.assert_clean();
}

/// Probe 50: many in a row stay quick to start on, and each can be gone back to.
#[test]
fn probe_50_deep_checkpoints() {
    const COUNT: u32 = 600;
    let ground = Ground::new();
    ground.start("a");
    ground.sh("a", "mkdir d; for i in $(seq 9); do echo $i > d/$i; done");
    for number in 1..=COUNT {
        // Written through the layer's own history: added, changed, removed and made again.
        let sandbox = ground.place.registry.connect(&name("a")).unwrap();
        let text = format!("{number}\n");
        let path = format!("/workspace/d/{}", number % 10);
        let mode = glovebox_proto::WriteMode::Replace;
        sandbox
            .write_file(path.as_bytes(), mode, text.as_bytes())
            .unwrap();
        if number % 50 == 0 {
            drop(sandbox);
            ground.sh("a", "rm -r d; mkdir d");
        }
        ground.checkpoint("a");
    }
    let expected = |number: u32| {
        let first = (number / 50 * 50).max(1);
        let mut files = BTreeMap::new();
        if number < 50 {
            files.extend((1..=9).map(|file| (file, file)));
        }
        files.extend(
            (first..=number)
                .filter(|one| one % 50 != 0)
                .map(|one| (one % 10, one)),
        );
        files
            .into_iter()
            .fold(String::new(), |text, (file, content)| {
                format!("{text}{file} {content}\n")
            })
    };
    let shown = |text: &str| {
        ground.sh(
            text,
            "cd d; for f in *; do [ -e \"$f\" ] && echo \"$f $(cat $f)\"; done; true",
        )
    };
    for number in [COUNT, 1, 49, 50, 51, 333, 599] {
        ground.restore("a", &format!("v{number}"));
        assert_eq!(shown("a"), expected(number), "v{number}");
    }
    let fork = format!("v{}", COUNT - 1);
    let forked = ground
        .place
        .registry
        .fork(&name("a"), &name("b"), Some(&fork))
        .unwrap();
    let begin = Instant::now();
    ground
        .place
        .registry
        .start(&forked.spec, &name("b"), &supervisor())
        .unwrap();
    // The promise is 50 ms; a debug build on a busy machine gets more.
    let took = begin.elapsed();
    assert!(
        took < Duration::from_millis(if cfg!(debug_assertions) { 1000 } else { 50 }),
        "{took:?}"
    );
    assert_eq!(shown("b"), expected(COUNT - 1));
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
    assert!(refused.remedy.unwrap().contains("--live"));
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

/// Everything is restarted: the supervisor dies, a new process looks, and the sandbox goes back.
#[test]
fn checkpoints_outlive_their_owner() {
    let ground = Ground::new();
    ground.start("a");
    ground.sh("a", "echo 1 > one");
    ground.checkpoint("a");
    ground.sh("a", "echo 2 > two; rm one");
    ground.kill_supervisor("a");
    // A sandbox that is not running can be kept, gone back with, and forked.
    assert_eq!(ground.checkpoint("a"), "v2");
    ground.restore("a", "v1");
    ground.fork("a", "b", Some("v2"));
    assert_eq!(ground.sh("b", "ls"), "base\ntwo\n");
    assert_eq!(ground.start("a"), Started::Resumed);
    assert_eq!(ground.sh("a", "ls"), "base\none\n");
    let layers = ground.place.registry.workspace_layers(&name("b")).unwrap();
    assert_eq!(layers.layers.len(), 3, "{layers:?}");
    assert!(layers.layers.iter().all(|path| path.is_dir()));
    let first = ground.place.registry.workspace_layers(&name("a")).unwrap();
    assert_eq!(layers.pushed_unix_ns, first.pushed_unix_ns);
}

#[test]
fn a_deleted_checkpoint_frees_what_nobody_needs() {
    let ground = Ground::new();
    ground.start("a");
    ground.sh("a", "echo 1 > one");
    ground.checkpoint("a");
    ground.sh("a", "echo 2 > two");
    ground.checkpoint("a");
    ground.restore("a", "v1");
    ground.sh("a", "echo 3 > three");
    assert_eq!(ground.layers().len(), 2);
    let registry = &ground.place.registry;
    registry.delete_checkpoint(&name("a"), "v2").unwrap();
    assert_eq!(ground.layers().len(), 1);
    // It is what the sandbox stands on.
    registry.delete_checkpoint(&name("a"), "v1").unwrap();
    assert_eq!(ground.layers().len(), 1);
    assert_eq!(
        registry
            .delete_checkpoint(&name("a"), "v1")
            .unwrap_err()
            .code,
        Code::NotFound
    );
    assert_eq!(ground.sh("a", "cat one three"), "1\n3\n");
    assert_eq!(registry.checkpoints(&name("a")).unwrap().current, None);
    // The names go on.
    assert_eq!(ground.checkpoint("a"), "v3");
    registry.kill(&name("a")).unwrap();
    assert_eq!(ground.layers(), Vec::<PathBuf>::new());
}

/// The disk limit counts what was frozen.
#[test]
fn frozen_layers_count_against_the_disk_limit() {
    let ground = Ground::new();
    let mut spec = ground.spec();
    spec.jail.limits.disk_bytes = Some(8 << 20);
    let start = |text: &str| {
        ground
            .place
            .registry
            .start(&spec, &name(text), &supervisor())
            .unwrap()
    };
    start("a");
    ground.sh("a", "dd if=/dev/zero of=first bs=1M count=5 2>/dev/null");
    ground.checkpoint("a");
    let sandbox = ground.place.registry.connect(&name("a")).unwrap();
    let mut exec = Exec::new([
        "sh",
        "-c",
        "dd if=/dev/zero of=second bs=1M count=5; sleep 30",
    ]);
    exec.timeout_ms = Some(20_000);
    let fault = sandbox.exec(exec).unwrap_err();
    assert!(fault.message.contains("disk limit"), "{fault}");
}

#[test]
fn only_layers_on_disk_have_checkpoints() {
    let ground = Ground::new();
    ground.place.start("host");
    let mut spec = ground.spec();
    spec.jail.layers = glovebox_sandbox::jail::spec::Layers::Memory;
    spec.jail.limits.disk_bytes = Some(8 << 20);
    ground
        .place
        .registry
        .start(&spec, &name("memory"), &supervisor())
        .unwrap();
    for text in ["host", "memory"] {
        let fault = ground
            .place
            .registry
            .checkpoint(&name(text), None, false)
            .unwrap_err();
        assert_eq!(fault.code, Code::Unsupported);
    }
    let fault = ground
        .place
        .registry
        .checkpoint(&name("none"), None, false)
        .unwrap_err();
    assert_eq!(fault.code, Code::SandboxNotFound);
    let own = ground
        .place
        .registry
        .create(&ground.spec(), Some(name("own")))
        .unwrap();
    let fault = ground
        .place
        .registry
        .checkpoint(&name("own"), None, false)
        .unwrap_err();
    assert_eq!(fault.code, Code::SandboxNotRunning);
    own.destroy().unwrap();
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
