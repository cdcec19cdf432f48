//! What the user changes beside a running sandbox reaches programs that watch files inside by a push, and is no work
//! of the sandbox.

use super::workspace::{host, inside};
use std::time::Duration;
use testkit::{Person, has_program, skip, wait_until};

const WAIT: Duration = Duration::from_secs(30);

/// Writes down each event of the paths that are its arguments.
const WATCHER: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
fd = libc.inotify_init()
names = {libc.inotify_add_watch(fd, path.encode(), 0xfce): path for path in sys.argv[1:]}
print("ready", flush=True)
while True:
    data = os.read(fd, 65536)
    while data:
        watch, mask, _, length = struct.unpack("iIII", data[:16])
        name = data[16:16 + length].rstrip(b"\0").decode()
        print(names[watch], name, flush=True)
        data = data[16 + length:]
"#;

fn push(person: &Person, args: &str, code: i32) -> serde_json::Value {
    let ran = person.line(&format!("push --json work {args}")).run();
    let ran = ran.expect_code(code);
    serde_json::from_slice(&ran.stdout).unwrap()
}

/// The paths that a diff shows.
fn changed(person: &Person) -> Vec<String> {
    let ran = person.line("diff --json work").run().expect_code(0);
    let answer: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let changes = answer["data"]["changes"].as_array().unwrap();
    changes
        .iter()
        .map(|change| change["path"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn watchers_inside_hear_of_what_was_pushed() {
    if !has_program("python3") {
        skip!("needs python3");
    }
    Person::each(|person| {
        host(
            person,
            "mkdir -p d/e; for f in a b d/c d/e/x gone own; do seq 5 > $f; done; chmod 755 b",
        );
        person.write("project/watch.py", WATCHER);
        person.line("start -q work").run().expect_code(0);
        let watch = "python3 watch.py a b gone . d > /tmp/log 2>&1 &";
        let mut call = person.script("exec --keep-background work", watch);
        call.command.stdin(std::process::Stdio::null());
        call.run().expect_code(0);
        let log = || inside(person, "cat /tmp/log");
        assert!(wait_until(WAIT, || log().contains("ready")), "{}", log());
        inside(person, "echo mine >> own; cat d/c d/e/x > /dev/null");
        host(
            person,
            "echo more >> a; sed -i s/3/three/ b; echo new > d/new; rm gone; rm -r d/e; echo theirs >> own; \
             echo k=v > .env; head -c 9000000 /dev/zero > large",
        );
        assert!(!log().contains("a \n"), "nobody hears of it: {}", log());
        let told = push(person, "a", 0);
        assert_eq!(told["data"]["files"], 1, "{told}");
        let told = push(person, "", 3);
        assert_eq!(
            told["data"]["conflicts"],
            serde_json::json!(["own"]),
            "{told}"
        );
        assert_eq!(
            told["data"]["large"],
            serde_json::json!(["large"]),
            "{told}"
        );
        assert_eq!(told["data"]["hidden"], 1, "{told}");
        let heard = ["a \n", "b \n", ". gone\n", ". b\n", "d new\n"];
        let hears = || heard.iter().all(|line| log().contains(line));
        assert!(wait_until(WAIT, hears), "{}", log());
        assert_eq!(
            inside(
                person,
                "tail -n1 a; cat d/new; grep t b; tail -n1 own; test -x b && test ! -e gone"
            ),
            "more\nnew\nthree\nmine\n"
        );
        let is_gone = || inside(person, "ls d").lines().eq(["c", "new"]);
        assert!(wait_until(WAIT, is_gone), "{}", inside(person, "ls -la d"));
        // Nothing of it is the sandbox's, also when the user goes on.
        assert_eq!(changed(person), ["own.theirs"]);
        host(person, "echo third >> a; echo again > gone");
        assert_eq!(changed(person), ["own.theirs"]);
        push(person, "", 3);
        assert_eq!(inside(person, "tail -n1 a; cat gone"), "third\nagain\n");

        // What the sandbox makes of a copy is.
        inside(person, "sed -i s/1/one/ b");
        assert_eq!(changed(person), ["b", "own.theirs"]);
        host(person, "echo after >> b");
        person.line("pull work").run().expect_code(3);
        assert_eq!(host(person, "cat b"), "one\n2\nthree\n4\n5\nafter\n");

        // Copies that it left alone go with a stop: the files are live again.
        person.line("stop -q work").run().expect_code(0);
        host(person, "echo fourth >> a; rm gone");
        person.line("start -q work").run().expect_code(0);
        assert_eq!(
            inside(person, "tail -n1 a; ls gone 2>&1 | wc -l; tail -n1 d/new"),
            "fourth\n1\nnew\n"
        );
        person.line("kill -q work").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn pushed_copies_count_as_the_users_files_in_commits() {
    if !has_program("git") {
        skip!("needs git");
    }
    Person::each(|person| {
        host(
            person,
            "git init -q -b main . && git config user.name T && git config user.email t@example.org && \
             seq 9 > a && seq 9 > b && git add . && git commit -q -m first",
        );
        person.line("start -q work").run().expect_code(0);
        host(person, "echo user >> a");
        push(person, "", 0);
        inside(person, "echo inside >> b && git commit -q -a -m inside");
        let ran = person.line("pull work --commits").run().expect_code(0);
        let line = "1 path in them is as you committed or edited since: a";
        assert!(ran.err().contains(line), "{ran}");
        person.line("kill -q work").run().expect_code(0);
        person.assert_nothing_left();
    });
}

/// A program inside writes files that the user has removed, while a push removes them: no write is lost.
#[test]
fn file_written_during_its_removal_stays() {
    if !has_program("python3") {
        skip!("needs python3");
    }
    const WRITER: &str = r#"
import os
names = [f"f{number:03}" for number in range(400)]
print("ready", flush=True)
while os.path.exists(names[-1]):
    pass
for name in names:
    with open(name, "w") as file:
        file.write("mine")
print("done", flush=True)
"#;
    Person::each(|person| {
        host(
            person,
            "for n in $(seq 0 399); do echo base > $(printf f%03d $n); done",
        );
        person.write("project/writer.py", WRITER);
        person.line("start -q work").run().expect_code(0);
        let mut call = person.script(
            "exec --keep-background work",
            "python3 writer.py > /tmp/log 2>&1 &",
        );
        call.command.stdin(std::process::Stdio::null());
        call.run().expect_code(0);
        let log = || inside(person, "cat /tmp/log");
        assert!(wait_until(WAIT, || log().contains("ready")), "{}", log());
        host(person, "rm f*");
        let ran = person.line("push --json work").run();
        assert!([0, 3].contains(&ran.code), "{ran}");
        assert!(wait_until(WAIT, || log().contains("done")), "{}", log());
        // A file that could not be moved back is beside the new one.
        let count = inside(person, "grep -l mine f* | cut -c 1-4 | sort -u | wc -l");
        assert_eq!(count.trim(), "400", "{ran}\n{}", inside(person, "ls"));
        person.line("kill -q work").run().expect_code(0);
    });
}
