//! Both sides edit the same files. In whatever form the sandbox's changes return, no line that the
//! user wrote may be reverted.
//!
//! A project has tracked files, tracked files with uncommitted edits, and untracked files. The
//! sandbox and the user change lines of them at random; the user also commits at random. Every form
//! is then tried on a copy: a pull, a patch through `git apply` and through patch(1), a branch
//! through `git merge`.

#![expect(
    clippy::unwrap_used,
    reason = "in a test, what must not fail may panic"
)]

mod fixture;

use fixture::builder::HostBuilder;
use fixture::{Fixture, Tree};
use glovebox_workspace::apply::{Destination, commit};
use glovebox_workspace::branch::HostRepository;
use glovebox_workspace::patch::{self, Style};
use glovebox_workspace::{ChangeSet, CollectedChanges, Options, Outcome, Resolution, branch};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Output};
use testkit::{has_program, skip};

/// An edit of a file, by lines.
#[derive(Debug, Clone)]
enum Edit {
    /// Inserts a new line before a line.
    Insert(usize),
    /// Replaces a line by a new one.
    Replace(usize),
    Remove(usize),
    /// Removes the final line break, or adds one.
    ToggleEnd,
    MakeExecutable,
    Delete,
}

/// State of a file in git when the sandbox starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GitState {
    Clean,
    Dirty,
    Untracked,
}

/// Edits of one file by both sides.
#[derive(Debug, Clone)]
struct FileHistory {
    lines: Vec<&'static str>,
    end: &'static str,
    standing: GitState,
    sandbox: Vec<Edit>,
    user: Vec<Edit>,
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        6 => (0_usize..16).prop_map(Edit::Insert),
        6 => (0_usize..16).prop_map(Edit::Replace),
        4 => (0_usize..16).prop_map(Edit::Remove),
        1 => Just(Edit::ToggleEnd),
        1 => Just(Edit::MakeExecutable),
        1 => Just(Edit::Delete),
    ]
}

fn story() -> impl Strategy<Value = FileHistory> {
    // Few distinct lines, so that a change could match in many places.
    let line = prop::sample::select(vec!["a", "b", "c", "}", "", "x\r"]);
    (
        prop::collection::vec(line, 0..16),
        prop::sample::select(vec!["\n", ""]),
        prop::sample::select(vec![GitState::Clean, GitState::Dirty, GitState::Untracked]),
        prop::collection::vec(edit(), 0..4),
        prop::collection::vec(edit(), 0..4),
    )
        .prop_map(|(lines, end, standing, sandbox, user)| FileHistory {
            lines,
            end,
            standing,
            sandbox,
            user,
        })
}

/// Applies edits to a text. Returns the new text and whether it is executable.
fn edited(text: &str, edits: &[Edit], who: &str) -> (Option<String>, bool) {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let mut is_executable = false;
    for (number, edit) in edits.iter().enumerate() {
        let own = format!("{who} {number}\n");
        match edit {
            Edit::Insert(at) => lines.insert((*at).min(lines.len()), own),
            Edit::Replace(at) if *at < lines.len() => lines[*at] = own,
            Edit::Remove(at) if *at < lines.len() => drop(lines.remove(*at)),
            Edit::Replace(_) | Edit::Remove(_) => {}
            Edit::ToggleEnd => {
                if let Some(last) = lines.last_mut() {
                    match last.strip_suffix('\n') {
                        Some(short) => *last = short.to_owned(),
                        None => last.push('\n'),
                    }
                }
            }
            Edit::MakeExecutable => is_executable = true,
            Edit::Delete => return (None, false),
        }
        // A line without a break joins the next one.
        lines = lines
            .concat()
            .split_inclusive('\n')
            .map(str::to_owned)
            .collect();
    }
    (Some(lines.concat()), is_executable)
}

/// Runs a program in a directory, with a fixed identity.
fn run(dir: &Path, program: &str, args: &[&str]) -> Output {
    Command::new(program)
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_AUTHOR_NAME", "T")
        .env("GIT_AUTHOR_EMAIL", "t@example.org")
        .env("GIT_COMMITTER_NAME", "T")
        .env("GIT_COMMITTER_EMAIL", "t@example.org")
        .output()
        .unwrap()
}

fn git(dir: &Path, args: &[&str]) -> String {
    let done = run(dir, "git", args);
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "git {args:?}: {told}");
    String::from_utf8(done.stdout).unwrap()
}

fn name(number: usize) -> String {
    format!("dir/f{number}")
}

