//! The disk limit on a file system that holds limits of projects: ext4, mounted with `prjquota`.
//!
//! These tests are ignored everywhere else; `checks` has them run with their directories on the machine's second
//! disk.

use serde_json::Value;
use std::path::Path;
use testkit::{Person, wait_until};

/// What `perl` is told first: `project(PATH)` and `set_project(PATH, ID, FLAGS)`, which gives an error's number
/// or 0, by the ioctls of `linux/fs.h`.
const PERL: &str = r#"
    sub handle { my $h; open($h, '<', $_[0]) or opendir($h, $_[0]) or die "$_[0]: $!"; return $h }
    sub project { my $h = handle($_[0]); my $b = "\0" x 28; ioctl($h, 0x801c581f, $b) or return -($! + 0);
                  return (unpack 'L7', $b)[3] }
    sub set_project { my ($p, $id, $flags) = @_; my $h = handle($p);
                      my $b = pack('L5x8', $flags, 0, 0, $id, 0); $! = 0; ioctl($h, 0x401c5820, $b); return $! + 0 }
"#;
/// Project ids of ours.
const FIRST_ID: u32 = 0x676c_0000;

/// State and mechanism of the disk limit, as a report has it.
fn disk_limit(report: &Path) -> (String, String) {
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let limits = report["limits"].as_array().unwrap();
    let disk = limits.iter().find(|limit| limit["kind"] == "disk");
    let disk = disk.unwrap_or_else(|| panic!("no disk limit: {report:#}"));
    let text = |name: &str| disk[name].as_str().unwrap().to_owned();
    (text("state"), text("mechanism"))
}

/// The disk limit of a run with a state directory of this person's.
fn disk_limit_of_a_run(person: &Person) -> (String, String) {
    let report = person.place().root().join("report");
    person
        .line("run --quiet --disk 8MiB --report")
        .args([report.as_os_str()])
        .args(["--", "true"])
        .run()
        .expect_code(0);
    disk_limit(&report)
}

fn start(person: &Person, name: &str) -> String {
    let line = format!("start {name} --disk 8MiB --require disk");
    person.line(&line).run().expect_code(0);
    let report = person.place().state().join("sandboxes").join(name);
    let (state, mechanism) = disk_limit(&report.join("report.json"));
    assert_eq!(state, "enforced", "{mechanism}");
    let quota = mechanism.strip_prefix("project quota, project ").unwrap();
    let project = quota.strip_suffix("; at most 2048 files").unwrap();
    project.to_owned()
}

fn inside(person: &Person, name: &str, script: &str) -> String {
    let ran = person.script(&format!("exec {name}"), script).run();
    ran.expect_code(0).out()
}

/// Writes so many MiB to a file; what is printed is `done`, or what dd(1) says.
fn write(person: &Person, name: &str, file: &str, mib: u32) -> String {
    inside(
        person,
        name,
        &format!(
            "if said=$(dd if=/dev/zero of={file} bs=1M count={mib} 2>&1); then echo done; else echo \"$said\"; fi"
        ),
    )
}

#[track_caller]
fn assert_full(said: &str) {
    assert!(said.contains("Disk quota exceeded"), "{said}");
}

