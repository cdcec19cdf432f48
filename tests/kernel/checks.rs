//! What is asked of the machine, and whether its answers will do.

use crate::machine::Console;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// One program, run inside.
pub(crate) struct Check {
    /// What it is called in what the machine says.
    pub(crate) title: String,
    /// Whose: a control group of `init.sh`.
    group: &'static str,
    /// The program as it is on this machine; inside it lies in `/test`, under `name`.
    pub(crate) program: PathBuf,
    pub(crate) name: &'static str,
    arguments: String,
    limit_s: u32,
    /// Where the tests make their directories.
    place: &'static str,
}

/// After so many seconds a check is killed: several times what it takes.
const LIMIT_S: u32 = 240;
/// The same for attempts to break out, of which there are many.
const ATTEMPTS_LIMIT_S: u32 = 600;
/// Tests of the isolation crate that make real control groups.
const GROUP_TESTS: &str = "cgroup::tests::a_real cgroup::tests::a_process cgroup::tests::a_frozen cgroup::tests::an_orphaned";

/// Attempts to break out, by the module of `tests/escape` that makes them.
const ATTEMPTS: [&str; 24] = [
    "accounting",
    "bounds",
    "capabilities",
    "devices",
    "environment",
    "exhaustion",
    "files",
    "groups",
    "kernel",
    "layers",
    "lifecycle",
    "locks",
    "mounts",
    "namespaces",
    "neighbours",
    "processes",
    "requests",
    "silence",
    "sockets",
    "steering",
    "syscalls",
    "terminal",
    "truth",
    "workspace",
];
/// Modules of `tests/escape`, or single tests of them, that are not run in the machine, and why.
const LEFT_OUT: [(&str, &str); 10] = [
    (
        "project_files",
        "what a project's own file may say is decided by glovebox alone, whatever the kernel; and it compiles \
         a library, for which the machine has no compiler",
    ),
    ("nested", "it has not been tried there yet"),
    ("tracing", "it has not been tried there yet"),
    ("steering::attack_lowered_guest_and_a_busy_crowd", CROWD),
    ("steering::a_starved_guest_is_ended_from_outside", CROWD),
    ("bounds::tools_work_within_the_bounds", SLOW),
    ("exhaustion::probe_51_fork_bomb", SLOW),
    ("exhaustion::probe_53_disk_bomb", SLOW),
    ("exhaustion::probe_54_output_bomb", SLOW),
    ("lifecycle::probe_57_supervisor_death", SLOW),
];
/// The same for an ordinary user alone.
const LEFT_OUT_FOR_USERS: [(&str, &str); 3] = [
    (
        "mounts::probe_60_propagation",
        "umount(8) of the machine's own does not take back the mounts that the test makes as an ordinary user",
    ),
    ("groups::attack_own_control_group", NO_GROUPS),
    ("groups::attack_control_groups_of_others", NO_GROUPS),
];
const NO_GROUPS: &str = "no control group is delegated to who logs in to the machine";
const SLOW: &str =
    "what it wants to have happened within seconds takes longer on an emulated processor";
const CROWD: &str = "600 busy processes on one emulated processor take minutes to begin and to end, and its limits are \
     in seconds";

/// What may be skipped inside, by how the reason ends or begins: an older kernel lacks it, or an ordinary user.
const MAY_BE_SKIPPED: [&str; 6] = [
    // Of a kernel whose tmpfs cannot hold a layer.
    "which gave tmpfs extended attributes for users",
    "abstract sockets of a shared network are open without Landlock ABI 6",
    "overlays of this kernel make no files without a name",
    "this root may not make a device node",
    "needs root to plant device nodes",
    "needs root to plant file capabilities",
];

/// What root can do, and may not.
pub(crate) fn of_root() -> Vec<Check> {
    let mut checks = limited("root");
    checks.push(Check {
        title: "quota as root".to_owned(),
        place: "/quota/tmp",
        ..check("root", "tests", "kernel", "--ignored quota::")
    });
    checks.push(attempts("root"));
    checks
}

/// What an ordinary user can do with a group that was delegated, and without.
pub(crate) fn of_ordinary_users() -> Vec<Check> {
    let mut checks = limited("delegated");
    let tests = "--ignored inside::anybody:: inside::unlimited::";
    checks.push(check("login", "tests", "kernel", tests));
    checks.push(attempts("login"));
    checks
}

