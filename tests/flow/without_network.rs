//! Without network: what needs one fails at once and with its true message, and all else goes on working.

use std::time::{Duration, Instant};
use testkit::{Person, skip};

/// Much less than programs take that try again (71 s and 8 s), and more than a busy machine needs for one attempt.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(20);

/// A program of the machine that commands can use.
pub(crate) fn has(program: &str) -> bool {
    ["/usr/bin", "/bin", "/usr/local/bin"]
        .iter()
        .any(|dir| std::path::Path::new(dir).join(program).exists())
}

#[test]
fn a_name_is_said_at_once_not_to_exist() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    // EAI_NONAME and not EAI_AGAIN, by which programs try again.
    let script = "import socket\ntry: socket.getaddrinfo('registry.example.org', 443)\n\
                  except socket.gaierror as e: print(e.errno == socket.EAI_NONAME or e.errno)\n";
    Person::each(|person| {
        let ran = person
            .glovebox(["run", "--", "python3", "-c", script])
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "True\n", "as {}: {ran}", person.name());
    });
}

#[test]
fn names_of_the_sandbox_itself_exist() {
    Person::each(|person| {
        let ran = person
            .script("run", "getent hosts localhost && getent hosts $(hostname)")
            .run()
            .expect_code(0);
        assert_eq!(ran.out().lines().count(), 2, "as {}: {ran}", person.name());
        let ran = person
            .script("run", "cat /etc/resolv.conf")
            .run()
            .expect_code(0);
        assert!(
            ran.out().contains("nameserver 127.0.0.1\n")
                && ran.out().contains("options timeout:1 attempts:1\n"),
            "{ran}"
        );
    });
}

#[test]
fn programs_list_the_interfaces_of_the_sandbox() {
    let programs: [(&str, &[&str]); 2] = [
        (
            "python3",
            &[
                "-c",
                "import socket; print(*(name for _, name in socket.if_nameindex()))",
            ],
        ),
        (
            "node",
            &[
                "-p",
                "Object.keys(require('os').networkInterfaces()).join(' ')",
            ],
        ),
    ];
    for (program, args) in programs {
        if !has(program) {
            skip!("{program} is not installed");
        }
        Person::each(|person| {
            let ran = person
                .glovebox(["run", "--", program].iter().chain(args))
                .run()
                .expect_code(0);
            assert_eq!(ran.out(), "lo\n", "as {}: {ran}", person.name());
        });
    }
}

#[test]
fn a_command_can_neither_have_the_port_nor_the_socket() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    // The second one is the twin that must succeed.
    let script = "import socket, os\nfor kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):\n \
                  for at in (('127.0.0.1', 53), ('0.0.0.0', 53), ('127.0.0.1', 5353)):\n  \
                  s = socket.socket(socket.AF_INET, kind)\n  \
                  s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n  \
                  s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n  \
                  try: s.bind(at); print('bound', at[1])\n  except OSError as e: print(at[1], e.errno)\n\
                  s.close()\nlinks = ['/proc/self/fd/%d' % n for n in range(64)]\n\
                  print([l for l in links if os.path.lexists(l) and 'socket' in os.readlink(l)])\n";
    Person::each(|person| {
        let ran = person
            .glovebox(["run", "--", "python3", "-c", script])
            .run()
            .expect_code(0);
        // Questions for names are answered on port 53 of UDP; the same port of TCP is free.
        let taken = "53 98\n53 98\nbound 5353\n";
        let free = "bound 53\nbound 53\nbound 5353\n";
        assert_eq!(
            ran.out(),
            format!("{taken}{free}[]\n"),
            "as {}: {ran}",
            person.name()
        );
    });
}

#[test]
fn names_go_on_being_answered_after_a_flood_and_an_exchange() {
    if !has("python3") {
        skip!("python3 is not installed");
    }
    let flood = "import socket, os\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                 for n in range(3000):\n for size in (0, 11, 12, 17, 512, 513, 9000): s.sendto(os.urandom(size), ('127.0.0.1', 53))\n";
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        let ask = || {
            let began = Instant::now();
            let _ = person
                .script("exec box", "getent hosts registry.example.org")
                .run()
                .expect_code(2);
            assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
        };
        ask();
        let _ = person
            .glovebox(["exec", "box", "--", "python3", "-c", flood])
            .run()
            .expect_code(0);
        ask();
        let _ = person.line("checkpoint box").run().expect_code(0);
        let _ = person.line("restore box v1").run().expect_code(0);
        ask();
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn npm_tries_once() {
    if !has("npm") {
        skip!("npm is not installed");
    }
    Person::each(|person| {
        person.write(
            "project/package.json",
            "{\"name\":\"x\",\"version\":\"1.0.0\"}\n",
        );
        let began = Instant::now();
        let ran = person
            .script("run", "npm install --loglevel http left-pad 2>&1")
            .run();
        assert!(ran.code != 0, "{ran}");
        assert!(
            ran.out().contains("ENOTFOUND") && !ran.out().contains("EAI_AGAIN"),
            "as {}: {ran}",
            person.name()
        );
        assert!(!ran.out().contains("attempt 2"), "{ran}");
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    });
}

#[test]
fn pip_tries_once_unless_the_user_says_otherwise() {
    if !has("pip") && !has("pip3") {
        skip!("pip is not installed");
    }
    // Nothing of the machine's own settings for pip counts.
    let script = "PIP_CONFIG_FILE=/dev/null python3 -m pip install --break-system-packages --target /tmp/x six 2>&1";
    Person::each(|person| {
        let began = Instant::now();
        let ran = person.script("run", script).run();
        assert!(ran.code != 0, "{ran}");
        assert!(
            ran.out().contains("Name or service not known") || ran.out().contains("No matching"),
            "as {}: {ran}",
            person.name()
        );
        let tries = |text: &str| text.matches("Retrying (").count();
        assert_eq!(tries(&ran.out()), 0, "{ran}");
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
        let ran = person.script("run --env PIP_RETRIES=1", script).run();
        assert_eq!(tries(&ran.out()), 1, "{ran}");
    });
}

#[test]
fn what_the_user_set_is_kept_and_with_network_nothing_is_set() {
    Person::each(|person| {
        let shown = |flags: &str, own: Option<&str>| {
            let mut call = person.script(flags, "echo \"$PIP_RETRIES $npm_config_fetch_retries\"");
            if let Some(own) = own {
                call = call.env("PIP_RETRIES", own);
            }
            call.run().expect_code(0).out()
        };
        assert_eq!(shown("run", None), "0 0\n");
        assert_eq!(shown("run", Some("4")), "4 0\n");
        assert_eq!(shown("run --env PIP_RETRIES=9", Some("4")), "9 0\n");
        assert_eq!(shown("run --net host", None), " \n");
    });
}
