//! Tests of the filter against the running kernel: each refusal with its errno, and beside it a
//! legitimate use of the same call. The calls are made in a child, which is this test binary.

mod confined;
mod tools;

use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Output};
use std::time::Instant;

use crate::seccomp::{Entry, Profile, Verdict, install, program, table};

const ROLE: &str = "GLOVEBOX_TEST_SECCOMP_ROLE";
const ENOSYS: i32 = libc::ENOSYS;
const EPERM: i32 = libc::EPERM;
const EAFNOSUPPORT: i32 = libc::EAFNOSUPPORT;

/// Runs this binary again in `role` and returns its output.
fn child(role: &str, more: &[&str]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sys::seccomp::tests::inside", "--nocapture"])
        .env(ROLE, role)
        .env("GLOVEBOX_TEST_SECCOMP_ARGS", more.join("\u{1f}"))
        .output()
        .unwrap()
}

/// Returns the `name errno` lines of a child.
fn answers(role: &str) -> BTreeMap<String, i32> {
    let output = child(role, &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{role}: {} {text} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines()
        .filter_map(|line| {
            let (name, errno) = line.strip_prefix("answer ")?.rsplit_once(' ')?;
            Some((name.to_owned(), errno.parse().unwrap()))
        })
        .collect()
}

fn call(number: i64, args: [u64; 6]) -> i32 {
    // SAFETY: the tests pass numbers and null pointers only, except where a pointer is to a live local.
    let result =
        unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]) };
    if result < 0 {
        std::io::Error::last_os_error().raw_os_error().unwrap()
    } else {
        0
    }
}

fn answer(name: &str, errno: i32) {
    println!("answer {name} {errno}");
}

fn confine() {
    rustix::thread::set_no_new_privs(true).unwrap();
    install(Profile::Default).unwrap();
}

/// Entry of the children; does nothing in the test run itself.
#[test]
#[expect(clippy::exit, reason = "a child must not go on as a test run")]
fn inside() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let args = std::env::var("GLOVEBOX_TEST_SECCOMP_ARGS").unwrap_or_default();
    match role.as_str() {
        "table" => inside_table(),
        "arguments" => inside_arguments(),
        "families" => inside_families(),
        "threads" => inside_threads(),
        "i386" => inside_i386(),
        "speed" => inside_speed(),
        "compute" => {
            rustix::thread::set_no_new_privs(true).unwrap();
            install(Profile::Compute).unwrap();
            let call_again = |number| call(number, [u64::MAX, 0, 0, u64::MAX, 0, 0]);
            match args.as_str() {
                "mmap" => call(libc::SYS_mmap, [0, 4096, 0x3, 0x22, u64::MAX, 0]),
                "mmap-exec" => call(libc::SYS_mmap, [0, 4096, 0x7, 0x22, u64::MAX, 0]),
                "mprotect-exec" => call(libc::SYS_mprotect, [0, 4096, 0x4, 0, 0, 0]),
                name => call_again(
                    table()
                        .iter()
                        .find(|entry| entry.name == name)
                        .unwrap()
                        .number,
                ),
            };
            // Exits without the test harness, which makes calls that the filter refuses.
            call(libc::SYS_exit_group, [0; 6]);
        }
        "untraced" => {
            confine();
            install(Profile::Untraced).unwrap();
            answer("traceme", call(libc::SYS_ptrace, [0; 6]));
            answer("read", call(libc::SYS_process_vm_readv, [1, 0, 0, 0, 0, 0]));
        }
        "exec" => {
            confine();
            let mut words = args.split('\u{1f}');
            let error = Command::new(words.next().unwrap())
                .args(words)
                .env_remove(ROLE)
                .exec();
            answer(&error.to_string(), -1);
        }
        "without-no-new-privs" => {
            rustix::thread::set_capabilities(
                None,
                rustix::thread::CapabilitySets {
                    effective: rustix::thread::CapabilitySet::empty(),
                    permitted: rustix::thread::CapabilitySet::empty(),
                    inheritable: rustix::thread::CapabilitySet::empty(),
                },
            )
            .unwrap();
            answer("refused", i32::from(install(Profile::Default).is_err()));
        }
        other => panic!("no role {other}"),
    }
    std::process::exit(0);
}

