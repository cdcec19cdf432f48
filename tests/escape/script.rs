//! Running something inside and reading back what it found.
//!
//! Probes that need bare system calls are Perl without any module: every distribution with a
//! package manager in Perl has it, and it calls the kernel by number.

use glovebox_proto::{Exec, Exit};
use glovebox_sandbox::Sandbox;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a command did.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) exit: Exit,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Outcome {
    pub(crate) fn succeeded(&self) -> bool {
        self.exit == Exit::Code(0)
    }
}

/// A shell command with a deadline of half a minute.
pub(crate) fn shell(script: &str) -> Exec {
    let mut exec = Exec::new(["sh", "-c", script]);
    exec.timeout_ms = Some(30_000);
    exec.grace_ms = 100;
    exec
}

/// Runs a command to its end.
pub(crate) fn run(sandbox: &Sandbox, exec: Exec) -> Outcome {
    let output = sandbox.exec(exec).expect("the command runs");
    Outcome {
        exit: output.report.exit,
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs a shell script to its end.
pub(crate) fn sh(sandbox: &Sandbox, script: &str) -> Outcome {
    run(sandbox, shell(script))
}

/// Standard output of a shell script that must succeed.
pub(crate) fn sh_ok(sandbox: &Sandbox, script: &str) -> String {
    let outcome = sh(sandbox, script);
    assert!(outcome.succeeded(), "`{script}` inside: {outcome:?}");
    outcome.out
}

/// What a Perl script found: one value per name.
#[derive(Debug)]
pub(crate) struct Findings(BTreeMap<String, String>);

impl Findings {
    /// The value of a finding.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or_else(
            || panic!("no finding `{name}` in {self:#?}"),
            String::as_str,
        )
    }

    /// All findings whose name starts with `prefix`.
    pub(crate) fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0
            .iter()
            .filter(move |(name, _)| name.starts_with(prefix))
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The attempt must have met one of these errors.
    pub(crate) fn refused(&self, name: &str, errors: &[&str]) {
        let found = self.get(name);
        assert!(
            errors.contains(&found),
            "`{name}` came out as {found}, wanted one of {errors:?}\n{self:#?}"
        );
    }

    /// Every attempt below `prefix` must have met one of these errors.
    pub(crate) fn all_refused(&self, prefix: &str, errors: &[&str]) {
        let mut count = 0;
        for (name, found) in self.below(prefix) {
            count += 1;
            assert!(
                errors.contains(&found),
                "`{name}` came out as {found}, wanted one of {errors:?}"
            );
        }
        assert!(count > 0, "nothing below `{prefix}` was tried: {self:#?}");
    }

    /// The attempt must have succeeded: the positive twin.
    pub(crate) fn worked(&self, name: &str) {
        assert_eq!(
            self.get(name),
            "ok",
            "the legitimate use `{name}` failed\n{self:#?}"
        );
    }
}

/// A Perl command: `body` after a preamble with
/// `found(NAME, VALUE)`, `try(NAME, SYSCALL, ARGS...)` which gives the result or -1,
/// `try_open(NAME, PATH, FLAGS)`, `sys(SYSCALL, ARGS...)`,
/// `verdict(NAME, IS_DONE)`, `%nr` and `slurp(PATH)`.
pub(crate) fn perl_exec(body: &str) -> Exec {
    let mut script = String::from("$| = 1; %nr = (");
    for (name, number) in SYSCALLS {
        let _ = write!(script, "{name}=>{number},");
    }
    script.push_str("); %en = (");
    for (name, number) in ERRORS {
        let _ = write!(script, "{number}=>'{name}',");
    }
    script.push_str(");\n");
    script.push_str(PREAMBLE);
    script.push_str(body);
    let mut exec = Exec::new(["perl", "-e", script.as_str()]);
    exec.timeout_ms = Some(30_000);
    exec.grace_ms = 100;
    exec
}

/// Runs a Perl script (see [`perl_exec`]) that must end in order.
pub(crate) fn perl(sandbox: &Sandbox, body: &str) -> Findings {
    let outcome = run(sandbox, perl_exec(body));
    assert!(outcome.succeeded(), "the probe itself failed: {outcome:#?}");
    findings(&outcome.out)
}

/// Reads lines of `NAME<tab>VALUE`.
pub(crate) fn findings(text: &str) -> Findings {
    Findings(
        text.lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    )
}

const PREAMBLE: &str = include_str!("probes/preamble.pl");

macro_rules! numbers {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), libc::$name as i64)),*] };
}

macro_rules! syscalls {
    ($($name:ident = $constant:ident),* $(,)?) => { &[$((stringify!($name), libc::$constant)),*] };
}

