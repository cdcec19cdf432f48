//! What only carriers can get wrong: noise, refusals, caches, and shells that behave oddly.

use crate::fixture::Fixture;
use glovebox_proto::{Code, Fault};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn fixture(carrier: &[&str]) -> Fixture {
    Fixture::command(carrier).unwrap()
}

fn create(fixture: &Fixture) -> Result<(), Fault> {
    let sandbox = fixture.registry.create(&fixture.spec, None)?;
    assert_eq!(
        sandbox
            .exec(glovebox_proto::Exec::new(["echo", "up"]))
            .unwrap()
            .stdout,
        b"up\n"
    );
    sandbox.destroy()
}

fn refusal(fixture: &Fixture) -> Fault {
    let fault = create(fixture).unwrap_err();
    assert!(fixture.rooms().is_empty(), "a failed start left something");
    assert_eq!(fault.code, Code::CarrierFailed, "{fault}");
    fault
}

/// The guest in the cache of the other side.
fn cached(fixture: &Fixture) -> Option<PathBuf> {
    let dir = fixture.path("cache/glovebox");
    let names: Vec<_> = fs::read_dir(dir)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    assert!(names.len() <= 1, "{names:?}");
    names.into_iter().next()
}

/// A directory of programs to be the only `PATH` of the other side.
fn programs(fixture: &mut Fixture, names: &[&str]) -> PathBuf {
    let dir = fixture.path("programs");
    fs::create_dir(&dir).unwrap();
    for name in names {
        let real = ["/bin", "/usr/bin"]
            .iter()
            .map(|dir| Path::new(dir).join(name))
            .find(|path| path.exists());
        std::os::unix::fs::symlink(real.unwrap(), dir.join(name)).unwrap();
    }
    fixture.spec.jail.env.retain(|(name, _)| name != "PATH");
    fixture
        .spec
        .jail
        .env
        .push(("PATH".to_owned(), dir.display().to_string()));
    dir
}

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_guest_is_sent_once_and_checked_every_time() {
    let fixture = fixture(&["sh"]);
    create(&fixture).unwrap();
    let path = cached(&fixture).unwrap();
    let first = fs::metadata(&path).unwrap();
    assert_eq!(first.permissions().mode() & 0o777, 0o700);
    create(&fixture).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().ino(),
        first.ino(),
        "it was sent again"
    );

    fs::write(&path, "not the guest").unwrap();
    create(&fixture).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), first.len());
}

#[test]
fn shells_of_all_kinds_will_do() {
    let mut tried = 0;
    for shell in ["dash", "bash", "busybox sh", "zsh", "ksh", "mksh"] {
        let words: Vec<&str> = shell.split(' ').collect();
        if !testkit::has_program(words[0]) {
            continue;
        }
        create(&fixture(&words)).unwrap_or_else(|fault| panic!("{shell}: {fault}"));
        tried += 1;
    }
    assert!(tried >= 2, "too few shells to tell");
}

#[test]
fn an_empty_environment_will_do_and_nothing_is_left() {
    let temp = tempfile::tempdir().unwrap();
    let tmpdir = format!("TMPDIR={}", temp.path().display());
    let fixture = fixture(&["env", "-i", "PATH=/usr/bin:/bin", &tmpdir, "sh"]);
    let sandbox = fixture.sandbox();
    // It runs already, from a file that has no name any more.
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
    assert_eq!(cached(&fixture), None);
    sandbox.ping().unwrap();
}

#[test]
fn noise_before_the_answer_is_skipped_within_a_bound() {
    let mut quiet = fixture(&["true"]);
    let path = quiet.path("noisy");
    script(
        &path,
        "head -c 30000 /dev/urandom; echo GLOVEBOX-0 start; exec \"$@\"",
    );
    quiet.lead_by([path.to_str().unwrap()]);
    create(&quiet).unwrap();

    script(&path, "yes; exec \"$@\"");
    let fault = refusal(&quiet);
    assert!(fault.message.contains("65536 bytes came before"), "{fault}");
}

#[test]
fn a_carrier_that_fails_is_quoted() {
    let fault = refusal(&fixture(&["no-such-carrier-anywhere"]));
    assert!(
        fault
            .message
            .contains("cannot run the carrier `no-such-carrier-anywhere`"),
        "{fault}"
    );

    let mut failing = fixture(&["true"]);
    let path = failing.path("failing");
    script(&path, "echo 'box: no route to host' >&2; exit 255");
    failing.lead_by([path.to_str().unwrap()]);
    let fault = refusal(&failing);
    assert!(
        fault.message.contains("no route to host") && fault.message.contains("255"),
        "{fault}"
    );
}

