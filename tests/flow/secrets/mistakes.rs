//! What is said about a secret that is written wrongly, is not there, or could be read inside.

use super::all_of;
use testkit::{Person, filters};

#[test]
fn wrong_words_are_told_without_the_value() {
    Person::each(|person| {
        let file = person.write("home/token", "hush-hush-hush\nmore\n");
        let path = file.to_str().unwrap();
        let seen = person.write("project/seen", "hush-hush-hush");
        let link = file.with_file_name("link");
        std::os::unix::fs::symlink(&seen, &link).unwrap();
        let linked = format!(
            "--net egress --allow a.test --secret T=file:{}@a.test",
            link.display()
        );
        let root = person.place().root();
        let said = [
            "--net egress --allow a.test --secret T",
            "--net egress --allow a.test --secret T=MY@a.test",
            "--net egress --allow a.test --secret 1T=env:MY@a.test",
            "--net egress --allow a.test --secret T=env:MY@127.1",
            "--net egress --allow a.test --secret T=env:MY@a.test:80",
            "--net egress --allow a.test --secret T=env:NONE@a.test",
            "--net egress --allow a.test --secret T=file:none@a.test",
            "--net egress --allow b.test --secret T=env:MY@a.test",
            "--net egress --secret T=env:MY@a.test",
            "--secret T=env:MY@a.test",
            "--net host --secret T=env:MY@a.test",
            "--backend host --secret T=env:MY@a.test",
            "--net egress --allow a.test --secret T=env:MY@a.test --secret T=env:MY@a.test:443",
            "--net egress --allow a.test --env T=1 --secret T=env:MY@a.test",
            "--net egress --allow a.test --env MY --secret T=env:MY@a.test",
            "--net egress --allow a.test --env U=http://me:hush-hush-hush@b.test --secret T=env:MY@a.test",
            "--net egress --allow a.test --secret T=file:seen@a.test",
            &linked,
        ]
        .map(|flags| {
            let ran = person
                .line(&format!("run {flags} -- true"))
                .env("MY", "hush-hush-hush")
                .run()
                .expect_code(125);
            assert!(!all_of(&ran).contains("hush"), "{flags}: {ran}");
            let flags = filters(flags, root);
            format!("$ glovebox run {flags} -- true\n{}", ran.failure(root))
        });
        insta::assert_snapshot!(said.join("\n"), @"
        $ glovebox run --net egress --allow a.test --secret T -- true
        error: --secret: a secret is written NAME=env:VARIABLE@HOST[,HOST] or NAME=file:PATH@HOST[,HOST]
        hint: `glovebox run --help` shows the flags and examples
        $ glovebox run --net egress --allow a.test --secret T=MY@a.test -- true
        error: --secret: the secret `T` comes from nowhere
        hint: write env:VARIABLE or file:PATH
        $ glovebox run --net egress --allow a.test --secret 1T=env:MY@a.test -- true
        error: --secret: `1T` is no name of a variable: letters, digits and `_`, at most 64 of them
        hint: `glovebox run --help` shows the flags and examples
        $ glovebox run --net egress --allow a.test --secret T=env:MY@127.1 -- true
        error: --secret: a host of the secret `T`: `127.1` is no host: it reads like an address
        hint: write addresses as 192.0.2.1 or [2001:db8::1]
        $ glovebox run --net egress --allow a.test --secret T=env:MY@a.test:80 -- true
        error: --secret: `a.test:80` cannot get the secret `T`: write the name of a host that speaks TLS, with a port if it is not 443
        hint: `glovebox run --help` shows the flags and examples
        $ glovebox run --net egress --allow a.test --secret T=env:NONE@a.test -- true
        error: the secret `T` comes from the variable `NONE`, which is not set
        hint: set it where glovebox is called, or leave the secret out
        $ glovebox run --net egress --allow a.test --secret T=file:none@a.test -- true
        error: cannot read the secret `T` from [ROOT]/project/none: No such file or directory
        hint: correct the path, or leave the secret out
        $ glovebox run --net egress --allow b.test --secret T=env:MY@a.test -- true
        error: the secret `T` is for a.test, which the sandbox may not reach at port 443
        hint: `--allow a.test` opens it
        $ glovebox run --net egress --secret T=env:MY@a.test -- true
        error: the secret `T` is for a.test, which the sandbox may not reach at port 443
        hint: `--allow a.test` opens it
        $ glovebox run --secret T=env:MY@a.test -- true
        error: the secret `T` is filled in on the way to a listed host, and the network is `none`
        hint: `--net egress` lets listed hosts through
        $ glovebox run --net host --secret T=env:MY@a.test -- true
        error: the secret `T` is filled in on the way to a listed host, and the network is `host`
        hint: `--net egress` lets listed hosts through
        $ glovebox run --backend host --secret T=env:MY@a.test -- true
        error: --secret has no meaning with the backend `host`
        hint: choose the backend it belongs to with `--backend`, or leave it out
        $ glovebox run --net egress --allow a.test --secret T=env:MY@a.test --secret T=env:MY@a.test:443 -- true
        error: the secret `T` is given twice, the second time by --secret
        hint: name all its hosts in one place
        $ glovebox run --net egress --allow a.test --env T=1 --secret T=env:MY@a.test -- true
        error: `T` is a secret (--secret) and a variable (--env)
        hint: leave the variable out: commands get a placeholder in it
        $ glovebox run --net egress --allow a.test --env MY --secret T=env:MY@a.test -- true
        error: the variable `MY` (--env) holds the value of the secret `T`, and commands would have it
        hint: leave the variable out: commands get a placeholder
        $ glovebox run --net egress --allow a.test --env U=http://me:hush-hush-hush@b.test --secret T=env:MY@a.test -- true
        error: the variable `U` (--env) holds the value of the secret `T`, and commands would have it
        hint: leave the variable out: commands get a placeholder
        $ glovebox run --net egress --allow a.test --secret T=file:seen@a.test -- true
        error: the secret `T` comes from [ROOT]/project/seen, which commands can read at /workspace/seen
        hint: keep the file where the sandbox does not show it
        $ glovebox run --net egress --allow a.test --secret T=file:[ROOT]/home/link@a.test -- true
        error: the secret `T` comes from [ROOT]/home/link, which commands can read at /workspace/seen
        hint: keep the file where the sandbox does not show it
        ");
        let ran = person
            .line(&format!(
                "run --net egress --allow a.test --secret T=file:{path}@a.test -- true"
            ))
            .run()
            .expect_code(125);
        assert!(!ran.err().contains("hush"), "{ran}");
        insta::assert_snapshot!(ran.failure(root), @"
        error: the secret `T` from file:[ROOT]/home/token cannot be used: it has characters that a header cannot carry, such as a line break in the middle
        hint: check what is there
        ");
        // A project's own file waits for the user's word.
        person.write("project/glovebox.toml", "secrets = [\"T=env:MY@a.test\"]\n");
        let ran = person
            .line("run --net egress --allow a.test -- true")
            .env("MY", "hush-hush-hush")
            .run();
        assert_ne!(ran.code, 0, "{ran}");
        insta::assert_snapshot!(ran.failure(root), @"
        error: [ROOT]/project/glovebox.toml:1: `secrets = T=env:MY@a.test` reads a secret of yours and sends it to hosts of its choice, and a project may not do that by itself
        hint: read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass `--trust-config` for this once
        ");
        let ran = person
            .line("run -q --trust-config --net egress --allow a.test -- sh -c")
            .args(["echo $T"])
            .env("MY", "hush-hush-hush")
            .run()
            .expect_code(0);
        assert!(ran.out().starts_with("glovebox-secret-T-"), "{ran}");
    });
}
