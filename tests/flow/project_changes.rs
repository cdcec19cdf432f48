//! Changes that are applied beside a running sandbox of the same project: it sees one moment, and is told.

use super::workspace::on_the_host;
use std::time::{Duration, Instant};
use testkit::Person;

/// Waits until `is_so`.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

const LIST: &str =
    "find . -name .git -prune -o -type f ! -path ./held -exec sha256sum {} + | sort -k2";

fn changes(person: &Person) -> serde_json::Value {
    let info = person.line("info --json b").run().expect_code(0);
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    info["data"]["project_changed"].clone()
}

#[test]
fn sandbox_sees_what_another_applies_and_is_told() {
    Person::each(|person| {
        let project = person.project();
        let host = |script: &str| on_the_host(person, &project, script);
        host("mkdir -p d && for f in a b c held d/x; do echo old > $f; done");
        person.line("start -q a").run().expect_code(0);
        person.line("start -q b").run().expect_code(0);
        let inside = |script: &str| {
            let ran = person.script("exec b", script).run();
            ran.expect_code(0).out()
        };
        // All names are in its caches, one file is open, and one is its own.
        inside("cat a b c d/x >/dev/null && echo mine > b");
        let hold = "(exec 3<held; exec sleep 300) >/dev/null 2>&1 & echo $! > /tmp/holder";
        person
            .script("exec --keep-background b", hold)
            .run()
            .expect_code(0);

        let work = "echo new > a; echo new > b; rm c; mkdir e; mv d/x e/x; echo more > more; echo new > held";
        person.script("exec a", work).run().expect_code(0);
        let pulled = person.line("pull a").run().expect_code(0);
        let line = "1 other sandbox of this project sees it: b";
        assert!(pulled.err().contains(line), "{pulled}");
        assert_eq!(
            host("cat a more e/x held && test ! -e c"),
            "new\nmore\nold\nnew\n"
        );

        let expected = host(&format!("{LIST} | grep -v ./b"));
        wait_until("b sees the new files", || {
            inside(&format!("{LIST} | grep -v ./b")) == expected
        });
        assert_eq!(inside("cat b"), "mine\n", "what it wrote stays");
        wait_until("b is told", || changes(person)[0]["by"] == "a");
        let told = changes(person);
        assert_eq!(told[0]["still_old"], serde_json::json!(["held"]), "{told}");
        assert_eq!(inside("cat held"), "old\n");
        // What it held open is new once it is closed.
        inside("kill $(cat /tmp/holder)");
        wait_until("the open file is new", || inside("cat held") == "new\n");
        wait_until("nothing is old", || {
            changes(person)[0]["still_old"] == serde_json::json!([])
        });
        assert_eq!(changes(person).as_array().unwrap().len(), 1);

        // One that runs for one command hears of it too.
        let mut run = person.script(
            "run --apply discard",
            "cat a; touch ready; while [ \"$(cat a)\" != newer ]; do sleep 0.1; done",
        );
        run.command.stdout(std::process::Stdio::null());
        run.command.stderr(std::process::Stdio::null());
        let mut run = run.command.spawn().unwrap();
        wait_until("it runs", || {
            let list = person.line("list").run().out();
            list.contains("run-")
                && list
                    .lines()
                    .any(|line| line.starts_with("run-") && line.contains("ready"))
        });
        std::thread::sleep(Duration::from_millis(500));
        person
            .script("exec a", "echo newer > a")
            .run()
            .expect_code(0);
        person.line("pull -q a").run().expect_code(0);
        wait_until("the command ends", || run.try_wait().unwrap().is_some());
        assert!(run.wait().unwrap().success());
        person.line("kill -q a b").run().expect_code(0);
        person.assert_nothing_left();
    });
}
