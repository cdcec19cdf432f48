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
        let found = perl(
            sandbox,
            r#"for my $p (qw(sys/kernel/core_pattern sys/kernel/modprobe sys/kernel/hotplug sys/kernel/panic
                 sys/kernel/poweroff_cmd sys/kernel/printk sys/kernel/randomize_va_space sys/kernel/sysrq
                 sys/kernel/hostname sys/kernel/domainname sys/kernel/ns_last_pid sys/kernel/pid_max
                 sys/kernel/unprivileged_bpf_disabled sys/kernel/yama/ptrace_scope sys/kernel/shmmax
                 sys/vm/overcommit_memory sys/vm/drop_caches sys/vm/mmap_min_addr sys/vm/unprivileged_userfaultfd
                 sys/fs/binfmt_misc/register sys/fs/protected_symlinks sys/fs/suid_dumpable sys/fs/file-max
                 sys/net/ipv4/ip_forward sys/net/core/bpf_jit_enable sys/user/max_user_namespaces
                 sysrq-trigger irq/default_smp_affinity timer_list mtrr acpi/alarm scsi/scsi bus/pci/00/00.0
                 fs/ext4 kcore kmsg)) {
                 next if -d "/proc/$p";
                 try_open("write/$p", "/proc/$p", 1); try_open("both/$p", "/proc/$p", 2);
                 $! = 0; verdict("chmod/$p", chmod(0666, "/proc/$p")); }
               for my $p (qw(/sys/kernel/uevent_helper /sys/power/state /sys/kernel/debug /sys/module)) {
                 try_open("sys$p", $p, 0); }
               my $h; $! = 0; verdict('own', open($h, '>', '/proc/self/comm') && syswrite($h, 'probe'));
               $! = 0; verdict('own-oom', open($h, '>', '/proc/self/oom_score_adj') && syswrite($h, '900'));"#,
        );
        for prefix in ["write/", "both/", "chmod/", "sys/"] {
            found.all_refused(prefix, &["EROFS", "EACCES", "ENOENT", "EPERM", "ENOTDIR", "EIO"]);
        }
        found.worked("own");
        found.worked("own-oom");
        if shape != Shape::Pids {
            assert!(!sh_ok(sandbox, "cat /proc/sys/kernel/ostype").is_empty(), "settings can be read");
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
        let found = perl(
            sandbox,
            r#"for my $p (qw(kcore kallsyms keys key-users kmsg timer_list sched_debug latency_stats slabinfo vmallocinfo
                 pagetypeinfo iomem_ kpagecount kpageflags kpagecgroup)) {
                 my $h; $! = 0; my $done = sysopen($h, "/proc/$p", 0x800) && sysread($h, my $b, 64);
                 verdict("info/$p", $done) if !$done && $!; found("info/$p", 'empty') if !$done && !$!;
                 found("info/$p", 'ok') if $done; }
               my $m = slurp('/proc/modules') // ''; found('modules', $m =~ /0x0*[1-9a-f]/ ? 'addresses' : 'none');
               my $i = slurp('/proc/iomem') // ''; found('iomem', $i =~ /[1-9a-f]{3}/ ? 'addresses' : 'none');
               my $s = slurp('/proc/self/stat') // ''; my @f = split / /, $s; found('wchan', $f[34]);
               my $buf = "\0" x 256; try('syslog', 'syslog', 3, $buf, 256);
               verdict('status', defined slurp('/proc/self/status'));"#,
        );
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
        r#"my $a = "\0" x 256;
           for my $cmd (0, 5, 10, 16, 36) { try("k/bpf/$cmd", 'bpf', $cmd, $a, 128); }
           try('k/perf', 'perf_event_open', $a, 0, -1, -1, 0); try('k/perf-all', 'perf_event_open', $a, -1, 0, -1, 0);
           try('k/uffd', 'userfaultfd', 0); try('k/uffd-user', 'userfaultfd', 1);
           try('k/module', 'init_module', $a, 256, ''); try('k/finit', 'finit_module', 0, '', 0);
           try('k/delete', 'delete_module', 'x', 0); try('k/kexec', 'kexec_load', 0, 0, 0, 0);
           try('k/reboot', 'reboot', 0xfee1dead, 0x28121969, 0, 0); try('k/swapon', 'swapon', '/workspace/x', 0);
           try('k/swapoff', 'swapoff', '/workspace/x'); try('k/acct', 'acct', '/workspace/x'); try('k/quota', 'quotactl', 0, 0, 0, 0);
           try('k/settime', 'settimeofday', $a, 0); try('k/clock', 'clock_settime', 0, $a);
           try('k/handle', 'name_to_handle_at', -100, '/', $a, $a, 0); try('k/by-handle', 'open_by_handle_at', -100, $a, 0);
           try('k/persona', 'personality', 0x0400000);
           try('memfd', 'memfd_create', 'x', 0); try('persona-read', 'personality', 0xffffffff);"#,
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