const SYSCALLS: &[(&str, libc::c_long)] = syscalls![
    add_key = SYS_add_key,
    acct = SYS_acct,
    bind = SYS_bind,
    bpf = SYS_bpf,
    capset = SYS_capset,
    chroot = SYS_chroot,
    clone = SYS_clone,
    clone3 = SYS_clone3,
    close = SYS_close,
    clock_settime = SYS_clock_settime,
    connect = SYS_connect,
    delete_module = SYS_delete_module,
    dup2 = SYS_dup3,
    fchdir = SYS_fchdir,
    fcntl = SYS_fcntl,
    finit_module = SYS_finit_module,
    flock = SYS_flock,
    fsconfig = SYS_fsconfig,
    fsmount = SYS_fsmount,
    fsopen = SYS_fsopen,
    fspick = SYS_fspick,
    getpid = SYS_getpid,
    getpriority = SYS_getpriority,
    gettid = SYS_gettid,
    init_module = SYS_init_module,
    inotify_add_watch = SYS_inotify_add_watch,
    inotify_init1 = SYS_inotify_init1,
    io_setup = SYS_io_setup,
    io_uring_enter = SYS_io_uring_enter,
    io_uring_register = SYS_io_uring_register,
    io_uring_setup = SYS_io_uring_setup,
    ioctl = SYS_ioctl,
    ioprio_get = SYS_ioprio_get,
    ioprio_set = SYS_ioprio_set,
    kcmp = SYS_kcmp,
    kexec_load = SYS_kexec_load,
    keyctl = SYS_keyctl,
    linkat = SYS_linkat,
    lsetxattr = SYS_lsetxattr,
    memfd_create = SYS_memfd_create,
    mknodat = SYS_mknodat,
    mlockall = SYS_mlockall,
    mmap = SYS_mmap,
    mount = SYS_mount,
    mount_setattr = SYS_mount_setattr,
    move_mount = SYS_move_mount,
    mq_open = SYS_mq_open,
    mq_unlink = SYS_mq_unlink,
    msgget = SYS_msgget,
    name_to_handle_at = SYS_name_to_handle_at,
    open_by_handle_at = SYS_open_by_handle_at,
    open_tree = SYS_open_tree,
    openat = SYS_openat,
    openat2 = SYS_openat2,
    perf_event_open = SYS_perf_event_open,
    personality = SYS_personality,
    pidfd_getfd = SYS_pidfd_getfd,
    pidfd_open = SYS_pidfd_open,
    pidfd_send_signal = SYS_pidfd_send_signal,
    pivot_root = SYS_pivot_root,
    prctl = SYS_prctl,
    prlimit64 = SYS_prlimit64,
    process_vm_readv = SYS_process_vm_readv,
    process_vm_writev = SYS_process_vm_writev,
    ptrace = SYS_ptrace,
    pwrite64 = SYS_pwrite64,
    quotactl = SYS_quotactl,
    read = SYS_read,
    reboot = SYS_reboot,
    renameat2 = SYS_renameat2,
    request_key = SYS_request_key,
    sched_getaffinity = SYS_sched_getaffinity,
    sched_getscheduler = SYS_sched_getscheduler,
    sched_setaffinity = SYS_sched_setaffinity,
    sched_setattr = SYS_sched_setattr,
    sched_setparam = SYS_sched_setparam,
    sched_setscheduler = SYS_sched_setscheduler,
    semget = SYS_semget,
    setgid = SYS_setgid,
    setgroups = SYS_setgroups,
    sethostname = SYS_sethostname,
    setns = SYS_setns,
    setpriority = SYS_setpriority,
    setresuid = SYS_setresuid,
    settimeofday = SYS_settimeofday,
    setuid = SYS_setuid,
    shmget = SYS_shmget,
    socket = SYS_socket,
    socketpair = SYS_socketpair,
    statfs = SYS_statfs,
    swapoff = SYS_swapoff,
    swapon = SYS_swapon,
    syslog = SYS_syslog,
    timer_create = SYS_timer_create,
    umount2 = SYS_umount2,
    unshare = SYS_unshare,
    userfaultfd = SYS_userfaultfd,
    write = SYS_write,
];

const ERRORS: &[(&str, i64)] = numbers![
    EPERM,
    ENOENT,
    ESRCH,
    EIO,
    ENXIO,
    EBADF,
    EAGAIN,
    ENOMEM,
    EACCES,
    EFAULT,
    EBUSY,
    EEXIST,
    EXDEV,
    ENODEV,
    ENOTDIR,
    EISDIR,
    EINVAL,
    ENFILE,
    EMFILE,
    ENOTTY,
    ETXTBSY,
    EFBIG,
    ENOSPC,
    ESPIPE,
    EROFS,
    EMLINK,
    EPIPE,
    ENAMETOOLONG,
    ENOSYS,
    ENOTEMPTY,
    ELOOP,
    EPROTONOSUPPORT,
    ESOCKTNOSUPPORT,
    EOPNOTSUPP,
    EAFNOSUPPORT,
    EADDRINUSE,
    EADDRNOTAVAIL,
    ENETUNREACH,
    ECONNREFUSED,
    ECONNRESET,
    ETIMEDOUT,
    EUSERS,
    EDQUOT,
    ENODATA,
    ESTALE,
    EPROTOTYPE,
    ENOEXEC,
];
