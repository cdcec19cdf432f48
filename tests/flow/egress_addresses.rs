//! Addresses without a name: what was tried is named with the rule that opens it, and can be opened while a sandbox runs.

use crate::egress::{Server, answer_hello};
use crate::egress_proxy::own_address;
use crate::without_network::has;
use std::time::Duration;
use testkit::{Person, SkipReason, skip, skip_because, wait_until};

/// Tries an address of a private network that nobody has.
const TRY: &str = "exec 3<>/dev/tcp/10.1.2.3/8080";

#[test]
fn an_address_that_was_tried_is_named_with_the_rule_that_opens_it() {
    Person::each(|person| {
        let told = |flags: &str, command: &[&str]| {
            let ran = person
                .line(&format!("run -q {flags} --"))
                .args(command)
                .run();
            assert!(ran.code != 0, "{ran}");
            ran.err()
        };
        // The program names it.
        let bash = ["bash", "-c", TRY];
        let said = told("--net egress", &bash);
        assert!(
            said.contains("asked for `10.1.2.3:8080`")
                && said.contains("`--allow 10.1.2.3:8080` opens it"),
            "as {}: {said}",
            person.name()
        );
        let said = told("", &bash);
        assert!(
            said.contains("`--net egress` with `--allow 10.1.2.3:8080` opens it"),
            "{said}"
        );
        assert!(!said.contains("--net host"), "{said}");
        // It says nothing, and the command does.
        let quiet = [
            "bash",
            "-c",
            "exec 2>/dev/null; exec 3<>/dev/tcp/10.1.2.3/81",
        ];
        let said = told("--net egress", &quiet);
        assert!(said.contains("`--allow 10.1.2.3:81` opens it"), "{said}");
        // Nobody says it.
        person.write(
            "project/try",
            "exec 2>/dev/null; exec 3<>/dev/tcp/10.1.2.3/81\n",
        );
        let said = told("--net egress", &["bash", "try"]);
        assert!(
            said.contains("or list the address: `--allow ADDRESS:PORT`"),
            "{said}"
        );
        // What is named and was not tried is not a wall.
        let said = told(
            "--net egress",
            &["sh", "-c", "echo 10.1.2.3:8080 >&2; exit 1"],
        );
        assert!(!said.contains("--allow"), "{said}");
        person.assert_nothing_left();
    });
}

#[test]
fn an_address_is_opened_while_the_sandbox_runs() {
    if !has("curl") {
        skip!("curl is not installed");
    }
    let Some(address) = own_address() else {
        skip!("this machine has no address but its loopback's");
    };
    Person::each(|person| {
        let server = Server::start_at(address, answer_hello);
        let other = Server::start_at(address, answer_hello);
        let fetch = |port: u16| {
            person
                .script(
                    "exec box",
                    &format!("curl -sS --noproxy '*' http://{address}:{port}/"),
                )
                .run()
        };
        let _ = person
            .line("start -q --net egress box")
            .run()
            .expect_code(0);
        let ran = fetch(server.port);
        let rule = format!("{address}:{}", server.port);
        assert!(
            ran.code != 0 && ran.err().contains(&format!("`--allow {rule}` opens it")),
            "as {}: {ran}",
            person.name()
        );
        let _ = person
            .line(&format!("net allow box {rule}"))
            .run()
            .expect_code(0);
        assert_eq!(fetch(server.port).expect_code(0).out(), "hello\n");
        let ran = fetch(other.port);
        assert!(ran.code != 0 && ran.out().is_empty(), "{ran}");
        // Through a restore as well, as rules about names.
        let _ = person.line("checkpoint box").run().expect_code(0);
        let _ = person.line("restore box v1").run().expect_code(0);
        assert_eq!(fetch(server.port).expect_code(0).out(), "hello\n");
        // For a time, and not longer.
        let for_a_time = format!("net allow box {address}:{} --for 2s", other.port);
        let _ = person.line(&for_a_time).run().expect_code(0);
        assert_eq!(fetch(other.port).expect_code(0).out(), "hello\n");
        assert!(wait_until(Duration::from_secs(20), || fetch(other.port)
            .code
            != 0));
        // What no sandbox reaches stays so.
        for (word, told) in [
            ("127.0.0.1:80", "the sandbox itself"),
            ("198.18.0.9:80", "the sandbox itself"),
            ("169.254.169.254", "never reached"),
        ] {
            let ran = person.line(&format!("net allow box {word}")).run();
            assert!(ran.code != 0 && ran.err().contains(told), "{word}: {ran}");
        }
        let _ = person.line("kill -q box").run().expect_code(0);
        assert_eq!(server.brought(2).len(), 2);
        assert!(!other.brought(1).is_empty());
    });
}

/// Names of a VPN, or of a container's `--add-host`, are in this file and in no DNS.
#[test]
fn names_of_the_hosts_file_are_reached() {
    let person = Person::myself();
    if !person.is_root() {
        skip_because!(SkipReason::needs_root("to show another /etc/hosts"));
    }
    if !has("curl") {
        skip!("curl is not installed");
    }
    let server = Server::start(answer_hello);
    let hosts = person.write("hosts", "127.0.0.1 localhost\n127.0.0.1 intranet.test\n");
    let reach = |reach: &str| {
        let run = format!(
            "mount --bind {} /etc/hosts && exec {} run -q --net egress --allow \
             intranet.test:{port}{reach} -- curl -sS http://intranet.test:{port}/",
            hosts.display(),
            person.binary().display(),
            port = server.port
        );
        let ran = person
            .program("unshare")
            .args(["--mount", "sh", "-c", &run])
            .output()
            .unwrap();
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    assert_eq!(reach("=private"), "hello\n");
    // The address is private, and no rule says that it may be.
    assert_eq!(reach(""), "");
    person.assert_nothing_left();
}
