//! Package caches: writable inside, never written outside, kept for the project that asks for it.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::lchown;
use std::path::Path;
use testkit::{Person, Ran, SkipReason, UNPRIVILEGED_ID, has_layers_in_memory, skip, skip_because};

/// A cache of theirs with a file in it, and credentials beside it.
fn prepare(person: &Person) {
    person.write("home/.npm/_cacache/have", "host\n");
    person.write("home/.npmrc", "//registry/:_authToken=hush\n");
    person.write("home/.m2/settings.xml", "<password>hush</password>\n");
    person.write("home/.m2/repository/org/one.jar", "jar\n");
}

fn cache_file(person: &Person, name: &str) -> std::path::PathBuf {
    person.place().home().join(".npm/_cacache").join(name)
}

/// What `glovebox cache --json` lists.
pub(crate) fn kept(person: &Person) -> Vec<Value> {
    let ran = person.line("cache --json").run().expect_code(0);
    let answer: Value = serde_json::from_slice(&ran.stdout).unwrap();
    answer["data"]["caches"].as_array().unwrap().clone()
}

/// Runs a script that must succeed.
pub(crate) fn run(person: &Person, args: &str, script: &str) -> Ran {
    person.script(args, script).run().expect_code(0)
}

#[test]
fn what_is_written_to_a_cache_goes_with_the_sandbox() {
    Person::each(|person| {
        prepare(person);
        for layers in ["disk", "memory"] {
            if layers == "memory" && !has_layers_in_memory() {
                continue;
            }
            let script = "cat ~/.npm/_cacache/have ~/.m2/repository/org/one.jar; \
                          echo inside > ~/.npm/_cacache/have; echo new > ~/.npm/_cacache/new; \
                          mkdir -p ~/.m2/repository/org/two; rm -r ~/.m2/repository/org/one.jar; \
                          cat ~/.npm/_cacache/have ~/.npm/_cacache/new; \
                          ls -a ~ ~/.m2 | grep -e npmrc -e settings";
            let ran = person
                .script(&format!("run -q --layers {layers}"), script)
                .run();
            assert_eq!(ran.out(), "host\njar\ninside\nnew\n", "{ran}");
        }
        assert_eq!(
            fs::read_to_string(cache_file(person, "have")).unwrap(),
            "host\n"
        );
        assert!(!cache_file(person, "new").exists());
        assert!(
            person
                .place()
                .home()
                .join(".m2/repository/org/one.jar")
                .exists()
        );
        let ran = run(person, "run -q", "ls ~/.npm/_cacache");
        assert_eq!(ran.out(), "have\n", "{ran}");
        assert!(kept(person).is_empty());
        // Who hides toolchains hides their caches.
        let ran = person
            .script("run -q --no-toolchains", "ls ~/.npm/_cacache")
            .run();
        assert!(ran.code != 0 && ran.out().is_empty(), "{ran}");
        person.assert_nothing_left();
    });
}

