//! The user's own git configuration counts inside as far as it changes what is committed: a commit inside stores what
//! one outside would.

use super::workspace::host;
use testkit::{Person, has_program, skip};

/// Names of the objects that `git add` stores for the project, with the modes of the files.
const STORE: &str = "git add -A && git ls-files -s && git status --porcelain";

/// Checks that git inside stores for the project what git on the host stores for it.
fn assert_stored_alike(person: &Person, case: &str) {
    let inside = person
        .script("run --quiet --apply discard", STORE)
        .run()
        .expect_code(0)
        .out();
    let outside = host(person, STORE);
    assert_eq!(inside, outside, "{case}");
}

#[test]
fn files_are_stored_inside_as_outside() {
    if !has_program("git") {
        skip!("needs git");
    }
    let identity = "[user]\n\tname = T\n\temail = t@example.org\n";
    // The user's settings, the project's files, and a name that `git ls-files` must not list then.
    let cases = [
        (
            "[core]\n\tautocrlf = true\n",
            "printf 'a\\r\\nb\\r\\n' > crlf",
            "",
        ),
        (
            "[core]\n\tautocrlf = input\n",
            "printf 'a\\r\\nb\\r\\n' > crlf",
            "",
        ),
        (
            "[core]\n\teol = crlf\n",
            "printf '* text=auto\\n*.u16 working-tree-encoding=UTF-16LE eol=lf\\n*.id ident\\n' > .gitattributes && \
             printf 'a\\r\\n' > crlf && printf 'a\\0b\\0\\n\\0' > x.u16 && echo '$Id: 12$' > x.id",
            "",
        ),
        (
            "[filter \"up\"]\n\tclean = tr a-z A-Z\n\tsmudge = tr A-Z a-z\n\trequired\n",
            "echo '*.txt filter=up' > .gitattributes && echo secret > a.txt",
            "",
        ),
        (
            "[core]\n\texcludesFile = ~/ignored\n\tattributesFile = ~/attributes\n\
             [filter \"up\"]\n\tclean = \"tr a-z A-Z | sed 's/\\\"//'\"\n",
            "mkdir -p .idea && echo x > .idea/w.xml && echo '\"y\"' > a.up",
            ".idea",
        ),
        ("", "echo x > a.usual", "a.usual"),
        (
            "[include]\n\tpath = more\n",
            "echo x > a.more && echo y > b",
            "a.more",
        ),
        (
            "[includeIf \"gitdir:**/project/\"]\n\tpath = more\n",
            "echo x > a.more",
            "a.more",
        ),
    ];
    Person::each(|person| {
        person.write("home/ignored", ".idea/\n");
        person.write("home/attributes", "*.up filter=up\n");
        person.write("home/more", "[core]\n\texcludesFile = ~/ignored-more\n");
        person.write("home/ignored-more", "*.more\n");
        person.write("home/.config/git/ignore", "*.usual\n");
        for (settings, files, absent) in cases {
            person.write("home/.gitconfig", [identity, settings].concat());
            host(
                person,
                "rm -rf .git .gitattributes .idea * && git init -q .",
            );
            host(person, files);
            assert_stored_alike(person, settings);
            let listed = host(person, "git ls-files");
            let is_listed = listed.lines().any(|name| name.starts_with(absent));
            assert!(absent.is_empty() || !is_listed, "{settings}: {listed}");
        }
    });
}

/// Commits inside have the user's identity and no signature; keys, credentials and programs of the user stay outside.
#[test]
fn settings_that_need_the_user_stay_outside() {
    if !has_program("git") {
        skip!("needs git");
    }
    let settings = "[user]\n\tname = Ada\n\temail = ada@example.org\n\tsigningKey = ABCDEF01\n\
        [commit]\n\tgpgSign = true\n[tag]\n\tgpgSign = true\n[core]\n\teditor = false\n\thooksPath = ~/hooks\n\
        [credential]\n\thelper = store\n[alias]\n\tx = !touch made\n";
    let work = "echo x > a && git add a && git commit -q -m one && git tag -a -m t v1 && git log --format='%an %ae %G?' && \
        git config --list --name-only | grep -E '^(credential|alias|user.signingkey|core.(editor|hookspath))' || true; \
        git init -q new && cd new && git commit -q --allow-empty -m two && git log --format=%an";
    Person::each(|person| {
        person.write("home/.gitconfig", settings);
        person.write("home/hooks/pre-commit", "#!/bin/sh\nexit 1\n");
        host(person, "chmod +x ../home/hooks/pre-commit && git init -q .");
        let ran = person
            .script("run --quiet --apply discard", work)
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "Ada ada@example.org N\nAda\n", "{ran}");
        // Also where the host's `/etc` is shown as it is.
        let ran = person
            .script(
                "run --quiet --apply discard --rootfs host-all",
                "git config user.name",
            )
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "Ada\n", "{ran}");
    });
}

