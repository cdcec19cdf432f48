//! Upkeep of sandboxes in somebody else's machine: what their link carried.

use serde_json::Value;
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
