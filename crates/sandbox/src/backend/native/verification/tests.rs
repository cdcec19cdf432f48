//! Tests: an observation that fits the plan is accepted, and rejected if one fact is changed.

use super::*;
use glovebox_jail::facts::{EntryKind, HostFacts, RootEntry};
use glovebox_jail::plan::HostResources;
use glovebox_jail::stage0::observation::{LandlockTrial, LimitEntry};
use std::path::PathBuf;

fn namespaces(first: u64) -> Vec<NamespaceId> {
    (first..)
        .zip(observation::NAMESPACES)
        .map(|(inode, name)| NamespaceId {
            name: name.to_owned(),
            inode,
        })
        .collect()
}

fn plan(spec: &Isolation) -> Plan {
    let facts = HostFacts {
        is_privileged: true,
        root_entries: vec![RootEntry {
            name: "usr".to_owned(),
            kind: EntryKind::Directory,
        }],
        proc_covers: vec!["keys".to_owned()],
        ..HostFacts::default()
    };
    let place = HostResources {
        layers: "/state/layers".into(),
        skeleton: Some("/state/skeleton".into()),
        machine: None,
        slot: 0,
        frozen: Vec::new(),
        caches: Vec::new(),
        seed: None,
    };
    let mut plan = Plan::new(spec, &facts, &place).unwrap();
    plan.seal.processes = Some(100);
    plan
}

fn mount(target: &str, kind: &str, is_read_only: bool) -> MountEntry {
    MountEntry {
        target: PathBuf::from(target).into(),
        kind: kind.to_owned(),
        is_read_only,
        is_without_set_user_id: true,
        is_without_devices: !target.starts_with("/dev/"),
        is_private: true,
    }
}

fn honest(spec: &Isolation, plan: &Plan) -> SelfTest {
    let mut mounts = vec![
        mount("/usr", "ext4", true),
        mount("/usr/local", "ext4", true),
        mount("/", "overlay", false),
        mount("/proc", "proc", false),
        mount("/proc/sys", "proc", true),
        mount("/proc/keys", "tmpfs", true),
        mount("/dev", "tmpfs", true),
        mount("/workspace", "overlay", false),
    ];
    for node in [
        "null", "zero", "full", "random", "urandom", "tty", "pts", "shm",
    ] {
        mounts.push(mount(&format!("/dev/{node}"), "devtmpfs", false));
    }
    let limit = |resource: Resource, value| LimitEntry {
        resource: resource as u32,
        soft: Some(value),
        hard: Some(value),
    };
    SelfTest {
        landlock_abi: 7,
        observed: Observation {
            uids: [GUEST_UID, GUEST_UID, plan.seal.uid],
            gids: [plan.seal.gid; 3],
            is_root_powerless: true,
            are_streams_null: true,
            hostname: spec.hostname.clone(),
            namespaces: namespaces(100),
            interfaces: vec!["lo".to_owned()],
            mounts,
            write_trials: vec![("/usr".to_owned(), Errno::ROFS.raw_os_error())],
            limits: vec![
                limit(Resource::Core, 1),
                limit(Resource::Memlock, 65_536),
                limit(Resource::Nproc, 100),
            ],
            landlock: Some(LandlockTrial {
                is_refused: true,
                is_granted: true,
                is_abstract_socket_refused: false,
                has_own_descriptors: true,
            }),
            ..Observation::default()
        },
        ..SelfTest::default()
    }
}

#[test]
fn an_honest_sandbox_has_no_differences() {
    let spec = Isolation::default();
    let plan = plan(&spec);
    let found = honest(&spec, &plan);
    assert_eq!(
        compare(&spec, &plan, &found, &namespaces(200)),
        Vec::<String>::new()
    );
}

/// Makes one observation false.
type Lie = fn(&mut SelfTest);

