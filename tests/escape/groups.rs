//! The view of the sandbox's own control group: writing to it, leaving it, and finding others by it.

use crate::arena::{Arena, Shape};
use crate::script::{perl, sh};
use glovebox_sandbox::Sandbox;
use glovebox_spec::{LimitKind, LimitState};
use testkit::{SkipReason, is_root, skip_because};

/// Groups are root's to give.
fn without_groups() -> SkipReason {
    if is_root() {
        return SkipReason::from("no limit is held by control groups here");
    }
    SkipReason::needs_root("for control groups")
}

/// A sandbox of this shape with limits that a group holds, beside another one. `None` where there are no groups.
fn limited(arena: &Arena, shape: Shape) -> Option<(Sandbox, Sandbox)> {
    let mut spec = arena.shaped(shape);
    spec.jail.limits.memory_bytes = Some(300 << 20);
    spec.jail.limits.pids = Some(200);
    spec.jail.limits.cpu_millis = Some(500);
    let sandbox = arena.create(&spec);
    let report = sandbox.report().expect("a report");
    let is_held = report
        .limits
        .iter()
        .any(|limit| limit.kind == LimitKind::Memory && limit.state == LimitState::Enforced);
    if is_held {
        return Some((sandbox, arena.create(&spec)));
    }
    let found = sh(&sandbox, "ls -A /sys/fs/cgroup 2>/dev/null");
    assert_eq!(found.out, "", "a view without a group");
    sandbox.destroy().expect("a sandbox ends in order");
    None
}

/// Every file and directory of the view is looked at; opening for writing, making and removing
/// directories, changing owners, modes and times, and remounting are tried on each.
/// Twin: the limits are read, and files elsewhere are written by the same calls.
#[test]
fn attack_own_control_group() {
    let arena = Arena::new();
    let mut is_tried = false;
    for shape in [Shape::Host, Shape::HostAll, Shape::Dir] {
        let Some((sandbox, neighbour)) = limited(&arena, shape) else {
            continue;
        };
        is_tried = true;
        let found = perl(&sandbox, include_str!("probes/attack_own_control_group.pl"));
        let count: u32 = found.get("count").parse().expect("a number");
        assert!(count > 10, "{shape:?}: {count} names");
        found.all_refused("write/", &["EROFS", "EBUSY", "EACCES", "EPERM", "EXDEV"]);
        found.all_refused("mount/", &["EPERM", "ENOSYS"]);
        // Whatever the permissions are, the mounts refuse.
        for prefix in ["write/mkdir", "write/chmod", "write/utime"] {
            found.all_refused(prefix, &["EROFS"]);
        }
        for (name, is) in found.below("access") {
            assert_eq!(is, "ro", "{shape:?}: {name}");
        }
        assert!(found.below("access").count() > 0, "{shape:?}: {found:?}");
        assert_eq!(found.get("limit"), (300_u64 << 20).to_string(), "{shape:?}");
        for twin in ["open", "mkdir", "chmod", "utime", "rename"] {
            found.worked(&format!("twin/{twin}"));
        }
        neighbour.destroy().expect("a sandbox ends in order");
        sandbox.destroy().expect("a sandbox ends in order");
    }
    if !is_tried {
        skip_because!(without_groups());
    }
}

/// Leaving the view by `..`, by descriptors, and by what names the groups: the sandbox beside it, the group above
/// and the host's tree stay out of sight. Twin: a sandbox does see its own processes by the same files.
#[test]
fn attack_control_groups_of_others() {
    let arena = Arena::new();
    let mut is_tried = false;
    for shape in [Shape::Host, Shape::HostAll, Shape::Dir] {
        let Some((sandbox, neighbour)) = limited(&arena, shape) else {
            continue;
        };
        is_tried = true;
        let found = perl(
            &sandbox,
            include_str!("probes/attack_control_groups_of_others.pl"),
        );
        let tops: u32 = found.get("tops").parse().expect("a number");
        assert!(tops >= 1, "{shape:?}: {found:?}");
        for (name, count) in found.below("below") {
            assert_eq!(count, "0", "{shape:?}: groups below {name}");
        }
        for prefix in ["above", "left"] {
            for (name, is) in found.below(prefix) {
                assert_eq!(is, "none", "{shape:?}: {prefix}{name}");
            }
        }
        let seen: u32 = found.get("seen").parse().expect("a number");
        assert!((1..1000).contains(&seen), "{shape:?}: {seen} processes");
        assert_eq!(found.get("named"), "no", "{shape:?}: {found:?}");
        assert_eq!(found.get("own"), "no", "{shape:?}: {found:?}");
        neighbour.destroy().expect("a sandbox ends in order");
        sandbox.destroy().expect("a sandbox ends in order");
    }
    if !is_tried {
        skip_because!(without_groups());
    }
}
