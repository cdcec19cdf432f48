//! Upkeep of sandboxes in somebody else's machine: what their link carried, their end when nobody
//! uses them, and checkpoints that the service keeps.

use serde_json::Value;
use std::fs;
use std::time::Duration;
use testkit::{Person, RemoteService, SERVICE_TOKEN};

#[test]
fn info_tells_what_the_link_carried_and_how_often_it_was_opened_again() {
    RemoteService::each(|service, person| {
        // Bytes that do not become fewer on the way.
        let mut seed = 1_u32;
        let noise = (0..50_000).map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        });
        person.write("project/a", noise.collect::<Vec<u8>>());
        let line = |line: &str| person.line(line).env(service.variable, SERVICE_TOKEN);
        let link = || {
            let info = line("info far --json").run().expect_code(0);
            let info: Value = serde_json::from_slice(&info.stdout).unwrap();
            info["data"]["report"]["link"].clone()
        };
        let _ = service.line(person, "start", "far").run().expect_code(0);
        let before = link();
        assert_eq!(before["reconnects"], 0, "{before}");
        let is_above = |stats: &Value, direction: &str, least: u64| {
            let traffic = &stats[direction];
            traffic["frames"].as_u64() > Some(1) && traffic["bytes"].as_u64() > Some(least)
        };
        assert!(is_above(&before, "sent", 50_000), "{before}");
        assert!(is_above(&before, "received", 12), "{before}");

        let _ = line("exec far -- cat a").run().expect_code(0);
        let after = link();
        assert!(is_above(&after, "received", 50_000), "{after}");
        if service.backend == "sprites" {
            service.server.control("POST", "/__contract/cut", "");
            let _ = line("exec far -- true").run().expect_code(0);
            assert_eq!(link()["reconnects"], 1);
        }
        let told = line("info far").run().expect_code(0);
        assert!(told.out().contains("\nlink: "), "{told}");

        let _ = line("kill far").run().expect_code(0);
        let _ = person.line("start near").run().expect_code(0);
        let near = person.line("info near --json").run().expect_code(0);
        let near: Value = serde_json::from_slice(&near.stdout).unwrap();
        assert_eq!(near["data"]["report"]["link"], Value::Null);
        let _ = person.line("kill near").run().expect_code(0);
        person.assert_nothing_left();
    });
}

#[test]
fn a_sandbox_that_nobody_uses_is_stopped_and_goes_on_with_its_files() {
    RemoteService::each(|service, person| {
        person.write("project/a", "1\n");
        let line = |line: &str| person.line(line).env(service.variable, SERVICE_TOKEN);
        let state = || {
            let list = line("list --json").run().expect_code(0);
            let list: Value = serde_json::from_slice(&list.stdout).unwrap();
            list["data"]["sandboxes"][0]["state"].clone()
        };
        let idle = format!("far --{}-idle 1s", service.backend);
        let _ = service.line(person, "start", &idle).run().expect_code(0);
        let command = "echo 2 >>a; until test -e done; do sleep 0.1; done >/dev/null 2>&1 & true";
        let _ = line("exec --keep-background far -- sh -c")
            .args([command])
            .run()
            .expect_code(0);
        // A command that runs keeps it, however long nobody is connected.
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!(state(), "ready");
        let _ = line("exec far -- touch done").run().expect_code(0);
        assert!(testkit::wait_until(Duration::from_mins(1), || {
            state() == "stopped"
        }));
        let told = line("info far").run().expect_code(0);
        assert!(told.out().contains("no command ran for 1 s"), "{told}");
        assert!(service.holds("glovebox-far"), "its files are gone");
        let _ = line("start far").run().expect_code(0);
        let read = line("exec far -- cat a").run().expect_code(0);
        assert_eq!(read.out(), "1\n2\n");
        let _ = line("kill far").run().expect_code(0);
        assert!(!service.holds("glovebox-far"), "its files are left");
        person.assert_nothing_left();

        for wrong in ["0s", "1", "soon"] {
            let start = format!("far --{}-idle {wrong}", service.backend);
            let start = service.line(person, "start", &start).run();
            assert_ne!(start.code, 0, "{start}");
            assert!(start.err().contains("such as 10m"), "{start}");
        }
    });
}

