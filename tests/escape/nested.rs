//! What `--nested` must not open: commands have every capability in namespaces of their own making.
//!
//! The twin of each refusal is the same tool at what the flag is for.

use crate::arena::Arena;
use crate::script::{Outcome, sh, sh_ok};
use glovebox_sandbox::Sandbox;
use std::fs;

fn nested(arena: &Arena) -> Sandbox {
    arena.with(|spec| spec.jail.is_nested = true)
}

/// Runs `script` as root of new namespaces, with a new `/proc`.
fn as_nested_root(sandbox: &Sandbox, script: &str) -> Outcome {
    let script = format!("mkdir -p /tmp/mnt; {script}");
    let quoted = script.replace('\'', r"'\''");
    sh(
        sandbox,
        &format!(
            "unshare --user --map-root-user --mount --pid --net --ipc --uts --fork --mount-proc sh -c '{quoted}'"
        ),
    )
}

fn has_tools() -> bool {
    testkit::has_program("unshare")
        && testkit::has_program("mount")
        && testkit::has_program("nsenter")
}

/// Namespaces with every capability: the twin of everything below. A sandbox without the setting has none.
#[test]
fn attack_nested_twin() {
    if !has_tools() {
        testkit::skip!("unshare, mount or nsenter is not installed");
    }
    let arena = Arena::new();
    let works = "id -u && mount -t tmpfs none /tmp/mnt && touch /tmp/mnt/x && hostname nested && ip link 2>/dev/null; test -e /tmp/mnt/x";
    let found = as_nested_root(&nested(&arena), works);
    assert!(
        found.succeeded() && found.out.starts_with("0\n"),
        "{found:?}"
    );
    let found = as_nested_root(&arena.sandbox(), works);
    assert!(!found.succeeded(), "{found:?}");
}

/// Taking away what lies over something, or showing it elsewhere without its cover -> refused.
#[test]
fn attack_uncover_by_mounting() {
    if !has_tools() {
        testkit::skip!("unshare, mount or nsenter is not installed");
    }
    let arena = Arena::new();
    let secret = arena.home.write("home/secret.txt", "the host's own");
    let sandbox = nested(&arena);
    let found = as_nested_root(
        &sandbox,
        "for at in /proc/sys /dev /dev/.proc /dev/null /usr /workspace /; do \
           umount $at && echo \"umount $at\"; done; \
         mount --bind /dev /tmp/mnt && echo 'bind without what is below'; \
         mount -o remount,rw,bind /usr && echo 'remount'; \
         mount -o remount,dev,suid,bind / && echo 'remount with devices'; \
         ls /dev/.proc; true",
    );
    assert!(found.succeeded(), "{found:?}");
    assert_eq!(found.out, "", "{found:?}");
    // Nothing of the host's but what the sandbox shows, by any name.
    let path = secret.display();
    let found = as_nested_root(
        &sandbox,
        &format!(
            "mount --rbind / /tmp/mnt; cat {path} /tmp/mnt{path} /proc/1/root{path} /proc/self/root{path} /../..{path}; \
             mkdir -p /tmp/low /tmp/up /tmp/work /tmp/over; \
             mount -t overlay -o lowerdir=/,upperdir=/tmp/up,workdir=/tmp/work,userxattr none /tmp/over; \
             cat /tmp/over{path}; mount --rbind / /tmp/low && pivot_root /tmp/low /tmp/low/tmp; cat {path} /tmp{path}"
        ),
    );
    assert!(!found.out.contains("the host's own"), "{found:?}");
    let twin = as_nested_root(
        &sandbox,
        "mount --rbind / /tmp/mnt && cat /tmp/mnt/etc/passwd",
    );
    assert!(twin.out.contains("sandbox:"), "{twin:?}");
}

/// What one command mounts is not there for others, nor for the guest.
#[test]
fn attack_mount_over_the_view_of_others() {
    if !has_tools() {
        testkit::skip!("unshare, mount or nsenter is not installed");
    }
    let arena = Arena::new();
    arena.home.write("project/a.txt", "mine");
    let sandbox = nested(&arena);
    let found = as_nested_root(
        &sandbox,
        "mount --make-rshared / 2>/dev/null; mount -t tmpfs none /workspace && mount -t tmpfs none /usr/bin; \
         echo faked > /workspace/a.txt; cat /workspace/a.txt >&2; echo done",
    );
    assert!(found.out.contains("done"), "{found:?}");
    assert_eq!(
        sh_ok(
            &sandbox,
            "cat /workspace/a.txt; ls /usr/bin | wc -l | grep -qv '^0'"
        ),
        "mine"
    );
    // Without namespaces of one's own nothing can be mounted at all.
    let found = sh(
        &sandbox,
        "mount -t tmpfs none /tmp 2>&1 || umount /dev/shm 2>&1 || hostname x 2>&1",
    );
    assert!(!found.succeeded(), "{found:?}");
}