/// The user's own lines in each file of a project.
fn own_lines(tree: &Tree) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for (path, thing) in &tree.0 {
        if let fixture::TreeNode::File(content, _) = thing
            && !path.starts_with(b".git/")
        {
            let own = content
                .split(|byte| *byte == b'\n')
                .filter(|line| line.starts_with(b"user "))
                .map(<[u8]>::to_vec)
                .collect();
            found.insert(path.clone(), own);
        }
    }
    found
}

/// Fails if a line of the user's is missing from its file.
fn check_kept(before: &Tree, after: &Tree, form: &str) {
    let after = own_lines(after);
    for (path, lines) in own_lines(before) {
        for line in lines {
            let is_there = after.get(&path).is_some_and(|found| found.contains(&line));
            let (path, line) = (
                String::from_utf8_lossy(&path),
                String::from_utf8_lossy(&line),
            );
            assert!(is_there, "{form} took `{line}` out of {path}");
        }
    }
}

fn plain(tree: Tree) -> Tree {
    let mut tree = tree.without_staging();
    tree.0
        .retain(|path, _| path != b".git" && !path.starts_with(b".git/"));
    tree
}

fn pull(fixture: &Fixture, options: Options) -> Outcome {
    let collected = fixture.collect();
    let mut destination = Destination::open(&fixture.project(), fixture.base_file()).unwrap();
    let plan = destination.plan(&collected, options).unwrap();
    let staged = destination
        .stage(&plan, &collected, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    commit(&staged.hand_over(), &mut |_| {}).unwrap();
    plan.outcome
}

/// The changes from which a patch or a diff is made.
fn view(fixture: &Fixture) -> (CollectedChanges, Outcome) {
    let collected = fixture.collect();
    let mut destination = Destination::look(&fixture.project(), fixture.base_file()).unwrap();
    let plan = destination.plan(&collected, Options::default()).unwrap();
    let view = destination.view(&plan, &collected).unwrap();
    (view, plan.outcome)
}

/// A copy of the project, including `.git`, with its times.
fn copy(fixture: &Fixture, to: &str) -> std::path::PathBuf {
    let to = fixture.scratch().join(format!("copy-{to}"));
    let done = run(
        fixture.root(),
        "cp",
        &["-a", "project", to.to_str().unwrap()],
    );
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "cp: {told}");
    to
}

fn one(stories: &[FileHistory], does_user_commit: bool) {
    let fixture = Fixture::new(1);
    let project = fixture.project();
    git(&project, &["init", "-q", "-b", "main"]);
    for (number, story) in stories.iter().enumerate() {
        let text = story.lines.join("\n") + story.end;
        match story.standing {
            // The committed version differs from the one from which the sandbox starts.
            GitState::Dirty => fixture.host(&name(number), &format!("{text}\nmore\n")),
            _ => fixture.host(&name(number), &text),
        }
        if story.standing != GitState::Untracked {
            git(&project, &["add", &name(number)]);
        }
    }
    // A later time than that of the added files, so that git trusts the index.
    std::thread::sleep(std::time::Duration::from_millis(10));
    git(&project, &["commit", "-q", "--allow-empty", "-m", "first"]);
    git(&project, &["update-index", "--refresh", "-q"]);
    let mut bases = Vec::new();
    for (number, story) in stories.iter().enumerate() {
        let mut text = story.lines.join("\n") + story.end;
        if story.standing == GitState::Dirty {
            text.insert_str(0, "dirty 0\n");
            fixture.host(&name(number), &text);
        }
        bases.push(text);
    }
    fixture.push();
    for (number, story) in stories.iter().enumerate() {
        if !story.sandbox.is_empty() {
            match edited(&bases[number], &story.sandbox, "sandbox") {
                (Some(text), is_executable) => {
                    fixture.layer(0, &name(number), &text);
                    if is_executable {
                        fixture.make_executable(0, &name(number));
                    }
                }
                (None, _) => fixture.whiteout(0, &name(number)),
            }
        }
        if !story.user.is_empty() {
            let path = project.join(name(number));
            match edited(&bases[number], &story.user, "user") {
                (Some(text), _) => fs::write(path, text).unwrap(),
                (None, _) => fs::remove_file(path).unwrap(),
            }
        }
    }
    if does_user_commit {
        git(
            &project,
            &["commit", "-q", "--allow-empty", "-am", "second"],
        );
    }
    let before = plain(fixture.tree());

    let (shown, outcome) = view(&fixture);
    let mut text = Vec::new();
    patch::write(&shown, Style::Exact, &mut text).unwrap();
    let file = fixture.scratch().join("patch");
    fs::write(&file, &text).unwrap();
    check_branch(&fixture, &outcome);

    // A patch applies to the state for which it was made, and has the effect of a pull.
    let mut patched = Vec::new();
    for (program, args) in [
        ("git", &["apply", "--whitespace=nowarn"][..]),
        ("patch", &["-p1", "-s", "--binary", "-f", "-i"]),
    ] {
        if text.is_empty() || !has_program(program) {
            continue;
        }
        let to = copy(&fixture, program);
        let args = [args, &[file.to_str().unwrap()]].concat();
        let done = run(&to, program, &args);
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.success(),
            "{program}: {told}{}",
            String::from_utf8_lossy(&text)
        );
        patched.push((program, plain(Tree::read(&to))));
    }
    let pulled = pull(&fixture, Options::default());
    assert_eq!(pulled.conflicts, outcome.conflicts);
    let after = plain(fixture.tree());
    check_kept(&before, &after, "a pull");
    for (program, tree) in patched {
        check_kept(&before, &tree, program);
        let strip = |tree: &Tree| {
            let mut tree = tree.clone();
            tree.0.retain(|_, thing| *thing != fixture::TreeNode::Dir);
            tree.lines()
        };
        assert_eq!(
            strip(&after),
            strip(&tree),
            "left: a pull, right: {program}"
        );
    }
    // A second pull changes nothing, and a merged file stays merged when the user goes on editing.
    pull(&fixture, Options::default());
    assert_eq!(plain(fixture.tree()), after);
    let mut grown = Vec::new();
    for (path, thing) in &after.0 {
        if let fixture::TreeNode::File(content, _) = thing {
            let path = String::from_utf8(path.clone()).unwrap();
            let text = [b"user later\n", content.as_slice()].concat();
            fs::write(project.join(&path), text).unwrap();
            grown.push(path);
        }
    }
    let before = plain(fixture.tree());
    pull(&fixture, Options::default());
    check_kept(&before, &plain(fixture.tree()), "a later pull");
    pull(&fixture, Options::all(Resolution::Markers));
    check_kept(&before, &plain(fixture.tree()), "a pull with markers");
}

