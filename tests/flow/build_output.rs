//! Build output in the project: kept with `--cache`, never a change, and never taken for that of other sources.

use crate::caches::{kept, run};
use crate::projects::{Tools, rust_tools};
use crate::workspace::told;
use std::ffi::OsString;
use std::fs;
use testkit::{Person, SkipReason, skip, skip_because};

/// A project of two packages and a build script, without any from elsewhere.
fn prepare(person: &Person) {
    let package = |name: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n")
    };
    let top = package("shapes") + "[dependencies]\ntwo = { path = \"two\" }\n[workspace]\n";
    person.write("project/Cargo.toml", top);
    person.write(
        "project/build.rs",
        "fn main() { println!(\"cargo:rerun-if-changed=build.rs\") }\n",
    );
    person.write(
        "project/src/main.rs",
        "fn main() { println!(\"it is {}\", two::two()); }\n",
    );
    person.write("project/two/Cargo.toml", package("two"));
    person.write("project/two/src/lib.rs", "pub fn two() -> u32 { 2 }\n");
    ignore(person);
}

/// What makes a project one of cargo's whose output can be kept.
fn ignore(person: &Person) {
    person.write("project/.gitignore", "/target\nCargo.lock\n");
    let made = person.program("git").args(["init", "-q"]).status().unwrap();
    assert!(made.success());
}

/// A person with a toolchain.
struct Builder<'a> {
    person: &'a Person,
    tools: Tools,
}

impl Builder<'_> {
    /// All that `glovebox ARGS -- sh -c SCRIPT` says.
    fn script(&self, args: &str, script: &str) -> String {
        let mut words: Vec<OsString> = vec![self.person.binary().into()];
        words.extend(args.split_whitespace().map(OsString::from));
        words.extend(["--", "sh", "-c", script].map(OsString::from));
        let dir = self.person.project();
        let output = self.tools.command(self.person, &words, &dir).output();
        let output = output.unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{args}: {script}: {said}");
        said
    }
}