/// Calls that would harm the machine if the filter allowed them, with any arguments.
const HARMFUL: [&str; 2] = ["acct", "vhangup"];

fn inside_table() {
    let _ = rustix::process::setsid();
    confine();
    for entry in table() {
        if matches!(entry.verdict, Verdict::Refused | Verdict::Unsupported)
            && !HARMFUL.contains(&entry.name)
        {
            // Arguments that are invalid in every call of the table: bad descriptors, pointers and
            // flags.
            answer(
                entry.name,
                call(entry.number, [u64::MAX, 0, 0, u64::MAX, 0, 0]),
            );
        }
    }
    answer("beyond", call(9999, [0; 6]));
    #[cfg(target_arch = "x86_64")]
    answer("x32", call(0x4000_0000 | libc::SYS_getpid, [0; 6]));
}

#[test]
fn what_the_table_refuses_is_refused_by_the_kernel() {
    let answers = answers("table");
    for entry in table() {
        let expected = match entry.verdict {
            Verdict::Refused => EPERM,
            Verdict::Unsupported => ENOSYS,
            Verdict::Allowed | Verdict::ByArgument => continue,
        };
        if !HARMFUL.contains(&entry.name) {
            assert_eq!(answers.get(entry.name), Some(&expected), "{}", entry.name);
        }
    }
    assert_eq!(answers["beyond"], ENOSYS);
    #[cfg(target_arch = "x86_64")]
    assert_eq!(
        answers["x32"], ENOSYS,
        "the x32 ABI is another way to every call"
    );
}

const HIGH: u64 = 1 << 32;

fn inside_arguments() {
    // Opened before the filter, because allocating a terminal is not under test.
    let tty = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/ptmx")
        .unwrap();
    let tty = std::os::fd::AsRawFd::as_raw_fd(&tty) as u64;
    let fifo = std::env::temp_dir().join(format!("glovebox-fifo-{}", std::process::id()));
    let path = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
    confine();
    let sigchld = libc::SIGCHLD as u64;
    for (name, flag) in [
        ("newns", libc::CLONE_NEWNS),
        ("newcgroup", libc::CLONE_NEWCGROUP),
        ("newuts", libc::CLONE_NEWUTS),
        ("newipc", libc::CLONE_NEWIPC),
        ("newuser", libc::CLONE_NEWUSER),
        ("newpid", libc::CLONE_NEWPID),
        ("newnet", libc::CLONE_NEWNET),
        ("newtime", 0x80),
    ] {
        answer(&format!("clone-{name}"), clone_once(flag as u64 | sigchld));
        answer(
            &format!("clone-{name}-high"),
            clone_once(HIGH | flag as u64 | sigchld),
        );
    }
    answer("clone-plain", clone_once(sigchld));
    let ioctl = |request: u64| call(libc::SYS_ioctl, [tty, request, 0, 0, 0, 0]);
    answer("tiocsti", ioctl(0x5412));
    answer("tiocsti-high", ioctl(HIGH | 0x5412));
    answer("tioclinux", ioctl(0x541c));
    answer("tiocsetd", ioctl(0x5423));
    let mut available = 0i32;
    answer(
        "fionread",
        call(
            libc::SYS_ioctl,
            [tty, libc::FIONREAD, &raw mut available as u64, 0, 0, 0],
        ),
    );
    let personality = |value: u64| call(libc::SYS_personality, [value, 0, 0, 0, 0, 0]);
    answer("personality-query", personality(0xffff_ffff));
    answer("personality-norandomize", personality(0x4_0000));
    answer("personality-read-implies-exec", personality(0x40_0000));
    answer("personality-mmap-page-zero", personality(0x10_0000));
    let prctl = |option: u64| call(libc::SYS_prctl, [option, 0, 0, 0, 0, 0]);
    answer("prctl-set-mm", prctl(35));
    answer("prctl-set-mm-high", prctl(HIGH | 0x23));
    answer("prctl-sched-core", prctl(62));
    answer("prctl-get-dumpable", prctl(3));
    let mut limits = [0u64; 2];
    let limits = &raw mut limits as u64;
    answer(
        "prlimit-self",
        call(libc::SYS_prlimit64, [0, 7, 0, limits, 0, 0]),
    );
    answer(
        "prlimit-other",
        call(libc::SYS_prlimit64, [1, 7, 0, limits, 0, 0]),
    );
    let path = path.as_ptr() as u64;
    let cwd = libc::AT_FDCWD as u64;
    let node = |mode: u32, device: u64| {
        call(
            libc::SYS_mknodat,
            [cwd, path, u64::from(mode), device, 0, 0],
        )
    };
    answer("mknodat-char", node(libc::S_IFCHR | 0o600, 0x101));
    answer("mknodat-block", node(libc::S_IFBLK | 0o600, 0x800));
    answer("mknodat-fifo", node(libc::S_IFIFO | 0o600, 0));
    let _ = std::fs::remove_file(&fifo);
    let mut pair = [0i32; 2];
    let pair = &raw mut pair as u64;
    answer(
        "socketpair-unix",
        call(libc::SYS_socketpair, [1, 1, 0, pair, 0, 0]),
    );
    answer(
        "socketpair-vsock",
        call(libc::SYS_socketpair, [40, 1, 0, pair, 0, 0]),
    );
    answer(
        "socketpair-tipc",
        call(libc::SYS_socketpair, [30, 1, 0, pair, 0, 0]),
    );
}

