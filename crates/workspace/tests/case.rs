//! A destination on a file system that folds case: for any names in the sandbox, each path has a
//! defined outcome and nothing is lost.
//!
//! The file system is a real one of the kinds that this machine supports, mounted by this test
//! program in its own mount namespace.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod fixture;

use fixture::Fixture;
use glovebox_proto::Code;
use glovebox_workspace::{ConflictReason, Options, RefusalReason};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::{has_program, is_root, skip};

/// Variable with the path of the fixture for the process in the namespace.
const PLACE: &str = "GLOVEBOX_TEST_PLACE";
/// File that the process creates if no such file system is available.
const NONE: &str = "none";

/// Mounts a file system that folds case at `$2`, with `$1` as its disk.
const MOUNT: &str = r#"
    folds() { echo x > "$1/Probe" && test -e "$1/pROBE" && rm "$1/Probe"; }
    if mount -t tmpfs -o casefold,size=64m none "$2" 2>/dev/null; then
        mkdir "$2/d" && chattr +F "$2/d" && mount --bind "$2/d" "$2" && folds "$2" && exit 0
        umount "$2"
    fi
    truncate -s 64M "$1"
    if mkfs.ext4 -q -F -O casefold "$1" 2>/dev/null && mount -o loop "$1" "$2" 2>/dev/null; then
        mkdir "$2/d" && chattr +F "$2/d" && mount --bind "$2/d" "$2" && folds "$2" && exit 0
        umount "$2"
    fi
    if mkfs.vfat "$1" >/dev/null 2>&1 && mount -o loop,umask=077,utf8 "$1" "$2" 2>/dev/null; then
        folds "$2" && exit 0
        umount "$2"
    fi
    if mkfs.exfat "$1" >/dev/null 2>&1 && disk=$(losetup --find --show "$1"); then
        mount.exfat-fuse -o umask=077 "$disk" "$2" >/dev/null 2>&1 && mounted=yes
        # It goes when it is no longer in use.
        losetup --detach "$disk"
        test -n "$mounted" && folds "$2" && exit 0
    fi
    exit 1
"#;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn read(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap()
}

/// Body of the process in the namespace.
#[test]
#[ignore = "run by the other, in a namespace"]
fn pull_inside() {
    let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
    let project = place.join("project");
    let mounted = Command::new("sh")
        .args(["-c", MOUNT, "sh"])
        .args([&place.join("disk"), &project])
        .status()
        .unwrap();
    if !mounted.success() {
        fs::write(place.join(NONE), "").unwrap();
        return;
    }
    two_names_that_are_one_there(&place, &project);
    a_name_whose_case_changes(&place, &project);
    a_directory_whose_case_changes(&place, &project);
    a_name_the_host_has_in_another_case(&place, &project);
    nothing_there_yet_to_tell_by(&place, &project);
}

fn fresh(place: &Path) -> Fixture {
    let _ = fs::remove_dir_all(place.join("layer0"));
    fs::create_dir(place.join("layer0")).unwrap();
    let _ = fs::remove_file(place.join("pushed"));
    Fixture::at(place, 1)
}

fn two_names_that_are_one_there(place: &Path, project: &Path) {
    let fixture = fresh(place);
    fixture.host("Keep", "as it was");
    fixture.push();
    fixture.layer(0, "Aa", "first");
    fixture.layer(0, "aa", "second");
    fixture.layer(0, "AA/below", "third");
    let outcome = fixture.pull(Options::default()).unwrap();
    let refused: Vec<_> = outcome
        .refused
        .iter()
        .map(|refusal| {
            (
                String::from_utf8_lossy(&refusal.path),
                refusal.reason.clone(),
            )
        })
        .collect();
    assert_eq!(outcome.applied.len() + refused.len(), 4, "{outcome:?}");
    assert!(refused.len() >= 2, "{refused:?}");
    assert!(
        refused
            .iter()
            .all(|(_, why)| *why == RefusalReason::CaseCollision),
        "{refused:?}"
    );
    assert_eq!(read(project, "keep"), "as it was");
    assert_eq!(names(project).len(), 2, "{:?}", names(project));
    fs::remove_file(project.join("Keep")).unwrap();
    let left = project.join("aA");
    if left.is_dir() {
        fs::remove_dir_all(left).unwrap();
    } else {
        fs::remove_file(left).unwrap();
    }
}

