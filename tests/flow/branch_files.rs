//! `pull --branch` stores files as `git add` does, whatever git makes of them on the way.

use super::workspace::host;
use std::fs;
use testkit::{Person, has_program, skip};

/// A project with files that git converts in each of the ways that it has.
const PROJECT: &str = "git init -q -b main . && git config user.name T && git config user.email t@example.org && \
    git config filter.crypt.clean 'tr a-z n-za-m' && git config filter.crypt.smudge 'tr a-z n-za-m' && \
    git config filter.crypt.required true && \
    printf '*.key filter=crypt\\n*.bat text eol=crlf\\n*.u16 text working-tree-encoding=UTF-16LE-BOM\\n*.id ident\\n' \
        > .gitattributes && \
    printf 'alpha\\nbeta\\n' > pass.key && printf 'one\\r\\ntwo\\r\\nthree\\r\\nfour\\r\\n' > run.bat && \
    printf '\\377\\376a\\0\\n\\0' > s.u16 && printf '$Id$\\nx\\n' > v.id && mkdir sub && echo plain > sub/plain && \
    git add . && git commit -qm first && rm v.id && git checkout v.id";
/// What is done to them inside, and to the twin outside. The last one changes how another file is stored.
const EDIT: &str = "echo gamma >> pass.key && printf 'four\\r\\n' >> run.bat && printf 'b\\0\\n\\0' >> s.u16 && \
    echo y >> v.id && echo delta > new.key && chmod +x new.key && ln -s pass.key link && \
    printf '*.key filter=crypt\\n' > sub/.gitattributes && echo deep > sub/deep.key && rm sub/plain && \
    mkdir sub/plain && echo in > sub/plain/in";

#[test]
fn branch_has_what_git_add_stores() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        host(person, PROJECT);
        let twin = format!(
            "rm -rf ../twin && cp -a . ../twin && cd ../twin && {EDIT} && git add -A && git write-tree"
        );
        let wanted = host(person, &twin);
        let status = host(person, "git status --porcelain");
        for (name, flags) in [("over", ""), ("copy", "--workspace copy")] {
            person
                .line(&format!("start --quiet {flags} {name}"))
                .run()
                .expect_code(0);
            let inside = ["exec", "--quiet", name, "--", "sh", "-c", EDIT];
            person.glovebox(inside).run().expect_code(0);
            let pull = format!("pull --quiet {name} --branch {name}");
            person.line(&pull).run().expect_code(0);
            let found = host(person, &format!("git rev-parse {name}^{{tree}}"));
            assert_eq!(found, wanted, "{name}");
            let parent = host(
                person,
                &format!("git rev-parse main {name}^ | uniq | wc -l"),
            );
            assert_eq!(parent.trim(), "1", "{name}");
            person.line(&format!("kill {name}")).run().expect_code(0);
        }
        assert_eq!(host(person, "git status --porcelain"), status);
        person.assert_nothing_left();
    });
}

#[test]
fn branch_merges_what_the_user_committed_to_a_converted_file() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        host(person, PROJECT);
        person.line("start --quiet b").run().expect_code(0);
        let edit = "printf 'box\\r\\n' >> run.bat && sed -i s/beta/gamma/ pass.key";
        let inside = ["exec", "--quiet", "b", "--", "sh", "-c", edit];
        person.glovebox(inside).run().expect_code(0);
        // The user's line stands at the other end of a file, and goes on in another.
        host(
            person,
            "sed -i '1s/^/mine\\r\\n/' run.bat && git commit -qam second",
        );
        person.line("stop b").run().expect_code(0);
        person
            .line("pull --quiet b --branch box/b")
            .run()
            .expect_code(0);
        let lines = host(
            person,
            "git show box/b:run.bat | tr -d '\\r' | tr '\\n' ' '",
        );
        assert_eq!(lines, "mine one two three four box ");
        assert_eq!(host(person, "git show box/b:pass.key"), "nycun\ntnzzn\n");
        person.line("kill b").run().expect_code(0);
    });
}

#[test]
fn branch_is_not_made_where_a_required_filter_fails() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        host(person, PROJECT);
        host(person, "git config filter.crypt.clean /no/such/program");
        person.line("start --quiet b").run().expect_code(0);
        let inside = "exec --quiet b -- cp pass.key new.key";
        person.line(inside).run().expect_code(0);
        let ran = person.line("pull b --branch work").run().expect_code(1);
        assert!(ran.err().contains("filter"), "{ran}");
        assert!(!host(person, "git branch").contains("work"));
        assert!(!fs::exists(person.project().join("new.key")).unwrap());
        person.line("kill b").run().expect_code(0);
    });
}

#[test]
fn large_files_come_with_the_commit_that_points_to_them() {
    if !has_program("git-lfs") || !has_program("git") {
        skip!("needs git-lfs");
    }
    Person::each(|person| {
        host(
            person,
            "git init -q -b main . && git config user.name T && git config user.email t@example.org && \
             git lfs install --local >/dev/null && echo '*.bin filter=lfs diff=lfs merge=lfs -text' > .gitattributes && \
             echo old > a.bin && git add . && git commit -qm first",
        );
        person.line("start --quiet b").run().expect_code(0);
        let work = "echo changed > a.bin; echo new > b.bin";
        person.script("exec --quiet b", work).run().expect_code(0);
        person
            .line("pull --quiet b --branch work")
            .run()
            .expect_code(0);
        let commit = "git add -A && git commit -qm inside";
        person.script("exec --quiet b", commit).run().expect_code(0);
        person.line("pull --quiet b --commits").run().expect_code(0);
        for branch in ["work", "sandbox/b"] {
            let show = format!("git show {branch}:b.bin | head -1");
            let pointer = host(person, &show);
            assert_eq!(
                pointer, "version https://git-lfs.github.com/spec/v1\n",
                "{branch}"
            );
            let checkout =
                format!("git checkout -q {branch} && cat a.bin b.bin && git checkout -q main");
            assert_eq!(host(person, &checkout), "changed\nnew\n", "{branch}");
        }
        person.line("kill --quiet b").run().expect_code(0);
        host(person, "rm -rf .git .gitattributes *");
    });
}
