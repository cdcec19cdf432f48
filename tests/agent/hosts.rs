//! A host that a command was refused: whoever sits at the terminal is asked once, and the answer holds.

use super::{agent, at_terminal_with, last_results};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use testkit::{ModelServer, Person, Step, filters, own_address, skip};

fn look_up(name: &str) -> Step {
    let arguments = format!(r#"{{"command":"getent hosts {name} || exit 3"}}"#);
    Step::call("Bash", &arguments)
}

fn steps() -> ModelServer {
    ModelServer::start([
        look_up("yes.test"),
        look_up("yes.test"),
        look_up("no.test"),
        look_up("no.test"),
        Step::text("Done."),
    ])
}

#[test]
fn a_person_opens_a_host_or_keeps_it_closed_and_is_asked_once() {
    Person::each(|person| {
        let answers = [("open yes.test", "y\n"), ("open no.test", "n\n")];
        for placement in [
            "--sandbox --net egress",
            "--sandbox --net egress --keep box",
        ] {
            let server = steps();
            let shown = at_terminal_with(person, &server, placement, "look them up", &answers);
            let Some(shown) = shown else {
                skip!("there is no terminal to ask at");
            };
            for question in ["open yes.test", "open no.test"] {
                assert_eq!(shown.matches(question).count(), 1, "{placement}: {shown}");
            }
            let results = last_results(&server);
            let root = person.place().root();
            // On a busy machine an earlier command may end only during the next one.
            let told = [&results[0], &results[2], &results[3]].map(|text| {
                let surely = filters(text, root);
                let unsurely = "while the command ran, it or another one of this sandbox asked for";
                surely.replace(unsurely, "the command asked for")
            });
            insta::assert_snapshot!(told.join("\n"), @"
            [exit code 3, [TIME], job 2]
            [the command asked for `yes.test`, which is not among what this sandbox may reach; the user has opened it now: run the command again]
            [exit code 3, [TIME], job 4]
            [the command asked for `no.test`, which is not among what this sandbox may reach; the user was asked and keeps it closed: do without it]
            [exit code 3, [TIME], job 5]
            [the command asked for `no.test`, which is not among what this sandbox may reach; the user was asked and keeps it closed: do without it]
            ");
            // It is listed now; that nobody knows such a name is no refusal.
            assert!(
                !results[1].contains("may reach"),
                "{placement}: {results:?}"
            );
        }
        let rules = person.line("net show box").run().expect_code(0);
        assert!(
            rules.out().contains("yes.test") && !rules.out().contains("no.test"),
            "{rules}"
        );
        let _ = person.line("kill -q box").run().expect_code(0);
    });
}

#[test]
fn where_nobody_sits_nothing_is_asked_or_opened() {
    let person = Person::myself();
    let server = steps();
    let ran = agent(
        &person,
        &server,
        ["--sandbox", "--net", "egress"],
        "look them up",
    )
    .run()
    .expect_code(0);
    assert!(!ran.err().contains("open yes.test"), "{ran}");
    let told = filters(&last_results(&server).join("\n"), person.place().root());
    insta::assert_snapshot!(told, @r#"
    [exit code 3, [TIME], job 2]
    [the command asked for `yes.test`, which is not among what this sandbox may reach; only the user can change that: `allow = "yes.test"` opens it]
    [exit code 3, [TIME], job 3]
    [the command asked for `yes.test`, which is not among what this sandbox may reach; only the user can change that: `allow = "yes.test"` opens it]
    [exit code 3, [TIME], job 4]
    [the command asked for `no.test`, which is not among what this sandbox may reach; only the user can change that: `allow = "no.test"` opens it]
    [exit code 3, [TIME], job 5]
    [the command asked for `no.test`, which is not among what this sandbox may reach; only the user can change that: `allow = "no.test"` opens it]
    "#);
}

#[test]
fn an_address_without_a_name_is_asked_about_too() {
    let Some(address) = own_address() else {
        skip!("this machine has no address but its loopback's");
    };
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 100]);
            let _ = stream.write_all(b"arrived\n");
        }
    });
    let command = format!("exec 3<>/dev/tcp/{address}/{port}; echo >&3; cat <&3");
    let step = || Step::call("Bash", &format!(r#"{{"command":"{command}"}}"#));
    Person::each(|person| {
        let server = ModelServer::start([step(), step(), Step::text("Done.")]);
        let question = format!("open {address}:{port}");
        let answers = [(question.as_str(), "y\n")];
        let placement = "--sandbox --net egress";
        let Some(shown) = at_terminal_with(person, &server, placement, "ask it", &answers) else {
            skip!("there is no terminal to ask at");
        };
        assert_eq!(shown.matches(&question).count(), 1, "{shown}");
        let results = last_results(&server);
        assert!(
            results[0].contains("the user has opened it now: run the command again"),
            "{results:?}"
        );
        assert!(results[1].contains("arrived"), "{results:?}");
    });
}
