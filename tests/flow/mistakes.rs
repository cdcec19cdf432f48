//! Mistakes people make: one clear sentence each, with the way out, and the right exit code.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use testkit::{Glovebox, Person, Ran};

/// One `error:` line that names the matter, at most one `hint:`, no noise.
fn expect_sentence(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, code, "{ran}");
    assert!(ran.stdout.is_empty(), "{ran}");
    let said = ran.err();
    let errors = said
        .lines()
        .filter(|line| line.starts_with("error: "))
        .count();
    let hints = said
        .lines()
        .filter(|line| line.starts_with("hint: "))
        .count();
    assert!(errors == 1 && hints <= 1, "{ran}");
    assert!(said.lines().count() <= 6, "{ran}");
    assert!(
        !said.contains("panicked") && !said.contains("Fault {"),
        "{ran}"
    );
    for word in words {
        assert!(said.contains(word), "no `{word}` in: {ran}");
    }
}

#[test]
fn wrong_words() {
    Person::each(|person| {
        let table: [(&str, i32, &[&str]); 18] = [
            ("run --backend cloud -- true", 125, &["cloud", "native"]),
            ("start --backend cloud box", 2, &["cloud", "native"]),
            ("run --memory plenty -- true", 125, &["plenty", "512MiB"]),
            ("run --disk -1 -- true", 125, &["-1"]),
            ("start --memory 1ZiB box", 2, &["1ZiB"]),
            ("run --timeout 5 -- true", 125, &["5"]),
            ("run --nonsense -- true", 125, &["--nonsense"]),
            ("run", 125, &["no command"]),
            ("exec box", 125, &["no command"]),
            ("start Not_A_Name!", 2, &["name"]),
            ("start ../../etc", 2, &["name"]),
            ("exec -- true", 125, &[]),
            ("exec gone -- true", 125, &["gone", "start"]),
            ("logs gone", 6, &["gone"]),
            ("info gone", 6, &["gone"]),
            ("attach gone", 2, &["terminal"]),
            ("strat box", 2, &["start"]),
            ("run -C /no/such/place -- true", 125, &["/no/such/place"]),
        ];
        for (line, code, words) in table {
            expect_sentence(&person.line(line).run(), code, words);
        }
        // Killing what is not there is no mistake.
        let _ = person.line("kill gone").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_configuration_with_a_mistake() {
    Person::each(|person| {
        let root = person.place().root();
        let said = [
            "memroy = \"1GiB\"\n",
            "memory = \"plenty\"\n",
            "memory = \n",
            "backend = \"cloud\"\n",
            "net = 5\n",
            "\0\u{1}\n",
        ]
        .map(|text| {
            person.write("project/glovebox.toml", text);
            let ran = person.line("run -- true").run();
            expect_sentence(&ran, 125, &[]);
            let started = person.line("start box").run();
            expect_sentence(&started, 2, &[]);
            assert_eq!(started.err(), ran.err());
            ran.shown_err(root)
        });
        insta::assert_snapshot!(said.concat(), @"
        error: [ROOT]/project/glovebox.toml:1: unknown key `memroy`
        hint: did you mean `memory`?
        error: [ROOT]/project/glovebox.toml:1: `memory`: `plenty` is not a size; write a size like 512MiB, 1GiB, 64k or 1500000, or `none` for no limit
        hint: correct the file, or pass `--no-config` to go without it
        error: [ROOT]/project/glovebox.toml:1: string values must be quoted, expected literal string
        hint: correct the file, or pass `--no-config` to go without it
        error: [ROOT]/project/glovebox.toml:1: `backend`: `cloud` is not a backend; use `native`, `host`, `command`, `confined`, `sprites` or `aio`
        hint: correct the file, or pass `--no-config` to go without it
        error: [ROOT]/project/glovebox.toml:1: `net`: `5` is not a network mode; use `none`, `egress` or `host`
        hint: correct the file, or pass `--no-config` to go without it
        error: [ROOT]/project/glovebox.toml:1: key with no value, expected `=`
        hint: correct the file, or pass `--no-config` to go without it
        ");
        fs::remove_file(person.project().join("glovebox.toml")).unwrap();
        person.write("home/bad.toml", [0xff, 0xfe, 0]);
        let config = person.place().home().join("bad.toml");
        let ran = person
            .line("run --config")
            .args([&config])
            .args(["--", "true"])
            .run();
        expect_sentence(&ran, 125, &[]);
        insta::assert_snapshot!(ran.shown_err(root), @"error: cannot read [ROOT]/home/bad.toml: stream did not contain valid UTF-8");
        let ran = person
            .line("run -- true")
            .env("GLOVEBOX_MEMORY", "plenty")
            .run();
        expect_sentence(&ran, 125, &[]);
        insta::assert_snapshot!(ran.shown_err(root), @"
        error: $GLOVEBOX_MEMORY: `plenty` is not a size; write a size like 512MiB, 1GiB, 64k or 1500000, or `none` for no limit
        hint: correct $GLOVEBOX_MEMORY, or unset it
        ");
        // A NUL byte cannot be an argument; from a file it can come.
        person.write("project/glovebox.toml", "env = [\"A=x\\u0000y\"]\n");
        let ran = person.line("run -- true").run();
        expect_sentence(&ran, 125, &[]);
        insta::assert_snapshot!(ran.shown_err(root), @"
        error: [ROOT]/project/glovebox.toml:1: `env`: a variable cannot contain a NUL byte
        hint: correct the file, or pass `--no-config` to go without it
        ");
        person.assert_nothing_left();
    });
}

#[test]
fn an_unreadable_project() {
    Person::each(|person| {
        if person.is_root() {
            // Root reads everything; for it nothing is unreadable.
            return;
        }
        let closed = person.place().root().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        person.own(&closed);
        let ran = person
            .line("run -C")
            .args([&closed])
            .args(["--", "true"])
            .run();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        expect_sentence(&ran, 125, &[]);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"
        error: cannot read the project directory [ROOT]/closed: Permission denied
        hint: make it readable for you, or name another with -C DIR
        ");
    });
}

#[test]
fn a_deleted_directory() {
    Person::each(|person| {
        let gone = person.place().root().join("gone");
        fs::create_dir(&gone).unwrap();
        person.own(&gone);
        let call = |line: &str| -> Glovebox {
            let mut call = person.line(line);
            let mut shell = person.program("sh");
            shell
                .args([
                    "-c",
                    "cd \"$1\" && rmdir \"$1\" && shift && exec \"$@\"",
                    "sh",
                ])
                .arg(&gone);
            shell
                .arg(person.binary())
                .args(call.command.get_args())
                .env("HOME", person.place().home());
            call.command = shell;
            call
        };
        let ran = call("run -- true").run();
        expect_sentence(&ran, 125, &[]);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"
        error: the current directory does not exist any more
        hint: change to your project, or pass -C DIR
        ");
        fs::create_dir(&gone).unwrap();
        person.own(&gone);
        let ran = call("start box").run();
        expect_sentence(&ran, 2, &[]);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"
        error: the current directory does not exist any more
        hint: change to your project, or pass -C DIR
        ");
        // What needs no project needs no directory.
        fs::create_dir(&gone).unwrap();
        person.own(&gone);
        let _ = call("list").run().expect_code(0);
    });
}

#[test]
fn a_state_directory_that_others_could_have_made() {
    Person::each(|person| {
        let root = person.place().root();
        let open = root.join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        person.own(&open);
        symlink(person.place().home(), root.join("link")).unwrap();
        person.write("file", "");
        let said = ["open", "link", "file"].map(|name| {
            let ran = person
                .line("run -- true")
                .env("GLOVEBOX_STATE", root.join(name))
                .run();
            expect_sentence(&ran, 125, &[]);
            ran.shown_err(root)
        });
        insta::assert_snapshot!(said.concat(), @"
        error: will not use [ROOT]/open for state: others may write to it
        hint: chmod 700 [ROOT]/open
        error: will not use [ROOT]/link for state: it is not a directory
        hint: remove it, or choose another state directory
        error: will not use [ROOT]/file for state: it is not a directory
        hint: remove it, or choose another state directory
        ");
    });
}
