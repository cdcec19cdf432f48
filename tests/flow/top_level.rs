//! The workspace is the top of the git working tree, and a command starts where the user stands in it.

use super::workspace::{on_the_host, told};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use testkit::{Person, has_program, skip};

const INIT: &str =
    "git init -q -b main . && git config user.name T && git config user.email t@example.org";
const COMMIT: &str = "git add . && git commit -q -m first";

/// A repository with two packages of which one needs the other.
fn monorepo(person: &Person) {
    person.write("project/crates/a/use", "../b/value\n");
    person.write("project/crates/b/value", "one\n");
    on_the_host(person, &person.project(), &format!("{INIT} && {COMMIT}"));
}

#[test]
fn a_package_finds_its_neighbours() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        monorepo(person);
        let a = person.project().join("crates/a");
        let look = "pwd; cat $(cat use); git rev-parse --show-prefix";
        let want = "/workspace/crates/a\none\ncrates/a/\n";
        let ran = person
            .script("run --quiet", look)
            .dir(&a)
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), want, "{ran}");
        for mode in ["copy", "read-only", "live"] {
            let flags = format!("run --quiet --workspace {mode}");
            let ran = person.script(&flags, look).dir(&a).run().expect_code(0);
            assert_eq!(ran.out(), want, "{mode}: {ran}");
        }
        let ran = person
            .script("run --quiet --backend host", "cat use")
            .dir(&a)
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "../b/value\n");
        // Directories that are named themselves.
        let ran = person.script("run --quiet --here", "pwd; ls").dir(&a).run();
        assert_eq!(ran.out(), "/workspace\nuse\n", "{ran}");
        let ran = person.script("run --quiet -C crates/b", "pwd; ls").run();
        assert_eq!(ran.out(), "/workspace\nvalue\n", "{ran}");

        // Paths are meant from where they are typed.
        let _ = person.line("start work").dir(&a).run().expect_code(0);
        let work = "pwd; echo two > ../b/value; echo more >> use; echo new > new";
        let ran = person.script("exec work", work).run().expect_code(0);
        assert_eq!(ran.out(), "/workspace/crates/a\n");
        let names = |args: &str, dir: &Path| {
            let ran = person.line(args).dir(dir).run().expect_code(0);
            let text = ran.out();
            let lines = text.lines().filter(|line| line.starts_with("diff "));
            lines
                .map(|line| line.rsplit('/').next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names("diff work", &a), ["new", "use", "value"]);
        assert_eq!(names("diff work .", &a), ["new", "use"]);
        assert_eq!(names("diff work ../b", &a), ["value"]);
        assert_eq!(names("diff work crates/b", &person.project()), ["value"]);
        let _ = person
            .line("diff work ../../..")
            .dir(&a)
            .run()
            .expect_code(2);
        let _ = person
            .line("pull work --from new")
            .dir(&a)
            .run()
            .expect_code(0);
        let status = on_the_host(person, &person.project(), "git status --short -uall");
        assert_eq!(status, "?? crates/a/new\n");
        let _ = person.line("kill work").run().expect_code(0);
    });
}

#[test]
fn rules_of_the_project_are_those_of_the_workspace() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        monorepo(person);
        let a = person.project().join("crates/a");
        person.write(
            "project/glovebox.toml",
            "[sync.push]\nexclude = [\"/crates/b\"]\n",
        );
        let ran = person
            .script("run --quiet", "ls ..")
            .dir(&a)
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "a\n", "{ran}");
        // More than the user gives needs consent, from whichever directory of the project.
        person.write("project/glovebox.toml", "net = \"host\"\n");
        let ran = person
            .script("run --quiet", "true")
            .dir(&a)
            .run()
            .expect_code(125);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: [ROOT]/project/glovebox.toml:1: `net = host` opens your network, and a project may not do that by itself
        hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
        ");
        // A directory with rules of its own is a project.
        person.write("project/crates/a/glovebox.toml", "pids = 100\n");
        let ran = person
            .script("run --quiet", "pwd; ls")
            .dir(&a)
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "/workspace\nglovebox.toml\nuse\n", "{ran}");
    });
}

#[test]
fn a_home_under_version_control_is_not_the_workspace() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        let home = person.place().home();
        person.write("home/.ssh-notes", "private\n");
        person.write("home/work/file", "x\n");
        on_the_host(person, &home, INIT);
        let ran = person
            .script("run", "pwd; ls -A")
            .dir(home.join("work"))
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "/workspace\nfile\n", "{ran}");
        insta::assert_snapshot!(told(person, &ran), @"glovebox: the workspace is [ROOT]/home/work, not the top of its git repository: the home directory [ROOT]/home holds far more than a project");
    });
}