/// Calls clone(2) like fork, with `flags`. The child ends at once.
fn clone_once(flags: u64) -> i32 {
    // SAFETY: without CLONE_VM the child is a copy, and all it does is exit_group.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match result {
        0 => {
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(0) }
        }
        child if child > 0 => {
            // SAFETY: waits for the child just made; no status is asked for.
            unsafe { libc::waitpid(child as i32, std::ptr::null_mut(), libc::__WALL) };
            0
        }
        _ => std::io::Error::last_os_error().raw_os_error().unwrap(),
    }
}

#[test]
fn arguments_are_judged_by_the_bits_the_kernel_looks_at() {
    let answers = answers("arguments");
    let allowed = [
        "clone-plain",
        "fionread",
        "personality-query",
        "personality-norandomize",
        "prlimit-self",
        "mknodat-fifo",
        "socketpair-unix",
    ];
    for (name, errno) in &answers {
        let expected = match name.as_str() {
            name if allowed.contains(&name) => 0,
            name if name.starts_with("socketpair") => EAFNOSUPPORT,
            "prctl-get-dumpable" => 0,
            _ => EPERM,
        };
        assert_eq!(*errno, expected, "{name}");
    }
    assert_eq!(answers.len(), 38, "{answers:?}");
}

fn inside_families() {
    confine();
    for family in 0..=50u64 {
        for kind in [1u64, 2, 3, 5] {
            let name = format!("{family}/{kind}");
            answer(&name, call(libc::SYS_socket, [family, kind, 0, 0, 0, 0]));
            answer(
                &format!("{name}/high"),
                call(libc::SYS_socket, [HIGH | family, kind, 0, 0, 0, 0]),
            );
        }
    }
}

/// Sockets that describe the network give access to interfaces and routes only. Nested namespaces
/// change nothing about it.
#[test]
fn sockets_are_judged_by_family_and_protocol() {
    let errno = |number: i32| libc::SECCOMP_RET_ERRNO | number as u32;
    let allowed = libc::SECCOMP_RET_ALLOW;
    for (family, protocol, verdict) in [
        (libc::AF_UNIX, 0, allowed),
        (libc::AF_INET, libc::IPPROTO_TCP, allowed),
        (libc::AF_INET6, libc::IPPROTO_UDP, allowed),
        (libc::AF_NETLINK, libc::NETLINK_ROUTE, allowed),
        (libc::AF_NETLINK, libc::NETLINK_XFRM, errno(EAFNOSUPPORT)),
        (
            libc::AF_NETLINK,
            libc::NETLINK_NETFILTER,
            errno(EAFNOSUPPORT),
        ),
        (libc::AF_NETLINK, 1, errno(EAFNOSUPPORT)),
        (libc::AF_PACKET, 0, errno(EAFNOSUPPORT)),
        (libc::AF_INET, libc::IPPROTO_SCTP, errno(EAFNOSUPPORT)),
    ] {
        let args = [family as u64, 3, protocol as u64, 0, 0, 0];
        let call = libc::SYS_socket as u32;
        let nested = interpret(program(Profile::Nested), ARCH, call, args);
        for found in [judge(ARCH, call, args), nested] {
            assert_eq!(found, verdict, "{family} {protocol}");
        }
    }
}

