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
        let table: [(&str, &[&str]); 6] = [
            (
                "memroy = \"1GiB\"\n",
                &["memroy", "`memory`", "glovebox.toml"],
            ),
            ("memory = \"plenty\"\n", &["plenty", "glovebox.toml"]),
            ("memory = \n", &["glovebox.toml"]),
            ("backend = \"cloud\"\n", &["cloud", "native"]),
            ("net = 5\n", &["net"]),
            ("\0\u{1}\n", &["glovebox.toml"]),
        ];
        for (text, words) in table {
            person.write("project/glovebox.toml", text);
            expect_sentence(&person.line("run -- true").run(), 125, words);
            expect_sentence(&person.line("start box").run(), 2, words);
        }
        fs::remove_file(person.project().join("glovebox.toml")).unwrap();
        person.write("home/bad.toml", [0xff, 0xfe, 0]);
        let config = person.place().home().join("bad.toml");
        let ran = person
            .line("run --config")
            .args([&config])
            .args(["--", "true"])
            .run();
        expect_sentence(&ran, 125, &["bad.toml"]);
        let ran = person
            .line("run -- true")
            .env("GLOVEBOX_MEMORY", "plenty")
            .run();
        expect_sentence(&ran, 125, &["GLOVEBOX_MEMORY", "plenty"]);
        // A NUL byte cannot be an argument; from a file it can come.
        person.write("project/glovebox.toml", "env = [\"A=x\\u0000y\"]\n");
        expect_sentence(&person.line("run -- true").run(), 125, &["NUL"]);
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
        expect_sentence(&ran, 125, &["closed", "ermission denied"]);
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
        expect_sentence(&call("run -- true").run(), 125, &["directory"]);
        fs::create_dir(&gone).unwrap();
        person.own(&gone);
        expect_sentence(&call("start box").run(), 2, &["directory"]);
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
        for name in ["open", "link", "file"] {
            let ran = person
                .line("run -- true")
                .env("GLOVEBOX_STATE", root.join(name))
                .run();
            expect_sentence(&ran, 125, &[name]);
        }
    });
}
