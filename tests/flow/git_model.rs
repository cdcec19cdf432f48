//! Random steps of git on both sides. Each edit writes a word of its own, and none of the steps that are ours (a pull in
//! any form, stop and start, a checkpoint, a run whose changes are applied) makes a word disappear that was somewhere
//! before: in a tree, a commit, a stash or a log of either side, or in what was parked.
//!
//! What git itself throws away because one side told it to is that side's own doing. `GIT_MODEL_SEED` tries other steps,
//! and `GLOVEBOX_TEST_WHOLE` many.

use super::workspace::on_the_host;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use testkit::{Person, has_program, skip};

/// Four files of twenty lines, and a branch beside the one that is checked out.
const MAKE: &str = "rm -rf .git * && git init -q -b main . && git config user.name T && git config user.email t@example.org && \
    git config gc.auto 0 && mkdir dir && for name in a b c dir/d; do seq 1 20 > $name; done && git add . && \
    git commit -q -m first && git checkout -q -b feature && echo feature >> a && git commit -q -a -m feature && \
    git checkout -q main && echo main >> b && git commit -q -a -m second";

/// Steps of either side; `FILE`, `LINE`, `WORD` and `N` are filled in.
const EDITS: [&str; 8] = [
    "[ ! -f FILE ] || sed -i 'LINEa WORD' FILE",
    "[ ! -f FILE ] || sed -i 'LINEa WORD' FILE; git commit -q -a -m edit || true",
    "echo WORD > newN",
    "echo WORD > newN; git add -A; git commit -q -m new || true",
    "rm -f FILE",
    "[ ! -f FILE ] || git mv -f FILE movedN || true",
    "git add -A",
    "git commit -q -a -m all || true",
];
const SWITCHES: [&str; 9] = [
    "git checkout -q feature || true",
    "git checkout -q main || true",
    "git checkout -q -b sideN || true",
    "git merge -q -m merged feature || git merge --abort || true",
    "git reset -q --hard || true",
    "git reset -q --hard HEAD~1 || true",
    "git stash -q || true",
    "git stash -q -u || true",
    "git pack-refs --all || true",
];
/// Of the user alone.
const OF_HOST: [&str; 2] = [
    "git reflog expire --expire=now --all; git gc -q --prune=now || true",
    "git worktree add -q ../treeN -b treeN || true",
];
/// Of the sandbox alone.
const OF_SANDBOX: [&str; 6] = [
    "git rebase -q feature || git rebase --abort || true",
    "touch FILE; chmod +x FILE || true",
    "[ ! -f FILE ] || { cat FILE > /tmp/copy && cat /tmp/copy > FILE; }",
    "git rm -q --cached FILE || true",
    "sed -i 's/no such line//' FILE || true",
    "git commit -q --amend --no-edit || true",
];

/// Prints the words of all trees, commits, stashes and logs of one side.
const FIND: &str = "{ grep -rhoE 'word-[0-9]+z' --exclude-dir=.git . ; \
    git grep --cached -hoE 'word-[0-9]+z' ; \
    git grep -hoE 'word-[0-9]+z' $(git rev-list --all --reflog) ; } 2>/dev/null | sort -u";
/// Those of the tree that is checked out.
const FIND_IN_TREE: &str = "grep -rhoE 'word-[0-9]+z' --exclude-dir=.git . | sort -u";
/// References and branch of the user; `sandbox/` is ours.
const REFERENCES: &str =
    "git symbolic-ref -q HEAD; git for-each-ref | grep -vE 'refs/heads/(sandbox/|pulled)' || true";

/// What is done at one step.
#[derive(Debug, Clone)]
enum Step {
    Host(String),
    Sandbox(String),
    Ours(OurStep),
}

/// A step that may lose nothing.
#[derive(Debug, Clone, Copy)]
enum OurStep {
    Pull,
    Commits,
    AllCommits,
    Branch,
    StopAndStart,
    Checkpoint,
    Run,
    RunThatCommits,
    RunThatStashes,
}

const OUR_STEPS: [OurStep; 9] = [
    OurStep::Pull,
    OurStep::Commits,
    OurStep::AllCommits,
    OurStep::Branch,
    OurStep::StopAndStart,
    OurStep::Checkpoint,
    OurStep::Run,
    OurStep::RunThatCommits,
    OurStep::RunThatStashes,
];