#[test]
fn a_kept_cache_is_there_for_the_same_project_and_no_other() {
    Person::each(|person| {
        prepare(person);
        let script = "echo one > ~/.npm/_cacache/one; rm ~/.npm/_cacache/have; \
                      mkdir -p ~/.cargo/registry/index; echo two > ~/.cargo/registry/index/two; \
                      chmod 0500 ~/.cargo/registry";
        let _ = run(person, "run -q --cache", script);
        let look = "cat ~/.npm/_cacache/one ~/.cargo/registry/index/two; ls ~/.npm/_cacache";
        let ran = run(person, "run -q --cache", look);
        assert_eq!(ran.out(), "one\ntwo\none\n", "{ran}");
        assert!(cache_file(person, "have").exists() && !cache_file(person, "one").exists());
        assert!(!person.place().home().join(".cargo").exists());
        // Without the flag it is not shown.
        let ran = run(person, "run -q", "ls ~/.npm/_cacache");
        assert_eq!(ran.out(), "have\n", "{ran}");
        person.write("other/file", "");
        let other = person.place().root().join("other");
        let other = other.to_str().unwrap();
        let of_other = person.glovebox([
            "-C",
            other,
            "run",
            "-q",
            "--cache",
            "--",
            "sh",
            "-c",
            "ls ~/.npm/_cacache; echo x > ~/.npm/_cacache/other",
        ]);
        let ran = of_other.run().expect_code(0);
        assert_eq!(ran.out(), "have\n", "{ran}");

        let listed = kept(person);
        assert_eq!(listed.len(), 2, "{listed:?}");
        let project = person.project().canonicalize().unwrap();
        let own = listed
            .iter()
            .find(|cache| cache["project"] == project.to_str().unwrap())
            .unwrap();
        assert_eq!(own["names"], serde_json::json!(["cargo-registry", "npm"]));
        assert!(own["bytes"].as_u64().unwrap() > 0, "{own}");
        let ran = person.line("cache").run().expect_code(0);
        assert!(ran.out().contains("cargo-registry, npm"), "{ran}");

        // Nobody to ask; then that of the project alone, then all.
        let ran = person.line("cache prune").run().expect_code(2);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the package caches of 1 project would be removed, and there is no terminal to ask on
        hint: say so with --yes; `glovebox cache` shows what is kept
        ");
        let ran = person
            .line("cache prune --older-than 1h --yes")
            .run()
            .expect_code(0);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"glovebox: there was nothing to remove");
        let _ = person.line("cache prune --yes").run().expect_code(0);
        assert_eq!(kept(person).len(), 1);
        let ran = run(person, "run -q --cache", "ls ~/.npm/_cacache");
        assert_eq!(ran.out(), "have\n", "{ran}");
        let _ = person.line("cache prune --all --yes").run().expect_code(0);
        assert!(kept(person).is_empty());
        person.assert_nothing_left();
    });
}