#[test]
fn configuration_that_git_refuses_is_named() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        person.write("home/.gitconfig", "[user\nname = x\n");
        let ran = person.script("run --apply discard", "true").run();
        let ran = ran.expect_code(0);
        assert!(
            ran.err().contains("git does not have your settings inside"),
            "{ran}"
        );
    });
}

#[test]
fn git_lfs_stores_pointers_inside() {
    if !has_program("git-lfs") || !has_program("git") {
        skip!("needs git-lfs");
    }
    let work = "head -c 5000 /dev/zero > b.bin && git add b.bin && git commit -q -m inside && \
        git show HEAD:b.bin | head -1 && git status --porcelain && git lfs ls-files -n && \
        rm a.bin && git checkout a.bin && head -c 3 a.bin";
    Person::each(|person| {
        person.write("home/.gitconfig", "[user]\n\tname = T\n\temail = t@e\n");
        host(
            person,
            "git lfs install --skip-repo >/dev/null && git init -q . && git lfs track '*.bin' >/dev/null && \
             printf abcdef > a.bin && git add . && git commit -q -m first",
        );
        let ran = person
            .script("run --quiet --apply discard", work)
            .run()
            .expect_code(0);
        assert_eq!(
            ran.out(),
            "version https://git-lfs.github.com/spec/v1\na.bin\nb.bin\nabc",
            "{ran}"
        );
    });
}

#[test]
fn git_crypt_encrypts_inside() {
    if !has_program("git-crypt") || !has_program("git") {
        skip!("needs git-crypt");
    }
    let work = "git diff-index --quiet HEAD && echo more >> secret && git commit -q -a -m inside && \
        git cat-file blob HEAD:secret | head -c 10 | tr -d '\\0' && tail -1 secret";
    Person::each(|person| {
        person.write("home/.gitconfig", "[user]\n\tname = T\n\temail = t@e\n");
        host(
            person,
            "git init -q . && git-crypt init >/dev/null 2>&1 && echo 'secret filter=git-crypt diff=git-crypt' > .gitattributes && \
             echo plain > secret && git add . && git commit -q -m first",
        );
        let ran = person
            .script("run --quiet --apply discard", work)
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "GITCRYPTmore\n", "{ran}");
    });
}

/// Commits of the sandbox are not signed. Where the user's are, a line names the command that signs them, and it does.
#[test]
fn unsigned_commits_come_with_the_command_that_signs_them() {
    if !has_program("git") || !has_program("ssh-keygen") {
        skip!("needs git and ssh-keygen");
    }
    Person::each(|person| {
        let settings = "[user]\n\tname = Ada\n\temail = ada@example.org\n";
        person.write("home/.gitconfig", settings);
        host(
            person,
            "git init -q -b main . && echo 1 > a && git add a && git commit -q -m base",
        );
        let commit = "echo 2 >> a && git commit -q -a -m inside";
        let ran = person.script("run --keep plain", commit).run();
        let ran = ran.expect_code(0);
        assert!(!ran.err().contains("signed"), "{ran}");
        let ran = person.line("pull plain --commits").run().expect_code(0);
        assert!(!ran.err().contains("signed"), "{ran}");

        host(
            person,
            "ssh-keygen -q -t ed25519 -N '' -f ../home/key && git config --global gpg.format ssh && \
             git config --global user.signingKey ~/key.pub && git config --global commit.gpgSign true && \
             git reset -q --hard",
        );
        // Another content: within one second the same would be the same commit.
        let commit = "echo 3 >> a && git commit -q -a -m inside";
        let ran = person.script("run --apply auto", commit).run();
        let ran = ran.expect_code(0);
        let told = ran.err();
        let command = told
            .lines()
            .find(|line| line.contains("are not signed"))
            .and_then(|line| line.split('`').nth(1))
            .unwrap_or_else(|| panic!("{ran}"));
        host(person, &format!("git stash -q; {command} 2>&1"));
        let log = host(person, "git cat-file -p HEAD; git log --format=%s");
        assert!(log.contains("BEGIN SSH SIGNATURE"), "{command}\n{log}");
        assert!(log.ends_with("inside\nbase\n"), "{log}");
    });
}