/// All attempts to break out that are not left out. Each waits for others more than it works, so several are
/// made at once, although the machine has one processor.
fn attempts(group: &'static str) -> Check {
    let mut arguments = String::from("--test-threads 4");
    for module in ATTEMPTS {
        let _ = write!(arguments, " {module}::");
    }
    let of_users = LEFT_OUT_FOR_USERS.iter().filter(|_| group != "root");
    for (name, _) in LEFT_OUT.iter().chain(of_users) {
        let is_test = name.contains("::");
        let end = if is_test { "" } else { "::" };
        let _ = write!(arguments, " --skip {name}{end}");
    }
    Check {
        limit_s: ATTEMPTS_LIMIT_S,
        ..check(group, "tests", "escape", &arguments)
    }
}

/// What is wrong with the tables of attempts, beside the suite as it was built: nothing, or a text each.
pub(crate) fn undecided() -> Vec<String> {
    let suite = testkit::suite("tests", "escape");
    let listed = Command::new(suite)
        .args(["--list", "--format", "terse"])
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let tests: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .collect();
    let modules: BTreeSet<&str> = tests
        .iter()
        .filter_map(|test| test.split("::").next())
        .collect();
    let (left_out, single): (Vec<_>, Vec<_>) = LEFT_OUT
        .iter()
        .chain(&LEFT_OUT_FOR_USERS)
        .map(|(name, _)| *name)
        .partition(|name| !name.contains("::"));
    let decided: Vec<&str> = ATTEMPTS.into_iter().chain(left_out).collect();
    let mut wrong = Vec::new();
    for module in &modules {
        match decided.iter().filter(|name| *name == module).count() {
            1 => {}
            0 => wrong.push(format!(
                "`{module}` of tests/escape is in neither table of tests/kernel/checks.rs: run it in the machine, or \
                 say there why not"
            )),
            _ => wrong.push(format!("`{module}` is named twice")),
        }
    }
    let unknown = decided.iter().filter(|name| !modules.contains(*name));
    wrong.extend(unknown.map(|name| format!("tests/escape has no module `{name}`")));
    let unknown = single.iter().filter(|name| !tests.contains(*name));
    wrong.extend(unknown.map(|name| format!("tests/escape has no test `{name}`")));
    wrong
}

/// For who can have limits held.
fn limited(group: &'static str) -> Vec<Check> {
    let tests = "--ignored inside::anybody:: inside::limited:: inside::held::";
    vec![
        check(group, "tests", "kernel", tests),
        check(group, "jail", "glovebox_jail", GROUP_TESTS),
    ]
}

fn check(group: &'static str, package: &str, name: &'static str, arguments: &str) -> Check {
    Check {
        title: format!("{name} as {group}"),
        group,
        program: testkit::suite(package, name),
        name,
        arguments: arguments.to_owned(),
        limit_s: LIMIT_S,
        place: "/tmp",
    }
}

impl Check {
    /// The line of shell that makes it.
    pub(crate) fn line(&self) -> String {
        // What attempts to break out may skip is judged by their log.
        let is_strict = u8::from(self.name != "escape");
        format!(
            "check {} {} '{}' env GLOVEBOX_TEST_NO_SKIP={is_strict} TMPDIR={} /test/{} {}\n",
            self.group, self.limit_s, self.title, self.place, self.name, self.arguments
        )
    }
}

/// What is wrong with what the machine said: nothing, or a text each.
pub(crate) fn judge(checks: &[Check], console: &Console) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(why) = &console.broken {
        wrong.push(format!("{why}; the last it said:\n{}", console.tail()));
    }
    let in_vain = console
        .skipped()
        .filter(|line| !MAY_BE_SKIPPED.iter().any(|reason| line.contains(reason)));
    wrong.extend(in_vain.map(|line| format!("skipped inside: {line}")));
    for check in checks {
        let title = &check.title;
        match console.result_of(title) {
            None => wrong.push(format!("{title}: it did not come to its end")),
            Some((137, said)) => {
                let limit_s = check.limit_s;
                wrong.push(format!("{title}: killed after {limit_s} s\n{said}"));
            }
            Some((0, said)) if passed(&said) == 0 => {
                wrong.push(format!("{title}: no test was run\n{said}"));
            }
            Some((0, _)) => {}
            Some((code, said)) => {
                let failed = failed(&said).join(", ");
                wrong.push(format!(
                    "{title}: exit code {code}; failed: {failed}\n{said}"
                ));
            }
        }
    }
    wrong
}

/// The tests that failed, by name.
fn failed(said: &str) -> Vec<&str> {
    said.lines()
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
        .collect()
}

/// How many tests passed, by what a test program says last.
fn passed(said: &str) -> u32 {
    said.lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "))
        .filter_map(|rest| rest.split(' ').next()?.parse::<u32>().ok())
        .sum()
}
