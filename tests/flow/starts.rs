//! `start` for a sandbox that is there already: the same again, or an error that names what differs.

use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use testkit::Person;

#[test]
fn start_names_what_differs_from_the_sandbox_that_runs() {
    Person::each(|person| {
        let start = "start work --memory 512MiB --cpus 1";
        let _ = person.line(start).run().expect_code(0);
        // The same again is no difference, whatever variables the caller has by now.
        let _ = person
            .line(start)
            .env("COLORTERM", "x")
            .run()
            .expect_code(0);
        let asked = "start work --memory 1GiB --cpus 1 --pids 77 --env TOKEN=hush";
        let ran = person.line(asked).run().expect_code(3);
        assert!(!ran.err().contains("hush"), "{ran}");
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the sandbox `work` runs with other settings: memory is 512MiB, asked for 1GiB; pids is 4096, asked for 77; env is without TOKEN, asked for TOKEN
        hint: use it as it is with `glovebox exec work -- COMMAND`, or bring its changes back with `glovebox pull work` and end it with `glovebox kill work` first
        ");
        person.write("home/shared/x", "x\n");
        let shared = person.place().home().join("shared");
        let grant = format!("{start} --grant {}", shared.display());
        let ran = person.line(&grant).run().expect_code(3);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the sandbox `work` runs with other settings: grant is nothing, asked for [ROOT]/home/shared
        hint: use it as it is with `glovebox exec work -- COMMAND`, or bring its changes back with `glovebox pull work` and end it with `glovebox kill work` first
        ");
        let ran = person
            .line(&format!("{start} --net host"))
            .run()
            .expect_code(3);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the sandbox `work` runs with other settings: net is none, asked for host
        hint: use it as it is with `glovebox exec work -- COMMAND`, or bring its changes back with `glovebox pull work` and end it with `glovebox kill work` first
        ");
        // Another project is another sandbox, also when it has ended.
        person.write("other/file", "x\n");
        let other = person.place().root().join("other");
        let ran = person.line(start).dir(&other).run().expect_code(3);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the sandbox `work` runs with other settings: project is [ROOT]/project, asked for [ROOT]/other
        hint: use it as it is with `glovebox exec work -- COMMAND`, or bring its changes back with `glovebox pull work` and end it with `glovebox kill work` first
        ");
        let _ = person.line("exec work -- true").run().expect_code(0);
        let _ = person.line("kill work").run().expect_code(0);

        let _ = person.script("run", "echo new > made").run().expect_code(0);
        let ran = person.line("list --json").run().expect_code(0);
        let list: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let name = list["data"]["sandboxes"][0]["name"]
            .as_str()
            .unwrap()
            .to_owned();
        let again = format!("start {name}");
        let ran = person.line(&again).dir(&other).run().expect_code(3);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the files of the sandbox `run-[RANDOM]` belong to [ROOT]/project, not to [ROOT]/other
        hint: start it from there, or choose another name
        ");
        let _ = person.line(&again).run().expect_code(0);
        let ran = person
            .line(&format!("exec {name} -- cat made"))
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "new\n");
        let _ = person.line("kill --all").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_carrier_has_as_long_to_connect_as_is_said() {
    let person = Person::myself();
    let slow = person.write("home/slow", "#!/bin/sh\nsleep 1\nexec \"$@\"\n");
    fs::set_permissions(&slow, Permissions::from_mode(0o755)).unwrap();
    let start = |time: &str| {
        person
            .glovebox([
                "start",
                "lab",
                "--backend",
                "command",
                "--start-timeout",
                time,
            ])
            .args(["--carrier".as_ref(), slow.as_os_str()])
            .run()
    };
    let late = start("200ms").expect_code(1);
    insta::assert_snapshot!(late.err(), @r"
    error: the sandbox was not ready in time
    hint: give it more time with `--start-timeout 2m`
    ");
    let _ = start("20s").expect_code(0);
    let _ = person.line("kill lab").run().expect_code(0);
    let never = start("none").expect_code(2);
    insta::assert_snapshot!(never.err(), @r"
    error: --start-timeout: a sandbox cannot be waited for `none`
    hint: write a time from 100ms to 1h
    ");
}

#[test]
fn the_guest_is_kept_on_the_other_side_where_it_is_said() {
    let person = Person::myself();
    let dir = person.place().root().join("kept");
    let run = |args: &[&str]| person.glovebox(["run"].iter().chain(args)).run();
    let there = ["--backend", "command", "--carrier", "sh", "--guest-dir"];
    let ran = |dir: &str| run(&[&there[..], &[dir, "--", "true"]].concat());
    let _ = ran(dir.to_str().unwrap()).expect_code(0);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);

    let file = person.write("file", "");
    let refused = ran(file.to_str().unwrap()).expect_code(125);
    insta::assert_snapshot!(refused.failure(person.place().root()), @"
    error: carrier `sh`: the guest cannot be kept in [ROOT]/file on the other side: that is not a directory of ours in which programs may be written and run; the carrier ended with code 1
    hint: name another one with `--guest-dir DIR`, or none
    ");
    let relative = ran("kept").expect_code(125);
    insta::assert_snapshot!(relative.failure(person.place().root()), @"
    error: --guest-dir: `kept` is no place on the other side
    hint: write an absolute path, such as /opt/glovebox
    ");
    let native = run(&["--guest-dir", "/opt", "--", "true"]).expect_code(125);
    insta::assert_snapshot!(native.failure(person.place().root()), @"
    error: --guest-dir has no meaning with the backend `native`
    hint: choose the backend it belongs to with `--backend`, or leave it out
    ");
}
