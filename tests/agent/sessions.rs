//! Sessions: kept, taken up after a crash, forked, exported and replayed.

use super::{agent, last_results, unseen, until, with};
use serde_json::{Value, json};
use std::fs;
use std::process::Stdio;
use std::time::Duration;
use testkit::{ModelServer, Person, Step, wait_until};

#[test]
fn a_session_goes_on_after_the_agent_was_killed() {
    Person::each(|person| {
        let server = ModelServer::start([
            Step::call(
                "Write",
                r#"{"path":"before.txt","content":"written before\n"}"#,
            ),
            Step::call("Bash", r#"{"command":"sleep 60"}"#),
            Step::call("Bash", r#"{"command":"cat before.txt"}"#),
            Step::text("It was still there."),
        ]);
        let mut child = unseen(agent(person, &server, ["--sandbox"], "work"));
        until("the second call", || server.asked().len() == 2);
        std::thread::sleep(Duration::from_millis(500));
        child.kill().unwrap();
        child.wait().unwrap();
        let listed = person.line("sessions list --json").run().expect_code(0);
        let listed: Value = serde_json::from_str(&listed.out()).unwrap();
        assert_eq!(
            listed["data"]["sessions"][0]["state"], "interrupted",
            "{listed}"
        );

        let ran = with(
            person,
            &server,
            ["sessions", "resume", "last", "--apply", "auto"],
        )
        .run()
        .expect_code(0);
        assert!(ran.out().contains("It was still there."), "{ran}");
        let last = server.asked().last().unwrap().body.clone();
        assert!(last.contains("written before"), "{last}");
        insta::assert_snapshot!(last_results(&server)[1], @"[interrupted: the agent stopped while this call ran. It may have had its effect, in part or in full; look before you repeat it]");
        assert_eq!(
            fs::read_to_string(person.project().join("before.txt")).unwrap(),
            "written before\n"
        );
        person.assert_nothing_lives();
    });
}

/// Ends the supervisor of the one sandbox that runs.
fn kill_supervisor(person: &Person) {
    let told = person.line("list --json").run().expect_code(0).out();
    let told: Value = serde_json::from_str(&told).unwrap();
    let pid = told["data"]["sandboxes"][0]["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("the end of the sandbox", || {
        person.line("list --json").run().out().contains("\"lost\"")
    });
}

#[test]
fn a_sandbox_that_stopped_or_was_lost_comes_back_for_its_session() {
    let person = Person::myself();
    for keep in [&[][..], &["--keep", "mine"]] {
        let server = ModelServer::start([
            Step::call("Bash", r#"{"command":"echo one > one.txt"}"#),
            Step::call("Bash", r#"{"command":"echo two > two.txt"}"#),
            Step::call("Bash", r#"{"command":"cat one.txt two.txt"}"#),
            Step::text("Both."),
        ]);
        let args = ["--sandbox", "--max-turns", "1"]
            .iter()
            .chain(keep)
            .copied();
        let _ = agent(&person, &server, args, "work").run().expect_code(5);
        // One of our own has stopped by now; one with a name goes on until something ends it.
        if !keep.is_empty() {
            kill_supervisor(&person);
        }
        let ran = with(
            &person,
            &server,
            ["sessions", "resume", "last", "--apply", "auto"],
        )
        .run()
        .expect_code(0);
        assert!(ran.out().contains("Both."), "{ran}");
        let last = server.asked().last().unwrap().body.clone();
        assert!(last.contains("one\\ntwo"), "{last}");
        for name in ["one.txt", "two.txt"] {
            fs::remove_file(person.project().join(name)).unwrap();
        }
        let _ = person.line("kill --all --quiet").run();
    }
}

/// Whoever reads the events has gone before the first of them; as `head` goes.
fn assert_ends_without_a_reader(person: &Person, line: &str) {
    let mut child = person
        .line(line)
        .command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut status = None;
    let has_ended = wait_until(Duration::from_mins(1), || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if !has_ended {
        child.kill().unwrap();
    }
    let code = status.and_then(|status| status.code());
    assert_eq!(code, Some(141), "{line}");
}

#[test]
fn a_session_is_shown_exported_replayed_forked_and_forgotten() {
    let person = Person::myself();
    person.write("project/data.txt", "first\n");
    let server = ModelServer::start([
        Step::call("Read", r#"{"path":"data.txt"}"#),
        Step::call("Bash", r#"{"command":"wc -l < data.txt"}"#),
        Step::text("One line."),
        Step::text("Forked."),
    ]);
    let _ = agent(&person, &server, ["--sandbox"], "count")
        .run()
        .expect_code(0);
    let shown = person.line("sessions show last").run().expect_code(0).out();
    assert!(
        shown.contains("completed") && shown.contains("One line."),
        "{shown}"
    );
    let exported = person
        .line("sessions export last")
        .run()
        .expect_code(0)
        .out();
    for line in exported.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["version"], 1, "{line}");
    }

    // Offline: there is no server in these surroundings.
    let ran = person.line("replay last").run().expect_code(0);
    let compared = ran.said("came to the same", person.place().root());
    insta::assert_snapshot!(compared, @"glovebox: 2 calls came to the same");
    person.write("project/data.txt", "second\n");
    let ran = person.line("replay last --json").run().expect_code(1);
    let told: Value = serde_json::from_str(ran.out().lines().last().unwrap()).unwrap();
    assert_eq!(told["data"]["call"], 1, "{ran}");
    assert!(told["data"]["before"].as_str().unwrap().contains("first"));
    assert!(told["data"]["now"].as_str().unwrap().contains("second"));
    assert_eq!(told["data"]["changed_since"], json!(["data.txt"]), "{ran}");
    person.assert_nothing_lives();
    assert_ends_without_a_reader(&person, "replay last --json");
    person.assert_nothing_lives();

    // The export is a recording.
    person.write("home/recording.jsonl", &exported);
    let recording = format!(
        "replay:{}",
        person.place().home().join("recording.jsonl").display()
    );
    let ran = person
        .glovebox(["agent", "--sandbox", "--model", &recording, "again"])
        .run()
        .expect_code(0);
    assert!(ran.out().contains("One line."), "{ran}");

    let original = person
        .line("sessions list --json")
        .run()
        .expect_code(0)
        .out();
    let original: Value = serde_json::from_str(&original).unwrap();
    let original = original["data"]["sessions"][1]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let fork = person
        .glovebox(["sessions", "fork", &original])
        .run()
        .expect_code(0)
        .out();
    let fork = fork.trim();
    let nothing = with(&person, &server, ["sessions", "resume", fork])
        .run()
        .expect_code(2);
    insta::assert_snapshot!(nothing.failure(person.place().root()), @"
    error: session s-[RANDOM] was done: there is nothing to go on with
    hint: say what is to be done further: glovebox sessions resume s-[RANDOM] TASK
    ");
    let ran = with(&person, &server, ["sessions", "resume", fork, "and now?"])
        .run()
        .expect_code(0);
    assert!(ran.out().contains("Forked."), "{ran}");
    assert!(server.asked().last().unwrap().body.contains("One line."));

    let _ = person
        .glovebox(["sessions", "delete", fork, &original])
        .run()
        .expect_code(0);
    let ran = person
        .glovebox(["sessions", "show", fork])
        .run()
        .expect_code(6);
    insta::assert_snapshot!(ran.failure(person.place().root()), @"
    error: there is no session `s-[RANDOM]`
    hint: `glovebox sessions list` shows those there are
    ");
}

#[test]
fn a_fork_of_an_earlier_part_says_that_the_files_of_then_are_not_kept() {
    let person = Person::myself();
    person.write("project/data.txt", "first\n");
    let server = ModelServer::start([
        Step::call("Read", r#"{"path":"data.txt"}"#),
        Step::call("Write", r#"{"path":"new.txt","content":"x"}"#),
        Step::text("Done."),
        Step::text("Another way."),
    ]);
    let args = ["--sandbox", "--apply", "never"];
    let _ = agent(&person, &server, args, "work").run().expect_code(0);
    let exported = person.line("sessions export last").run().expect_code(0);
    let seq = |tool: &str| {
        let exported = exported.out();
        let mut events = exported
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let end = events.find(|event| event["type"] == "call_finished" && event["tool"] == tool);
        end.unwrap()["seq"].to_string()
    };
    let (read, write) = (seq("Read"), seq("Write"));
    // Nothing had been changed: the files are those of the project.
    let before = person
        .glovebox(["sessions", "fork", "last", "--at", &read])
        .run()
        .expect_code(0);
    let _ = person
        .glovebox(["sessions", "delete", before.out().trim()])
        .run()
        .expect_code(0);
    let refused = person
        .glovebox(["sessions", "fork", "last", "--at", &write])
        .run()
        .expect_code(2);
    insta::assert_snapshot!(refused.failure(person.place().root()), @"
    error: the files as they were at event 9 are not kept: event 9 may have changed some by then
    hint: pass --without-files to go on with the project as it is now; the model is told that its changes are gone
    ");
    assert_eq!(refused.out(), "", "{refused}");
    let forked = person
        .glovebox([
            "sessions",
            "fork",
            "last",
            "--at",
            &write,
            "--without-files",
        ])
        .run()
        .expect_code(0);
    let ran = with(
        &person,
        &server,
        ["sessions", "resume", forked.out().trim()],
    )
    .run()
    .expect_code(0);
    assert!(ran.out().contains("Another way."), "{ran}");
    let body: Value = serde_json::from_str(&server.asked().last().unwrap().body).unwrap();
    let messages = body["messages"].as_array().unwrap().iter();
    let told = messages
        .filter_map(|message| message["content"].as_str())
        .find(|words| words.contains("had changed in it"));
    insta::assert_snapshot!(told.unwrap(), @"[The sandbox you worked in is gone, with everything you had changed in it. You are in a new one, on the project as it is now: look before you go on.]");
    let _ = person.line("kill --all --quiet").run();
}

#[test]
fn replay_of_an_applied_session_names_its_files_and_plays_on_the_commit_of_then() {
    let person = Person::myself();
    person.write("project/a.txt", "x line\n");
    let git =
        "git init -q . && git add . && git -c user.name=x -c user.email=x@x.example commit -qm one";
    let shell = |line: &str| {
        let mut sh = person.program("sh");
        sh.args(["-c", line]).current_dir(person.project());
        assert!(sh.status().unwrap().success(), "{line}");
    };
    shell(git);
    let server = ModelServer::start([
        Step::call("Edit", r#"{"path":"a.txt","old":"x line","new":"y line"}"#),
        Step::text("Done."),
    ]);
    let _ = agent(&person, &server, ["--sandbox", "--apply", "auto"], "x")
        .run()
        .expect_code(0);
    let ran = person.line("replay last").run().expect_code(1);
    let said = ran.err();
    let note = said.lines().find(|line| line.contains("changed since"));
    let note = note.unwrap_or_else(|| panic!("{said}"));
    assert!(note.contains("changed since: a.txt; `"), "{note}");
    let mut commands = note.split('`').skip(1).step_by(2);
    let there = person.place().root().join("then").display().to_string();
    shell(&commands.next().unwrap().replace("DIR", &there));
    let replay = commands.next().unwrap().replace("DIR", &there);
    let replay = replay.strip_prefix("glovebox ").unwrap();
    let _ = person.line(replay).run().expect_code(0);
    person.assert_nothing_lives();
}

#[test]
fn a_replay_compares_the_right_calls_after_an_interrupted_one() {
    let person = Person::myself();
    let server = ModelServer::start([
        Step::call("Bash", r#"{"command":"echo first"}"#),
        Step::call("Bash", r#"{"command":"sleep 5"}"#),
        Step::call("Bash", r#"{"command":"cat data.txt"}"#),
        Step::text("Done."),
    ]);
    person.write("project/data.txt", "as it was\n");
    let mut child = unseen(agent(&person, &server, ["--sandbox"], "work"));
    until("the second call", || server.asked().len() == 2);
    std::thread::sleep(Duration::from_millis(500));
    child.kill().unwrap();
    child.wait().unwrap();
    let _ = with(&person, &server, ["sessions", "resume", "last"])
        .run()
        .expect_code(0);
    let ran = person.line("replay last --json").run().expect_code(0);
    let told: Value = serde_json::from_str(ran.out().lines().last().unwrap()).unwrap();
    assert_eq!(told["data"]["calls"], 2, "{told}");
    assert_eq!(told["data"]["interrupted_calls"], 1, "{told}");
    person.write("project/data.txt", "otherwise\n");
    let ran = person.line("replay last --json").run().expect_code(1);
    let told: Value = serde_json::from_str(ran.out().lines().last().unwrap()).unwrap();
    assert_eq!(told["data"]["call"], 2, "{told}");
    assert!(
        told["data"]["before"]
            .as_str()
            .unwrap()
            .contains("as it was")
    );
    assert!(told["data"]["now"].as_str().unwrap().contains("otherwise"));
    let _ = person.line("kill --all --quiet").run();
}

#[test]
fn a_sandbox_the_user_named_outlives_its_session_and_conflicts_are_told() {
    let person = Person::myself();
    person.write("project/data.txt", "first\n");
    let server = ModelServer::start([
        Step::call("Bash", r#"{"command":"echo inside > data.txt"}"#),
        Step::text("Changed."),
        Step::text("Again."),
    ]);
    // A name that looks like one of ours is the user's all the same.
    let args = ["--sandbox", "--keep", "agent-mine", "--apply", "never"];
    let _ = agent(&person, &server, args, "change").run().expect_code(0);
    person.write("project/data.txt", "outside\n");
    let resume = ["sessions", "resume", "last", "--apply", "auto", "again"];
    let ran = with(&person, &server, resume).run().expect_code(3);
    assert!(ran.out().contains("Again."), "{ran}");
    let data = person.project().join("data.txt");
    assert_eq!(fs::read_to_string(data).unwrap(), "outside\n");

    let ran = person.line("sessions delete last").run().expect_code(0);
    let told = ran.said("the sandbox agent-mine", person.place().root());
    insta::assert_snapshot!(told, @"glovebox: the sandbox agent-mine stays; `glovebox kill agent-mine` removes it");
    let ran = person
        .line("exec agent-mine -- cat data.txt")
        .run()
        .expect_code(0);
    assert_eq!(ran.out(), "inside\n", "{ran}");
    let _ = person.line("kill agent-mine").run().expect_code(0);
    person.assert_nothing_lives();
}

#[test]
fn a_sandbox_that_was_made_for_a_session_goes_with_it() {
    let person = Person::myself();
    person.write("project/data.txt", "first\n");
    let server = ModelServer::start([
        Step::call("Bash", r#"{"command":"echo inside > data.txt"}"#),
        Step::text("Changed."),
    ]);
    // Nobody is asked, so the changes wait in the sandbox.
    let _ = agent(&person, &server, ["--sandbox"], "change")
        .run()
        .expect_code(0);
    let sandboxes = || person.line("list --json").run().expect_code(0).out();
    assert!(sandboxes().contains("agent-"), "{}", sandboxes());
    let _ = person.line("sessions delete last").run().expect_code(0);
    assert!(!sandboxes().contains("agent-"), "{}", sandboxes());
    person.assert_nothing_lives();
}