/// Runs a script of Perl outside of every sandbox.
fn perl(person: &Person, script: &str) -> String {
    let output = person
        .program("perl")
        .args(["-e", &format!("{PERL} {script}")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Projects of ours on this file system that have files or limits.
fn projects(person: &Person) -> Vec<u32> {
    let script = format!(
        r#"my $h = handle('.'); my $id = {FIRST_ID};
           while (1) {{ my $b = "\0" x 72; last if syscall({call}, fileno($h), 0x80000902, $id, $b) == -1;
             my @q = unpack('Q8L2', $b); last if $q[9] < $id; print "$q[9]\n" if $q[0] || $q[5]; $id = $q[9] + 1; }}"#,
        call = libc::SYS_quotactl_fd,
    );
    perl(person, &script)
        .lines()
        .map(|line| line.parse().unwrap())
        .collect()
}

/// What a sandbox writes past its limit -> the writer gets an error, wherever it writes and whether its file has a
/// name. Twin: the sandbox lives, and what is removed can be written again.
#[test]
#[ignore = "runs in the machine this suite starts"]
fn a_writer_past_the_limit_gets_an_error() {
    let person = Person::myself();
    start(&person, "box");
    assert_full(&write(&person, "box", "big", 20));
    assert_full(&write(&person, "box", "/var/tmp/more", 2));
    assert_eq!(
        inside(&person, "box", "rm -f big /var/tmp/more; echo lives"),
        "lives\n"
    );
    assert_eq!(write(&person, "box", "half", 5), "done\n");
    assert_full(&write(&person, "box", "/var/tmp/other-half", 5));
    inside(&person, "box", "rm half /var/tmp/other-half");
    let unlinked = r#"perl -e 'open(my $h, "+>", "f"); unlink "f"; my $n = 0;
        for (1 .. 20) { syswrite($h, "x" x (1 << 20)) or last; $n++ } print $n < 10 ? "$!" : $n'"#;
    assert_full(&inside(&person, "box", unlinked));
    assert_eq!(write(&person, "box", "again", 5), "done\n");
    person.line("kill box").run().expect_code(0);
    person.assert_nothing_left();
}

/// More files than the limit allows, though they hold nothing -> an error for their maker, told as too many files.
/// Twin: as many as it allows.
#[test]
#[ignore = "runs in the machine this suite starts"]
fn files_without_content_count_against_the_limit() {
    let person = Person::myself();
    let make = |count: u32| {
        format!("i=0; while [ $i -lt {count} ]; do : > f$i || exit 1; i=$((i + 1)); done")
    };
    let line = "run --quiet --disk 8MiB --apply never";
    let _ = person.script(line, &make(1500)).run().expect_code(0);
    let ran = person.script(line, &make(150_000)).run();
    let said = "more files were made than the disk limit allows (2048): raise it with --disk";
    assert!(ran.code != 0 && ran.err().contains(said), "{ran}");
    person.assert_nothing_left();
}

/// A command that the limit stopped -> the limit is named, with the flag that raises it, also where the command has
/// removed what it could not finish, and to programs. Twin: one that failed by itself hears nothing of it.
#[test]
#[ignore = "runs in the machine this suite starts"]
fn a_command_that_the_limit_stopped_is_told_which_one() {
    let person = Person::myself();
    let said = "the disk limit of 8MiB was reached: raise it with --disk";
    let fill = "dd if=/dev/zero of=big bs=1M count=20";
    for script in [
        format!("{fill} 2>/dev/null"),
        format!("{fill} || {{ rm big; exit 1; }}"),
    ] {
        let ran = person
            .script("run --quiet --disk 8MiB --apply never", &script)
            .run();
        assert!(ran.code == 1 && ran.err().contains(said), "{script}: {ran}");
    }
    let ran = person
        .script("run --json --disk 8MiB --apply never", fill)
        .run();
    assert!(ran.out().contains(r#""kind":"disk""#), "{ran}");
    let ran = person
        .script(
            "run --quiet --disk 8MiB --apply never",
            "echo no >&2; exit 1",
        )
        .run();
    assert!(ran.code == 1 && ran.err() == "no\n", "{ran}");
    start(&person, "box");
    let ran = person.script("exec box", fill).run();
    assert!(ran.code == 1 && ran.err().contains(said), "{ran}");
    person.line("kill box").run().expect_code(0);
    person.assert_nothing_left();
}

/// Each sandbox has a limit of its own, and none of it stays: neither when it is removed nor when its owner dies.
#[test]
#[ignore = "runs in the machine this suite starts"]
fn limits_are_not_shared_and_go_with_their_files() {
    let person = Person::myself();
    let before = projects(&person);
    let (one, other) = (start(&person, "one"), start(&person, "other"));
    assert_ne!(one, other);
    let now = projects(&person);
    for id in [&one, &other] {
        assert!(now.contains(&id.parse().unwrap()), "{id}: {now:?}");
    }
    assert_eq!(write(&person, "one", "file", 6), "done\n");
    assert_eq!(write(&person, "other", "file", 6), "done\n");
    for name in ["one", "other"] {
        person.line(&format!("kill {name}")).run().expect_code(0);
    }
    let own: Vec<u32> = [&one, &other].map(|id| id.parse().unwrap()).into();
    let are_gone = |ids: &[u32]| !projects(&person).iter().any(|id| ids.contains(id));
    // The kernel may let go of the last file a moment after it was removed; then the next start clears its limit.
    let limit = std::time::Duration::from_mins(1);
    let are_cleared = |ids: &[u32]| {
        wait_until(limit, || {
            person.line("run --quiet -- true").run().expect_code(0);
            are_gone(ids)
        })
    };
    assert!(are_cleared(&own), "{own:?} of {:?}", projects(&person));

    // A run whose owner is killed: the next call clears up.
    let mut call = person.line("run --quiet --disk 8MiB -- sleep 1000").command;
    let mut child = call.spawn().unwrap();
    let fresh = || -> Vec<u32> {
        let all = projects(&person);
        all.into_iter().filter(|id| !before.contains(id)).collect()
    };
    assert!(wait_until(limit, || !fresh().is_empty()), "no project");
    let left = fresh();
    child.kill().unwrap();
    child.wait().unwrap();
    person.line("run --quiet -- true").run().expect_code(0);
    // What it wrote may be parked, with its project, and goes with it.
    person.line("kill --all --quiet").run();
    assert!(are_cleared(&left), "{left:?} of {:?}", projects(&person));
}

/// A checkpoint's files go on counting, a restore gives back what was thrown away, and a fork has a limit of its
/// own. Twin: all of them hold what they should.
#[test]
#[ignore = "runs in the machine this suite starts"]
fn checkpoints_and_forks_count_once() {
    let person = Person::myself();
    let id = start(&person, "box");
    assert_eq!(write(&person, "box", "a", 2), "done\n");
    person.line("checkpoint box -m early").run().expect_code(0);
    assert_eq!(write(&person, "box", "b", 3), "done\n");
    assert_full(&write(&person, "box", "c", 4));
    person.line("restore box v1").run().expect_code(0);
    assert_eq!(inside(&person, "box", "ls"), "a\n");
    // What was thrown away is removed a moment later.
    let is_free = || write(&person, "box", "d", 3) == "done\n";
    assert!(wait_until(std::time::Duration::from_mins(1), is_free));
    assert_full(&write(&person, "box", "e", 4));
    inside(
        &person,
        "box",
        "rm e; mv a moved; mkdir sub; ln d sub/link; mv sub renamed",
    );
    assert_eq!(inside(&person, "box", "ls renamed"), "link\n");

    person.line("fork box twig").run().expect_code(0);
    let fork = start(&person, "twig");
    assert_ne!(id, fork);
    assert_eq!(inside(&person, "twig", "stat -c %s moved"), "2097152\n");
    assert_eq!(write(&person, "twig", "own", 6), "done\n");
    assert_full(&write(&person, "twig", "more", 4));

    // The same project after a stop, and all that was written in between is in it.
    person.line("stop box").run().expect_code(0);
    assert_eq!(start(&person, "box"), id);
    person.line("kill box").run().expect_code(0);
    assert_eq!(inside(&person, "twig", "stat -c %s moved"), "2097152\n");
    person.line("kill twig").run().expect_code(0);
    person.assert_nothing_left();
}

/// Another project id for one's own files, or none for what is made later -> refused, as the project of all that
/// is written shows. Twin: root outside can do both.
#[test]
#[ignore = "runs in the machine this suite starts"]
fn no_command_changes_the_project_of_its_files() {
    let person = Person::myself();
    let id = start(&person, "box");
    person.write(
        "project/change.pl",
        format!(
            r#"{PERL} open(my $h, '>', 'file'); mkdir 'dir'; print $h 'x' x 5000; close $h;
               print join(' ', map {{ set_project($_, 0, 0) && set_project($_, 7, 0x200) && set_project($_, {id}, 0) ? 'refused' : $_ }}
                 'file', 'dir', '/workspace', '/var/tmp'), "\n"; mkdir 'dir/later'; mkdir '/var/tmp/later';"#
        ),
    );
    let said = inside(&person, "box", "perl change.pl");
    // The last of the three changes only the flag, which a file does not have: nothing to be refused.
    assert!(said.ends_with("refused refused refused\n"), "{said}");
    let layers = person.place().state().join("sandboxes/box/layers");
    for name in [
        "workspace-upper",
        "workspace-upper/file",
        "workspace-upper/dir",
        "workspace-upper/dir/later",
        "root-upper/var/tmp/later",
    ] {
        let path = layers.join(name).display().to_string();
        let found = perl(&person, &format!("print project('{path}')"));
        assert_eq!(found, id, "{name}");
    }
    let own = person.place().root().join("own");
    std::fs::create_dir(&own).unwrap();
    let own = own.display();
    let twin = format!("print set_project('{own}', 7, 0x200), ' ', project('{own}')");
    assert_eq!(perl(&person, &twin), "0 7");
    person.line("kill box").run().expect_code(0);
}

/// Where the kernel cannot hold it, the limit is watched, and the report says why. Twin: root, here.
#[test]
#[ignore = "runs in the machine this suite starts"]
fn elsewhere_the_limit_is_watched_and_the_report_says_why() {
    let (state, mechanism) = disk_limit_of_a_run(&Person::myself());
    assert_eq!(state, "enforced", "{mechanism}");
    let person = Person::ordinary().unwrap();
    let (state, mechanism) = disk_limit_of_a_run(&person);
    assert_eq!(state, "approximate");
    assert!(
        mechanism.ends_with("no project quota: only root can set one"),
        "{mechanism}"
    );
    let refused = person.line("run --disk 8MiB --require disk -- true").run();
    refused.expect_code(125);

    // A file system whose quotas are not switched on: the machine's first disk.
    let person = Person::myself();
    let plain = tempfile::tempdir_in("/var/tmp").unwrap();
    let report = plain.path().join("report");
    person
        .line("run --quiet --disk 8MiB --report")
        .args([report.as_os_str()])
        .args(["--", "true"])
        .env("GLOVEBOX_STATE", plain.path().join("state"))
        .run()
        .expect_code(0);
    let (state, mechanism) = disk_limit(&report);
    assert_eq!(state, "approximate");
    assert!(
        mechanism.ends_with("not mounted with the option `prjquota`"),
        "{mechanism}"
    );
}
