//! The registry with real processes: supervisors, owners and starters that race, die and hang.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod checkpoints;
mod clients;
#[path = "../conformance/fixture.rs"]
#[expect(
    dead_code,
    reason = "shared with the conformance suite, which uses all of it"
)]
mod fixture;
mod frozen;
mod hostile;
#[path = "../conformance/sshd.rs"]
mod sshd;

use fixture::{eventually, marker, processes};
use glovebox_proto::{Class, Code, Exec, Exit};
use glovebox_sandbox::{
    Backend, Name, Registry, RegistryConfig, RegistryEntry, SandboxSpec, SandboxState,
    StartOutcome, Supervisor,
};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ACTOR: &str = env!("CARGO_BIN_EXE_actor");

/// A state directory of its own.
struct Place {
    temp: tempfile::TempDir,
    registry: Registry,
}

impl Place {
    fn new() -> Self {
        let temp = tempfile::Builder::new()
            .prefix("glovebox-registry-")
            .tempdir()
            .unwrap();
        let registry = registry(&temp.path().join("state"), 16);
        Self { temp, registry }
    }

    fn state(&self) -> PathBuf {
        self.temp.path().join("state")
    }

    fn start(&self, text: &str) -> (RegistryEntry, StartOutcome) {
        self.registry
            .start(&spec(), &name(text), &supervisor())
            .unwrap()
    }

    fn entry(&self, text: &str) -> Option<RegistryEntry> {
        self.registry.entry(&name(text)).unwrap()
    }