fn each_builder(test: impl Fn(&Builder<'_>)) {
    Person::each(|person| {
        let Some(tools) = rust_tools(person) else {
            skip!("needs cargo and rustup in a home")
        };
        prepare(person);
        test(&Builder { person, tools });
        let prune = person.line("cache prune --all --yes").run();
        assert_eq!(prune.code, 0, "{prune}");
        person.assert_nothing_left();
    });
}

const BUILD: &str = "cargo build -v --offline";

#[track_caller]
fn assert_fresh(said: &str) {
    let is_fresh = said.contains("Fresh two") && said.contains("Fresh shapes");
    assert!(is_fresh && !said.contains("Compiling"), "{said}");
}

#[test]
fn a_second_build_compiles_nothing() {
    each_builder(|builder| {
        let person = builder.person;
        let said = builder.script("run -q --apply never", BUILD);
        assert!(said.contains("Compiling shapes"), "{said}");
        assert!(kept(person).is_empty());
        let said = builder.script("run -q --cache --apply never", BUILD);
        assert!(said.contains("Compiling shapes"), "{said}");
        assert_eq!(
            kept(person)[0]["names"],
            serde_json::json!(["cargo-target"])
        );
        assert_fresh(&builder.script("run -q --cache --apply never", BUILD));
        let ran = run(
            person,
            "run -q --cache --apply never",
            "target/debug/shapes",
        );
        assert_eq!(ran.out(), "it is 2\n", "{ran}");
        assert!(!person.project().join("target").exists());
        let said = builder.script("run -q --apply never", BUILD);
        assert!(said.contains("Compiling shapes"), "{said}");
        // Removing it is possible, and is kept as well.
        let script = "cargo clean && test ! -e target && git clean -fdxn";
        let _ = builder.script("run -q --cache --apply never", script);
        let ran = run(person, "run -q --cache --apply never", "ls");
        assert!(!ran.out().contains("target"), "{ran}");
        let said = builder.script("run -q --cache --apply never", BUILD);
        assert!(said.contains("Compiling shapes"), "{said}");
    });
}

#[test]
fn output_of_other_sources_is_never_taken_for_fresh() {
    each_builder(|builder| {
        let person = builder.person;
        let build = "cargo run -q --offline";
        let edit = "sed -i s/2.}/3}/ two/src/lib.rs";
        assert_eq!(
            builder.script("run -q --cache --apply never", build),
            "it is 2\n"
        );
        // Changes that nobody took over.
        let said = builder.script("run -q --cache --apply never", &format!("{edit}; {build}"));
        assert_eq!(said, "it is 3\n");
        assert_eq!(
            builder.script("run -q --cache --apply never", build),
            "it is 2\n"
        );
        // Changes that were.
        let said = builder.script("run -q --cache --apply auto", &format!("{edit}; {build}"));
        assert!(said.contains("it is 3\n"), "{said}");
        assert_eq!(
            builder.script("run -q --cache --apply never", build),
            "it is 3\n"
        );
        // An edit of the user's own.
        person.write("project/two/src/lib.rs", "pub fn two() -> u32 { 4 }\n");
        assert_eq!(
            builder.script("run -q --cache --apply never", build),
            "it is 4\n"
        );
    });
}

#[test]
fn a_checkpoint_has_the_output_of_its_sources() {
    each_builder(|builder| {
        let person = builder.person;
        let build = "cargo run -q --offline";
        let edit = "sed -i s/2.}/3}/ two/src/lib.rs";
        // With the toolchain that is shown to this person.
        let _ = builder.script("run -q --cache --apply never", BUILD);
        let words = |line: &str| -> Vec<OsString> {
            let binary = OsString::from(person.binary());
            let words = line.split_whitespace().map(OsString::from);
            std::iter::once(binary).chain(words).collect()
        };
        let glovebox = |line: &str| {
            let mut call = builder
                .tools
                .command(person, &words(line), &person.project());
            let output = call.output().unwrap();
            assert!(output.status.success(), "{line}: {output:?}");
        };
        glovebox("start -q --cache box");
        assert_eq!(builder.script("exec box", build), "it is 2\n");
        glovebox("checkpoint box");
        let said = builder.script("exec box", &format!("{edit}; {build}"));
        assert_eq!(said, "it is 3\n");
        glovebox("restore box v1");
        assert_eq!(builder.script("exec box", build), "it is 2\n");
        // What it stands on is kept as a whole, and nothing of it is a change.
        let diff = person.line("diff box").run().expect_code(0);
        assert!(!diff.out().contains("target/"), "{diff}");
        glovebox("kill box");
        assert_fresh(&builder.script("run -q --cache --apply never", BUILD));
    });
}

/// The rest needs no toolchain: what is in the directory is nobody's concern.
#[test]
fn one_sandbox_at_a_time_keeps_it_and_none_of_it_is_a_change() {
    Person::each(|person| {
        person.write("project/Cargo.toml", "[package]\n");
        person.write("project/target/of-host", "host\n");
        ignore(person);
        let _ = person.line("start -q --cache box").run().expect_code(0);
        let _ = run(
            person,
            "exec box",
            "echo 1 > target/one; rm target/of-host; echo x > x",
        );
        let ran = run(
            person,
            "run --cache --apply never",
            "ls target; echo 2 > target/two",
        );
        assert_eq!(ran.out(), "of-host\n", "{ran}");
        insta::assert_snapshot!(told(person, &ran), @"glovebox: another sandbox of this project keeps its package caches now: what this one adds to them goes with it");
        let ran = person.line("pull box").run().expect_code(0);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"
        glovebox: 2 files (2 B) left out because the project ignores them: target; --ignored takes them
        glovebox: applied to [ROOT]/project: 1 added
        ");
        assert!(person.project().join("x").exists());
        let own: Vec<_> = fs::read_dir(person.project().join("target"))
            .unwrap()
            .collect();
        assert_eq!(own.len(), 1);
        // It is among the files of the sandbox until that ends.
        let diff = person.line("diff box --ignored").run().expect_code(0);
        assert!(diff.out().contains("target/one"), "{diff}");
        let _ = person.line("stop box").run().expect_code(0);
        let ran = run(person, "run -q --cache --apply never", "cat target/*");
        assert_eq!(ran.out(), "1\n", "{ran}");
        // One that is taken up again finds its own.
        let _ = person.line("start -q --cache box").run().expect_code(0);
        let ran = run(person, "exec box", "cat target/* x");
        assert_eq!(ran.out(), "1\nx\n", "{ran}");
        let diff = person.line("diff box").run().expect_code(0);
        assert_eq!(diff.out(), "", "{diff}");
        let _ = person.line("kill box").run().expect_code(0);
        let own: Vec<_> = fs::read_dir(person.project().join("target"))
            .unwrap()
            .collect();
        assert_eq!(own.len(), 1);
        let ran = run(person, "run -q --apply never", "cat target/*");
        assert_eq!(ran.out(), "host\n", "{ran}");
        person.assert_nothing_left();
    });
}

#[test]
fn it_is_kept_only_where_git_ignores_all_of_it() {
    Person::each(|person| {
        person.write("project/Cargo.toml", "[package]\n");
        ignore(person);
        let keep = || {
            let script = "mkdir -p target; echo 1 > target/one";
            let _ = run(person, "run -q --cache --apply never", script);
            kept(person)
                .iter()
                .any(|cache| !cache["names"].as_array().unwrap().is_empty())
        };
        let explain = |args: &str| run(person, &format!("run {args} --explain"), "true").out();
        person.write("project/target/tracked", "");
        let git = |args: &[&str]| {
            let done = person.program("git").args(args).status().unwrap();
            assert!(done.success(), "{args:?}");
        };
        git(&["add", "-f", "target/tracked"]);
        assert!(!keep());
        git(&["rm", "-q", "--cached", "target/tracked"]);
        person.write("project/.gitignore", "");
        assert!(!keep());
        person.write("project/.gitignore", "/target\n");
        assert!(explain("--cache").contains("kept for the next sandbox"));
        assert!(keep());
        let ran = run(person, "run --cache", "echo 2 > target/two");
        insta::assert_snapshot!(told(person, &ran), @"glovebox: 1 file (2 B) left out because the project ignores them: target; --ignored takes them");
        // Shown where it can be written to, and not elsewhere.
        let look = "cat target/one 2>&1 || true";
        let ran = run(person, "run -q --cache --apply never", look);
        assert_eq!(ran.out(), "1\n", "{ran}");
        for args in [
            "",
            "--cache --workspace read-only",
            "--cache --workspace live",
        ] {
            let ran = run(person, &format!("run -q {args}"), look);
            assert!(ran.out().contains("No such file"), "{args}: {ran}");
        }
        person.assert_nothing_left();
    });
}

/// Under root each sandbox has a range of ids, and the next one may have another.
#[test]
fn it_is_kept_across_ranges_of_ids() {
    let person = Person::myself();
    if !person.is_root() {
        skip_because!(SkipReason::needs_root("to lease ranges of ids"));
    }
    person.write("project/Cargo.toml", "[package]\n");
    ignore(&person);
    let script = "mkdir -p -m 700 target/a && echo 1 > target/a/one && chmod 600 target/a/one";
    let _ = run(&person, "run -q --cache --apply never", script);
    let _ = person.line("start -q holder").run().expect_code(0);
    let script = "echo 2 >> target/a/one; echo 3 > target/a/three; cat target/a/*";
    let ran = run(&person, "run -q --cache --apply never", script);
    assert_eq!(ran.out(), "1\n2\n3\n", "{ran}");
    let _ = person.line("kill holder").run().expect_code(0);
    let script = "cat target/a/*; rm -r target/a; mkdir target/a; echo 4 > target/a/four";
    let ran = run(&person, "run -q --cache --apply never", script);
    assert_eq!(ran.out(), "1\n2\n3\n", "{ran}");
    let ran = run(&person, "run -q --cache --apply never", "cat target/a/*");
    assert_eq!(ran.out(), "4\n", "{ran}");
    person.assert_nothing_left();
}