#[test]
fn a_checkpoint_of_the_service_brings_files_back_and_takes_no_push_for_a_change() {
    Person::each(|person| {
        let service = RemoteService::sprites();
        person.write("project/a", "1\n");
        let _ = service.line(person, "start", "far").run().expect_code(0);
        let line = |text: &str| person.line(text).run();
        let exec = |script: &str| {
            let ran = person
                .line("exec --keep-background far -- sh -c")
                .args([script])
                .run();
            ran.expect_code(0).out()
        };
        let json = |text: &str| -> Value {
            let ran = line(text).expect_code(0);
            serde_json::from_slice(&ran.stdout).unwrap()
        };
        let _ = exec("echo 2 >>a; sleep 600 >/dev/null 2>&1 & true");
        let made = json("checkpoint far --comment before --json");
        let made = &made["data"]["checkpoint"];
        let id = made["id"].as_str().unwrap().to_owned();
        assert_eq!(made["comment"], "before");
        assert!(made["created_unix_ms"].as_u64() > Some(1_600_000_000_000));
        let running = || json("info far --json")["data"]["jobs"].to_string();
        assert!(running().contains("background"), "{}", running());

        person.write("project/a", "3\n");
        person.write("project/b", "pushed\n");
        let _ = exec("echo 1 >a");
        let _ = line("push far").expect_code(0);
        let _ = exec("cat b; echo bad >n; rm a");
        let restored = line(&format!("restore far {id}")).expect_code(0);
        assert!(
            restored.err().contains("is back at checkpoint"),
            "{restored}"
        );
        assert_eq!(exec("cat a; ls; echo $((1 + 1))"), "1\n2\na\n2\n");
        assert!(!running().contains("background"), "{}", running());

        // What was pushed after the checkpoint is the user's, and no deletion of the sandbox.
        let diff = line("diff far --stat").expect_code(0);
        assert!(diff.out().contains("1 file changed"), "{diff}");
        let pull = line("pull far");
        assert!(pull.err().contains("conflict"), "{pull}");
        let read = |name: &str| fs::read_to_string(person.project().join(name)).unwrap();
        assert_eq!(
            (read("a").as_str(), read("b").as_str()),
            ("3\n", "pushed\n")
        );

        let list = json("checkpoints far --json");
        assert_eq!(list["data"]["current"], id.as_str(), "{list}");
        assert_eq!(list["data"]["checkpoints"].as_array().unwrap().len(), 1);
        let again = json("checkpoint far --json");
        assert_eq!(again["data"]["checkpoint"]["parent"], id.as_str());

        for (command, said) in [
            ("restore far v99".to_owned(), "there is no checkpoint"),
            (format!("checkpoint delete far {id}"), "deleted there"),
            (format!("fork --from {id} far near"), "no second machine"),
        ] {
            let refused = line(&command);
            assert_ne!(refused.code, 0, "{refused}");
            let told = refused.err();
            assert!(told.contains(said) && told.contains("hint:"), "{told}");
        }
        assert_eq!(exec("echo lives"), "lives\n");
        let _ = line("stop far").expect_code(0);
        let refused = line(&format!("restore far {id}"));
        assert!(refused.err().contains("glovebox start far"), "{refused}");
        let kill = person.line("kill far").env(service.variable, SERVICE_TOKEN);
        let _ = kill.run().expect_code(0);
        assert!(!service.holds("-far-"), "its machine is left");
        person.assert_nothing_left();
    });
}

#[test]
fn a_restore_whose_end_is_unknown_is_done_again_by_the_next_start() {
    Person::each(|person| {
        let service = RemoteService::sprites_with(&["--broken-restores", "1"]);
        person.write("project/a", "1\n");
        let _ = service.line(person, "start", "far").run().expect_code(0);
        let line = |text: &str| person.line(text).env(service.variable, SERVICE_TOKEN).run();
        let _ = line("exec far -- cp a b").expect_code(0);
        let _ = line("checkpoint far").expect_code(0);
        let _ = line("exec far -- rm b").expect_code(0);
        let restore = line("restore far v0");
        assert_ne!(restore.code, 0, "{restore}");
        assert!(
            restore.err().contains("before it was complete"),
            "{restore}"
        );
        let is_stopped = || line("list").out().contains("stopped");
        assert!(testkit::wait_until(Duration::from_secs(30), is_stopped));
        let restores = || {
            let journal = service.server.journal();
            let requests = journal["requests"].as_array().unwrap().clone();
            let restores = requests
                .iter()
                .filter(|line| line.to_string().contains("/restore"));
            restores.count()
        };
        assert_eq!(restores(), 1);
        let _ = line("start far").expect_code(0);
        assert_eq!(restores(), 2);
        assert_eq!(line("exec far -- cat b").expect_code(0).out(), "1\n");
        let _ = line("kill far").expect_code(0);
        person.assert_nothing_left();
    });
}
