//! Upkeep of sandboxes in somebody else's machine: what their link carried, and their end when nobody
//! uses them.

use serde_json::Value;
use std::time::Duration;
use testkit::{RemoteService, SERVICE_TOKEN};

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
