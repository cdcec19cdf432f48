//! What is asked of the machine, and whether its answers will do.

use crate::machine::Console;
use std::path::PathBuf;

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
}

/// After so many seconds a check is killed: several times what it takes.
const LIMIT_S: u32 = 240;
/// Tests of the isolation crate that make real control groups.
const GROUP_TESTS: &str = "a_real a_process a_frozen an_orphaned";
/// Attempts to break out that depend on the kernel the most.
const ATTEMPTS: &str =
    "layers:: mounts:: devices:: workspace:: steering::attack_s locks:: bounds:: truth::";

/// What `testkit` says of a kernel whose tmpfs cannot hold a layer.
const LACKING: &str = "which gave tmpfs extended attributes for users";

/// What root can do, and may not.
pub(crate) fn of_root() -> Vec<Check> {
    let mut checks = limited("root");
    checks.push(check("root", "tests", "escape", ATTEMPTS));
    checks
}

/// What an ordinary user can do with a group that was delegated, and without.
pub(crate) fn of_ordinary_users() -> Vec<Check> {
    let mut checks = limited("delegated");
    let tests = "--ignored inside::anybody:: inside::unlimited::";
    checks.push(check("login", "tests", "kernel", tests));
    checks
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
    }
}

impl Check {
    /// The line of shell that makes it.
    pub(crate) fn line(&self) -> String {
        // What attempts to break out may skip is judged by their log.
        let is_strict = u8::from(self.name != "escape");
        format!(
            "check {} {LIMIT_S} '{}' env GLOVEBOX_TEST_NO_SKIP={is_strict} /test/{} {}\n",
            self.group, self.title, self.name, self.arguments
        )
    }
}

/// What is wrong with what the machine said: nothing, or a text each.
pub(crate) fn judge(checks: &[Check], console: &Console) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(why) = &console.broken {
        wrong.push(format!("{why}; the last it said:\n{}", console.tail()));
    }
    // The one thing an older kernel lacks that a test may do without.
    let in_vain = console.skipped().filter(|line| !line.ends_with(LACKING));
    wrong.extend(in_vain.map(|line| format!("skipped inside: {line}")));
    for check in checks {
        let title = &check.title;
        match console.result_of(title) {
            None => wrong.push(format!("{title}: it did not come to its end")),
            Some((137, said)) => {
                wrong.push(format!("{title}: killed after {LIMIT_S} s\n{said}"));
            }
            Some((0, said)) if passed(&said) == 0 => {
                wrong.push(format!("{title}: no test was run\n{said}"));
            }
            Some((0, _)) => {}
            Some((code, said)) => wrong.push(format!("{title}: exit code {code}\n{said}")),
        }
    }
    wrong
}

/// How many tests passed, by what a test program says last.
fn passed(said: &str) -> u32 {
    said.lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "))
        .filter_map(|rest| rest.split(' ').next()?.parse::<u32>().ok())
        .sum()
}
