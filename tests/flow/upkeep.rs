//! Keeping sandboxes in order: stop and start again, copy, rename, end one job, see what they take, throw away.

use crate::screen::Terminal;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};
use testkit::{Person, Process, marker, wait_until};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// One field of a line of JSON, as text.
fn number(json: &str, field: &str) -> u64 {
    let (_, rest) = json.split_once(&format!("\"{field}\":")).unwrap();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[test]
fn what_is_stopped_keeps_its_files_and_goes_on() {
    Person::each(|person| {
        let mark = marker();
        let _ = person.line("start -q box").run().expect_code(0);
        let _ = person
            .script("exec box", "echo kept > /tmp/file; echo new > made")
            .run()
            .expect_code(0);
        // A job that cleans up when it is asked to end.
        let script = format!(
            "trap 'echo cleaned > /tmp/cleaned; exit 0' TERM; touch /tmp/ready; sleep {mark} & wait"
        );
        let job = person.script("exec box", &script);
        std::thread::scope(|scope| {
            let job = scope.spawn(|| job.run());
            let is_ready = || person.line("exec box -- test -e /tmp/ready").run().code == 0;
            assert!(wait_until(Duration::from_secs(20), is_ready));
            let ran = person.line("stop box").run().expect_code(0);
            insta::assert_snapshot!(ran.shown_err(person.place().root()), @"glovebox: sandbox `box` is stopped; `glovebox start box` takes it up again");
            let _ = job.join().unwrap();
        });
        assert!(Process::mentioning(&mark).is_empty());
        assert!(person.line("list").run().out().contains("stopped"));
        let ran = person.line("exec box -- true").run().expect_code(125);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the sandbox `box` is not running: it was stopped with `glovebox stop`
        hint: `glovebox start box` brings it back, `glovebox kill box` removes it
        ");
        // Its changes can be looked at meanwhile, and stopping again is no error.
        assert!(
            person
                .line("diff box")
                .run()
                .expect_code(0)
                .out()
                .contains("+new")
        );
        let ran = person.line("stop --json box").run().expect_code(0);
        assert!(ran.out().contains(r#""was":"stopped""#), "{ran}");
        let _ = person.line("start -q box").run().expect_code(0);
        let ran = person
            .line("exec box -- cat /tmp/file /tmp/cleaned made")
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "kept\ncleaned\nnew\n");
        let _ = person.line("stop gone").run().expect_code(6);
        // What cannot be kept is not stopped.
        let _ = person
            .line("start -q --backend host bare")
            .run()
            .expect_code(0);
        let ran = person.line("stop bare").run().expect_code(1);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the files of `bare` would go with its processes, so it was not stopped
        hint: `glovebox pull bare` brings its changes back; `glovebox kill bare` ends it with all it holds
        ");
        let _ = person.line("exec bare -- true").run().expect_code(0);
        let _ = person.line("kill --all").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn one_job_is_ended_and_the_others_go_on() {
    Person::each(|person| {
        let (first, second) = (marker(), marker());
        let _ = person.line("start -q box").run().expect_code(0);
        for mark in [&first, &second] {
            let script = format!("(sleep {mark}; true) >/dev/null 2>&1 &");
            let _ = person
                .script("exec --keep-background box", &script)
                .run()
                .expect_code(0);
        }
        let lives = |mark: &str| !Process::mentioning(mark).is_empty();
        assert!(lives(&first) && lives(&second));
        let ran = person.line("kill box --job 1").run().expect_code(0);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"glovebox: job 1 of sandbox `box` is ended");
        assert!(!lives(&first) && lives(&second));
        let ran = person.line("kill --json box --job 1").run().expect_code(0);
        assert!(ran.out().contains(r#""was_running":false"#), "{ran}");
        let ran = person.line("kill --json box --job 77").run();
        assert_eq!(ran.code, 6, "{ran}");
        assert!(ran.out().contains(r#""code":"job-not-found""#), "{ran}");
        let _ = person.line("kill box other --job 1").run().expect_code(2);
        assert!(lives(&second));
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn cp_tilde_is_the_home_inside() {
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        let source = person.write("settings.json", "{}\n");
        let source = source.to_str().unwrap();
        let _ = person
            .line(&format!("cp {source} box:~/.tool/deep/settings.json"))
            .run()
            .expect_code(0);
        let home = person
            .script(
                "exec box",
                "cat ~/.tool/deep/settings.json; ls -A /workspace",
            )
            .run()
            .expect_code(0);
        assert_eq!(home.out(), "{}\n", "{home}");
        // A name that only begins with the sign is a file like any other.
        let _ = person
            .line(&format!("cp {source} box:~odd"))
            .run()
            .expect_code(0);
        let _ = person
            .script("exec box", "test -f '/workspace/~odd'")
            .run()
            .expect_code(0);
        let back = person.place().root().join("back");
        let _ = person
            .line(&format!("cp box:~/.tool/deep {}", back.display()))
            .run()
            .expect_code(0);
        assert_eq!(
            fs::read_to_string(back.join("settings.json")).unwrap(),
            "{}\n"
        );
        // Without a source nothing is made inside.
        let _ = person.line("cp absent box:~/.other/x").run().expect_code(6);
        let _ = person
            .script("exec box", "test ! -e ~/.other")
            .run()
            .expect_code(0);
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_sandbox_gets_another_name() {
    Person::each(|person| {
        let _ = person.line("start -q old").run().expect_code(0);
        let _ = person
            .script("exec old", "echo one > made; echo one > /tmp/x")
            .run()
            .expect_code(0);
        let _ = person.line("checkpoint old").run().expect_code(0);
        let _ = person
            .script("exec old", "echo two > /tmp/x")
            .run()
            .expect_code(0);
        let ran = person.line("rename old new").run().expect_code(5);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: the sandbox `old` runs, and its processes know it by its name
        hint: `glovebox stop old` ends them and keeps its files; then rename it
        ");
        let _ = person.line("stop old").run().expect_code(0);
        let _ = person.line("start -q other").run().expect_code(0);
        let _ = person.line("rename old other").run().expect_code(3);
        let _ = person.line("rename old new").run().expect_code(0);
        let _ = person.line("rename old new").run().expect_code(6);
        let list = person.line("list").run().out();
        assert!(list.contains("new") && !list.contains("old"), "{list}");
        assert!(
            person
                .line("diff new")
                .run()
                .expect_code(0)
                .out()
                .contains("made")
        );
        let _ = person.line("start -q new").run().expect_code(0);
        let ran = person
            .line("exec new -- cat made /tmp/x")
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "one\ntwo\n");
        // Its checkpoints came along.
        let _ = person.line("restore new v1").run().expect_code(0);
        assert_eq!(
            person
                .line("exec new -- cat /tmp/x")
                .run()
                .expect_code(0)
                .out(),
            "one\n"
        );
        let _ = person.line("kill new other").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn files_are_copied_both_ways_as_they_are() {
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        let big: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let source = person.write("files/data.bin", &big);
        fs::set_permissions(&source, fs::Permissions::from_mode(0o640)).unwrap();
        let source_text = source.display().to_string();
        let ran = person
            .line(&format!("cp {source_text} box:/tmp/there.bin"))
            .run()
            .expect_code(0);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"glovebox: copied 1 file (2.9 MiB)");
        let ran = person
            .line("exec box -- stat -c %a:%s /tmp/there.bin")
            .run()
            .expect_code(0);
        assert_eq!(ran.out(), "640:3000000\n");
        // Into a directory that is there, by its own name; relative paths begin at the workspace.
        let _ = person
            .line(&format!("cp {source_text} box:"))
            .run()
            .expect_code(0);
        let _ = person
            .line("exec box -- cmp /workspace/data.bin /tmp/there.bin")
            .run()
            .expect_code(0);
        // And back, over something that is there and through a link that is not followed.
        let target = person.place().root().join("files/back.bin");
        let precious = person.write("files/precious", "mine");
        symlink(&precious, &target).unwrap();
        let _ = person
            .line(&format!("cp box:/tmp/there.bin {}", target.display()))
            .run()
            .expect_code(0);
        assert_eq!(fs::read(&target).unwrap(), big);
        assert_eq!(mode(&target), 0o640);
        assert!(!target.is_symlink());
        assert_eq!(fs::read(&precious).unwrap(), b"mine");
        // Special bits of the sandbox mean nothing here.
        let _ = person
            .script("exec box", "echo x > /tmp/set; chmod 6755 /tmp/set")
            .run()
            .expect_code(0);
        let _ = person.line("cp box:/tmp/set .").run().expect_code(0);
        assert_eq!(mode(&person.project().join("set")), 0o755);
        // A copy that fails leaves nothing half done.
        let ran = person
            .line(&format!("cp {source_text} box:/no/such/place"))
            .run()
            .expect_code(6);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: cannot write `/no/such/glovebox-cp-[RANDOM]`: it does not exist
        hint: `glovebox exec box -- ls` shows what is there
        ");
        let _ = person.line("cp box:/no/such .").run().expect_code(6);
        let _ = person
            .line("cp box:/tmp/there.bin /no/such/place")
            .run()
            .expect_code(6);
        let _ = person.line("cp no-such-file box:").run().expect_code(6);
        let _ = person.line("cp box:a box:b").run().expect_code(2);
        let _ = person.line("cp a b").run().expect_code(2);
        let _ = person.line("cp box:../etc/passwd .").run().expect_code(2);
        let ran = person.line("exec box -- ls -A /workspace").run();
        assert!(!ran.out().contains("glovebox-cp"), "{ran}");
        let ran = person
            .line(&format!("cp --json {source_text} box:/tmp/json"))
            .run()
            .expect_code(0);
        assert_eq!(number(&ran.out(), "bytes"), 3_000_000);
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn directories_are_copied_both_ways_without_following_links() {
    Person::each(|person| {
        let _ = person.line("start -q box").run().expect_code(0);
        person.write("tree/run.sh", "#!/bin/sh\n");
        person.write("tree/deep/er/file", "deep");
        person.write("tree/.env", "named by its user");
        let tree = person.place().root().join("tree");
        fs::set_permissions(tree.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("/etc/passwd", tree.join("out")).unwrap();
        person.own(&tree);
        let tree_text = tree.display().to_string();
        let _ = person
            .line(&format!("cp {tree_text} box:/tmp/copy"))
            .run()
            .expect_code(0);
        let script = "cd /tmp/copy && cat deep/er/file .env && test -x run.sh && readlink out";
        let ran = person.script("exec box", script).run().expect_code(0);
        assert_eq!(ran.out(), "deepnamed by its user/etc/passwd\n");
        // Once more it goes into the directory that is there, or replaces what it holds.
        let _ = person
            .line(&format!("cp {tree_text} box:/tmp/copy"))
            .run()
            .expect_code(0);
        person.write("tree/deep/er/file", "new");
        let _ = person
            .line(&format!("cp {tree_text}/. box:/tmp/copy"))
            .run()
            .expect_code(0);
        let ran = person
            .script(
                "exec box",
                "cat /tmp/copy/tree/deep/er/file /tmp/copy/deep/er/file",
            )
            .run();
        assert_eq!(ran.out(), "deepnew");
        // Out: what leads out of the directory stays, and is said.
        let _ = person
            .script(
                "exec box",
                "ln -s deep/er/file /tmp/copy/inner; rm -r /tmp/copy/tree",
            )
            .run()
            .expect_code(0);
        let back = person.place().root().join("project/back");
        let ran = person.line("cp box:/tmp/copy back").run().expect_code(0);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"
        warning: out: not copied, a link that leads out of the workspace
        glovebox: copied 3 files (30 B)
        ");
        assert_eq!(
            fs::read_to_string(back.join("deep/er/file")).unwrap(),
            "new"
        );
        assert_eq!(
            fs::read_link(back.join("inner")).unwrap(),
            Path::new("deep/er/file")
        );
        assert_eq!(mode(&back.join("run.sh")) & 0o111, 0o111);
        assert!(back.join("out").symlink_metadata().is_err());
        // A link on this machine is not a way out of the destination either.
        let elsewhere = person.place().root().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::remove_dir_all(back.join("deep")).unwrap();
        symlink(&elsewhere, back.join("deep")).unwrap();
        person.own(&back);
        person.own(&elsewhere);
        let _ = person.line("cp box:/tmp/copy/. back").run();
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        let _ = person.line("kill box").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn what_sandboxes_take_is_shown() {
    Person::each(|person| {
        let _ = person
            .line("start -q --memory 256MiB busy")
            .run()
            .expect_code(0);
        let _ = person.line("start -q idle").run().expect_code(0);
        let script =
            "head -c 20000000 /dev/zero > /tmp/fill; (while :; do :; done) >/dev/null 2>&1 &";
        let _ = person
            .script("exec --keep-background busy", script)
            .run()
            .expect_code(0);
        let ran = person.line("stats --json busy").run().expect_code(0);
        let out = ran.out();
        assert!(number(&out, "cpu_millis") > 200, "{ran}");
        assert!(number(&out, "disk_bytes") >= 20_000_000, "{ran}");
        assert_eq!(number(&out, "memory_limit_bytes"), 256 << 20);
        assert!(number(&out, "memory_bytes") > 100_000, "{ran}");
        assert!(number(&out, "processes") >= 2, "{ran}");
        let table = person.line("stats").run().expect_code(0).out();
        for word in ["NAME", "CPU", "busy", "idle", "256 MiB"] {
            assert!(table.contains(word), "{table}");
        }
        let _ = person.line("stats gone").run().expect_code(6);
        // The list has sizes too.
        let list = person.line("list").run().expect_code(0).out();
        assert!(list.contains("SIZE") && list.contains("MiB"), "{list}");
        let list = person.line("list --json").run().expect_code(0).out();
        assert!(number(&list, "disk_bytes") >= 20_000_000, "{list}");
        // And the doctor knows where room went.
        let doctor = person.line("doctor").run().out();
        assert!(
            doctor.contains("room ") && doctor.contains("sandboxes "),
            "{doctor}"
        );
        // Watched, it is shown again.
        let mut terminal = Terminal::run(person, &["stats", "--watch", "idle"]);
        terminal.see_times("idle", 2);
        terminal.type_keys("\x03");
        let _ = terminal.end();
        let _ = person.line("kill busy idle").run().expect_code(0);
        person.assert_nothing_left();
    });
}

/// Makes a sandbox look as if it had ended so long ago.
fn age(person: &Person, name: &str, age: Duration) {
    let status = person
        .place()
        .state()
        .join("sandboxes")
        .join(name)
        .join("status.json");
    let file = File::options().write(true).open(status).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn what_is_over_is_thrown_away_when_it_is_wanted() {
    Person::each(|person| {
        let day = Duration::from_hours(24);
        for name in ["old", "new", "live"] {
            let _ = person
                .line(&format!("start -q {name}"))
                .run()
                .expect_code(0);
        }
        let _ = person
            .script("exec old", "head -c 5000000 /dev/zero > /tmp/fill")
            .run()
            .expect_code(0);
        let _ = person.line("stop -q old new").run().expect_code(0);
        age(person, "old", 3 * day);
        let ran = person.line("prune").run().expect_code(2);
        insta::assert_snapshot!(ran.failure(person.place().root()), @"
        error: 2 sandboxes would be removed, and there is no terminal to ask on
        hint: say so with --yes; `glovebox list` shows what is stopped or lost
        ");
        let ran = person
            .line("prune --json --yes --older-than 2d")
            .run()
            .expect_code(0);
        assert!(
            ran.out().contains(r#""name":"old""#) && !ran.out().contains(r#""name":"new""#),
            "{ran}"
        );
        assert!(number(&ran.out(), "freed_bytes") >= 5_000_000, "{ran}");
        // On a terminal it asks.
        let mut terminal = Terminal::run(person, &["prune"]);
        terminal.see("remove them?");
        assert!(terminal.text().contains("new") && !terminal.text().contains("live"));
        terminal.type_keys("n\r");
        assert_eq!(terminal.end(), 130);
        assert!(person.line("list").run().out().contains("new"));
        let mut terminal = Terminal::run(person, &["prune"]);
        terminal.see("remove them?");
        terminal.type_keys("y\r");
        terminal.see("removed 1 sandbox");
        assert_eq!(terminal.end(), 0);
        let _ = person.line("exec live -- true").run().expect_code(0);
        let ran = person.line("prune --yes").run().expect_code(0);
        insta::assert_snapshot!(ran.shown_err(person.place().root()), @"glovebox: there was nothing to remove");
        let _ = person.line("kill live").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn sandboxes_of_tools_go_a_day_after_they_ended() {
    Person::each(|person| {
        // As `mcp` and `call` name those they make; the last is a user's own.
        let names = [
            "mcp-abcdefghjk",
            "call-abcdefghjk",
            "mcp-keep222222",
            "call-me",
            "mcp-fresh22222",
        ];
        for name in names {
            let _ = person
                .line(&format!("start -q {name}"))
                .run()
                .expect_code(0);
        }
        let _ = person
            .line("stop -q mcp-abcdefghjk call-abcdefghjk call-me mcp-fresh22222")
            .run()
            .expect_code(0);
        for name in names {
            let hours = if name.contains("fresh") { 23 } else { 25 };
            age(person, name, Duration::from_hours(hours));
        }
        let list = person.line("list").run().expect_code(0).out();
        for (name, stays) in names.iter().zip([false, false, true, true, true]) {
            assert_eq!(list.contains(name), stays, "{name}: {list}");
        }
        let _ = person.line("kill --all").run().expect_code(0);
        person.assert_nothing_left();
    });
}
