//! What programs find of this machine inside: the files of `/etc` that they link to, the user's certificates,
//! proxies and colours, and how many processors they may use.

use crate::workspace::told;
use std::fs;
use std::process::Command;
use testkit::{Person, has_program, skip};

/// Links below /usr that lead to /etc and to something there.
const LINKS: &str =
    "find /usr -xdev -type l -lname '/etc/*' -exec test -e {} \\; -print 2>/dev/null | sort";
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

#[test]
fn links_from_usr_to_etc_lead_somewhere() {
    Person::each(|person| {
        // Also on the host only what this person can see.
        let outside = person.program("sh").args(["-c", LINKS]).output().unwrap();
        let inside = person
            .script("--quiet run --no-toolchains --timeout 120s", LINKS)
            .run()
            .expect_code(0);
        let outside = String::from_utf8_lossy(&outside.stdout).into_owned();
        let missing: Vec<_> = outside
            .lines()
            .filter(|link| !inside.out().lines().any(|seen| seen == *link))
            .filter(|link| {
                // Keys of the machine stay out.
                let target = fs::read_link(link).unwrap();
                !target.starts_with("/etc/ssl/private")
            })
            .collect();
        assert!(missing.is_empty(), "{missing:#?}");
    });
}

#[test]
fn maven_starts() {
    if !has_program("mvn") {
        skip!("needs mvn");
    }
    Person::each(|person| {
        let ran = person
            .line("--quiet run --timeout 120s -- mvn --version")
            .run();
        let ran = ran.expect_code(0);
        assert!(ran.out().contains("Apache Maven"), "{ran}");
    });
}

#[test]
fn colours_pass_and_an_empty_wish_does_not() {
    Person::each(|person| {
        let ran = person
            .line("--quiet run --no-toolchains -- env")
            .env("CI", "true")
            .env("FORCE_COLOR", "1")
            .env("NO_COLOR", "")
            .env("CI_JOB_TOKEN", "hush")
            .run()
            .expect_code(0);
        assert!(
            ran.out().contains("CI=true\n") && ran.out().contains("FORCE_COLOR=1\n"),
            "{ran}"
        );
        assert!(
            !ran.out().contains("NO_COLOR") && !ran.out().contains("hush"),
            "{ran}"
        );
    });
}

#[test]
fn proxies_pass_where_the_network_is_shared() {
    Person::each(|person| {
        let env = |net: &str| {
            person
                .line(&format!("run --no-toolchains --net {net} -- env"))
                .env("http_proxy", "http://proxy.test:3128")
                .env("HTTPS_PROXY", "http://me:hush@proxy.test:3128")
                .run()
                .expect_code(0)
        };
        let (open, closed) = (env("host"), env("none"));
        assert!(
            open.out().contains("http_proxy=http://proxy.test:3128\n"),
            "{open}"
        );
        insta::assert_snapshot!(told(person, &open), @"
        glovebox: HTTPS_PROXY is not passed on: it holds a password; `--env HTTPS_PROXY` passes it as it is
        warning: --net host opens your network to the command: this machine's services and everything you can reach
        ");
        assert!(
            !open.out().contains("hush") && !open.err().contains("hush"),
            "{open}"
        );
        assert!(!closed.out().contains("proxy.test"), "{closed}");
    });
}

#[test]
fn a_certificate_file_of_the_user_is_readable_or_its_variable_stays_out() {
    Person::each(|person| {
        let own = person.write("certificates/own.pem", CERTIFICATE);
        let key = person.write("certificates/key.pem", "-----BEGIN PRIVATE KEY-----\n");
        let script = "cat \"$NODE_EXTRA_CA_CERTS\"; echo \"key=$PIP_CERT\"; \
            echo more 2>/dev/null >> \"$NODE_EXTRA_CA_CERTS\" && echo written; ls \"${NODE_EXTRA_CA_CERTS%/*}\"";
        let ran = person
            .script("run --no-toolchains", script)
            .env("NODE_EXTRA_CA_CERTS", &own)
            .env("PIP_CERT", &key)
            .run()
            .expect_code(0);
        let expected = format!("{CERTIFICATE}key=\nown.pem\n");
        assert_eq!(ran.out(), expected, "{ran}");
        insta::assert_snapshot!(told(person, &ran), @"glovebox: PIP_CERT is not passed on: [ROOT]/certificates/key.pem holds a private key; `--env PIP_CERT` passes it as it is");
        assert_eq!(fs::read_to_string(&own).unwrap(), CERTIFICATE);
    });
}

#[test]
fn programs_count_the_processors_they_may_use() {
    let outside = Command::new("nproc").output().unwrap().stdout;
    Person::each(|person| {
        let count = |options: &str| {
            let ran = person
                .line(&format!("--quiet run --no-toolchains {options} -- nproc"))
                .run()
                .expect_code(0);
            ran.out()
        };
        assert_eq!(count("--cpus 1"), "1\n");
        assert_eq!(count("--cpus 0.5"), "1\n");
        assert_eq!(count("--cpus none").as_bytes(), outside);
    });
}