fn step() -> impl Strategy<Value = Step> {
    let file = proptest::sample::select(vec!["a", "b", "c", "dir/d"]);
    let of = |own: &[&'static str]| {
        let edits = [EDITS.as_slice(), EDITS.as_slice()].concat();
        proptest::sample::select([edits.as_slice(), &SWITCHES, own].concat())
    };
    let fill = |script: &str, file: &str, line: u32| {
        let script = script.replace("FILE", file);
        script.replace("LINE", &line.to_string())
    };
    let lines = 1..19_u32;
    prop_oneof![
        3 => (of(&OF_HOST), file.clone(), lines.clone())
            .prop_map(move |(script, file, line)| Step::Host(fill(script, file, line))),
        3 => (of(&OF_SANDBOX), file, lines)
            .prop_map(move |(script, file, line)| Step::Sandbox(fill(script, file, line))),
        2 => proptest::sample::select(OUR_STEPS.to_vec()).prop_map(Step::Ours),
    ]
}

type Words = BTreeSet<String>;

/// Both sides, and what is left to find.
struct Model<'a> {
    person: &'a Person,
    /// What was done, for a failure to tell.
    done: RefCell<Vec<String>>,
    /// Words that a step of the sandbox took out of its tree.
    removed: RefCell<Words>,
}

