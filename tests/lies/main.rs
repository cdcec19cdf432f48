//! Sandboxes on a kernel that lies.
//!
//! A seccomp filter around glovebox answers one system call of the set-up with ENOSYS, with EPERM, or with
//! success although nothing has happened. Whatever is answered, one of two things must follow: glovebox
//! refuses the sandbox in words, or a program inside finds every wall in place that the report names.
//!
//! Everything is tried as whoever runs the tests and, when that is root, as an ordinary user too.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]
#![expect(
    clippy::print_stdout,
    reason = "what became of each lie, shown when a test fails"
)]

mod filter;
mod refused;
mod witness;

use filter::Condition::{Always, AnyBit, Equals};
use filter::{Call, Condition, Lie, glovebox_under};
use serde_json::Value;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::{Person, Process, has_program, marker, skip, wait_until};
use witness::{Testimony, state};

/// How long a call of glovebox may take; nothing here needs a tenth of it on an idle machine.
const HANG: Duration = Duration::from_mins(1);

const fn call(name: &'static str, number: libc::c_long, condition: Condition) -> Call {
    Call {
        name,
        number,
        condition,
    }
}

/// `CLONE_NEW*` of clone(2) and unshare(2).
const NEW_NAMESPACES: u32 = 0x7e02_0080;

/// Ids, groups and capabilities.
const IDENTITY: [Call; 11] = [
    call("setresuid", libc::SYS_setresuid, Always),
    call("setresgid", libc::SYS_setresgid, Always),
    call("setgroups", libc::SYS_setgroups, Always),
    call("capset", libc::SYS_capset, Always),
    call("prctl PDEATHSIG", libc::SYS_prctl, Equals(0, 1)),
    call("prctl DUMPABLE", libc::SYS_prctl, Equals(0, 4)),
    call("prctl CAPBSET_DROP", libc::SYS_prctl, Equals(0, 24)),
    call("prctl SECUREBITS", libc::SYS_prctl, Equals(0, 28)),
    call("prctl CHILD_SUBREAPER", libc::SYS_prctl, Equals(0, 36)),
    call("prctl NO_NEW_PRIVS", libc::SYS_prctl, Equals(0, 38)),
    call("prctl CAP_AMBIENT", libc::SYS_prctl, Equals(0, 47)),
];

/// Namespaces, and what is set in them.
const NAMESPACES: [Call; 6] = [
    call("clone", libc::SYS_clone, AnyBit(0, NEW_NAMESPACES)),
    call("unshare", libc::SYS_unshare, Always),
    call("unshare CGROUP", libc::SYS_unshare, AnyBit(0, 0x200_0000)),
    call("setns", libc::SYS_setns, Always),
    call("sethostname", libc::SYS_sethostname, Always),
    // KEYCTL_JOIN_SESSION_KEYRING
    call("keyctl", libc::SYS_keyctl, Equals(0, 1)),
];

/// Mounts.
const MOUNTS: [Call; 12] = [
    call("fsopen", libc::SYS_fsopen, Always),
    call("fsconfig", libc::SYS_fsconfig, Always),
    call("fsmount", libc::SYS_fsmount, Always),
    call("open_tree", libc::SYS_open_tree, Always),
    call("openat2", libc::SYS_openat2, Always),
    call("move_mount", libc::SYS_move_mount, Always),
    call("mount", libc::SYS_mount, Always),
    call("mount_setattr", libc::SYS_mount_setattr, Always),
    call("pivot_root", libc::SYS_pivot_root, Always),
    call("umount2", libc::SYS_umount2, Always),
    call("fchdir", libc::SYS_fchdir, Always),
    call("chdir", libc::SYS_chdir, Always),
];

/// What commands may do with what they see.
const CONFINEMENT: [Call; 8] = [
    call("seccomp", libc::SYS_seccomp, Always),
    call(
        "landlock_create_ruleset",
        libc::SYS_landlock_create_ruleset,
        Always,
    ),
    call("landlock_add_rule", libc::SYS_landlock_add_rule, Always),
    call(
        "landlock_restrict_self",
        libc::SYS_landlock_restrict_self,
        Always,
    ),
    // Only where a new limit is given.
    call("prlimit64", libc::SYS_prlimit64, AnyBit(2, u32::MAX)),
    call("close_range", libc::SYS_close_range, Always),
    call("dup3", libc::SYS_dup3, Always),
    call("setsid", libc::SYS_setsid, Always),
];