#[test]
fn only_four_socket_families_exist() {
    let answers = answers("families");
    assert_eq!(answers.len(), 51 * 4 * 2);
    for (name, errno) in &answers {
        let family: u64 = name.split('/').next().unwrap().parse().unwrap();
        if ![1, 2, 10, 16].contains(&family) {
            assert_eq!(*errno, EAFNOSUPPORT, "{name}");
        }
    }
    for works in [
        "1/1", "1/2", "1/5", "2/1", "2/2", "10/1", "10/2", "16/2", "16/3",
    ] {
        assert_eq!(answers[works], 0, "{works}");
    }
}

fn inside_threads() {
    let (go, gone) = std::sync::mpsc::channel();
    let older = std::thread::spawn(move || {
        gone.recv().unwrap();
        call(libc::SYS_unshare, [0; 6])
    });
    confine();
    go.send(()).unwrap();
    answer("older-thread", older.join().unwrap());
    answer(
        "newer-thread",
        std::thread::spawn(|| call(libc::SYS_unshare, [0; 6]))
            .join()
            .unwrap(),
    );
}

#[test]
fn threads_that_were_there_before_are_filtered_too() {
    let answers = answers("threads");
    assert_eq!(answers["older-thread"], EPERM);
    assert_eq!(answers["newer-thread"], EPERM);
}

#[cfg(target_arch = "x86_64")]
fn inside_i386() {
    confine();
    let result: i32;
    // SAFETY: getpid (20) of the i386 ABI, which takes no arguments; it is not expected to return.
    unsafe { std::arch::asm!("int 0x80", inlateout("eax") 20 => result) };
    answer("i386-getpid", result);
}

#[cfg(not(target_arch = "x86_64"))]
fn inside_i386() {}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_i386_abi_ends_the_process() {
    let output = child("i386", &[]);
    assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{output:?}");
}

#[test]
fn without_no_new_privs_nothing_is_installed() {
    assert_eq!(answers("without-no-new-privs")["refused"], 1);
}

fn inside_speed() {
    const CALLS: u32 = 200_000;
    let measure = || {
        (0..5)
            .map(|_| {
                let begun = Instant::now();
                for _ in 0..CALLS {
                    call(libc::SYS_getppid, [0; 6]);
                }
                begun.elapsed().as_nanos() as i32 / CALLS as i32
            })
            .min()
            .unwrap()
    };
    let before = measure();
    confine();
    let after = measure();
    answer("before", before);
    answer("after", after);
}

/// The kernel caches "always allowed" for each call number (5.11 and later), so that the filter
/// costs an ordinary call next to nothing. A table that defeats the cache makes it cost several
/// times as much.
#[test]
fn an_ordinary_call_does_not_pay_for_the_filter() {
    let answers = answers("speed");
    let (before, after) = (answers["before"], answers["after"]);
    eprintln!("getppid: {before} ns without, {after} ns with the filter");
    assert!(after < before * 3 + 100, "{before} ns became {after} ns");
}

/// Returns the filter's result for one call.
fn judge(arch: u32, number: u32, args: [u64; 6]) -> u32 {
    interpret(program(Profile::Default), arch, number, args)
}

