//! `pull --branch` uses the host's repository and runs nothing that the repository configures.
//!
//! Every setting is tried with a program that leaves a mark. Its twin is plain git in the same
//! repository, which runs the program: so a mark that stays away is no accident.

use super::workspace::on_the_host;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use testkit::{Person, has_program, skip};

const MAKE: &str = "git init -q -b main . && git config user.name T && git config user.email t@example.org && \
    mkdir src && echo foo > src/x && echo a > a && git add . && git commit -q -m first && \
    cp -r .git ../kept";
/// Puts the repository back as it was.
const RESET: &str = "rm -rf .git && cp -r ../kept .git && printf 'foo\\n' > src/x && printf 'a\\n' > a && git update-index -q --refresh";

/// A setting that names a program: how it is made (`PROGRAM` stands for it), and what plain git command
/// obeys it.
struct Setting {
    name: &'static str,
    make: &'static str,
    obeyed_by: &'static str,
}

const fn setting(name: &'static str, make: &'static str, obeyed_by: &'static str) -> Setting {
    Setting {
        name,
        make,
        obeyed_by,
    }
}

const SETTINGS: &[Setting] = &[
    setting(
        "core.fsmonitor",
        "git config core.fsmonitor PROGRAM",
        "git status",
    ),
    setting(
        "include.path",
        "git config -f .git/more core.fsmonitor PROGRAM && git config include.path more",
        "git status",
    ),
    setting(
        "includeIf",
        "git config -f .git/more core.fsmonitor PROGRAM && git config 'includeIf.gitdir:**.path' more",
        "git status",
    ),
    setting(
        "config.worktree",
        "git config extensions.worktreeConfig true && git config --worktree core.fsmonitor PROGRAM",
        "git status",
    ),
    setting(
        "core.hooksPath",
        "mkdir .git/own && cp PROGRAM .git/own/reference-transaction && git config core.hooksPath .git/own",
        "git branch twin",
    ),
    setting(
        "hooks",
        "cp PROGRAM .git/hooks/reference-transaction && cp PROGRAM .git/hooks/post-index-change",
        "git branch twin",
    ),
    setting(
        "filter.clean",
        "git config filter.x.clean PROGRAM && echo '* filter=x' > .git/info/attributes",
        "git hash-object -w --path a a",
    ),
    setting(
        "filter.smudge",
        "git config filter.x.smudge PROGRAM && echo '* filter=x' > .git/info/attributes",
        "git cat-file --filters HEAD:a",
    ),
    setting(
        "filter.process",
        "git config filter.x.process PROGRAM && echo '* filter=x' > .git/info/attributes",
        "git cat-file --filters HEAD:a",
    ),
    setting(
        "core.attributesFile",
        "git config filter.x.clean PROGRAM && echo '* filter=x' > .git/all && git config core.attributesFile \"$PWD/.git/all\"",
        "git hash-object -w --path a a",
    ),
    setting(
        "diff.external",
        "git config diff.external PROGRAM",
        "echo more >> a && git diff",
    ),
    setting(
        "diff.command",
        "git config diff.x.command PROGRAM && echo '* diff=x' > .git/info/attributes",
        "echo more >> a && git diff",
    ),
    setting(
        "diff.textconv",
        "git config diff.x.textconv PROGRAM && echo '* diff=x' > .git/info/attributes",
        "echo more >> a && git diff",
    ),
    setting(
        "merge.driver",
        "git config merge.x.driver PROGRAM && echo '* merge=x' > .git/info/attributes",
        "git checkout -q -b twin && echo one > a && git commit -q -a -m one && \
            git checkout -q main && echo two > a && git commit -q -a -m two && git merge twin",
    ),
    setting(
        "gpg.program",
        "git config gpg.program PROGRAM && git config commit.gpgSign true",
        "git commit --allow-empty -m signed",
    ),
    setting(
        "core.editor",
        "git config core.editor PROGRAM",
        "git commit --allow-empty",
    ),
    setting(
        "credential.helper",
        "git config credential.helper PROGRAM",
        "printf 'protocol=https\\nhost=nowhere.invalid\\n\\n' | GIT_TERMINAL_PROMPT=0 git credential fill",
    ),
    setting(
        "core.askPass",
        "git config core.askPass PROGRAM",
        "printf 'protocol=https\\nhost=nowhere.invalid\\n\\n' | git credential fill",
    ),
    setting(
        "tar.command",
        "git config tar.x.command PROGRAM",
        "git archive --format=x HEAD",
    ),
    setting(
        "trailer.command",
        "git config trailer.x.command PROGRAM && git config trailer.x.key X",
        "git interpret-trailers --trailer x=1 a",
    ),
    setting(
        "gc.recentObjectsHook",
        "git config gc.recentObjectsHook PROGRAM",
        "echo loose | git hash-object -w --stdin && git prune --expire=now",
    ),
    setting(
        "core.pager",
        "git config core.pager PROGRAM",
        "script -qec 'git -p log' /dev/null",
    ),
    setting(
        "core.alternateRefsCommand",
        "git config core.alternateRefsCommand PROGRAM && rm -rf ../alternate && git init -q --bare ../alternate && \
            mkdir -p .git/objects/info && echo \"$PWD/../alternate/objects\" > .git/objects/info/alternates",
        "git fetch -q ../kept main",
    ),
];

