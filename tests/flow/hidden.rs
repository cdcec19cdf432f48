//! What a sandbox is not shown of a project: what is secret and not tracked, and nothing else.

use super::workspace::on_the_host;
use std::fs;
use std::path::Path;
use testkit::{Person, has_program, skip};

const MAKE: &str =
    "git init -q -b main . && git config user.name T && git config user.email t@example.org";
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

#[test]
fn tracked_files_and_public_certificates_are_shown() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        on_the_host(person, &person.project(), MAKE);
        for name in ["tests/server.key", "tests/.env", ".npmrc", "tests/key.json"] {
            person.write(Path::new("project").join(name), KEY);
        }
        person.write("project/lib/certifi/cacert.pem", CERTIFICATE.repeat(3000));
        on_the_host(
            person,
            &person.project(),
            "git add -f tests .npmrc && git commit -q -m first",
        );
        person.write("project/.env", "A=b\n");
        let work = "cat tests/server.key tests/.env .npmrc tests/key.json lib/certifi/cacert.pem > /dev/null && \
            test ! -e .env && git -c user.name=T -c user.email=t@example.org commit -q -a --allow-empty -m all && \
            git show --stat --format= HEAD && git status --short";
        let ran = person.script("run --quiet", work).run().expect_code(0);
        // Nothing that is tracked is missing, so a commit of everything deletes nothing.
        assert_eq!(ran.out(), "?? lib/\n", "{ran}");
    });
}

#[test]
fn what_is_secret_and_not_tracked_is_hidden_by_name_and_by_content() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        on_the_host(person, &person.project(), MAKE);
        let token = format!("token: ghp_{}\n", "A1".repeat(18));
        for (name, text) in [
            (".envrc", "x"),
            ("prod.env", "x"),
            ("infra/main.tfstate", "x"),
            ("infra/prod.tfvars", "x"),
            ("kubeconfig", "x"),
            (".docker/config.json", "{}"),
            ("service-account.json", "{}"),
            ("own.pem", KEY),
            ("deploy.yaml", token.as_str()),
            (
                "settings.json",
                "{\"key\": \"-----BEGIN PRIVATE KEY-----\\nAA\"}",
            ),
        ] {
            person.write(Path::new("project").join(name), text);
        }
        person.write("project/config.json", "{}");
        person.write("project/src/keys.rs", KEY);
        person.write("project/example.env", "A=\n");
        let ran = person
            .script("run", "find . -type f -not -path './.git/*' | sort")
            .run()
            .expect_code(0);
        assert_eq!(
            ran.out(),
            "./config.json\n./example.env\n./src/keys.rs\n",
            "{ran}"
        );
        insta::assert_snapshot!(ran.said("hidden from the sandbox", person.place().root()), @"glovebox: hidden from the sandbox: 8 by a name like that of a secret (.docker/config.json, .envrc, infra/main.tfstate, ...), 2 with a key or token in it (deploy.yaml, settings.json); --include PATTERN shows them");
        // What is named is shown.
        let flags = "run --quiet --include deploy.yaml --include .envrc";
        let _ = person
            .script(flags, "cat deploy.yaml .envrc")
            .run()
            .expect_code(0);
    });
}

#[test]
fn a_command_that_fails_is_told_what_it_did_not_see() {
    Person::each(|person| {
        person.write("project/.env", "A=b\n");
        let ran = person.script("run", "cat .env").run().expect_code(1);
        insta::assert_snapshot!(ran.said("is hidden from this sandbox", person.place().root()), @"glovebox: `.env` is hidden from this sandbox: `--include .env` shows it");
        let ran = person.script("run", "true").run().expect_code(0);
        assert!(!ran.err().contains("failed"), "{ran}");
        let ran = person.script("run --include .env", "cat .env; false").run();
        assert!(!ran.err().contains("the command failed"), "{ran}");
    });
}

#[test]
fn remotes_come_without_credentials_in_every_kind_of_workspace() {
    if !has_program("git") {
        skip!("needs git");
    }
    const SECRET: &str = "s3cr3t-w0rd";
    Person::each(|person| {
        let make = format!(
            "{MAKE} && echo a > a && git add a && git commit -q -m first && \
             git remote add origin https://me:{SECRET}@host.example/x.git && \
             git config url.https://{SECRET}@host.example/.insteadOf gh: && \
             git config http.https://host.example/.extraHeader 'AUTHORIZATION: basic {SECRET}'"
        );
        on_the_host(person, &person.project(), &make);
        let config = fs::read(person.project().join(".git/config")).unwrap();
        let look = format!(
            "git remote get-url origin && git log --format=%s && cat .git/config && ! grep -r {SECRET} ."
        );
        for mode in ["overlay", "read-only", "copy", "live"] {
            let flags = format!("run --workspace {mode}");
            let ran = person.script(&flags, &look).run().expect_code(0);
            assert!(
                ran.out().starts_with("https://host.example/x.git\nfirst\n"),
                "{mode}: {ran}"
            );
            assert!(!ran.out().contains(SECRET), "{mode}: {ran}");
            assert!(
                ran.err().contains(".git/config") || mode == "copy",
                "{mode}: {ran}"
            );
        }
        // Inside it is a file as any other, and the host's stays as it was.
        let work =
            "git config user.name Other && git remote add more https://more.example/ && git remote";
        let ran = person
            .script("run --quiet --apply auto", work)
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "more\norigin\n");
        assert_eq!(
            fs::read(person.project().join(".git/config")).unwrap(),
            config
        );
    });
}