#[test]
fn git_works_in_a_linked_working_tree_and_in_a_submodule() {
    if !has_program("git") {
        skip!("needs git");
    }
    const SECRET: &str = "s3cr3t-w0rd";
    Person::each(|person| {
        let make = format!(
            "{INIT} && echo a > a && {COMMIT} && git remote add origin https://{SECRET}@host.example/x && \
             git worktree add -q ../tree -b side && echo b > ../tree/b && \
             printf '#!/bin/sh\\ntouch /tmp/ran' > .git/hooks/post-commit && \
             git init -q -b main ../library && cd ../library && git config user.name T && \
             git config user.email t@example.org && echo l > l && {COMMIT} && cd ../project && \
             git -c protocol.file.allow=always submodule --quiet add \"$PWD/../library\" sub && git commit -q -m sub"
        );
        // What is made beside the project is the person's too.
        let root = person.place().root().to_owned();
        person.own(&root);
        on_the_host(person, &person.project(), &make);
        let before = on_the_host(
            person,
            &person.project(),
            "find .git -type f ! -path '*/objects/*' ! -path '*/sandbox/*' | sort | xargs cksum",
        );
        let look = "git status --short && git log -1 --format=%s && git rev-parse --show-toplevel && git remote";
        let ran = person
            .script(
                "run --quiet",
                &format!("{look} && ! grep -r {SECRET} $(git rev-parse --git-common-dir)"),
            )
            .dir(root.join("tree"))
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "?? b\nfirst\n/workspace\norigin\n", "{ran}");
        assert_eq!(ran.err(), "");
        let sub = person.project().join("sub");
        let ran = person
            .script("run --quiet", look)
            .dir(&sub)
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "first\n/workspace\norigin\n", "{ran}");
        // From above a submodule is a part of the project.
        let ran = person
            .script(
                "run --quiet",
                "git submodule status && cd sub && git log -1 --format=%s",
            )
            .run()
            .expect_code(0);
        assert!(ran.out().ends_with("first\n"), "{ran}");
        // The commit comes as a branch; nothing else that is written inside does, and nothing of it is run on the host.
        let write = "git commit -q --allow-empty -m x && cd $(git rev-parse --git-common-dir) && touch hooks/x config";
        let _ = person
            .script("run --quiet --apply auto", write)
            .dir(root.join("tree"))
            .run()
            .expect_code(0);
        let after = on_the_host(
            person,
            &person.project(),
            "find .git -type f ! -path '*/objects/*' ! -path '*/sandbox/*' | sort | xargs cksum",
        );
        assert_eq!(after, before);
        let come = "git log --format=%s --branches='sandbox/*' --not main side";
        assert_eq!(on_the_host(person, &person.project(), come), "x\n");
        // A project cannot name a repository that knows nothing of it.
        fs::create_dir(root.join("thief")).unwrap();
        let pointer = format!("gitdir: {}/.git\n", person.project().display());
        person.write("thief/.git", pointer);
        let ran = person
            .script(
                "run",
                &format!("ls -a; ls {}/.git", person.project().display()),
            )
            .dir(root.join("thief"))
            .run();
        assert_eq!(ran.out(), ".\n..\n.git\n", "{ran}");
        insta::assert_snapshot!(told(person, &ran), @"glovebox: git does not work inside: the repository [ROOT]/project/.git does not name this project; `--grant` shows it nevertheless");
    });
}

#[test]
fn a_directory_of_any_name_is_a_project() {
    Person::each(|person| {
        let name = OsString::from_vec(b"p\xff\xfe \xe4".to_vec());
        let dir = person.place().root().join(&name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), "x\n").unwrap();
        fs::write(dir.join(".env"), "A=b\n").unwrap();
        fs::write(dir.join(OsString::from_vec(b"\xff.key".to_vec())), "A=b\n").unwrap();
        person.own(&dir);
        let ran = person
            .script("run --quiet --apply auto", "ls -A; echo new > new")
            .dir(&dir)
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "file\n", "{ran}");
        assert_eq!(fs::read_to_string(dir.join("new")).unwrap(), "new\n");
        for mode in ["overlay", "copy"] {
            let start = format!("start work --workspace {mode}");
            let _ = person.line(&start).dir(&dir).run().expect_code(0);
            let _ = person
                .script("exec work", "echo more >> file")
                .run()
                .expect_code(0);
            let _ = person.line("list --json").run().expect_code(0);
            let _ = person.line("pull work").run().expect_code(0);
            let _ = person.line("kill work").run().expect_code(0);
        }
        assert_eq!(
            fs::read_to_string(dir.join("file")).unwrap(),
            "x\nmore\nmore\n"
        );
    });
}

#[test]
fn commits_inside_are_the_users() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        person.write(
            "home/.gitconfig",
            "[user]\n\tname = Ada \\\"A\\\" L\n\temail = ada@example.com\n",
        );
        on_the_host(
            person,
            &person.project(),
            "git init -q -b main . && echo a > a && git add a && git commit -q -m first",
        );
        let work = "git config user.name && echo b >> a && git commit -q -a -m second && git log -1 --format='%an %ce'";
        let want = "Ada \"A\" L\nAda \"A\" L ada@example.com\n";
        let ran = person.script("run --quiet", work).run().expect_code(0);
        assert_eq!(ran.out(), want, "{ran}");
        let _ = person.line("start work").run().expect_code(0);
        let ran = person.script("exec work", work).run().expect_code(0);
        assert_eq!(ran.out(), want, "{ran}");
        // Settings made inside work, and those of the repository go before.
        let work = "git config --global user.email in@example.com && git config user.email && \
            git config user.name Local && git config user.name";
        let ran = person.script("exec work", work).run().expect_code(0);
        assert_eq!(ran.out(), "in@example.com\nLocal\n", "{ran}");
        let _ = person.line("kill work").run().expect_code(0);
        let call = ["call", "Bash", r#"{"command":"git config user.email"}"#];
        let ran = person.glovebox(call).run();
        assert!(ran.out().contains("ada@example.com"), "{ran}");
    });
}