#[test]
fn a_silent_carrier_is_given_up_at_the_deadline() {
    let mut silent = fixture(&["sleep", "600"]);
    silent.spec.start_ms = 300;
    // `sh` is appended, which `sleep` takes for a time and refuses; a shell function would not do.
    let path = silent.path("silent");
    script(&path, "exec sleep 600");
    silent.lead_by([path.to_str().unwrap()]);
    let begin = Instant::now();
    let fault = refusal(&silent);
    assert!(fault.message.contains("not up in time"), "{fault}");
    let remedy = fault.remedy.as_ref().map(ToString::to_string);
    assert_eq!(
        remedy.as_deref(),
        Some(
            "see whether the carrier connects by itself, without a question, or give it more time with `start_timeout = \"2m\"`"
        )
    );
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn another_architecture_is_refused_by_name() {
    let mut fixture = fixture(&["/bin/sh"]);
    let dir = programs(
        &mut fixture,
        &["sh", "head", "mkdir", "chmod", "rm", "sha256sum", "mv"],
    );
    script(
        &dir.join("uname"),
        "case $1 in -s) echo Linux;; *) echo pdp11;; esac",
    );
    let fault = refusal(&fixture);
    assert!(
        fault.message.contains("the other side is `pdp11`"),
        "{fault}"
    );
}

#[test]
fn a_side_without_hash_programs_is_refused_by_name() {
    let mut fixture = fixture(&["/bin/sh"]);
    programs(
        &mut fixture,
        &["sh", "head", "mkdir", "chmod", "rm", "uname", "mv"],
    );
    let fault = refusal(&fixture);
    assert!(fault.message.contains("SHA-256"), "{fault}");
    assert!(fault.remedy.unwrap().to_string().contains("coreutils"));
}

#[test]
fn a_carrier_that_changes_bytes_is_noticed() {
    let mut fixture = fixture(&["true"]);
    let path = fixture.path("changing");
    // The script passes, the guest does not: only bytes beyond ASCII are changed.
    script(&path, "LC_ALL=C exec tr '\\377' '\\376' | exec sh");
    fixture.lead_by([path.to_str().unwrap()]);
    fixture.spec.start_ms = 5000;
    let fault = refusal(&fixture);
    assert!(
        fault.message.contains("SHA-256") || fault.message.contains("in time"),
        "{fault}"
    );
    assert_eq!(cached(&fixture), None);
}

#[test]
fn the_guest_is_kept_where_it_is_said_and_nowhere_else() {
    let mut fixture = fixture(&["sh"]);
    let odd = fixture.path("odd ' \"dir\n$(touch canary)");
    fixture.spec.guest_dir = Some(odd.clone());
    for _ in 0..2 {
        drop(fixture.sandbox());
        let kept: Vec<_> = fs::read_dir(&odd).unwrap().flatten().collect();
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert!(kept[0].file_name().to_string_lossy().starts_with("guest-"));
    }
    assert_eq!(cached(&fixture), None);

    // A file is no directory, and the login's own is not taken instead.
    let file = fixture.path("file");
    fs::write(&file, "").unwrap();
    fixture.spec.guest_dir = Some(file.clone());
    let fault = refusal(&fixture);
    let place = format!("cannot be kept in {} on the other side", file.display());
    assert!(fault.message.contains(&place), "{fault}");
    assert_eq!(
        fault.remedy.unwrap().to_string(),
        "name another one with `guest_dir = \"DIR\"`, or none"
    );
    assert_eq!(cached(&fixture), None);
}

#[test]
fn the_working_directory_may_have_any_name() {
    let mut fixture = fixture(&["sh"]);
    let odd = fixture.path("odd ' \"dir\n$(touch canary)");
    fs::create_dir(&odd).unwrap();
    fixture.spec.cwd = Some(odd.clone());
    let sandbox = fixture.sandbox();
    let facts = sandbox.facts().unwrap();
    assert_eq!(
        facts.cwd.as_slice(),
        std::os::unix::ffi::OsStrExt::as_bytes(odd.as_os_str())
    );
    drop(sandbox);

    fixture.spec.cwd = Some(fixture.path("none"));
    let fault = create(&fixture).unwrap_err();
    assert_eq!(fault.code, Code::CwdNotFound, "{fault}");
}

#[test]
fn directories_that_run_nothing_are_passed_over() {
    if !testkit::is_root() {
        testkit::skip_because!(testkit::SkipReason::needs_root(
            "to mount a directory noexec"
        ));
    }
    let mut fixture = fixture(&["true"]);
    let path = fixture.path("noexec");
    let cache = fixture.path("cache");
    // In a mount namespace of its own, the cache is mounted so that nothing in it runs.
    script(
        &path,
        &format!(
            "exec unshare -m sh -c 'mount -t tmpfs -o noexec none {} && exec \"$@\"' sh \"$@\"",
            cache.display()
        ),
    );
    fixture.lead_by([path.to_str().unwrap()]);
    create(&fixture).unwrap();
}