#[test]
fn every_single_lie_is_one_difference() {
    let spec = Isolation::default();
    let plan = plan(&spec);
    let lies: [(&str, Lie); 24] = [
        ("user ids", |found| found.observed.uids = [65_534; 3]),
        ("user ids", |found| found.observed.gids[2] = 0),
        ("groups", |found| found.observed.groups = vec![27]),
        ("inherited", |found| found.observed.cap_inheritable = 1),
        ("gain", |found| found.observed.is_root_powerless = false),
        ("traced", |found| found.observed.is_dumpable = true),
        ("streams", |found| found.observed.are_streams_null = false),
        ("host name", |found| {
            found.observed.hostname = "host".to_owned();
        }),
        ("the net namespace", |found| {
            found.observed.namespaces[6].inode = 206;
        }),
        ("the cgroup namespace", |found| {
            found.observed.namespaces.remove(5);
        }),
        ("eth0", |found| {
            found.observed.interfaces.push("eth0".to_owned());
        }),
        ("192.0.2.1", |found| {
            found.observed.routes.push("192.0.2.1".to_owned());
        }),
        ("/workspace is not mounted", |found| {
            found
                .observed
                .mounts
                .retain(|mount| mount.target.as_path() != Path::new("/workspace"));
        }),
        ("/usr/local can be written", |found| {
            found.observed.mounts[1].is_read_only = false;
        }),
        ("/ is not mounted", |found| {
            found.observed.mounts[2].kind = "ext4".to_owned();
        }),
        ("not planned", |found| {
            found.observed.mounts.push(mount("/home", "ext4", true));
        }),
        ("set-user-id", |found| {
            found.observed.mounts[0].is_without_set_user_id = false;
        }),
        ("device nodes", |found| {
            found.observed.mounts[0].is_without_devices = false;
        }),
        ("shares mounts", |found| {
            found.observed.mounts[0].is_private = false;
        }),
        ("/usr is not read-only", |found| {
            found.observed.write_trials[0].1 = 0;
        }),
        ("Core", |found| found.observed.limits[0].hard = None),
        ("Nproc", |found| found.observed.limits[2].soft = Some(101)),
        ("unshare", |found| {
            found
                .observed
                .unfiltered
                .push("unshare answered 0".to_owned());
        }),
        ("not tried", |found| found.observed.landlock = None),
    ];
    for (word, lie) in lies {
        let mut found = honest(&spec, &plan);
        lie(&mut found);
        let wrong = compare(&spec, &plan, &found, &namespaces(200));
        assert_eq!(wrong.len(), 1, "{word}: {wrong:?}");
        assert!(wrong[0].contains(word), "{word}: {wrong:?}");
    }
}

#[test]
fn what_a_landlock_trial_met_must_be_what_the_rules_say() {
    let shared = Isolation {
        net: Net::Host,
        ..Isolation::default()
    };
    let plan = plan(&shared);
    let mut own = namespaces(200);
    let mut found = honest(&shared, &plan);
    // A shared network namespace is the host's own.
    own[6] = found.observed.namespaces[6].clone();
    let trial = |found: &mut SelfTest, change: fn(&mut LandlockTrial)| {
        found.observed.landlock.as_mut().map(change);
    };
    let count = |found: &SelfTest| compare(&shared, &plan, found, &own).len();
    assert_eq!(
        count(&found),
        1,
        "abstract sockets of the host can be reached"
    );
    trial(&mut found, |trial| trial.is_abstract_socket_refused = true);
    assert_eq!(count(&found), 0);
    for change in [
        (|trial| trial.is_refused = false) as fn(&mut LandlockTrial),
        |trial| trial.is_granted = false,
        |trial| trial.has_own_descriptors = false,
    ] {
        let mut found = found.clone();
        trial(&mut found, change);
        assert_eq!(count(&found), 1);
    }
    // A kernel without Landlock: the report claims nothing, so nothing is missing.
    found.landlock_abi = 0;
    found.observed.landlock = None;
    assert_eq!(count(&found), 0);
}
