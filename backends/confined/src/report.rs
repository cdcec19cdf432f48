//! Isolation report of such a sandbox, and its weaknesses compared with a native one.

use glovebox_jail::confine::{MIN_LANDLOCK_ABI, can_sign_connections};
use glovebox_jail::landlock::abi_version;
use glovebox_sandbox::Report;
use glovebox_sandbox::backend::{CreateCx, unheld_limits};
use glovebox_spec::{LimitState, Net};

/// Weaknesses compared with the native backend, one sentence each.
pub(crate) const WEAKER: [&str; 10] = [
    "names, sizes, owners and times of files outside can be asked for, and changes to such files can be watched; \
     contents and lists of directories cannot be read",
    "command lines and the existence of other processes can be seen; their memory, environment and descriptors cannot",
    "no limit but that on time is held",
    "files outside are kept apart by Landlock and the monitor alone, not by their owner",
    "the workspace, home and temporary files have paths of the state directory: absolute paths of the project do not \
     lead to its copy",
    "there are no datagrams, so a program that asks for names by UDP (musl, Go) reaches listed hosts through the proxy \
     alone; no Unix sockets by name; no System V IPC, message queues, /tmp and /dev/shm by name, \
     terminals by name",
    "servers inside have an address of their own in 127.0.0.0/8; a port that the machine has in use shows another \
     number, and a port of a server inside is in use for all outside",
    "a command can end the sandbox as a whole, since it can signal the sandbox's own processes",
    "the host name, the network interfaces, the lists of connections (/proc/net) and the kernel's settings of the place \
     are seen",
    "if the owner and the monitor are killed at once from outside, commands run on within Landlock and the filter",
];

/// Returns the report of a sandbox that has started: the guest has tested its walls before it
/// served.
pub(crate) fn report(name: &'static str, cx: &CreateCx<'_>) -> Report {
    let mut report = Report::of_caller(name, cx.name.as_str(), "caller, without capabilities");
    report.limits = unheld_limits(cx.spec, "nothing here can hold it yet");
    let landlock = format!("by Landlock ABI {}", abi_version().max(MIN_LANDLOCK_ABI));
    let network = if !can_sign_connections() {
        "by the monitor: there are no network sockets, because this kernel cannot sign connections (CONFIG_TCP_MD5SIG)"
    } else if cx.spec.jail.net == Net::Egress {
        "by the monitor, which makes and connects sockets: they reach the sandbox's own servers and the proxy alone"
    } else {
        "by the monitor, which makes and connects sockets: they reach the sandbox's own servers alone"
    };
    for (wall, detail) in [
        ("files", landlock.as_str()),
        (
            "metadata",
            "by the monitor, which makes such calls in the sandbox's own trees alone",
        ),
        ("processes", landlock.as_str()),
        ("signals", landlock.as_str()),
        ("network", network),
        ("unix-sockets", "by the monitor: pairs alone can be made"),
        ("syscalls", "by a filter on every process"),
    ] {
        report.wall(wall, LimitState::Enforced, detail);
    }
    report.wall(
        "watches",
        LimitState::Absent,
        "names of what changes in files outside can be heard",
    );
    report.wall(
        "identity",
        LimitState::Approximate,
        "the user id of the caller, without capabilities and the way to any",
    );
    report.degraded = WEAKER.map(str::to_owned).to_vec();
    report
}