/// Device nodes, file systems on devices, and control of devices -> refused.
#[test]
fn attack_devices_of_nested_root() {
    if !has_tools() {
        testkit::skip!("unshare, mount or nsenter is not installed");
    }
    let arena = Arena::new();
    let sandbox = nested(&arena);
    let found = as_nested_root(
        &sandbox,
        "mount -t tmpfs -o dev none /tmp/mnt; \
         mknod /tmp/mnt/mem c 1 1 && echo mknod; mknod /tmp/mnt/disk b 8 0 && echo mknod; mknod /tmp/mem c 1 1 && echo mknod; \
         mount -t devtmpfs none /tmp && echo devtmpfs; mount -t sysfs none /tmp && echo sysfs; \
         mount -t debugfs none /tmp && echo debugfs; mount -t tracefs none /tmp && echo tracefs; \
         mount -t securityfs none /tmp && echo securityfs; mount -t ext4 /dev/null /tmp && echo ext4; \
         mkfifo /tmp/mnt/fifo; test -p /tmp/mnt/fifo",
    );
    assert!(found.succeeded(), "the twin: {found:?}");
    // sysfs shows what belongs to the network namespace and the machine's devices; it needs one that is there already.
    assert_eq!(found.out, "", "{found:?}");
}

/// A control group that is mounted shows no more than that of the sandbox's caller, and nothing in it can be written.
#[test]
fn attack_mount_control_groups() {
    if !has_tools() {
        testkit::skip!("unshare, mount or nsenter is not installed");
    }
    let arena = Arena::new();
    let sandbox = arena.with(|spec| {
        spec.jail.is_nested = true;
        spec.jail.limits.pids = Some(200);
        spec.jail.limits.memory_bytes = Some(1 << 30);
    });
    // Without a namespace of control groups of one's own nothing can be mounted.
    let found = as_nested_root(
        &sandbox,
        "mount -t cgroup2 none /tmp/mnt && echo v2; for c in memory pids cpu devices; do \
         mount -t cgroup -o $c none /tmp/mnt && echo $c; done; true",
    );
    assert_eq!(found.out, "", "{found:?}");
    let found = sh(
        &sandbox,
        r#"mkdir -p /tmp/mnt; unshare --user --map-root-user --mount --cgroup --pid --fork --mount-proc sh -c '
             for kind in "cgroup2 rw" "cgroup memory" "cgroup pids" "cgroup cpu" "cgroup devices" "cgroup freezer"; do
               set -- $kind; mount -t $1 -o $2 none /tmp/mnt 2>/dev/null || continue
               find /tmp/mnt -writable ! -type l | sed "s/^/writable /" | head -3
               mkdir /tmp/mnt/own 2>/dev/null && echo "made in $kind"
               echo $$ > /tmp/mnt/cgroup.procs && echo "joined in $kind"
               echo max > /tmp/mnt/pids.max && echo "raised in $kind"
               echo -1 > /tmp/mnt/memory.limit_in_bytes && echo "raised in $kind"
               umount /tmp/mnt; done; echo looked'"#,
    );
    // Where the caller may write in his own group there is no such namespace.
    if testkit::is_root() || found.succeeded() {
        assert_eq!(found.out, "looked\n", "{found:?}");
    } else {
        assert!(found.err.contains("No space left"), "{found:?}");
    }
}

/// setns to what the guest and its wardens have -> refused. Twin: namespaces of one's own.
#[test]
fn attack_enter_the_guests_namespaces() {
    if !has_tools() {
        testkit::skip!("unshare, mount or nsenter is not installed");
    }
    let arena = Arena::new();
    let sandbox = nested(&arena);
    let found = sh(
        &sandbox,
        "for kind in user mount pid net ipc uts cgroup; do \
           nsenter --target 1 --$kind true 2>/dev/null && echo \"entered $kind of the guest\"; \
           nsenter --target $PPID --$kind true 2>/dev/null && echo \"entered $kind of the warden\"; done; \
         for kind in user mount pid net ipc uts cgroup; do \
           unshare --user --map-root-user nsenter --target 1 --$kind true 2>/dev/null && echo \"entered $kind as root\"; \
         done; true",
    );
    assert!(found.succeeded() && found.out.is_empty(), "{found:?}");
    let twin = sh(
        &sandbox,
        "unshare --user --map-root-user --net sleep 20 & sleep 0.5; \
         nsenter --target $! --user --net --preserve-credentials true && echo entered; kill $!",
    );
    assert!(twin.out.contains("entered"), "{twin:?}");
}