#[test]
fn two_sandboxes_of_a_project_do_not_both_keep() {
    Person::each(|person| {
        prepare(person);
        let _ = run(person, "run -q --cache", "echo 1 > ~/.npm/_cacache/first");
        let _ = person.line("start -q --cache box").run().expect_code(0);
        let _ = run(person, "exec box", "echo 2 > ~/.npm/_cacache/second");
        let ran = run(
            person,
            "run --cache",
            "ls ~/.npm/_cacache; echo 3 > ~/.npm/_cacache/third",
        );
        assert_eq!(ran.out(), "first\nhave\n", "{ran}");
        insta::assert_snapshot!(ran.said("another sandbox", person.place().root()), @"glovebox: another sandbox of this project keeps its package caches now: what this one adds to them goes with it");
        let ran = person.line("cache prune --yes").run().expect_code(5);
        assert!(
            ran.err().contains("a sandbox has the package caches"),
            "{ran}"
        );
        let ran = person.line("start --cache box").run().expect_code(0);
        insta::assert_snapshot!(ran.said("runs already", person.place().root()), @"glovebox: sandbox `box` runs already, with these settings");
        let ran = person.line("start box").run().expect_code(3);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the sandbox `box` runs with other settings: cache is true, asked for false
        hint: use it as it is with `glovebox exec box -- COMMAND`, or bring its changes back with `glovebox pull box` and end it with `glovebox kill box` first
        ");
        let _ = person.line("stop box").run().expect_code(0);
        let ran = run(person, "run --cache", "ls ~/.npm/_cacache");
        assert_eq!(ran.out(), "first\nhave\nsecond\n", "{ran}");
        assert!(!ran.err().contains("another sandbox"), "{ran}");
        // One that is taken up again finds what others have kept since.
        let _ = run(person, "run -q --cache", "echo 4 > ~/.npm/_cacache/fourth");
        let _ = person.line("start -q --cache box").run().expect_code(0);
        let ran = run(person, "exec box", "ls ~/.npm/_cacache");
        assert_eq!(ran.out(), "first\nfourth\nhave\nsecond\n", "{ran}");
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_checkpoint_and_the_way_back_leave_caches_alone() {
    Person::each(|person| {
        prepare(person);
        let _ = person.line("start -q --cache box").run().expect_code(0);
        let _ = run(
            person,
            "exec box",
            "echo 1 > ~/.npm/_cacache/one; echo 1 > file; touch /tmp/x",
        );
        let _ = person.line("checkpoint box").run().expect_code(0);
        let _ = run(
            person,
            "exec box",
            "echo 2 > ~/.npm/_cacache/two; echo 2 > file",
        );
        let _ = person.line("restore box v1").run().expect_code(0);
        let ran = run(
            person,
            "exec box",
            "cat file; echo 3 > ~/.npm/_cacache/three; ls ~/.npm/_cacache",
        );
        assert_eq!(ran.out(), "1\nhave\none\nthree\ntwo\n", "{ran}");
        let _ = person.line("kill box").run().expect_code(0);
        let ran = run(person, "run -q --cache", "ls ~/.npm/_cacache");
        assert_eq!(ran.out(), "have\none\nthree\ntwo\n", "{ran}");
        person.assert_nothing_left();
    });
}

#[test]
fn an_owner_that_is_killed_leaves_no_half_of_a_cache() {
    Person::each(|person| {
        prepare(person);
        let _ = run(person, "run -q --cache", "echo 1 > ~/.npm/_cacache/one");
        let _ = person.line("start -q --cache box").run().expect_code(0);
        let _ = run(person, "exec box", "echo 2 > ~/.npm/_cacache/two");
        let list = person.line("list --json").run().expect_code(0);
        let answer: Value = serde_json::from_slice(&list.stdout).unwrap();
        let pid = answer["data"]["sandboxes"][0]["pid"].as_u64().unwrap();
        let killed = std::process::Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status()
            .unwrap();
        assert!(killed.success());
        let is_lost = || person.line("list").run().out().contains("lost");
        assert!(testkit::wait_until(
            std::time::Duration::from_secs(20),
            is_lost
        ));
        let ran = run(person, "run -q --cache", "ls ~/.npm/_cacache");
        assert_eq!(ran.out(), "have\none\n", "{ran}");
        // What it wrote is still its own.
        let _ = person.line("start -q --cache box").run().expect_code(0);
        let ran = run(person, "exec box", "ls ~/.npm/_cacache");
        assert_eq!(ran.out(), "have\none\ntwo\n", "{ran}");
        let _ = person.line("kill box").run().expect_code(0);
        // A directory that no index names is what dying in the middle leaves.
        let dir = kept(person)[0]["path"].as_str().unwrap().to_owned();
        let half = Path::new(&dir).join("0123456789abcdef");
        fs::create_dir(&half).unwrap();
        person.own(&half);
        let ran = run(person, "run -q --cache", "ls ~/.npm/_cacache");
        assert_eq!(ran.out(), "have\none\ntwo\n", "{ran}");
        assert!(!half.exists());
        // What cannot be read is an error that says how it goes.
        fs::write(Path::new(&dir).join("cache.json"), "{").unwrap();
        let ran = person.line("run -q --cache -- true").run().expect_code(125);
        insta::assert_snapshot!(ran.said("hint:", person.place().root()), @"hint: `glovebox cache prune` removes it; programs fetch again what they need");
        let _ = person.line("cache prune --yes").run().expect_code(0);
        let _ = run(person, "run -q --cache", "true");
        person.assert_nothing_left();
    });
}

/// Under root each sandbox has a range of ids, and the next one may have another.
#[test]
fn a_cache_is_kept_across_ranges_of_ids_and_owners_of_projects() {
    let person = Person::myself();
    if !person.is_root() {
        skip_because!(SkipReason::needs_root("to lease ranges of ids"));
    }
    prepare(&person);
    lchown(
        person.project(),
        Some(UNPRIVILEGED_ID),
        Some(UNPRIVILEGED_ID),
    )
    .unwrap();
    let _ = run(
        &person,
        "run -q --cache",
        "echo 1 > ~/.npm/_cacache/one; echo more >> ~/.npm/_cacache/have",
    );
    let _ = person.line("start -q holder").run().expect_code(0);
    let ran = run(
        &person,
        "run -q --cache",
        "echo 2 >> ~/.npm/_cacache/one; rm ~/.npm/_cacache/have; cat ~/.npm/_cacache/*",
    );
    assert_eq!(ran.out(), "1\n2\n", "{ran}");
    let _ = person.line("kill holder").run().expect_code(0);
    let ran = run(&person, "run -q --cache", "cat ~/.npm/_cacache/*");
    assert_eq!(ran.out(), "1\n2\n", "{ran}");
    assert_eq!(
        fs::read_to_string(cache_file(&person, "have")).unwrap(),
        "host\n"
    );
    person.assert_nothing_left();
}

#[test]
fn npm_finds_again_what_it_added() {
    if !Path::new("/usr/bin/npm").exists() {
        skip!("there is no npm");
    }
    Person::each(|person| {
        person.write(
            "project/pkg/package.json",
            r#"{ "name": "tiny-sample", "version": "1.2.3" }"#,
        );
        let script =
            "cd /tmp && npm pack --silent /workspace/pkg && npm cache add ./tiny-sample-1.2.3.tgz";
        let _ = run(person, "run -q --cache --apply never", script);
        assert!(!person.place().home().join(".npm").exists());
        let find = "grep -rqs tiny-sample ~/.npm/_cacache/index-v5 && npm cache verify >/dev/null && echo found";
        let ran = run(person, "run -q --cache", find);
        assert_eq!(ran.out(), "found\n", "{ran}");
        let ran = person.script("run -q", find).run();
        assert!(ran.code != 0, "{ran}");
        person.assert_nothing_left();
    });
}

#[test]
fn what_keeps_nothing_says_so() {
    Person::each(|person| {
        prepare(person);
        let root = person.place().root();
        let said = [
            "--layers memory",
            "--workspace none",
            "--rootfs host-all",
            "--backend host",
        ]
        .map(|args| {
            let ran = person
                .line(&format!("run --cache {args} -- true"))
                .run()
                .expect_code(125);
            ran.failure(root)
        });
        insta::assert_snapshot!(said.join("\n"), @"
        error: --cache has no meaning here: it needs layers on disk
        hint: leave it out; package caches can be written to in any case, and go with the sandbox
        error: --cache has no meaning here: it needs a project as an overlay, read-only or live
        hint: leave it out; package caches can be written to in any case, and go with the sandbox
        error: --cache has no meaning here: it needs the programs of this machine as its root
        hint: leave it out; package caches can be written to in any case, and go with the sandbox
        error: --cache has no meaning with the backend `host`
        hint: choose the backend it belongs to with `--backend`, or leave it out
        ");
        // A project cannot turn it on by itself.
        person.write("project/glovebox.toml", "cache = true\n");
        let ran = person.line("run -- true").run();
        assert_ne!(ran.code, 0, "{ran}");
        insta::assert_snapshot!(ran.failure(root), @"
        error: [ROOT]/project/glovebox.toml:1: `cache = true` keeps on your disk what package managers write inside, and a project may not do that by itself
        hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
        ");
        let ran = run(person, "run -q --explain --no-config", "true");
        assert!(ran.out().contains(".npm/_cacache: overlay"), "{ran}");
        let ran = run(person, "run -q --cache --explain --no-config", "true");
        assert!(ran.out().contains("kept for the next sandbox"), "{ran}");
    });
}