/// Ways to a promisor remote: the tree of `HEAD` is missing, and plain git fetches it.
const PROMISORS: &[Setting] = &[
    setting(
        "uploadpack",
        "git config remote.origin.url \"$PWD/../kept\" && git config remote.origin.uploadpack PROGRAM",
        "git cat-file -p HEAD:src",
    ),
    setting(
        "protocol.ext",
        "git config remote.origin.url 'ext::PROGRAM' && git config protocol.ext.allow always",
        "git cat-file -p HEAD:src",
    ),
    setting(
        "core.sshCommand",
        "git config remote.origin.url ssh://nowhere.invalid/x && git config core.sshCommand PROGRAM",
        "git cat-file -p HEAD:src",
    ),
    setting(
        "core.gitProxy",
        "git config remote.origin.url git://nowhere.invalid/x && git config core.gitProxy PROGRAM",
        "git cat-file -p HEAD:src",
    ),
    setting(
        "url.insteadOf",
        "git config remote.origin.url https://nowhere.invalid/x && \
            git config 'url.ext::PROGRAM .insteadOf' https://nowhere.invalid/x && git config protocol.ext.allow always",
        "git cat-file -p HEAD:src",
    ),
];
const LOSE_A_TREE: &str = "git config remote.origin.promisor true && git config core.repositoryFormatVersion 1 && \
    git config extensions.partialClone origin && id=$(git rev-parse HEAD:src) && \
    rm -f .git/objects/$(echo $id | cut -c1-2)/$(echo $id | cut -c3-)";

/// The program that leaves a mark, and the mark.
fn marker(person: &Person) -> (PathBuf, PathBuf) {
    let mark = person.place().root().join("marks/mark");
    let text = format!("#!/bin/sh\ntouch {}\nexit 1\n", mark.display());
    let program = person.write("marks/program", text);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (program, mark)
}

/// Makes a setting in the repository as it was at first.
fn make(person: &Person, setting: &Setting, program: &str, more: &str) {
    let script = setting.make.replace("PROGRAM", program);
    let whole = format!("{RESET} && {script} && {more}");
    on_the_host(person, &person.project(), &whole);
}

/// Runs the plain git command that obeys the setting, which leaves the mark.
fn assert_obeyed(person: &Person, setting: &Setting, mark: &Path) {
    let mut plain = person.program("sh");
    let ended = plain.args(["-c", setting.obeyed_by]).output().unwrap();
    assert!(
        mark.exists(),
        "plain git does not obey {}: {}",
        setting.name,
        String::from_utf8_lossy(&ended.stderr)
    );
    fs::remove_file(mark).unwrap();
}

#[test]
fn no_setting_of_the_repository_runs_a_program() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        let (program, mark) = marker(person);
        on_the_host(person, &person.project(), MAKE);
        person.line("start -q box").run().expect_code(0);
        let work = "echo more >> src/x && echo new > b";
        person.script("exec box", work).run().expect_code(0);
        for setting in SETTINGS {
            make(person, setting, program.to_str().unwrap(), "true");
            let _ = fs::remove_file(&mark);
            person
                .line("pull box --branch box/fix")
                .run()
                .expect_code(0);
            assert!(!mark.exists(), "{} was obeyed", setting.name);
            assert_obeyed(person, setting, &mark);
            let _ = fs::remove_file(&mark);
        }
        assert_eq!(own_git_dirs(person), 0);
    });
}

