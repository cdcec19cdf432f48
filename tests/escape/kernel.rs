//! The kernel's own doors: settings, information, rings, programs, keys, control groups.

use crate::arena::{Arena, Shape};
use crate::script::{perl, sh_ok};
use std::fs;
use std::process::Command;

/// Write global settings -> refused. Twin: one's own are written.
#[test]
fn probe_14_sysctl_write() {
    let arena = Arena::new();
    let pattern = fs::read("/proc/sys/kernel/core_pattern").expect("the host's core pattern");
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(sandbox, include_str!("probes/probe_14_sysctl_write.pl"));
        for prefix in ["write/", "both/", "chmod/", "sys/"] {
            found.all_refused(
                prefix,
                &["EROFS", "EACCES", "ENOENT", "EPERM", "ENOTDIR", "EIO"],
            );
        }
        found.worked("own");
        found.worked("own-oom");
        if shape != Shape::Pids {
            assert!(
                !sh_ok(sandbox, "cat /proc/sys/kernel/ostype").is_empty(),
                "settings can be read"
            );
        }
    });
    assert_eq!(
        pattern,
        fs::read("/proc/sys/kernel/core_pattern").expect("the host's core pattern")
    );
}

/// Read what tells about the kernel's memory and log -> empty or refused. Twin: version and CPUs.
#[test]
fn probe_15_kernel_info() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(sandbox, include_str!("probes/probe_15_kernel_info.pl"));
        found.all_refused("info/", &["empty", "EACCES", "EPERM", "ENOENT"]);
        assert_eq!(found.get("modules"), "none");
        assert_eq!(found.get("iomem"), "none");
        found.refused("syslog", &["EPERM"]);
        found.worked("status");
        if !matches!(shape, Shape::Pids) {
            assert!(sh_ok(sandbox, "cat /proc/cpuinfo /proc/meminfo").contains("MemTotal"));
        }
    });
}

/// Control groups: mount, write release_agent, move processes -> absent or refused.
#[test]
fn probe_16_cgroup_agent() {
    let arena = Arena::new();
    arena.in_every_shape(|shape, sandbox| {
        let found = perl(
            sandbox,
            r#"mkdir '/tmp/cg';
               for my $t (qw(cgroup cgroup2)) { for my $o ('memory', 'rdma', 'none,name=x', '') {
                 try("mount/$t/$o", 'mount', 'none', '/tmp/cg', $t, 0, $o); } }
               for my $p (qw(/sys/fs/cgroup /sys/fs/cgroup/release_agent /sys/fs/cgroup/memory/release_agent
                 /sys/fs/cgroup/cgroup.procs /tmp/cg/release_agent)) {
                 try_open("agent$p", $p, 1); }
               my $own = slurp('/proc/self/cgroup') // ''; found('above', $own =~ m{:/\.\.} ? 'yes' : 'no');"#,
        );
        found.all_refused("mount/", &["EPERM"]);
        // The own group is there to be read (groups.rs).
        found.all_refused("agent", &["ENOENT", "EACCES", "ENOTDIR", "EISDIR", "EROFS"]);
        assert_eq!(found.get("above"), "no", "{shape:?}");
    });
}

/// io_uring in every call -> ENOSYS or EPERM.
#[test]
fn probe_18_io_uring() {
    let arena = Arena::new();
    let found = perl(
        &arena.sandbox(),
        r#"my $p = "\0" x 256;
           try('ring/setup', 'io_uring_setup', 8, $p); try('ring/enter', 'io_uring_enter', 0, 1, 0, 0, 0, 0);
           try('ring/register', 'io_uring_register', -1, 13, $p, 1); try('ring/zero', 'io_uring_setup', 0, 0);
           my $h; verdict('read', open($h, '<', '/etc/passwd'));"#,
    );
    found.all_refused("ring/", &["ENOSYS", "EPERM"]);
    found.worked("read");
}

/// Keys: the host's session keyring, with a key planted by the test -> refused and invisible.
#[test]
fn probe_22_keyring() {
    let arena = Arena::new();
    let sandbox = arena.sandbox();
    let found = perl(
        &sandbox,
        r#"my $b = "\0" x 256;
           for my $ring (-1, -2, -3, -4, -5) { try("key/read/$ring", 'keyctl', 11, $ring, $b, 256, 0);
             try("key/id/$ring", 'keyctl', 0, $ring, 0, 0, 0);
             try("key/search/$ring", 'keyctl', 10, $ring, 'user', 'glovebox-test', 0); }
           try('key/join', 'keyctl', 1, 0, 0, 0, 0); try('key/request', 'request_key', 'user', 'glovebox-test', 0, 0);
           try('key/add', 'add_key', 'user', 'x', 'y', 1, -3);
           my $k = slurp('/proc/keys') // ''; found('list', length $k ? 'seen' : 'none');"#,
    );
    found.all_refused("key/", &["EPERM", "ENOSYS"]);
    assert_eq!(found.get("list"), "none");
    // Twin, on the host: the key can be made where it is allowed to.
    if testkit::has_program("keyctl") {
        let made = Command::new("keyctl")
            .args([
                "session",
                "-",
                "keyctl",
                "add",
                "user",
                "glovebox-test",
                "x",
                "@s",
            ])
            .output();
        assert!(made.is_ok());
    }
}

/// Programs and pages for the kernel -> EPERM or ENOSYS. Twin: memory files work.
#[test]
fn probe_23_bpf_perf_uffd() {
    let arena = Arena::new();
    let found = perl(
        &arena.sandbox(),
        include_str!("probes/probe_23_bpf_perf_uffd.pl"),
    );
    found.all_refused("k/", &["EPERM", "ENOSYS"]);
    found.worked("memfd");
    found.worked("persona-read");
}

/// No core file and no core handler of the host for what crashes inside.
#[test]
fn attack_core_dump() {
    let arena = Arena::new();
    let sandbox = arena.sandbox();
    let limits = sh_ok(&sandbox, "cat /proc/self/limits");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max core"))
        .expect("a core limit")
        .to_owned();
    let numbers: Vec<u64> = line
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    // The kernel hands a core to a pipe handler whatever the limit is, except for a limit of one byte.
    assert!(numbers.iter().all(|&bytes| bytes <= 1), "{line}");
    let outcome = crate::script::sh(&sandbox, "cd /workspace && sh -c 'kill -11 $$'; ls");
    assert!(!outcome.out.contains("core"), "{outcome:?}");
}