/// A new `/proc` shows the processes of its namespace, and nothing of the machine can be set there.
#[test]
fn attack_settings_in_a_proc_of_ones_own() {
    if !has_tools() {
        testkit::skip!("unshare, mount or nsenter is not installed");
    }
    let arena = Arena::new();
    let sandbox = nested(&arena);
    let found = as_nested_root(
        &sandbox,
        "for name in kernel/core_pattern kernel/modprobe kernel/hostname vm/drop_caches vm/overcommit_memory fs/file-max \
             kernel/printk kernel/yama/ptrace_scope fs/suid_dumpable kernel/unprivileged_userns_clone; do \
           test -e /proc/sys/$name || continue; value=$(cat /proc/sys/$name 2>/dev/null || echo 1); \
           test $name = kernel/hostname && continue; \
           (echo \"$value\" > /proc/sys/$name) 2>/dev/null && echo \"wrote $name\"; done; \
         (echo h > /proc/sysrq-trigger) 2>/dev/null && echo wrote sysrq; \
         head -c 1 /proc/kcore /proc/kmsg 2>/dev/null; \
         ls -d /proc/[0-9]* | wc -l",
    );
    assert!(found.succeeded(), "{found:?}");
    let count: u32 = found.out.trim().parse().unwrap_or(u32::MAX);
    assert!(count <= 6, "{found:?}");
    // The bound on namespaces is that of the sandbox, whatever is set in one of them.
    let limits = sh_ok(
        &sandbox,
        "cat /proc/sys/user/max_user_namespaces; (echo 9999 > /proc/sys/user/max_user_namespaces) 2>/dev/null || echo refused",
    );
    assert_eq!(limits, "256\nrefused\n");
}

/// More namespaces than the bound, by a command and by the root of one that it has made -> refused.
#[test]
fn attack_more_namespaces_than_the_bound() {
    if !has_tools() {
        testkit::skip!("unshare, mount or nsenter is not installed");
    }
    let arena = Arena::new();
    let sandbox = nested(&arena);
    let found = as_nested_root(
        &sandbox,
        "echo 100000 > /proc/sys/user/max_net_namespaces; \
         n=0; while [ $n -lt 300 ] && unshare --net sh -c 'sleep 15 & exit 0' 2>/dev/null; do n=$((n+1)); done; echo $n",
    );
    let count: u32 = found.out.trim().parse().unwrap_or(u32::MAX);
    assert!((200..=256).contains(&count), "{found:?}");
}

/// The calls that stay refused, and the one parser of NETLINK that is open.
#[test]
fn attack_calls_of_nested_root() {
    let arena = Arena::new();
    let sandbox = nested(&arena);
    let found = crate::script::perl(
        &sandbox,
        include_str!("probes/attack_calls_of_nested_root.pl"),
    );
    found.worked("unshare-user");
    found.worked("netlink-route");
    for name in ["time", "keyctl", "bpf", "ptrace", "perf"] {
        found.refused(name, &["EPERM"]);
    }
    for name in ["netlink-xfrm", "netlink-netfilter", "packet", "vsock"] {
        found.refused(name, &["EAFNOSUPPORT"]);
    }
}

/// The layers and the state of the sandbox on the host are reached by no mount.
#[test]
fn attack_reach_the_layers() {
    if !has_tools() {
        testkit::skip!("unshare, mount or nsenter is not installed");
    }
    let arena = Arena::new();
    let sandbox = nested(&arena);
    let _ = sh_ok(&sandbox, "echo x > /workspace/written");
    let state = arena.home.state();
    let found = as_nested_root(
        &sandbox,
        &format!(
            "mount --rbind / /tmp/mnt; ls {0} /tmp/mnt{0} /proc/1/root{0} 2>/dev/null; true",
            state.display()
        ),
    );
    assert!(found.succeeded() && found.out.is_empty(), "{found:?}");
    assert!(fs::read_dir(state).is_ok());
}