/// Interprets the part of classic BPF that seccomp filters use.
fn interpret(program: &[libc::sock_filter], arch: u32, number: u32, args: [u64; 6]) -> u32 {
    let load = |offset: u32| match offset {
        0 => number,
        4 => arch,
        8 | 12 => 0,
        _ => {
            let word = (offset - 16) / 4;
            (args[word as usize / 2] >> (32 * (word % 2))) as u32
        }
    };
    let (mut at, mut accumulator) = (0usize, 0u32);
    loop {
        let i = program[at];
        at += 1;
        let branch = |taken: bool| usize::from(if taken { i.jt } else { i.jf });
        match i.code {
            0x20 => accumulator = load(i.k),
            0x05 => at += i.k as usize,
            0x15 => at += branch(accumulator == i.k),
            0x25 => at += branch(accumulator > i.k),
            0x35 => at += branch(accumulator >= i.k),
            0x45 => at += branch(accumulator & i.k != 0),
            0x54 => accumulator &= i.k,
            0x06 => return i.k,
            code => panic!("instruction {code:#x}"),
        }
    }
}

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// The additional filter of commands with the guest's user id refuses only calls on other
/// processes.
#[test]
fn the_filter_for_one_user_id_refuses_what_steers_others() {
    let judge = |number: i64, args: [u64; 6]| {
        interpret(program(Profile::SameUser), ARCH, number as u32, args)
    };
    let (refused, allowed) = (
        libc::SECCOMP_RET_ERRNO | EPERM as u32,
        libc::SECCOMP_RET_ALLOW,
    );
    for number in [
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setaffinity,
    ] {
        assert_eq!(judge(number, [0; 6]), allowed, "{number}: oneself");
        // The kernel examines 32 bits.
        assert_eq!(judge(number, [HIGH, 0, 0, 0, 0, 0]), allowed);
        for pid in [1, 7, HIGH | 1, u64::MAX] {
            assert_eq!(
                judge(number, [pid, 0, 0, 0, 0, 0]),
                refused,
                "{number}: {pid}"
            );
        }
    }
    for (number, first) in [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)] {
        for (which, who, verdict) in [
            (first, 0, allowed),
            (first + 1, 0, allowed),
            (first, 1, refused),
            (first + 1, 7, refused),
            (first + 2, 0, refused),
            (first + 2, 1000, refused),
        ] {
            let found = judge(number, [which, who, 0, 0, 0, 0]);
            assert_eq!(found, verdict, "{number}: {which}, {who}");
        }
    }
    let named = [
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setaffinity,
        libc::SYS_setpriority,
        libc::SYS_ioprio_set,
    ];
    for number in (0..2048).filter(|number| !named.contains(number)) {
        assert_eq!(judge(number, [u64::MAX; 6]), allowed, "call {number}");
    }
    let foreign = interpret(program(Profile::SameUser), 0x4000_0003, 20, [0; 6]);
    assert_eq!(foreign, libc::SECCOMP_RET_KILL_PROCESS);
}

/// The filter for commands that may make namespaces allows more calls, and treats the others as the
/// default one.
#[test]
fn the_filter_for_nested_namespaces_opens_what_they_take_and_nothing_else() {
    let judge = |number: i64, args: [u64; 6]| {
        interpret(program(Profile::Nested), ARCH, number as u32, args)
    };
    let errno = |number: i32| libc::SECCOMP_RET_ERRNO | number as u32;
    let allowed = libc::SECCOMP_RET_ALLOW;
    let opened = [
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
    ];
    for number in opened {
        assert_eq!(judge(number, [0; 6]), allowed, "{number}");
    }
    let unsupported = [
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_mount_setattr,
    ];
    for number in unsupported {
        assert_eq!(judge(number, [0; 6]), errno(ENOSYS), "{number}");
    }
    for flags in [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS,
    ] {
        for number in [libc::SYS_unshare, libc::SYS_clone] {
            let flags = flags as u64;
            assert_eq!(
                judge(number, [flags, 0, 0, 0, 0, 0]),
                allowed,
                "{number}: {flags:#x}"
            );
            let with_time = [flags | 0x80, 0, 0, 0, 0, 0];
            assert_eq!(
                judge(number, with_time),
                errno(EPERM),
                "{number}: {flags:#x}"
            );
        }
    }
    // All other calls are treated as without nested namespaces.
    let changed: Vec<i64> = opened
        .into_iter()
        .chain(unsupported)
        .chain([libc::SYS_clone, 467])
        .collect();
    for number in (0..2048).filter(|number| !changed.contains(number)) {
        for args in [[0; 6], [1; 6], [u64::MAX; 6]] {
            assert_eq!(
                judge(number, args),
                self::judge(ARCH, number as u32, args),
                "call {number}"
            );
        }
    }
}