    /// Nothing is left: no sandbox, no orphan, no lease, no half-made or half-removed directory.
    fn assert_clean(&self) {
        assert_eq!(self.registry.list().unwrap(), []);
        assert_eq!(self.registry.orphans().unwrap(), []);
        for room in ["sandboxes", "staging", "trash"] {
            assert_eq!(
                fs::read_dir(self.state().join(room)).unwrap().count(),
                0,
                "{room}"
            );
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for entry in self.registry.list().unwrap_or_default() {
            let _ = self.registry.kill(&entry.name);
        }
    }
}

fn registry(state: &std::path::Path, max_sandboxes: u32) -> Registry {
    Registry::open(RegistryConfig {
        state_dir: state.to_owned(),
        max_sandboxes,
        seed_maker: None,
    })
    .unwrap()
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn spec() -> SandboxSpec {
    let mut spec = SandboxSpec::new(Backend::HOST);
    spec.jail.env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    spec
}

fn supervisor() -> Supervisor {
    Supervisor {
        exe: PathBuf::from(ACTOR),
    }
}

fn actor(words: &[&str]) -> Child {
    let child = Command::new(ACTOR)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    child.unwrap()
}

fn said(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    line.trim().to_owned()
}

fn signal(pid: u32, signal: &str) {
    assert!(
        Command::new("kill")
            .args([signal, &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

fn job(sandbox: &glovebox_sandbox::Sandbox, marker: &str) {
    sandbox.start_job(Exec::new(["sleep", marker])).unwrap();
    assert!(eventually(|| processes(marker).len() == 1));
}

#[test]
fn a_named_sandbox_is_made_once_and_serves() {
    let place = Place::new();
    let (entry, started) = place.start("dev");
    assert_eq!(
        (entry.state, started),
        (SandboxState::Ready, StartOutcome::Created)
    );
    assert!(entry.is_supervised && entry.pid.is_some() && entry.problem.is_none());
    assert_eq!(entry.backend, "host");
    assert_eq!(place.start("dev").1, StartOutcome::Existing);

    let sandbox = place.registry.connect(&name("dev")).unwrap();
    let output = sandbox
        .exec(Exec::new(["sh", "-c", "echo $PPID; exit 3"]))
        .unwrap();
    assert_eq!(output.report.exit, Exit::Code(3));
    let report = sandbox.report().unwrap();
    assert_eq!(report.backend, "host");
    assert!(!report.facts.is_null());
    drop(sandbox);

    let killed = place.registry.kill(&name("dev")).unwrap();
    assert_eq!((killed.was, killed.forced), (SandboxState::Ready, false));
    place.assert_clean();
    assert_eq!(
        place.registry.kill(&name("dev")).unwrap().was,
        SandboxState::Gone
    );
    let fault = place.registry.connect(&name("dev")).unwrap_err();
    assert_eq!(fault.code, Code::SandboxNotFound);
}

#[test]
fn racing_starters_make_one_sandbox() {
    let place = Place::new();
    let state = place.state();
    for round in 0..5 {
        let text = format!("race-{round}");
        let children: Vec<_> = (0..8)
            .map(|_| actor(&["start", state.to_str().unwrap(), &text, "16"]))
            .collect();
        let mut words: Vec<_> = children
            .into_iter()
            .map(|mut child| {
                let word = said(&mut child);
                assert!(child.wait().unwrap().success());
                word
            })
            .collect();
        words.sort();
        let mut expected = vec!["Existing".to_owned(); 8];
        expected[0] = "Created".to_owned();
        assert_eq!(words, expected);
    }
    assert_eq!(place.registry.list().unwrap().len(), 5);
}

#[test]
fn killing_and_starting_may_race() {
    let place = Place::new();
    let state = place.state();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let state = &state;
            scope.spawn(move || {
                for _ in 0..6 {
                    let mut child = actor(&["start", state.to_str().unwrap(), "shared", "16"]);
                    let word = said(&mut child);
                    child.wait().unwrap();
                    // Whoever is killed while starting is told so; nothing hangs or stays behind.
                    assert!(
                        [
                            "Created",
                            "Existing",
                            "link-lost",
                            "timed-out",
                            "io",
                            "sandbox-not-found"
                        ]
                        .contains(&&word[..]),
                        "{word}"
                    );
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..10 {
                let killed = place.registry.kill(&name("shared"));
                if let Err(fault) = killed {
                    assert_eq!(fault.code, Code::Busy, "{fault}");
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
    });
    place.registry.kill(&name("shared")).unwrap();
    place.assert_clean();
}

#[test]
fn the_number_of_sandboxes_is_bounded_over_all_processes() {
    let place = Place::new();
    let state = place.state();
    let state_text = state.to_str().unwrap();
    let mut owners: Vec<_> = (0..3)
        .map(|index| actor(&["own", state_text, &format!("own-{index}"), "4"]))
        .collect();
    for owner in &mut owners {
        assert_eq!(said(owner), "ready");
    }
    let mut fourth = actor(&["start", state_text, "fourth", "4"]);
    assert_eq!(said(&mut fourth), "Created");
    fourth.wait().unwrap();
    let mut fifth = actor(&["start", state_text, "fifth", "4"]);
    assert_eq!(said(&mut fifth), "too-many-sandboxes");
    fifth.wait().unwrap();
    let small = registry(&state, 4);
    let fault = small.create(&spec(), None).unwrap_err();
    assert_eq!(
        (fault.class, fault.code),
        (Class::Refused, Code::TooManySandboxes)
    );
    assert!(fault.remedy.unwrap().to_string().contains("max_sandboxes"));
    // What was refused left nothing.
    assert_eq!(small.list().unwrap().len(), 4);

    // An existing one needs no room.
    let mut again = actor(&["start", state_text, "fourth", "4"]);
    assert_eq!(said(&mut again), "Existing");
    again.wait().unwrap();
    // Room comes back when an owner dies, however it dies.
    owners[0].kill().unwrap();
    owners[0].wait().unwrap();
    drop(small.create(&spec(), None).unwrap());
    for owner in &mut owners[1..] {
        drop(owner.stdin.take());
        assert!(owner.wait().unwrap().success());
    }
}

#[test]
fn death_of_a_supervisor_ends_its_sandbox() {
    let place = Place::new();
    let (entry, _) = place.start("dev");
    let sandbox = place.registry.connect(&name("dev")).unwrap();
    let marker = marker();
    job(&sandbox, &marker);
    signal(entry.pid.unwrap(), "-9");
    assert!(eventually(|| processes(&marker).is_empty()));
    assert_eq!(sandbox.ping().unwrap_err().class, Class::Lost);
    // The next start of anything sweeps.
    let other = registry(&place.state(), 16);
    assert_eq!(other.list().unwrap(), []);
    place.assert_clean();
    assert_eq!(place.start("dev").1, StartOutcome::Created);
}

#[test]
fn the_death_of_an_owner_ends_its_sandbox_too() {
    let place = Place::new();
    let mut owner = actor(&["own", place.state().to_str().unwrap(), "own", "16"]);
    assert_eq!(said(&mut owner), "ready");
    let entry = place.entry("own").unwrap();
    assert_eq!(
        (entry.state, entry.is_supervised, entry.pid),
        (SandboxState::Ready, false, Some(owner.id()))
    );
    let fault = place.registry.connect(&name("own")).unwrap_err();
    assert_eq!(fault.code, Code::SandboxNotRunning);
    assert_eq!(
        place
            .registry
            .create(&spec(), Some(name("own")))
            .unwrap_err()
            .code,
        Code::AlreadyExists
    );
    let start = place.registry.start(&spec(), &name("own"), &supervisor());
    assert_eq!(start.unwrap_err().code, Code::AlreadyExists);
    owner.kill().unwrap();
    owner.wait().unwrap();
    let orphans = place.registry.orphans().unwrap();
    assert!(
        orphans.iter().any(|orphan| orphan.kind == "sandbox"),
        "{orphans:?}"
    );
    assert_eq!(
        place
            .registry
            .sweep()
            .unwrap()
            .iter()
            .filter(|orphan| orphan.kind == "sandbox")
            .count(),
        1
    );
    place.assert_clean();
}

#[test]
fn a_sandbox_of_another_process_can_be_killed_without_that_process() {
    let place = Place::new();
    let mut owner = actor(&["own", place.state().to_str().unwrap(), "own", "16"]);
    assert_eq!(said(&mut owner), "ready");
    let killed = place.registry.kill(&name("own")).unwrap();
    assert_eq!(killed.was, SandboxState::Ready);
    assert_eq!(place.entry("own"), None);
    assert!(owner.try_wait().unwrap().is_none(), "the owner was killed");
    drop(owner.stdin.take());
    assert!(owner.wait().unwrap().success());
    place.assert_clean();
}

#[test]
fn a_supervisor_that_hangs_is_ended() {
    let place = Place::new();
    let (entry, _) = place.start("dev");
    let sandbox = place.registry.connect(&name("dev")).unwrap();
    let marker = marker();
    job(&sandbox, &marker);
    signal(entry.pid.unwrap(), "-STOP");
    let killed = place.registry.kill(&name("dev")).unwrap();
    assert!(killed.forced);
    assert!(eventually(|| processes(&marker).is_empty()));
    place.assert_clean();
}

#[test]
fn broken_files_stand_in_nobodys_way() {
    let place = Place::new();
    for (text, file) in [
        ("live-status", "status.json"),
        ("live-spec", "spec.json"),
        ("live-both", "both"),
    ] {
        place.start(text);
        let dir = place.state().join("sandboxes").join(text);
        for one in ["status.json", "spec.json"] {
            if file == one || file == "both" {
                fs::write(dir.join(one), "{\"version\":1,\"nonsense\":true}").unwrap();
            }
        }
        let entry = place.entry(text).unwrap();
        assert!(entry.problem.unwrap().contains("corrupt"), "{text}");
        place.registry.kill(&name(text)).unwrap();
    }
    let dead = place.state().join("sandboxes/dead");
    fs::create_dir(&dead).unwrap();
    fs::write(dead.join("status.json"), [0xff, 0x00]).unwrap();
    assert_eq!(place.entry("dead").unwrap().state, SandboxState::Lost);
    assert_eq!(place.registry.list().unwrap().len(), 1);
    assert_eq!(
        place.registry.kill(&name("dead")).unwrap().was,
        SandboxState::Lost
    );
    place.assert_clean();
    // A file where a directory should be is somebody's mistake, and named as such.
    fs::write(place.state().join("sandboxes/file"), "").unwrap();
    let fault = place
        .registry
        .start(&spec(), &name("file"), &supervisor())
        .unwrap_err();
    assert!(fault.message.contains("sandboxes/file"), "{fault}");
    fs::remove_file(place.state().join("sandboxes/file")).unwrap();
}

#[test]
fn a_start_that_fails_says_why_and_leaves_nothing() {
    let place = Place::new();
    let mut bad = spec();
    bad.cwd = Some(PathBuf::from("/no/such/dir"));
    let fault = place
        .registry
        .start(&bad, &name("dev"), &supervisor())
        .unwrap_err();
    assert_eq!(fault.code, Code::CwdNotFound, "{fault}");
    let missing = Supervisor {
        exe: PathBuf::from("/no/such/program"),
    };
    let fault = place
        .registry
        .start(&spec(), &name("dev"), &missing)
        .unwrap_err();
    assert!(fault.message.contains("/no/such/program"), "{fault}");
    let stranger = Supervisor {
        exe: PathBuf::from("/bin/true"),
    };
    let fault = place
        .registry
        .start(&spec(), &name("dev"), &stranger)
        .unwrap_err();
    assert_eq!(fault.code, Code::LinkLost, "{fault}");
    let mut slow = spec();
    slow.start_ms = 300;
    slow.backend = Backend::COMMAND;
    slow.set_option("carrier", ["sh", "-c", "exec sleep 600", "sh"]);
    let begin = Instant::now();
    let fault = place
        .registry
        .start(&slow, &name("dev"), &supervisor())
        .unwrap_err();
    assert!(
        [Code::TimedOut, Code::CarrierFailed].contains(&fault.code),
        "{fault}"
    );
    assert!(begin.elapsed() < Duration::from_secs(12));
    place.assert_clean();
}

#[test]
fn limits_on_time_end_a_supervised_sandbox() {
    let place = Place::new();
    let mut walled = spec();
    walled.jail.limits.wall_ms = Some(600);
    place
        .registry
        .start(&walled, &name("walled"), &supervisor())
        .unwrap();
    let sandbox = place.registry.connect(&name("walled")).unwrap();
    let fault = sandbox.exec(Exec::new(["sleep", "60"])).unwrap_err();
    assert!(fault.message.contains("wall-clock limit"), "{fault}");
    assert!(eventually(|| place.entry("walled").is_none()));

    let mut leased = spec();
    leased.lease_ms = Some(500);
    place
        .registry
        .start(&leased, &name("leased"), &supervisor())
        .unwrap();
    let holds = place.registry.connect(&name("leased")).unwrap();
    std::thread::sleep(Duration::from_millis(900));
    assert!(
        holds.ping().is_ok(),
        "the lease passed while a client was connected"
    );
    drop(holds);
    assert!(eventually(|| place.entry("leased").is_none()));
    // The name is free a moment before the last file is gone.
    assert!(eventually(|| fs::read_dir(place.state().join("trash"))
        .unwrap()
        .count()
        == 0));
    place.assert_clean();
}

#[test]
fn a_lost_native_sandbox_keeps_its_work_until_it_is_resumed_or_killed() {
    let place = Place::new();
    let mut native = SandboxSpec::new(Backend::NATIVE);
    native.jail.env = spec().jail.env;
    let (entry, _) = match place.registry.start(&native, &name("dev"), &supervisor()) {
        Ok(started) => started,
        Err(fault) => testkit::skip!("no native sandboxes here: {fault}"),
    };
    let sandbox = place.registry.connect(&name("dev")).unwrap();
    sandbox
        .write_file(
            b"/workspace/work",
            glovebox_proto::WriteMode::Replace,
            b"done",
        )
        .unwrap();
    drop(sandbox);
    signal(entry.pid.unwrap(), "-9");
    assert!(eventually(
        || place.entry("dev").unwrap().state == SandboxState::Lost
    ));
    let other = registry(&place.state(), 16);
    assert_eq!(
        other.entry(&name("dev")).unwrap().unwrap().state,
        SandboxState::Lost
    );
    assert_eq!(
        other.connect(&name("dev")).unwrap_err().code,
        Code::SandboxNotRunning
    );

    let (entry, started) = other.start(&native, &name("dev"), &supervisor()).unwrap();
    assert_eq!(
        (entry.state, started),
        (SandboxState::Ready, StartOutcome::Resumed)
    );
    let sandbox = other.connect(&name("dev")).unwrap();
    assert_eq!(sandbox.read_file(b"/workspace/work", 100).unwrap(), b"done");
    drop(sandbox);
    assert_eq!(other.kill(&name("dev")).unwrap().was, SandboxState::Ready);
    place.assert_clean();
}