#[test]
fn nothing_is_fetched_from_a_promisor() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        let (program, mark) = marker(person);
        on_the_host(person, &person.project(), MAKE);
        person.line("start -q box").run().expect_code(0);
        person
            .script("exec box", "echo more >> src/x")
            .run()
            .expect_code(0);
        for setting in PROMISORS {
            make(person, setting, program.to_str().unwrap(), LOSE_A_TREE);
            let pulled = person.line("pull box --branch box/fix").run();
            assert!(!mark.exists(), "{} was obeyed: {pulled}", setting.name);
            assert!(pulled.err().contains("partial clone"), "{pulled}");
            assert_obeyed(person, setting, &mark);
        }
        // A partial clone that has what is needed is used as ever.
        let partial = "git config uploadpack.allowFilter true && git clone -q --bare . ../far && \
            git -C ../far config uploadpack.allowFilter true && rm -rf .git && \
            git clone -q --no-checkout --filter=blob:none \"file://$PWD/../far\" ../near && \
            mv ../near/.git . && git reset -q && git config user.name T && git config user.email t@example.org";
        on_the_host(person, &person.project(), &format!("{RESET} && {partial}"));
        person
            .line("pull box --branch box/fix")
            .run()
            .expect_code(0);
        let shown = on_the_host(person, &person.project(), "git show box/fix:src/x");
        assert_eq!(shown, "foo\nmore\n");
    });
}

#[test]
fn where_a_repository_lies_is_not_for_its_configuration_to_say() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        on_the_host(person, &person.project(), MAKE);
        person.line("start -q box").run().expect_code(0);
        person
            .script("exec box", "echo more >> src/x")
            .run()
            .expect_code(0);
        let pull = |make: &str, branch: &str| {
            on_the_host(person, &person.project(), &format!("{RESET} && {make}"));
            person.line(&format!("pull box --branch {branch}")).run()
        };
        // Plain git would take another directory for the working tree, or none.
        for make in [
            "mkdir -p ../else && git config core.worktree \"$PWD/../else\"",
            "git config core.bare true",
        ] {
            pull(make, "box/fix").expect_code(0);
            let show = "git --git-dir=.git show box/fix:src/x";
            let shown = on_the_host(person, &person.project(), show);
            assert_eq!(shown, "foo\nmore\n", "{make}");
        }
        let odd = "git config core.repositoryFormatVersion 1 && git config extensions.fresh true";
        let refused = pull(odd, "box/fix");
        assert!(refused.err().contains("`fresh`"), "{refused}");

        // The twins: a linked working tree, a packed one, one with its own name for the author.
        pull(
            "git pack-refs --all && git gc -q && git config user.name Other",
            "box/packed",
        )
        .expect_code(0);
        let author = "git log -1 --format=%an box/packed && git reflog box/packed";
        let author = on_the_host(person, &person.project(), author);
        assert!(author.starts_with("Other\n"), "{author}");
        assert_eq!(author.lines().count(), 2, "{author}");
        let linked = "git worktree add -q ../linked main~0 && cp ../linked/.git ../pointer && \
            git branch -q other && mv .git ../moved && \
            sed \"s,gitdir: .*project/.git,gitdir: $PWD/../moved,\" ../pointer > .git";
        pull(linked, "box/linked").expect_code(0);
        let shown = on_the_host(
            person,
            &person.project(),
            "git --git-dir=../moved show box/linked:src/x && rm .git && mv ../moved .git",
        );
        assert_eq!(shown, "foo\nmore\n");
        if person.is_root() {
            let refused = pull("chown -R 65534 .git", "box/others");
            assert!(refused.err().contains("somebody else's"), "{refused}");
            let trust = "chown -R 65534 .git && git config --global --add safe.directory \"$PWD\"";
            pull(trust, "box/others").expect_code(0);
        }
        assert_eq!(own_git_dirs(person), 0);
    });
}