/// Tracing is refused by the additional filter for commands without a Landlock domain, and by that
/// of a sandbox without namespaces.
#[test]
fn tracing_is_refused_without_a_domain_of_each_command() {
    let refused = libc::SECCOMP_RET_ERRNO | EPERM as u32;
    let traces = [
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
    ];
    for number in 0..2048 {
        let judge = |profile| interpret(program(profile), ARCH, number as u32, [0; 6]);
        let found = judge(Profile::Untraced);
        if traces.contains(&number) {
            assert_eq!(judge(Profile::Default), libc::SECCOMP_RET_ALLOW);
            assert_eq!(judge(Profile::Confined), refused, "call {number}");
            assert_eq!(found, refused, "call {number}");
        } else {
            assert_eq!(found, libc::SECCOMP_RET_ALLOW, "call {number}");
        }
    }
    let answers = answers("untraced");
    for name in ["traceme", "read"] {
        assert_eq!(answers[name], EPERM, "{name}");
    }
}

/// The filter serves only to be counted.
#[test]
fn the_mark_refuses_nothing() {
    for number in 0..2048 {
        let found = interpret(program(Profile::Mark), ARCH, number, [u64::MAX; 6]);
        assert_eq!(found, libc::SECCOMP_RET_ALLOW, "call {number}");
    }
}

#[test]
fn every_number_gets_what_its_table_says() {
    let errno = |number: i32| libc::SECCOMP_RET_ERRNO | number as u32;
    let by_number: BTreeMap<u32, &Entry> = table().iter().map(|e| (e.number as u32, e)).collect();
    assert_eq!(by_number.len(), table().len(), "two calls share a number");
    for number in 0..2048 {
        let expected = match by_number.get(&number).map(|e| e.verdict) {
            Some(Verdict::ByArgument) => continue,
            Some(Verdict::Allowed) => libc::SECCOMP_RET_ALLOW,
            Some(Verdict::Refused) => errno(EPERM),
            Some(Verdict::Unsupported) | None => errno(ENOSYS),
        };
        assert_eq!(judge(ARCH, number, [0; 6]), expected, "call {number}");
        assert_eq!(
            judge(ARCH, number | 0x4000_0000, [0; 6]),
            errno(ENOSYS),
            "x32 call {number}"
        );
    }
    assert_eq!(
        judge(0x4000_0003, 20, [0; 6]),
        libc::SECCOMP_RET_KILL_PROCESS
    );
}

/// Calls of the running kernel that are missing in the table get ENOSYS. That is safe, but a
/// maintainer should decide about them.
#[test]
fn calls_of_the_running_kernel_are_known() {
    let Ok(symbols) = std::fs::read_to_string("/proc/kallsyms") else {
        testkit::skip!("/proc/kallsyms cannot be read");
    };
    let prefix = if cfg!(target_arch = "x86_64") {
        "__x64_sys_"
    } else {
        "__arm64_sys_"
    };
    let ours: Vec<&str> = table().iter().map(|e| e.name).collect();
    let unknown: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.strip_prefix(prefix))
        .filter(|name| !ours.contains(name))
        .collect();
    eprintln!(
        "not in the table, or under another name there: {}",
        unknown.join(" ")
    );
    let newer = [
        "setxattrat",
        "mseal",
        "cachestat",
        "fchmodat2",
        "futex_wait",
    ];
    for name in newer {
        assert!(!unknown.contains(&name), "{name}");
    }
}

#[test]
fn a_process_that_only_computes_is_ended_for_anything_else() {
    let end = |name: &str| child("compute", &[name]).status;
    for allowed in ["mmap", "read", "clock_gettime", "getrandom"] {
        assert_eq!(end(allowed).code(), Some(0), "{allowed}");
    }
    for refused in [
        "openat",
        "socket",
        "execve",
        "ptrace",
        "clone",
        "clone3",
        "kill",
        "tkill",
        "io_uring_setup",
        "prctl",
        "seccomp",
        "dup",
        "fcntl",
        "ioctl",
        "mmap-exec",
        "mprotect-exec",
        "pidfd_open",
        "memfd_create",
        "getppid",
    ] {
        assert_eq!(end(refused).signal(), Some(libc::SIGSYS), "{refused}");
    }
}
