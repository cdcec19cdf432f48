//! Sprites through the service's own program, which cannot be had here: a stand-in of both its forms talks to a server
//! with the service's contract.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use testkit::{Glovebox, Person, RemoteService, SERVICE_TOKEN, install_sprite_cli};

/// The forms of the program, with the flags that choose them.
const FORMS: [(bool, &str); 2] = [(false, ""), (true, "--sprites-cli-syntax old")];

fn line(service: &RemoteService, person: &Person, program: &Path, rest: &str) -> Glovebox {
    let (command, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let flags = service.flags();
    let program = program.display();
    let line = format!("{command} {flags} --carrier cli --sprites-cli {program} {rest}");
    person.line(&line).env("SPRITES_TOKEN", SERVICE_TOKEN)
}

/// Writes a program of a test into the home of a person.
fn write_program(person: &Person, name: &str, text: &str) -> PathBuf {
    let path = person.write(format!("home/{name}"), text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn the_program_leads_to_a_machine_and_changes_come_back() {
    Person::each(|person| {
        for (is_old, syntax) in FORMS {
            let service = RemoteService::sprites();
            let bin = tempfile::tempdir().unwrap();
            fs::set_permissions(bin.path(), fs::Permissions::from_mode(0o755)).unwrap();
            let program = install_sprite_cli(bin.path(), is_old);
            let binary: Vec<u8> = (0..100_000_u32).map(|n| (n * 7 + n / 251) as u8).collect();
            person.write("project/data", &binary);
            let rest = format!("run --net host {syntax} --apply auto -- sh -c");
            let script = "cat data data >twice; rm data; echo $SPRITE_TOKEN$SPRITES_TOKEN; exit 3";
            let ran = line(&service, person, &program, &rest)
                .args([script])
                .run()
                .expect_code(3);
            assert_eq!(ran.out(), "\n", "{ran}");
            let twice = fs::read(person.project().join("twice")).unwrap();
            assert!(twice == [binary.clone(), binary].concat());
            assert!(!person.project().join("data").exists());
            // The machine is gone, and no word of a command line had the token.
            let journal = service.server.journal();
            assert_eq!(journal["refusals"], serde_json::json!([]));
            let requests = journal["requests"].to_string();
            assert!(requests.contains("DELETE /v1/sprites/gb-"), "{requests}");
            assert!(!requests.contains(SERVICE_TOKEN), "{requests}");
            person.assert_nothing_left();
        }
    });
}

#[test]
fn a_named_sandbox_is_stopped_and_found_again_through_the_program() {
    let person = Person::myself();
    let service = RemoteService::sprites();
    let program = install_sprite_cli(person.place().root(), false);
    let start = "start far --net host --workspace none";
    let _ = line(&service, &person, &program, start)
        .run()
        .expect_code(0);
    let exec = |script: &str| {
        let command = person.line("exec far -- sh -c").args([script]);
        command.env("SPRITES_TOKEN", SERVICE_TOKEN).run()
    };
    let _ = exec("echo kept >file").expect_code(0);
    let ran = person.line("info far").run().expect_code(0);
    assert!(ran.out().contains("its program sets no policy"), "{ran}");
    let listed = service
        .line(&person, "list", "--json --sprites-cli")
        .args([&program])
        .env("GLOVEBOX_CARRIER", "cli")
        .run();
    assert!(listed.out().contains("in-use"), "{listed}");
    let _ = person.line("stop far").run().expect_code(0);
    let again = person.line("start far").env("SPRITES_TOKEN", SERVICE_TOKEN);
    let _ = again.run().expect_code(0);
    assert_eq!(exec("cat file").expect_code(0).out(), "kept\n");
    let kill = person.line("kill far").env("SPRITES_TOKEN", SERVICE_TOKEN);
    let _ = kill.run().expect_code(0);
    let requests = service.server.journal()["requests"].to_string();
    assert!(requests.contains("DELETE /v1/sprites/gb-"), "{requests}");
    person.assert_nothing_left();
}

#[test]
fn a_program_that_is_missing_too_old_or_not_logged_in_is_named_with_a_remedy() {
    let person = Person::myself();
    let service = RemoteService::sprites();
    let refused = |program: &Path, code: &str, words: &[&str]| {
        let ran = line(&service, &person, program, "run --net host --json -- true").run();
        assert_ne!(ran.code, 0, "{ran}");
        let told: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(told["error"]["code"], code, "{ran}");
        let error = &told["error"];
        let [message, remedy] = ["message", "remedy"].map(|name| error[name].as_str().unwrap());
        for word in words {
            let is_told = message.contains(word) || remedy.contains(word);
            assert!(is_told, "{word}: {ran}");
        }
        assert!(!format!("{ran}").contains(SERVICE_TOKEN), "{ran}");
    };
    let missing = person.place().root().join("none/sprite");
    refused(&missing, "cli-not-found", &["--carrier websocket"]);
    // `exec --help` fails, or does not know `-s`.
    let old = write_program(&person, "old", "#!/bin/sh\nexit 2\n");
    refused(&old, "cli-too-old", &["sprite upgrade"]);
    let old = install_sprite_cli(person.place().root(), true);
    refused(&old, "cli-too-old", &["sprites.cli_syntax"]);
    let text = "#!/bin/sh\n[ \"$2\" = --help ] && echo '-s --no-port-forward' && exit\n\
                printf 'Error: \\033[31mnot logged in\\n' >&2\nexit 1\n";
    let login = write_program(&person, "login", text);
    refused(&login, "not-authenticated", &["sprite login", "\\x1b[31m"]);
    let journal = service.server.journal();
    assert_eq!(journal["requests"], serde_json::json!([]));
}

#[test]
fn what_the_program_cannot_do_is_refused_before_it_is_started() {
    let person = Person::myself();
    let service = RemoteService::sprites();
    let started = person.place().root().join("started");
    let text = format!("#!/bin/sh\ntouch {}\nexit 1\n", started.display());
    let program = write_program(&person, "sprite", &text);
    for (rest, word) in [
        ("run -- true", "sets no network policy"),
        (
            "run --net egress --allow example.com -- true",
            "sets no network policy",
        ),
        (
            "run --net host --sprites-cli-syntax new -- true",
            "`current` or `old`",
        ),
    ] {
        let ran = line(&service, &person, &program, rest).run();
        assert_ne!(ran.code, 0, "{ran}");
        assert!(ran.err().contains(word), "{ran}");
    }
    let other = person
        .line("run --backend sprites --net host --carrier ssh -- true")
        .run();
    assert!(other.err().contains("`websocket` or `cli`"), "{other}");
    // A project's own program of that name is none of the user's.
    let own = person.write("project/bin/sprite", &text);
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:.:/usr/bin", own.parent().unwrap().display());
    let ran = person
        .line("run --backend sprites --net host --carrier cli -- true")
        .env("PATH", path)
        .run();
    assert!(ran.err().contains("there is no program `sprite`"), "{ran}");
    assert!(!started.exists());
}
