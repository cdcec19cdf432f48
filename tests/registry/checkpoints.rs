//! Checkpoints, forks and the layers they share, with real supervisors.

use crate::fixture::eventually;
use crate::{Place, name, signal, supervisor};
use glovebox_proto::{Code, Exec, Exit};
use glovebox_sandbox::{Backend, SandboxSpec, SandboxState, StartOutcome};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A place with a project and native sandboxes.
pub(crate) struct Ground {
    pub(crate) place: Place,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let place = Place::new();
        let ground = Self { place };
        fs::create_dir(ground.project()).unwrap();
        fs::write(ground.project().join("base"), "base\n").unwrap();
        ground
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.place.temp.path().join("project")
    }

    pub(crate) fn spec(&self) -> SandboxSpec {
        let mut spec = SandboxSpec::new(Backend::NATIVE);
        spec.jail.workspace = Some(self.project());
        spec.jail.env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        spec
    }

    pub(crate) fn start(&self, text: &str) -> StartOutcome {
        let started = self
            .place
            .registry
            .start(&self.spec(), &name(text), &supervisor());
        started.unwrap().1
    }

    pub(crate) fn sh(&self, text: &str, script: &str) -> String {
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

    pub(crate) fn checkpoint(&self, text: &str) -> String {
        self.place
            .registry
            .checkpoint(&name(text), None, false)
            .unwrap()
            .id
    }

    pub(crate) fn restore(&self, text: &str, id: &str) {
        self.place.registry.restore(&name(text), id).unwrap();
    }

    pub(crate) fn fork(&self, text: &str, new: &str, from: Option<&str>) {
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
        assert_eq!(started, StartOutcome::Resumed);
    }

    pub(crate) fn layers(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = fs::read_dir(self.place.state().join("layers"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
            .collect();
        found.sort();
        found
    }

    pub(crate) fn kill_supervisor(&self, text: &str) {
        let pid = self.place.entry(text).unwrap().pid.unwrap();
        signal(pid, "-KILL");
        let until = Instant::now() + Duration::from_secs(5);
        while self.place.entry(text).unwrap().state != SandboxState::Lost {
            assert!(Instant::now() < until, "it still lives");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Names, kinds, modes and contents below a directory.
pub(crate) fn picture(dir: &Path) -> BTreeMap<PathBuf, String> {
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
    assert_eq!(ground.start("a"), StartOutcome::Resumed);
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
    // The sandbox's own process may be at it.
    assert!(eventually(|| ground.layers().len() == 1));
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
    assert!(eventually(|| ground.layers().is_empty()));
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
    let mut without = vec!["host"];
    if testkit::has_layers_in_memory() {
        let mut spec = ground.spec();
        spec.jail.layers = glovebox_spec::Layers::Memory;
        spec.jail.limits.disk_bytes = Some(8 << 20);
        ground
            .place
            .registry
            .start(&spec, &name("memory"), &supervisor())
            .unwrap();
        without.push("memory");
    }
    for text in without {
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