fn a_name_whose_case_changes(place: &Path, project: &Path) {
    let fixture = fresh(place);
    fixture.host("Readme", "text\n");
    fixture.push();
    fixture.whiteout(0, "Readme");
    fixture.layer(0, "README", "text\n");
    let outcome = fixture.pull(Options::default()).unwrap();
    assert!(outcome.conflicts.is_empty(), "{outcome:?}");
    assert_eq!(names(project), ["README"]);
    assert_eq!(read(project, "README"), "text\n");
    fs::remove_file(project.join("README")).unwrap();
}

fn a_directory_whose_case_changes(place: &Path, project: &Path) {
    let fixture = fresh(place);
    fixture.host("Src/One", "1");
    fixture.host("Src/deep/two", "2");
    fixture.push();
    fixture.whiteout(0, "Src");
    fixture.layer(0, "src/one", "1");
    fixture.layer(0, "src/deep/two", "2");
    fixture.layer(0, "src/new", "3");
    let outcome = fixture.pull(Options::default()).unwrap();
    assert!(outcome.conflicts.is_empty(), "{outcome:?}");
    assert_eq!(names(project), ["src"]);
    assert_eq!(names(&project.join("src")), ["deep", "new", "one"]);
    assert_eq!(read(project, "src/one"), "1");
    assert_eq!(read(project, "src/deep/two"), "2");
    fs::remove_dir_all(project.join("src")).unwrap();
}

fn a_name_the_host_has_in_another_case(place: &Path, project: &Path) {
    let fixture = fresh(place);
    fixture.host("Notes", "mine");
    fixture.push();
    fixture.layer(0, "notes", "theirs");
    let outcome = fixture.pull(Options::default()).unwrap();
    assert_eq!(outcome.conflicts.len(), 1, "{outcome:?}");
    assert_eq!(outcome.conflicts[0].reason, ConflictReason::AddedOnHost);
    assert_eq!(names(project), ["Notes", "notes.theirs"]);
    assert_eq!(read(project, "Notes"), "mine");
    assert_eq!(read(project, "notes.theirs"), "theirs");
    for name in names(project) {
        fs::remove_file(project.join(name)).unwrap();
    }
}

fn nothing_there_yet_to_tell_by(place: &Path, project: &Path) {
    let fixture = fresh(place);
    fixture.layer(0, "Aa", "first");
    fixture.layer(0, "aa", "second");
    let to = project.join("1");
    fs::create_dir(&to).unwrap();
    match fixture.pull_to(&to, None, Options::default()) {
        // The file system reports by itself that it folds case.
        Ok(outcome) => {
            assert_eq!(outcome.refused.len(), 1, "{outcome:?}");
            assert_eq!(outcome.refused[0].reason, RefusalReason::CaseCollision);
            assert_eq!(names(&to).len(), 1);
        }
        Err(error) => {
            assert_eq!(error.fault.code, Code::AlreadyExists, "{error:?}");
            assert!(error.fault.message.contains("only in case"), "{error:?}");
            assert!(names(&to).is_empty(), "{:?}", names(&to));
        }
    }
}

#[test]
fn names_that_differ_only_in_case() {
    if !is_root() {
        testkit::skip_because!(testkit::SkipReason::needs_root(
            "to mount a file system that folds case"
        ));
    }
    if !has_program("unshare") {
        skip!("needs unshare");
    }
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("project")).unwrap();
    let output = Command::new("unshare")
        .arg("--mount")
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "pull_inside"])
        .env(PLACE, temp.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    if temp.path().join(NONE).exists() {
        skip!("needs a file system that folds case: tmpfs or ext4 with it, FAT, or exFAT by FUSE");
    }
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