/// A call that glovebox never makes, so that a lie about it is none: the twin of all others.
const UNUSED: Call = call("acct", libc::SYS_acct, Always);

#[test]
fn lies_about_identity() {
    expose(&IDENTITY);
}

#[test]
fn lies_about_namespaces() {
    expose(&NAMESPACES);
}

#[test]
fn lies_about_mounts() {
    expose(&MOUNTS);
}

#[test]
fn lies_about_confinement() {
    expose(&CONFINEMENT);
}

/// Tries every lie about every one of `calls`, and the truth about all.
fn expose(calls: &[Call]) {
    if !has_program("perl") {
        skip!("needs perl");
    }
    let mut wrong = Vec::new();
    Person::each(|person| {
        let scene = Scene::new(person);
        let honest = scene.run(UNUSED, Lie::NotPermitted);
        assert!(honest.has_run(), "the twin does not run: {honest:#?}");
        wrong.extend(honest.complaints(person));
        for call in calls {
            for lie in Lie::ALL {
                let run = scene.run(*call, lie);
                let who = person.name();
                println!(
                    "{who}, {}, {lie:?}: {:?} {}",
                    call.name,
                    run.code,
                    run.err.trim()
                );
                for what in run.complaints(person) {
                    wrong.push(format!("as {who}: {}, {lie:?}: {what}", call.name));
                }
            }
        }
        person.assert_nothing_lives();
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is built differently by an option is seen through as well: every lie without which a wall would be
/// missing is refused.
#[test]
fn lies_in_other_shapes() {
    const SHAPES: [&[&str]; 6] = [
        &["--rootfs", "host-all"],
        &["--layers", "memory"],
        &["--proc", "none"],
        &["--proc", "pids"],
        &["--workspace", "live"],
        &["--workspace", "read-only"],
    ];
    const LIES: [&str; 7] = [
        "setns",
        "unshare CGROUP",
        "sethostname",
        "mount_setattr",
        "prlimit64",
        "seccomp",
        "prctl SECUREBITS",
    ];
    if !has_program("perl") {
        skip!("needs perl");
    }
    let calls: Vec<Call> = [&IDENTITY[..], &NAMESPACES, &MOUNTS, &CONFINEMENT]
        .concat()
        .into_iter()
        .filter(|call| LIES.contains(&call.name))
        .collect();
    assert_eq!(calls.len(), LIES.len());
    let mut wrong = Vec::new();
    Person::each(|person| {
        let scene = Scene::new(person);
        for shape in SHAPES {
            if shape.contains(&"memory") && !testkit::has_layers_in_memory() {
                continue;
            }
            let twin = scene.run_with(UNUSED, Lie::NoEffect, shape, None);
            if !twin.has_run() {
                wrong.push(format!("as {}, {shape:?}: {}", person.name(), twin.err));
            }
            for call in &calls {
                let run = scene.run_with(*call, Lie::NoEffect, shape, None);
                if run.code != Some(125) {
                    let who = person.name();
                    wrong.push(format!(
                        "as {who}, {shape:?}: {}: {:?}",
                        call.name, run.code
                    ));
                }
            }
        }
        person.assert_nothing_lives();
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// With the host's network shared, only Landlock keeps commands from the host's abstract sockets. The report
/// says so where it does not.
#[test]
fn lies_about_landlock_with_a_shared_network() {
    if !has_program("perl") {
        skip!("needs perl");
    }
    let name = format!("glovebox-lies-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let mut wrong = Vec::new();
    Person::each(|person| {
        let scene = Scene::new(person);
        let calls = [UNUSED].into_iter().chain(CONFINEMENT);
        for call in
            calls.filter(|call| call.name == UNUSED.name || call.name.starts_with("landlock"))
        {
            for lie in Lie::ALL {
                let run = scene.run_with(call, lie, &["--net", "host"], Some(&name));
                let complaint = |what: &str| {
                    let (who, degraded) = (person.name(), &run.report["degraded"]);
                    let (code, err) = (run.code, run.err.trim());
                    let name = call.name;
                    format!("as {who}: {name}, {lie:?}: {what}: {code:?} {err:?} {degraded}")
                };
                if !run.has_run() {
                    if call.name == UNUSED.name || run.code != Some(125) {
                        wrong.push(complaint("it does not run"));
                    }
                    continue;
                }
                let is_reached = run.testimony.get("abstract") == "done";
                let is_admitted = run.report["degraded"].to_string().contains("abstract");
                if is_reached != is_admitted {
                    wrong.push(complaint("the report is wrong about abstract sockets"));
                }
                if state(&run.report, "network") != "absent" {
                    wrong.push(complaint("a shared network is no wall"));
                }
            }
        }
        person.assert_nothing_lives();
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `doctor` finds out that a wall is accepted and not applied.
#[test]
fn lies_to_the_doctor() {
    if !has_program("perl") {
        skip!("needs perl");
    }
    let state_of = |person: &Person, call: Call, finding: &str| {
        let output = glovebox_under(person, call, Lie::NoEffect)
            .args(["doctor", "--json"])
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["data"]["findings"].as_array().unwrap();
        let found = findings.iter().find(|found| found["id"] == finding);
        found.unwrap()["state"].as_str().unwrap().to_owned()
    };
    let find = |name: &str| {
        CONFINEMENT
            .into_iter()
            .find(|call| call.name == name)
            .unwrap()
    };
    Person::each(|person| {
        assert_eq!(
            state_of(person, UNUSED, "seccomp"),
            "ok",
            "as {}",
            person.name()
        );
        assert_eq!(
            state_of(person, find("seccomp"), "seccomp"),
            "missing",
            "as {}",
            person.name()
        );
        if state_of(person, UNUSED, "landlock") == "ok" {
            let state = state_of(person, find("landlock_restrict_self"), "landlock");
            assert_eq!(state, "missing", "as {}", person.name());
        }
    });
}

/// What a person's sandboxes are tried against: files and a process outside.
struct Scene<'a> {
    person: &'a Person,
    marker: String,
    canary: Child,
}

/// One start under a lie.
#[derive(Debug)]
struct Run {
    /// `None` when it had to be killed.
    code: Option<i32>,
    err: String,
    testimony: Testimony,
    report: Value,
}

impl<'a> Scene<'a> {
    fn new(person: &'a Person) -> Self {
        person.write("outside/secret", "secret");
        person.write("granted/file", "granted");
        // Nothing but the mount being read-only keeps anybody from writing here.
        let granted = person.place().root().join("granted");
        fs::set_permissions(granted, fs::Permissions::from_mode(0o777)).unwrap();
        let marker = marker();
        let canary = Command::new("sleep").arg(&marker).spawn().unwrap();
        Self {
            person,
            marker,
            canary,
        }
    }

    fn run(&self, call: Call, lie: Lie) -> Run {
        self.run_with(call, lie, &[], None)
    }

    fn run_with(&self, call: Call, lie: Lie, options: &[&str], abstract_name: Option<&str>) -> Run {
        let root = self.person.place().root();
        let report = root.join("home/report.json");
        let _ = fs::remove_file(&report);
        let grant = format!("{}:/granted", root.join("granted").display());
        let mut command = glovebox_under(self.person, call, lie);
        command
            .args(["run", "--quiet", "--no-toolchains", "--timeout", "30s"])
            .args(["--apply", "never"])
            .args(["--grant", &grant, "--report"])
            .arg(&report)
            .args(options)
            .arg("--")
            .args(witness::command(
                &root.join("outside/secret"),
                &self.marker,
                abstract_name,
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let is_over = wait_until(HANG, || child.try_wait().unwrap().is_some());
        if !is_over {
            for process in Process::descendants(child.id()) {
                let _ = Command::new("kill")
                    .args(["-9", &process.id.to_string()])
                    .status();
            }
            let _ = child.kill();
        }
        let output = child.wait_with_output().unwrap();
        let text = fs::read(&report).unwrap_or_default();
        Run {
            code: output.status.code().filter(|_| is_over),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            testimony: Testimony::new(&String::from_utf8_lossy(&output.stdout)),
            report: serde_json::from_slice(&text).unwrap_or_default(),
        }
    }
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        let _ = self.canary.kill();
        let _ = self.canary.wait();
    }
}

impl Run {
    /// Whether a command has run in a sandbox.
    fn has_run(&self) -> bool {
        self.code == Some(0)
    }

    /// What must not be: neither refused in words nor as the report says.
    fn complaints(&self, person: &Person) -> Vec<String> {
        if self.has_run() {
            return self
                .testimony
                .contradictions(&self.report, !person.is_root());
        }
        let is_refused = self.code.is_some() && self.err.contains("error: ");
        if is_refused && !self.err.contains("panicked") {
            return Vec::new();
        }
        vec![format!("neither refused nor run: {self:?}")]
    }
}