impl Model<'_> {
    fn host(&self, script: &str) -> String {
        on_the_host(self.person, &self.person.project(), script)
    }

    fn inside(&self, name: &str, script: &str) -> String {
        let verb = format!("exec --quiet {name}");
        self.person.script(&verb, script).run().out()
    }

    /// Runs a command line of ours. It may refuse, and tell so; it may not break down.
    fn call(&self, line: &str) -> i32 {
        let ran = self.person.line(line).run();
        let told = format!("  {line}: {}\n{}", ran.code, ran.err());
        self.done.borrow_mut().push(told);
        assert!(ran.code < 100, "{}", self.story());
        ran.code
    }

    fn story(&self) -> String {
        self.done.borrow().join("\n")
    }

    /// All words of both sides, and of what was parked.
    fn words(&self) -> Words {
        let mut words = words_of(&self.host(FIND));
        for name in self.sandboxes() {
            if name != "work" {
                let _ = self.call(&format!("start --quiet {name}"));
            }
            words.extend(words_of(&self.inside(&name, FIND)));
        }
        words
    }

    fn sandboxes(&self) -> Vec<String> {
        let listed = self.person.line("list --json").run().out();
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let entries = listed["data"]["sandboxes"].as_array().unwrap().iter();
        let names = entries.map(|entry| entry["name"].as_str().unwrap().to_owned());
        names.collect()
    }

    fn ours(&self, step: OurStep, number: usize) {
        let run = |script: &str| {
            let word = format!("word-{number}z");
            let verb = "run --quiet --apply auto";
            let ran = self
                .person
                .script(verb, &script.replace("WORD", &word))
                .run();
            let told = format!("  {verb} {script}: {}\n{}", ran.code, ran.err());
            self.done.borrow_mut().push(told);
            assert!(ran.code < 100, "{}", self.story());
            assert!(self.words().contains(&word), "{}", self.story());
            for name in self.sandboxes() {
                if name != "work" {
                    let _ = self.call(&format!("kill --quiet {name}"));
                }
            }
        };
        match step {
            OurStep::Pull => drop(self.call("pull work")),
            OurStep::Commits => self.commits(),
            OurStep::AllCommits => drop(self.call("pull work --commits --all")),
            OurStep::Branch => drop(self.call(&format!("pull work --branch pulled{number}"))),
            OurStep::StopAndStart => {
                assert_eq!(self.call("stop --quiet work"), 0, "{}", self.story());
                assert_eq!(self.call("start --quiet work"), 0, "{}", self.story());
            }
            OurStep::Checkpoint => {
                let _ = self.call("checkpoint --quiet work");
            }
            OurStep::Run => run("echo WORD >> a"),
            OurStep::RunThatCommits => run("echo WORD >> b; git add -A; git commit -q -m run"),
            OurStep::RunThatStashes => run("echo WORD >> c; git add -A; git stash -q"),
        }
    }

    /// Takes the commits; what the user has committed is still there when they are merged, but for what the sandbox took
    /// out itself.
    fn commits(&self) {
        if self.call("pull work --commits") != 0 {
            return;
        }
        let merge = "rm -rf ../merged; git clone -q . ../merged 2>/dev/null && cd ../merged && git config user.name T && \
            git config user.email t@example.org && git rev-parse -q --verify origin/sandbox/work >/dev/null && \
            git merge -q -m merged origin/sandbox/work >/dev/null 2>&1 && git grep -hoE 'word-[0-9]+z' HEAD || echo refused";
        let merged = self.host(merge);
        if merged.contains("refused") {
            return;
        }
        let committed = words_of(&self.host("git grep -hoE 'word-[0-9]+z' HEAD || true"));
        let merged = words_of(&merged);
        let removed = self.removed.borrow();
        let lost: Vec<&String> = committed
            .difference(&merged)
            .filter(|word| !removed.contains(*word))
            .collect();
        assert!(lost.is_empty(), "{lost:?} in no merge\n{}", self.story());
    }

    fn play(&self, steps: &[Step]) {
        self.host(MAKE);
        let _ = self.call("start --quiet work");
        let mut before = Words::new();
        let mut thrown_away = Words::new();
        for (number, step) in steps.iter().enumerate() {
            self.done.borrow_mut().push(format!("{number}: {step:?}"));
            let fill = |script: &str| {
                let script = script.replace("WORD", &format!("word-{number}z"));
                script.replace('N', &number.to_string())
            };
            match step {
                Step::Host(script) => {
                    let had = words_of(&self.host(FIND));
                    let _ = self.host(&format!("{{ {}; }} 2>&1", fill(script)));
                    let has = words_of(&self.host(FIND));
                    let is_users = |word: &&String| {
                        !steps.iter().enumerate().any(|(by, step)| {
                            matches!(step, Step::Sandbox(_)) && **word == format!("word-{by}z")
                        })
                    };
                    // A sandbox may see a file for a while as it was before the user replaced it.
                    thrown_away.extend(had.difference(&has).filter(is_users).cloned());
                }
                Step::Sandbox(script) => {
                    let tree = words_of(&self.inside("work", FIND_IN_TREE));
                    let _ = self.inside("work", &fill(script));
                    let left = words_of(&self.inside("work", FIND_IN_TREE));
                    let removed = tree.difference(&left).cloned();
                    self.removed.borrow_mut().extend(removed);
                }
                Step::Ours(ours) => {
                    let references = self.host(REFERENCES);
                    self.ours(*ours, number);
                    let after = self.words();
                    let lost: Vec<&String> = before.difference(&after).collect();
                    assert!(lost.is_empty(), "lost: {lost:?}\n{}", self.story());
                    assert_eq!(references, self.host(REFERENCES), "{}", self.story());
                    let check = self.host("git fsck --no-progress --no-dangling 2>&1 || true");
                    assert!(!check.contains("error"), "{check}\n{}", self.story());
                }
            }
            before = self.words().difference(&thrown_away).cloned().collect();
        }
        let check = self.inside(
            "work",
            "[ ! -d .git ] || git fsck --no-progress --no-dangling 2>&1",
        );
        assert!(!check.contains("error"), "{check}\n{}", self.story());
    }
}

fn words_of(text: &str) -> Words {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn random_steps_of_both_sides_lose_no_word() {
    if !has_program("git") {
        skip!("needs git");
    }
    let is_whole = std::env::var_os("GLOVEBOX_TEST_WHOLE").is_some();
    let config = Config {
        cases: if is_whole { 200 } else { 5 },
        max_shrink_iters: 60,
        failure_persistence: None,
        ..Config::default()
    };
    let seed = std::env::var("GIT_MODEL_SEED").ok();
    let seed: u64 = seed.and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let played = runner.run(&vec(step(), 6..14), |steps| {
        let person = Person::myself();
        let model = Model {
            person: &person,
            done: RefCell::default(),
            removed: RefCell::default(),
        };
        model.play(&steps);
        let _ = person.line("kill --all --quiet").run();
        Ok(())
    });
    played.unwrap_or_else(|failure| panic!("GIT_MODEL_SEED={seed}: {failure}"));
}
