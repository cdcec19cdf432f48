//! The probes against the running kernel, as the program's `doctor` uses them. No test harness: the
//! children must be freshly executed processes with one thread, so this program is its own child.
#![expect(
    clippy::print_stderr,
    reason = "this program reports its results itself"
)]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs, io};

use glovebox_jail::cgroup::{Controllers, DetectCx};
use glovebox_jail::probe::{self, Machine, ProbeCx, Surroundings};
use glovebox_spec::finding::{Finding, FindingState};
use testkit::{SkipReason, skip_loudly};

/// User id without privileges.
const NOBODY: u32 = 65_534;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().collect();
    if let [_, verb, what] = &args[..]
        && verb == "probe"
    {
        return ExitCode::from(probe::child_main(what) as u8);
    }
    if args.iter().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    everything_works_as_the_caller();
    if rustix::process::geteuid().is_root() {
        everything_needed_works_for_an_ordinary_user();
        a_refusal_inside_is_told_with_its_step_and_errno();
    } else {
        skip_loudly(
            module_path!(),
            SkipReason::needs_root("to try another user"),
        );
    }
    unknown_probes_and_dead_children_are_findings_too();
    ExitCode::SUCCESS
}

/// Runs every probe with `program` as the child, as user `uid`.
fn run(program: &Path, state_dir: &Path, uid: Option<u32>) -> Vec<Finding> {
    let run_child = |what: &str| -> io::Result<String> {
        let mut command = Command::new(program);
        command.args(["probe", what]);
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        Ok(String::from_utf8_lossy(&command.output()?.stdout).into_owned())
    };
    let controllers = Controllers::detect(&DetectCx::default());
    let findings = probe::run_all(&ProbeCx {
        run_child: &run_child,
        state_dir,
        program,
        root: Path::new("/"),
        controllers: &controllers,
    });
    for f in &findings {
        eprintln!(
            "{:?} {}: {}{}",
            f.state,
            f.id,
            f.detail,
            f.remedy
                .as_deref()
                .map(|r| format!(" -> {r}"))
                .unwrap_or_default()
        );
    }
    assert_eq!(
        fs::read_dir(state_dir).unwrap().count(),
        0,
        "a probe left something behind"
    );
    findings
}

/// Expects these findings to be good, except on machines where native sandboxes are known not to
/// work.
fn expect_working(findings: &[Finding], needed: &[&str]) {
    let machine = Machine::read(Path::new("/"), Path::new("/"), Path::new("/"));
    for id in needed {
        let finding = findings.iter().find(|f| f.id == *id).unwrap();
        if finding.state == FindingState::Ok {
            continue;
        }
        if machine.surroundings != Surroundings::Machine || finding.remedy.is_some() {
            skip_loudly(
                module_path!(),
                format!("{id} does not work on this machine: {}", finding.detail),
            );
        } else {
            panic!("{id} is refused and nobody knows why: {}", finding.detail);
        }
    }
}

const NEEDED: [&str; 9] = [
    "user-namespace",
    "mount-namespace",
    "mount-api",
    "network-namespace",
    "pid-namespace",
    "overlay",
    "seccomp",
    "landlock",
    "memfd-exec",
];

fn everything_works_as_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let findings = run(&env::current_exe().unwrap(), dir.path(), None);
    expect_working(&findings, &NEEDED);
    let has_idmap = findings.iter().any(|f| f.id == "idmapped-mount");
    assert_eq!(has_idmap, rustix::process::geteuid().is_root());
}

fn everything_needed_works_for_an_ordinary_user() {
    // Other users may not read the directory of this program.
    let bin = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir()
        .unwrap();
    let program = bin.path().join("probe");
    fs::copy(env::current_exe().unwrap(), &program).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let findings = run(&program, dir.path(), Some(NOBODY));
    expect_working(&findings, &NEEDED);
}

/// Runs a probe as on a machine that allows no user namespaces: in a user namespace whose limit is
/// 0.
fn a_refusal_inside_is_told_with_its_step_and_errno() {
    let exe = env::current_exe().unwrap();
    let script = format!(
        "unshare -Ur sh -c 'echo 0 > /proc/sys/user/max_user_namespaces && exec {} probe user-namespace'",
        exe.display()
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    if line.is_empty() {
        testkit::skip!("unshare(1) is missing or was refused");
    }
    assert_eq!(line, "failed user-namespace 28\n");
    assert_eq!(output.status.code(), Some(1));
}

fn unknown_probes_and_dead_children_are_findings_too() {
    let exe = env::current_exe().unwrap();
    let output = Command::new(exe)
        .args(["probe", "teleport"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "not-run there is no probe teleport\n"
    );
    let dir = tempfile::tempdir().unwrap();
    let findings = run(Path::new("/nonexistent/program"), dir.path(), None);
    let seccomp = findings.iter().find(|f| f.id == "seccomp").unwrap();
    assert_eq!(seccomp.state, FindingState::Missing);
    assert!(
        seccomp.detail.contains("could not run"),
        "{}",
        seccomp.detail
    );
}
