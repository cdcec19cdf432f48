//! Facts about the sandbox, read from inside when the host asks.

use glovebox_proto::Facts;
use serde_bytes::ByteBuf;

/// Reads every fact that can be read now. The facts that are known only at the start (refused
/// calls, open descriptors, Landlock) are copied from `prefilled`.
pub(crate) fn read(prefilled: &Facts, cwd: &[u8], home: &[u8]) -> Facts {
    let uname = rustix::system::uname();
    let text = |bytes: &std::ffi::CStr| bytes.to_string_lossy().into_owned();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    };
    let hex = |name| {
        field(name)
            .and_then(|value| u64::from_str_radix(value, 16).ok())
            .unwrap_or(0)
    };
    Facts {
        release: env!("CARGO_PKG_VERSION").to_owned(),
        pid: rustix::process::getpid().as_raw_pid(),
        uid: glovebox_jail::process::file_user_id(),
        gid: rustix::process::getegid().as_raw(),
        hostname: text(uname.nodename()),
        kernel: text(uname.release()),
        arch: text(uname.machine()),
        cap_effective: hex("CapEff"),
        cap_bounding: hex("CapBnd"),
        no_new_privs: field("NoNewPrivs") == Some("1"),
        seccomp_mode: field("Seccomp")
            .and_then(|mode| mode.parse().ok())
            .unwrap_or(0),
        interfaces: interfaces(),
        cwd: ByteBuf::from(cwd),
        has_proc: !status.is_empty(),
        mounts: mounts(),
        home: ByteBuf::from(home),
        ..prefilled.clone()
    }
}

/// Names of the network interfaces, from /proc/net/dev (there is no /sys).
fn interfaces() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let rows = table.lines().skip(2);
    rows.filter_map(|row| Some(row.split_once(':')?.0.trim().to_owned()))
        .collect()
}

/// Mount points as `target type options` (proc_pid_mountinfo(5)).
fn mounts() -> Vec<String> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let row = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(4);
        let (target, options) = (left.next()?, left.next()?);
        Some(format!("{target} {} {options}", right.split(' ').next()?))
    };
    String::from_utf8_lossy(&table)
        .lines()
        .filter_map(row)
        .collect()
}

/// Returns the descriptors that are open in this process, without the one that reads the directory.
pub(crate) fn open_fds() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let mut fds: Vec<i32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    fds.sort_unstable();
    // The descriptor of the directory was open while it was read, and is closed now.
    fds.retain(|fd| std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok());
    fds
}