/// A merge of the branch reverts no work of the user, committed or not.
fn check_branch(fixture: &Fixture, outcome: &Outcome) {
    let collected = fixture.collect();
    let project = fixture.project();
    let base = fixture.base_file();
    git(&project, &["config", "user.name", "T"]);
    git(&project, &["config", "user.email", "t@example.org"]);
    let done = branch::commit(
        &collected,
        base.as_ref(),
        &HostRepository::open(&project, Path::new("git")).unwrap(),
        &mut HostBuilder::new(&project),
        "box",
        "from a sandbox\n",
    )
    .unwrap();
    let Some(commit) = done.commit else {
        return;
    };
    let to = copy(fixture, "merged");
    let before = plain(Tree::read(&to));
    let changed = git(&to, &["diff", "--name-only", "HEAD", &commit]);
    for name in changed.lines().filter(|name| !name.ends_with(".theirs")) {
        let kept = |rev: &str| {
            let text = run(&to, "git", &["show", &format!("{rev}:{name}")]).stdout;
            let text = String::from_utf8(text).unwrap();
            let own = text.lines().filter(|line| line.starts_with("user "));
            own.map(str::to_owned).collect::<Vec<_>>()
        };
        let (head, made) = (kept("HEAD"), kept(&commit));
        assert!(
            head.iter().all(|line| made.contains(line)),
            "the branch took {head:?} out of {name}: {made:?}"
        );
    }
    let merged = run(&to, "git", &["merge", "-q", &commit]);
    check_kept(&before, &plain(Tree::read(&to)), "a merge of the branch");
    let is_clean = git(&project, &["status", "--porcelain"]).is_empty();
    if is_clean && outcome.conflicts.is_empty() && done.conflicts.is_empty() {
        assert!(
            merged.status.success(),
            "{}",
            String::from_utf8_lossy(&merged.stderr)
        );
    }
}

#[test]
fn no_form_takes_back_what_the_user_wrote() {
    if !has_program("git") {
        skip!("needs git");
    }
    let can_delete = std::panic::catch_unwind(|| {
        let fixture = Fixture::new(1);
        fixture.whiteout(0, "x");
    });
    if can_delete.is_err() {
        skip!("needs whiteouts");
    }
    let config = Config {
        cases: 40,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(
            &(prop::collection::vec(story(), 1..5), any::<bool>()),
            |(stories, does_user_commit)| {
                one(&stories, does_user_commit);
                Ok(())
            },
        )
        .unwrap();
}

#[test]
fn a_patch_of_nothing_is_empty() {
    let fixture = Fixture::new(1);
    fixture.host("a", "1\n");
    fixture.push();
    let (shown, outcome) = view(&fixture);
    assert_eq!(shown.set, ChangeSet::default());
    assert_eq!(outcome, Outcome::default());
}
