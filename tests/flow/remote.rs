//! Work in somebody else's machine, by the backends `sprites` and `aio`, against servers with the services' contracts that
//! run commands for real.

use super::workspace::on_the_host;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};
use std::time::Duration;
use testkit::{Person, RemoteService, SERVICE_TOKEN};

#[test]
fn changes_come_back_and_what_was_made_there_goes() {
    RemoteService::each(|service, person| {
        let binary: Vec<u8> = (0..200_000_u32).map(|n| (n * 7 + n / 251) as u8).collect();
        person.write("project/data", &binary);
        person.write("project/.env", "SECRET=1\n");
        let script = "test ! -e .env || exit 9; cat data data >twice; rm data; echo out; echo err >&2; exit 3";
        let ran = service
            .line(person, "run", "--apply auto -- sh -c")
            .args([script])
            .run()
            .expect_code(3);
        assert_eq!(ran.out(), "out\n");
        assert!(ran.err().contains("err\n"), "{ran}");
        let twice = fs::read(person.project().join("twice")).unwrap();
        assert!(twice == [binary.clone(), binary].concat());
        assert!(!person.project().join("data").exists());
        assert!(!service.holds("glovebox-run"), "the copy is still there");
        person.assert_nothing_left();
    });
}

#[test]
fn what_nobody_decided_about_is_kept_here() {
    RemoteService::each(|service, person| {
        person.write("project/old/a", "a\n");
        person.write("project/old/b", "b\n");
        person.write("project/gone", "gone\n");
        person.write("project/was-dir/x", "x\n");
        let script = "rm -r old was-dir gone; echo file >was-dir; mkdir -p new/deep; echo n >new/deep/n; ln -s n \
                      new/deep/link; echo run >tool; chmod +x tool";
        let ran = service
            .line(person, "run", "-- sh -c")
            .args([script])
            .run()
            .expect_code(0);
        assert!(ran.err().contains("parked for a day"), "{ran}");
        assert!(!service.holds("glovebox-run"), "the copy is still there");
        assert!(person.project().join("gone").exists());
        let list = person.line("list --json").run().expect_code(0);
        let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
        let name = list["data"]["sandboxes"][0]["name"]
            .as_str()
            .unwrap()
            .to_owned();
        let ran = person
            .line(&format!("diff {name} --stat"))
            .run()
            .expect_code(0);
        assert!(ran.out().contains("new/deep/n"), "{ran}");
        let _ = person.line(&format!("pull {name}")).run().expect_code(0);
        let project = person.project();
        for gone in ["old", "gone"] {
            assert!(!project.join(gone).exists(), "{gone}");
        }
        assert_eq!(fs::read(project.join("was-dir")).unwrap(), b"file\n");
        assert_eq!(fs::read(project.join("new/deep/link")).unwrap(), b"n\n");
        let tool = fs::metadata(project.join("tool")).unwrap();
        assert_eq!(tool.permissions().mode() & 0o111, 0o111);
        let _ = person.line(&format!("kill {name}")).run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_named_sandbox_is_used_by_many_commands_and_goes_when_it_is_killed() {
    RemoteService::each(|service, person| {
        person.write("project/a", "1\n");
        let _ = service.line(person, "start", "far").run().expect_code(0);
        let script = "exec far -- sh -c";
        let write = person
            .line(script)
            .args(["echo 2 >>a; pwd; echo $SPRITES_TOKEN$AIO_API_KEY"]);
        let ran = write.run().expect_code(0);
        assert!(ran.out().ends_with("/glovebox-far\n\n"), "{ran}");
        let ran = person.line("info far --json").run().expect_code(0);
        assert!(!ran.out().contains("enforced"), "{ran}");
        let ran = person.line("list").run().expect_code(0);
        assert!(ran.out().contains(service.backend), "{ran}");
        let _ = person.line("pull far").run().expect_code(0);
        assert_eq!(fs::read(person.project().join("a")).unwrap(), b"1\n2\n");
        let _ = person.line("kill far").run().expect_code(0);
        assert!(!service.holds("glovebox-far"), "the copy is still there");
        person.assert_nothing_left();
    });
}

#[test]
fn a_service_that_dies_ends_the_run_as_lost_and_nothing_is_done_here() {
    RemoteService::each(|service, person| {
        person.write("project/a", "1\n");
        let words = ["run", "--reconnect", "3s", "--apply", "auto"];
        let script = "echo begun; echo 2 >>a; sleep 600; echo >done-here";
        let mut running: Child = person
            .program(person.binary())
            .args(words)
            .args(["--backend", service.backend, "--base-url"])
            .args([service.server.url(), "--", "sh", "-c", script])
            .env(service.variable, SERVICE_TOKEN)
            .current_dir(person.project())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        let mut lines = BufReader::new(running.stdout.take().unwrap());
        lines.read_line(&mut first).unwrap();
        // Output is live: the command is far from its end.
        assert_eq!(first, "begun\n");
        service.server.kill();
        let ended = running.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(125), "{told}");
        assert!(told.contains("did not come back within 3 s"), "{told}");
        assert!(told.contains("is still on that machine"), "{told}");
        assert_eq!(fs::read(person.project().join("a")).unwrap(), b"1\n");
        assert!(!person.project().join("done-here").exists());
        // What was done there is not thrown away.
        assert!(service.holds("glovebox-run"));
    });
}

#[test]
fn a_stopped_sandbox_keeps_its_files_there_and_goes_on_with_them() {
    RemoteService::each(|service, person| {
        person.write("project/a", "1\n");
        let exec = |script: &str, code: u8| {
            let exec = person.line("exec far -- sh -c").args([script]);
            let exec = exec.env(service.variable, SERVICE_TOKEN);
            exec.run().expect_code(code.into())
        };
        let line = |line: &str| person.line(line).env(service.variable, SERVICE_TOKEN);
        let start = service.line(person, "start", "far --reconnect 1s");
        let _ = start.run().expect_code(0);
        let _ = exec("echo 2 >>a; echo new >n; sleep 600 & true", 0);
        let stopped = line("stop far").run().expect_code(0);
        assert!(stopped.err().contains("is stopped"), "{stopped}");
        assert!(service.holds("glovebox-far"));
        // Its changes are seen without a start that somebody asked for, and it is stopped again after that.
        let diff = line("diff far --stat").run().expect_code(0);
        assert!(diff.out().contains("2 files changed"), "{diff}");
        let list = line("list").run().expect_code(0);
        assert!(list.out().contains("stopped"), "{list}");
        let start = line("start far").run().expect_code(0);
        assert!(start.err().contains("with the files it had"), "{start}");
        assert_eq!(exec("cat a n", 0).out(), "1\n2\nnew\n");

        // As a machine that loses power on this side.
        let list = line("list --json").run().expect_code(0);
        let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
        let supervisor = list["data"]["sandboxes"][0]["pid"].to_string();
        let killed = std::process::Command::new("kill")
            .args(["-9", &supervisor])
            .status();
        assert!(killed.unwrap().success());
        let is_lost = || line("list").run().out().contains("lost");
        assert!(testkit::wait_until(Duration::from_secs(30), is_lost));
        let _ = line("pull far").run().expect_code(0);
        assert_eq!(fs::read(person.project().join("a")).unwrap(), b"1\n2\n");
        assert_eq!(fs::read(person.project().join("n")).unwrap(), b"new\n");
        // Without a token it is neither reached nor forgotten.
        let refused = person.line("kill far").run().expect_code(3);
        assert!(!refused.err().is_empty() && service.holds("glovebox-far"));
        let _ = line("kill far").run().expect_code(0);
        assert!(!service.holds("glovebox-far"), "its files are left");
        person.assert_nothing_left();
    });
}

#[test]
fn files_that_are_gone_there_are_no_deletions_here() {
    RemoteService::each(|service, person| {
        person.write("project/a", "1\n");
        let line = |line: &str| person.line(line).env(service.variable, SERVICE_TOKEN);
        let _ = service.line(person, "start", "far").run().expect_code(0);
        let _ = line("stop far").run().expect_code(0);
        service.lose_files("glovebox-far");
        let pull = line("pull far").run();
        assert_ne!(pull.code, 0, "{pull}");
        assert!(person.project().join("a").exists());
        let _ = line("kill far").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_named_sandbox_takes_every_command_or_says_why_not() {
    RemoteService::each(|service, person| {
        person.write("project/a", "1\n");
        let _ = service.line(person, "start", "far").run().expect_code(0);
        let line = |line: &str| person.line(line).env(service.variable, SERVICE_TOKEN);
        let done = |text: &str| line(text).run().expect_code(0);
        person.write("project/b", "pushed\n");
        let _ = done("push far");
        assert_eq!(done("exec far -- cat b").out(), "pushed\n");
        person.write("up", "up\n");
        let up = person.place().root().join("up");
        let _ = line("cp")
            .args([up.to_str().unwrap(), "far:up"])
            .run()
            .expect_code(0);
        let back = person.project().join("back");
        let _ = line("cp far:up")
            .args([back.to_str().unwrap()])
            .run()
            .expect_code(0);
        assert_eq!(fs::read(&back).unwrap(), b"up\n");
        let logs = done("logs far 1");
        assert_eq!(logs.out(), "pushed\n");
        let info = done("info far --json");
        let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
        let can = &info["data"]["capabilities"];
        assert_eq!(
            (&can["place"], &can["files"]),
            (&"elsewhere".into(), &"copied".into())
        );
        // Sprites has checkpoints of its own.
        let refused: &[&str] = match service.backend {
            "sprites" => &[],
            _ => &["checkpoint far", "restore far c1", "fork far near"],
        };
        for command in refused {
            let refused = line(command).run();
            assert_ne!(refused.code, 0, "{refused}");
            let told = refused.err();
            assert!(
                told.contains("no layers on disk") && told.contains("hint:"),
                "{told}"
            );
        }
        let _ = done("kill far");
        assert!(!service.holds("glovebox-far"), "its files are left");
        person.assert_nothing_left();
    });
}

#[test]
fn tools_work_on_the_copy() {
    RemoteService::each(|service, person| {
        person.write("project/sub/a", "one\n");
        let call = |tool: &str, arguments: &str| {
            person
                .glovebox(["call", tool, arguments])
                .env("GLOVEBOX_BACKEND", service.backend)
                .env("GLOVEBOX_BASE_URL", service.server.url())
                .env(service.variable, SERVICE_TOKEN)
                .run()
        };
        let read = call("Read", r#"{"path": "sub/a"}"#).expect_code(0);
        assert!(read.out().contains("one"), "{read}");
        let found = call("Glob", r#"{"pattern": "**/a"}"#).expect_code(0);
        assert!(found.out().contains("sub/a"), "{found}");
        let bash = call("Bash", r#"{"command": "cat sub/a; echo two > b"}"#).expect_code(0);
        assert!(bash.out().contains("one"), "{bash}");
        let list = person.line("list --json").run().expect_code(0);
        let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
        // Nothing was changed by the first two, so their sandboxes went.
        assert_eq!(list["data"]["sandboxes"].as_array().unwrap().len(), 1);
        let name = list["data"]["sandboxes"][0]["name"].as_str().unwrap();
        let line = |line: &str| person.line(line).env(service.variable, SERVICE_TOKEN);
        let _ = line(&format!("pull {name}")).run().expect_code(0);
        assert_eq!(fs::read(person.project().join("b")).unwrap(), b"two\n");
        let _ = line(&format!("kill {name}")).run().expect_code(0);
        assert!(!service.holds("glovebox-call"), "a directory is left");
        person.assert_nothing_left();
    });
}

#[test]
fn commits_made_elsewhere_come_back() {
    RemoteService::each(|service, person| {
        let host = |script: &str| on_the_host(person, &person.project(), script);
        let make = "git init -q -b main && git config user.name T && git config user.email t@example.org && \
                    echo 1 >a && git add a && git commit -qm one && echo before >>a && git stash -q";
        host(make);
        let script = "echo 2 >>a; git commit -qam inside; git checkout -qb other; echo 3 >>a; git commit -qam more; \
                      git checkout -q -; echo 4 >>a; git stash -q; echo 5 >new";
        let ran = service.line(person, "run", "-- sh -c").args([script]);
        let ran = ran.run().expect_code(0);
        assert!(ran.err().contains("1 branch (other) and 1 stash"), "{ran}");
        assert!(!service.holds("glovebox-run"), "the copy is still there");
        let list = person.line("list --json").run().expect_code(0);
        let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
        let name = list["data"]["sandboxes"][0]["name"].as_str().unwrap();
        let pull = person.line(&format!("pull {name} --commits --all"));
        let _ = pull.run().expect_code(0);
        let show = |revision: &str| host(&format!("git show {revision}"));
        let branch = format!("sandbox/{name}");
        assert_eq!(show(&format!("{branch}:a")), "1\n2\n");
        assert_eq!(show(&format!("{branch}@other:a")), "1\n2\n3\n");
        assert_eq!(show(&format!("{branch}@stash-0:a")), "1\n2\n4\n");
        // The user's own stash is no work of the sandbox.
        let branches = host("git branch --list 'sandbox/*'");
        assert_eq!(branches.lines().count(), 3, "{branches}");
        assert_eq!(host("git stash list").lines().count(), 1);
        let _ = person.line(&format!("kill {name}")).run().expect_code(0);

        let script = "echo 6 >b; git add b; git commit -qm last";
        let ran = service.line(person, "run", "--apply auto -- sh -c");
        let ran = ran.args([script]).run().expect_code(0);
        assert!(ran.err().contains("1 commit on the new branch"), "{ran}");
        assert_eq!(fs::read(person.project().join("b")).unwrap(), b"6\n");
        let list = person.line("list").run().expect_code(0);
        assert!(list.err().contains("there are no sandboxes"), "{list}");
    });
}

#[test]
fn a_copy_has_the_commit_of_head_and_more_only_when_asked() {
    RemoteService::each(|service, person| {
        let host = |script: &str| on_the_host(person, &person.project(), script);
        // Two branches with two commits each, a tag, a remote branch, a stash, a staged file, a
        // submodule.
        let make = "mkdir ../lib && (cd ../lib && git init -q -b main && git config user.name T && git config \
                    user.email t@example.org && echo l1 >l && git add l && git commit -qm l1 && echo l2 >l && \
                    git commit -qam l2) && \
                    git init -q -b main && git config user.name T && git config user.email t@example.org && \
                    echo 1 >a && git add a && git commit -qm one && git branch side && \
                    git -c protocol.file.allow=always submodule --quiet add ../lib sub && git commit -qm sub && \
                    git config remote.origin.url https://user:hush@host.example/x && \
                    echo 2 >a && git commit -qam two && git tag v1 HEAD~1 && \
                    git update-ref refs/remotes/origin/main HEAD~1 && \
                    echo s >>a && git stash -q && echo staged >b && git add b && \
                    echo old >gone && git add gone && git commit -qm gone && git rm -q gone && git commit -qm rm";
        host(make);
        host("echo more >c && git add c");
        // Only the history has the content of the file that was deleted.
        let gone = host("git rev-parse HEAD~1:gone");
        let asked = "git status --porcelain; git log --format=%s; git for-each-ref --format='%(refname)'; \
                     git -C sub status --porcelain; git -C sub log --format=%s; git config remote.origin.url; \
                     git fsck --full 2>&1 | grep -v dangling; \
                     git cat-file -e $1 2>&- && echo has gone; git commit -qm inside && git show -s --format=%s";
        let run = |args: &str, script: &str| {
            let line = service.line(person, "run", &format!("{args} -- sh -c"));
            line.args([script, "sh", gone.trim()]).run().expect_code(0)
        };
        let head = run("", asked);
        let expected = "A  c\nrm\nrefs/heads/main\nl2\n";
        assert!(head.out().starts_with(expected), "{head}");
        assert!(!head.out().contains("hush"), "{head}");
        assert!(head.out().ends_with("inside\n"), "{head}");
        for word in ["missing", "error", "has gone"] {
            assert!(!head.out().contains(word), "{word}: {head}");
        }
        assert!(head.err().contains("1 commit"), "{head}");

        let full = run("--git full", asked);
        let expected = "A  c\nrm\ngone\ntwo\nsub\none\nrefs/heads/main\nrefs/heads/side\nrefs/tags/v1\nl2\nl1\n";
        assert!(full.out().starts_with(expected), "{full}");
        assert!(full.out().contains("has gone"), "{full}");

        let here = person.line("run --git full -- true").run().expect_code(125);
        assert!(here.err().contains("--git has no meaning"), "{here}");

        // What is committed there comes back on top of the commit that was sent.
        let commit = "echo 9 >d && git add d && git commit -qm inside && git stash list";
        let ran = run("--apply auto", commit);
        assert_eq!(ran.out(), "");
        assert!(
            ran.err().contains("commits on the new branch")
                || ran.err().contains("commit on the new branch"),
            "{ran}"
        );
        let on_top = host(
            "git log --format=%s -2 $(git for-each-ref --format='%(refname)' 'refs/heads/sandbox/*')",
        );
        assert_eq!(on_top, "inside\nrm\n");

        // A later push leaves the repository there as it is.
        let _ = service.line(person, "start", "far").run().expect_code(0);
        let line = |line: &str| person.line(line).env(service.variable, SERVICE_TOKEN);
        let exec = |script: &str| {
            line("exec far -- sh -c")
                .args([script])
                .run()
                .expect_code(0)
        };
        let _ = exec("git branch mine");
        host("git commit -qm later && echo pushed >e");
        let _ = line("push far").run().expect_code(0);
        assert_eq!(
            exec("git branch --list mine; cat e").out(),
            "  mine\npushed\n"
        );
        let diff = line("diff far --stat").run().expect_code(0);
        assert!(!diff.err().contains("commit"), "{diff}");
        assert!(!diff.out().contains(".git"), "{diff}");
        let _ = line("kill far").run().expect_code(0);
        for parked in parked_names(person) {
            let _ = line(&format!("kill {parked}")).run().expect_code(0);
        }
        person.assert_nothing_left();
    });
}

/// Names of the sandboxes that are there.
fn parked_names(person: &Person) -> Vec<String> {
    let list = person.line("list --json").run().expect_code(0);
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    let all = list["data"]["sandboxes"].as_array().unwrap().iter();
    all.map(|one| one["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn changes_that_were_fetched_before_a_loss_are_kept() {
    let person = Person::myself();
    let mut service = RemoteService::sprites();
    person.write("project/a", "1\n");
    let words = "run --reconnect 1s --apply auto --backend sprites --base-url";
    let mut running = person
        .program(person.binary())
        .args(words.split_whitespace())
        .args([service.server.url(), "--", "sh", "-c"])
        .arg("echo 2 >>a; echo begun; sleep 600")
        .env(service.variable, SERVICE_TOKEN)
        .current_dir(person.project())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut lines = BufReader::new(running.stdout.take().unwrap());
    lines.read_line(&mut first).unwrap();
    let sandboxes = person.place().state().join("sandboxes");
    let is_fetched = || {
        fs::read_dir(&sandboxes)
            .is_ok_and(|dirs| dirs.flatten().any(|dir| dir.path().join("synced").is_dir()))
    };
    assert!(testkit::wait_until(Duration::from_mins(2), is_fetched));
    service.server.kill();
    let ended = running.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(125), "{told}");
    assert!(told.contains("is kept here"), "{told}");
    assert_eq!(fs::read(person.project().join("a")).unwrap(), b"1\n");
    let list = person.line("list --json").run().expect_code(0);
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    let name = list["data"]["sandboxes"][0]["name"].as_str().unwrap();
    let _ = person.line(&format!("pull {name}")).run().expect_code(0);
    assert_eq!(fs::read(person.project().join("a")).unwrap(), b"1\n2\n");
}

#[test]
fn what_an_agent_changed_before_its_machine_was_lost_is_kept() {
    let person = Person::myself();
    let mut service = RemoteService::aio();
    person.write("project/a", "1\n");
    let command = "echo 2 >>a; sleep 600";
    let arguments = serde_json::json!({ "command": command, "timeout_ms": 600_000 });
    let call =
        serde_json::json!({ "kind": "call", "id": "c1", "name": "Bash", "arguments": arguments });
    let answer = serde_json::json!({ "type": "answered", "turn": 1, "parts": [call] });
    let model = person.write("model", answer.to_string());
    let mut running = person
        .program(person.binary())
        .args(["agent", "--sandbox=aio", "--reconnect", "1s", "--base-url"])
        .args([service.server.url(), "--apply", "auto", "--model"])
        .args([format!("replay:{}", model.display()).as_str(), "work"])
        .env(service.variable, SERVICE_TOKEN)
        .current_dir(person.project())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let sandboxes = person.place().state().join("sandboxes");
    let is_fetched = || {
        fs::read_dir(&sandboxes).is_ok_and(|dirs| {
            dirs.flatten()
                .any(|dir| dir.path().join("synced/a").is_file())
        })
    };
    let is_kept = testkit::wait_until(Duration::from_mins(2), is_fetched);
    if !is_kept {
        running.kill().unwrap();
    }
    service.server.kill();
    let ended = running.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(is_kept, "{told}");
    assert_eq!(fs::read(person.project().join("a")).unwrap(), b"1\n");
    let line = |line: &str| person.line(line).env(service.variable, SERVICE_TOKEN);
    let list = line("list --json").run().expect_code(0);
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    let name = list["data"]["sandboxes"][0]["name"]
        .as_str()
        .unwrap_or_default();
    assert!(!name.is_empty(), "{told}");
    let pull = line(&format!("pull {name}")).run().expect_code(0);
    assert!(pull.err().contains("cannot be reached"), "{pull}");
    assert_eq!(fs::read(person.project().join("a")).unwrap(), b"1\n2\n");
    let kill = line(&format!("kill {name}")).run().expect_code(0);
    assert!(kill.err().contains("may still hold"), "{kill}");
    person.assert_nothing_left();
}

#[test]
fn a_machine_that_was_left_is_listed_and_pruned() {
    RemoteService::each(|service, person| {
        let words = "run --reconnect 1s --apply auto --backend";
        let script = "echo begun; sleep 600";
        let mut running = person
            .program(person.binary())
            .args(words.split_whitespace())
            .args([service.backend, "--base-url", service.server.url()])
            .args(["--", "sh", "-c", script])
            .env(service.variable, SERVICE_TOKEN)
            .current_dir(person.project())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut first = String::new();
        let mut lines = BufReader::new(running.stdout.take().unwrap());
        lines.read_line(&mut first).unwrap();
        // As a machine that loses power.
        running.kill().unwrap();
        running.wait().unwrap();
        let variable = service.variable;
        let ask = |command: &str, rest: &str| service.line(person, command, rest);
        let line = |line: &str| person.line(line).env(variable, SERVICE_TOKEN);
        let _ = ask("start", "used").run().expect_code(0);
        let _ = ask("start", "idle").run().expect_code(0);
        let _ = line("stop idle").run().expect_code(0);
        let list = ask("list", "").run().expect_code(0);
        let claim = |name: &str| {
            let out = list.out();
            let row = out.lines().find(|row| row.contains(name));
            row.unwrap_or_else(|| panic!("{name}: {out}")).to_owned()
        };
        assert!(claim("-run-").contains("left"), "{list}");
        for kept in ["-used", "-idle"] {
            assert!(claim(kept).contains("in use"), "{list}");
        }
        let dry = ask("prune", "--dry-run").run().expect_code(0);
        assert_eq!(dry.out().lines().count(), 1, "{dry}");
        assert!(dry.out().contains("-run-"), "{dry}");
        assert!(service.holds("-run-"));
        let ran = ask("prune", "").run().expect_code(2);
        assert!(ran.err().contains("--yes"), "{ran}");
        let _ = ask("prune", "--yes").run().expect_code(0);
        assert!(!service.holds("-run-"), "it is still there");
        // Neither goes: one has a guest, the other's files may be all there is of the work.
        assert!(service.holds("-used") && service.holds("-idle"));
        // Who removes the stopped sandbox removes what the service has of it.
        let _ = line("prune --yes").run().expect_code(0);
        assert!(!service.holds("-idle"), "its files are left");
        let _ = line("kill used").run().expect_code(0);
        assert!(!service.holds("glovebox-used"), "its files are left");
        service.server.kill();
        let ran = service.line(person, "list", "").run().expect_code(1);
        assert!(ran.err().contains("hint:"), "{ran}");
        let native = person.line("prune --backend native").run().expect_code(3);
        assert!(native.err().contains("makes no machines"), "{native}");
    });
}

#[test]
fn nobody_takes_or_removes_a_directory_of_somebody_else_in_a_container() {
    let service = RemoteService::aio();
    let (mine, other) = (Person::myself(), Person::myself());
    other.write("project/theirs", "precious\n");
    let _ = service.line(&other, "start", "lab").run().expect_code(0);
    let refused = service.line(&mine, "start", "lab").run();
    assert_ne!(refused.code, 0, "{refused}");
    let told = refused.err();
    assert!(
        told.contains("was not made from here") && told.contains("another name"),
        "{told}"
    );
    // Nor by whatever is left of that here.
    let line = |person: &Person, line: &str| person.line(line).env(service.variable, SERVICE_TOKEN);
    let _ = line(&mine, "kill lab").run();
    let list = service.line(&mine, "list", "").run().expect_code(0);
    assert!(list.out().contains("not ours"), "{list}");
    let pruned = service.line(&mine, "prune", "--yes").run().expect_code(0);
    assert!(pruned.err().contains("only looks as if"), "{pruned}");
    let read = line(&other, "exec lab -- cat theirs").run().expect_code(0);
    assert_eq!(read.out(), "precious\n");
    let _ = line(&other, "kill lab").run().expect_code(0);
    assert!(!service.holds("glovebox-lab"), "its files are left");
    let _ = service.line(&mine, "start", "lab").run().expect_code(0);
    let _ = line(&mine, "kill lab").run().expect_code(0);
}

#[test]
fn what_a_service_cannot_do_is_refused_before_anything_is_made() {
    RemoteService::each(|service, person| {
        for (rest, said) in [
            ("--grant /usr", "--grant has no meaning"),
            ("--workspace overlay", "--workspace has no meaning"),
            ("--layers memory", "--layers has no meaning"),
            // A Sprite has two ways that are named, AIO has one.
            ("--carrier ssh", "--carrier "),
        ] {
            let ran = service
                .line(person, "run", &format!("{rest} -- true"))
                .run();
            let ran = ran.expect_code(125);
            assert!(ran.err().contains(said), "{ran}");
        }
        let wrong = service
            .line(person, "run", "-- true")
            .env(service.variable, "another");
        let ran = wrong.run().expect_code(125);
        assert!(!ran.err().contains("another"), "{ran}");
        assert!(ran.err().contains("does not accept the"), "{ran}");
        let native = format!("run --base-url {} -- true", service.server.url());
        let ran = person.line(&native).run().expect_code(125);
        assert!(ran.err().contains("--base-url has no meaning"), "{ran}");
        assert!(!service.holds("glovebox-"));
    });
    Person::each(|person| {
        let ran = person
            .line("run --backend aio -- true")
            .run()
            .expect_code(125);
        assert!(ran.err().contains("needs the address"), "{ran}");
        let ran = person
            .line("run --backend sprites -- true")
            .run()
            .expect_code(125);
        assert!(ran.err().contains("there is no token"), "{ran}");
        let plain = "run --backend sprites --base-url http://sprites.test -- true";
        let ran = person.line(plain).env("SPRITES_TOKEN", SERVICE_TOKEN).run();
        assert!(ran.expect_code(125).err().contains("plain http"));
    });
}
