//! The isolation report against what an independent program reads inside.

use crate::arena::Arena;
use crate::script::{perl, sh_ok};
use glovebox_spec::{LimitState, Net};
use testkit::Home;

/// Each line of the report is what a command finds -> the same.
#[test]
fn probe_64_report_truth() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let report = sandbox.report().expect("a report");
        let facts = sandbox.facts().expect("facts");
        let status = sh_ok(sandbox, "cat /proc/self/status");
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"))
                .unwrap_or_else(|| panic!("{shape:?}: no {name} in {status}"))
                .to_owned()
        };
        let hex = |name: &str| u64::from_str_radix(&field(name), 16).expect("a number");
        // The guest may signal commands, whose user id may be another; they have nothing.
        assert_eq!((facts.cap_effective, hex("CapEff")), (1 << 5, 0));
        assert_eq!(facts.cap_bounding, hex("CapBnd"));
        assert_eq!(facts.no_new_privs, field("NoNewPrivs") == "1");
        assert_eq!(facts.seccomp_mode.to_string(), field("Seccomp"));
        assert_eq!(Some(facts.uid.to_string()).as_deref(), field("Uid").split('\t').next());
        assert_eq!(report.identity.inside_uid, Some(facts.uid));
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release");
        assert_eq!(report.kernel, kernel.trim());
        // The uid on this machine is what the host sees on a file made inside.
        let found = perl(
            sandbox,
            r#"opendir(D, '/proc/self/fd'); my $p = "\0" x 8;
               try('mount', 'mount', 'none', '/tmp', 'tmpfs', 0, 0); try('vsock', 'socket', 40, 1, 0); try('userns', 'unshare', 0x10000000);
               found('map', join ' ', split ' ', slurp('/proc/self/uid_map'));"#,
        );
        assert_eq!(facts.mount_denied, found.get("mount") != "ok");
        assert_eq!(facts.vsock_denied, found.get("vsock") != "ok");
        assert_eq!(facts.userns_denied, found.get("userns") != "ok");
        let map: Vec<u32> = found.get("map").split(' ').filter_map(|word| word.parse().ok()).collect();
        if let Some((first, count)) = report.identity.range {
            // Read inside, the outer id shows as the reader's own view; inner ids and count are exact.
            assert_eq!((map[0], map[2]), (0, count), "{shape:?}");
            assert_eq!(report.identity.outside_uid, Some(first + 1000));
        } else {
            assert_eq!(map.len() % 3, 0);
        }
        let line = |name: &str| {
            report.walls.iter().find(|wall| wall.name == name).unwrap_or_else(|| panic!("no wall {name}"))
        };
        let wall = |name: &str| line(name).state;
        let detail = |name: &str| line(name).detail.clone();
        assert_eq!(wall("network"), LimitState::Enforced);
        assert_eq!(facts.interfaces, ["lo"], "{shape:?}");
        assert!(detail("network").contains("interfaces inside: lo;"), "{}", detail("network"));
        if facts.landlock_abi > 0 {
            assert_eq!(wall("landlock"), LimitState::Enforced);
            assert!(detail("landlock").contains("was refused"), "{}", detail("landlock"));
        }
        assert_eq!(wall("syscalls"), LimitState::Enforced);
        assert_eq!(wall("capabilities"), LimitState::Enforced);
        assert_eq!(facts.mounts.len(), sh_ok(sandbox, "cat /proc/self/mountinfo").lines().count(), "{shape:?}");
    });
}

/// The report owns up to a wall that is not there.
#[test]
fn shared_network_is_reported() {
    let arena = Arena::new();
    let sandbox = arena.with(|spec| spec.jail.net = Net::Host);
    let report = sandbox.report().expect("a report");
    let network = report
        .walls
        .iter()
        .find(|wall| wall.name == "network")
        .expect("a line on the network");
    assert_eq!(network.state, LimitState::Absent);
    let facts = sandbox.facts().expect("facts");
    let interfaces = format!("interfaces inside: {}", facts.interfaces.join(", "));
    assert!(network.detail.ends_with(&interfaces), "{network:?}");
    let is_admitted = report
        .degraded
        .iter()
        .any(|line| line.contains("abstract Unix sockets"));
    assert_eq!(is_admitted, facts.landlock_abi < 6, "{:?}", report.degraded);
    let own = std::fs::read_link("/proc/self/ns/net").expect("the host's own");
    assert_eq!(
        sh_ok(&sandbox, "readlink /proc/self/ns/net").trim(),
        own.to_string_lossy()
    );
}

/// The id a file gets on the host's disk is the one in the report.
#[test]
fn reported_id_is_the_id_on_disk() {
    use std::os::unix::fs::MetadataExt;
    let arena = Arena::new();
    let sandbox = arena.sandbox();
    sh_ok(&sandbox, "echo mine > /workspace/mine");
    let file = sandbox.dir().join("layers/workspace-upper/mine");
    let meta = std::fs::symlink_metadata(&file).expect("the file in the layer");
    assert_eq!(
        Some(meta.uid()),
        sandbox.report().expect("a report").identity.outside_uid
    );
    if testkit::is_root() {
        assert_ne!(meta.uid(), 0);
    }
}

/// A run whose limits the kernel does not hold says so, once. Twin: one whose limits it holds says nothing.
#[test]
fn weak_limits_are_said_once() {
    let home = Home::new();
    let report = home.root().join("report.json");
    let path = report.to_string_lossy().into_owned();
    let run = |args: &[&str]| {
        let ran = home.glovebox(args.iter().copied()).run().expect_code(0);
        ran.err().contains("limits here: ")
    };
    assert!(
        !run(&["run", "-q", "--report", &path, "--", "true"]),
        "said in spite of -q"
    );
    let text = std::fs::read_to_string(&report).expect("the report");
    let facts: serde_json::Value = serde_json::from_str(&text).expect("the report is JSON");
    let limits = facts
        .get("limits")
        .or_else(|| facts["report"].get("limits"));
    let limits = limits
        .and_then(|limits| limits.as_array())
        .expect("limits in the report");
    let is_weak = limits
        .iter()
        .any(|limit| limit["kind"] != "disk" && limit["state"] != "enforced");
    assert_eq!(run(&["run", "--", "true"]), is_weak);
    assert!(!run(&["run", "--", "true"]), "said twice");
    // Another set of limits is another line.
    assert_eq!(run(&["run", "--pids", "none", "--", "true"]), is_weak);
    assert!(!run(&[
        "run", "--pids", "none", "--memory", "none", "--cpus", "none", "--", "true"
    ]));
}