#[test]
fn a_repository_in_a_newer_format_gets_its_branch() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        on_the_host(person, &person.project(), MAKE);
        person.line("start -q box").run().expect_code(0);
        person
            .script("exec box", "echo more >> src/x")
            .run()
            .expect_code(0);
        for format in ["--object-format=sha256", "--ref-format=reftable"] {
            let again = format!(
                "git init -q {format} ../probe-{} 2>/dev/null || echo unknown",
                &format[2..5]
            );
            if on_the_host(person, &person.project(), &again).contains("unknown") {
                skip!("this git does not know {format}");
            }
            let made = MAKE
                .replace("git init", &format!("git init {format}"))
                .replace("../kept", &format!("../kept{format}"));
            on_the_host(
                person,
                &person.project(),
                &format!("rm -rf .git src a && {made}"),
            );
            let before = on_the_host(person, &person.project(), "git rev-parse main HEAD");
            person
                .line("pull box --branch box/fix")
                .run()
                .expect_code(0);
            let shown = on_the_host(
                person,
                &person.project(),
                "git show box/fix:src/x && git fsck --strict && git branch --format='%(refname:short)'",
            );
            assert_eq!(shown, "foo\nmore\nbox/fix\nmain\n", "{format}");
            let after = on_the_host(person, &person.project(), "git rev-parse main HEAD");
            assert_eq!(before, after, "{format}");
        }
        assert_eq!(own_git_dirs(person), 0);
    });
}

#[test]
fn a_repository_that_a_sandbox_brings_is_pointed_out_and_not_obeyed() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        let (program, mark) = marker(person);
        on_the_host(person, &person.project(), MAKE);
        person.line("start -q box").run().expect_code(0);
        let work = "mkdir -p x/objects x/refs y && echo 'ref: refs/heads/main' > x/HEAD && \
            printf '[core]\nrepositoryformatversion = 0\nbare = false\nworktree = ..\nfsmonitor = PROGRAM\n' > x/config && \
            echo plain > y/config && ln -s .git/config into && ln -s ../.GIT/hooks y/up && \
            ln -s y/config fine && ln -s into by";
        let work = work.replace("PROGRAM", program.to_str().unwrap());
        person.script("exec box", &work).run().expect_code(0);
        let pulled = person.line("pull box --json").run().expect_code(0);
        let told: serde_json::Value = serde_json::from_str(&pulled.out()).unwrap();
        let flagged: Vec<&str> = told["data"]["flagged"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|flagged| flagged["flags"].to_string().contains("repository"))
            .map(|flagged| flagged["path"].as_str().unwrap())
            .collect();
        assert_eq!(flagged, ["x/HEAD", "x/config"], "{pulled}");
        let refused: Vec<&str> = told["data"]["refused"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|refusal| refusal["reason"] == "link-into-git")
            .map(|refusal| refusal["path"].as_str().unwrap())
            .collect();
        assert_eq!(refused, ["by", "into", "y/up"], "{pulled}");
        let look = on_the_host(person, &person.project(), "cat fine; ls x; ls -A y");
        assert_eq!(look, "plain\nHEAD\nconfig\nobjects\nrefs\nconfig\n");

        // A pull that ends up in there uses the repository of the project around it.
        let x = person.project().join("x");
        person.line("start -q other").dir(&x).run().expect_code(0);
        person
            .script("exec other", "echo new > new")
            .run()
            .expect_code(0);
        person
            .line("pull other --branch box/deep")
            .run()
            .expect_code(0);
        assert!(!mark.exists());
        let shown = on_the_host(person, &person.project(), "git show box/deep:x/new");
        assert_eq!(shown, "new\n");
        let mut plain = person.program("sh");
        let add = plain.args(["-c", "git add ../a; git status"]);
        let _ = add.current_dir(&x).output().unwrap();
        assert!(mark.exists(), "plain git does not take it for a repository");
    });
}

#[test]
fn a_repository_beside_the_project_files_stays_the_hosts() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        let apart = format!("{MAKE} && git init -q --separate-git-dir=meta .");
        on_the_host(person, &person.project(), &apart);
        person.line("start -q box").run().expect_code(0);
        let work = "mkdir -p meta/hooks && echo planted > meta/hooks/post-checkout && echo more >> meta/config && \
            ln -s meta/hooks into && echo two >> a";
        person.script("exec box", work).run().expect_code(0);
        let pulled = person.line("pull box").run().expect_code(0);
        let look = "cat a; test ! -e meta/hooks/post-checkout && test ! -L into && ! grep -q more meta/config && echo same";
        assert_eq!(
            on_the_host(person, &person.project(), look),
            "a\ntwo\nsame\n",
            "{pulled}"
        );
    });
}

/// Git directories of ours that were left behind.
fn own_git_dirs(person: &Person) -> usize {
    let entries = fs::read_dir(person.project().join(".git")).unwrap();
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("glovebox-"))
        .count()
}

/// Entries that lead git out of the repository, or stop it: how each is made, and what the refusal
/// names.
const ODD_ENTRIES: &[(&str, &str)] = &[
    (
        "mv .git/refs ../refs && ln -s ../../refs .git/refs",
        "refs is a symbolic link",
    ),
    (
        "mv .git/objects ../objects && ln -s ../../objects .git/objects",
        "objects is a symbolic link",
    ),
    (
        "mkdir -p ../elsewhere && ln -s ../../../../elsewhere .git/refs/heads/box",
        "box is a symbolic link",
    ),
    (
        "rm -f .git/packed-refs && mkfifo .git/packed-refs",
        "packed-refs is a FIFO",
    ),
    ("mkfifo .git/refs/heads/x", "x is a FIFO"),
    (
        "mkdir -p .git/objects/ab && mkfifo .git/objects/ab/cdef",
        "cdef is a FIFO",
    ),
    ("rm .git/config && mkfifo .git/config", "config is a FIFO"),
    ("mkfifo .git/shallow", "shallow is a FIFO"),
];

/// Makes the project's repository, and a sandbox with a commit of its own.
fn start_box_with_commit(person: &Person) {
    on_the_host(person, &person.project(), MAKE);
    person.line("start -q box").run().expect_code(0);
    person
        .script("exec box", "echo more >> src/x && git commit -qam inside")
        .run()
        .expect_code(0);
}

#[test]
fn entries_that_lead_out_or_stop_git_are_refused_by_name() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        start_box_with_commit(person);
        let reset = "rm -rf ../refs ../objects ../elsewhere && ";
        for (make, named) in ODD_ENTRIES {
            on_the_host(
                person,
                &person.project(),
                &format!("{reset}{RESET} && {make}"),
            );
            for pull in ["pull box --branch box/fix", "pull box --commits box/fix"] {
                let refused = person.line(pull).run();
                assert!(refused.code != 0, "{pull}: {make}: {refused}");
                assert!(refused.err().contains(named), "{pull}: {refused}");
            }
            let left = person.place().root().join("elsewhere");
            let left = fs::read_dir(left).map_or(0, Iterator::count);
            assert_eq!(left, 0, "{make}");
        }
        // The twin: the same without the entry.
        on_the_host(person, &person.project(), &format!("{reset}{RESET}"));
        person
            .line("pull box --commits box/fix")
            .run()
            .expect_code(0);
        person.line("kill box").run().expect_code(0);
    });
}

/// A line of the reflog holds what the repository's author calls himself.
#[test]
fn links_among_the_logs_are_not_written_through() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        start_box_with_commit(person);
        let target = person.write("marks/profile", "mine\n");
        for (flag, link) in [
            ("--branch", ".git/logs/refs/heads/box/fix"),
            ("--commits", ".git/logs/refs/heads/box/fix"),
            ("--commits", ".git/logs/refs/heads"),
        ] {
            let make = if link.ends_with("fix") {
                format!(
                    "mkdir -p .git/logs/refs/heads/box && ln -s {} {link}",
                    target.display()
                )
            } else {
                let heads = person.place().root().join("marks/heads/box");
                format!(
                    "rm -rf {link} && mkdir -p {0} && ln -sf {1} {0}/fix && ln -s {0}/.. {link}",
                    heads.display(),
                    target.display()
                )
            };
            on_the_host(person, &person.project(), &format!("{RESET} && {make}"));
            person
                .line(&format!("pull box {flag} box/fix"))
                .run()
                .expect_code(0);
            assert_eq!(
                fs::read_to_string(&target).unwrap(),
                "mine\n",
                "{flag} {link}"
            );
            on_the_host(
                person,
                &person.project(),
                "git rev-parse -q --verify box/fix",
            );
        }
        person.line("kill box").run().expect_code(0);
    });
}

#[test]
fn symbolic_references_move_no_other_branch() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        start_box_with_commit(person);
        for target in ["main", "not-there"] {
            let make = format!("git symbolic-ref refs/heads/box/fix refs/heads/{target}");
            on_the_host(person, &person.project(), &format!("{RESET} && {make}"));
            let before = on_the_host(person, &person.project(), "git rev-parse main");
            for flag in ["--branch", "--commits"] {
                let refused = person.line(&format!("pull box {flag} box/fix")).run();
                assert!(refused.code != 0, "{flag} {target}: {refused}");
            }
            let after = on_the_host(person, &person.project(), "git rev-parse main");
            assert_eq!(before, after, "{target}");
            let made = person.project().join(".git/refs/heads/not-there");
            assert!(!made.exists(), "{target}");
        }
        person.line("kill box").run().expect_code(0);
    });
}
