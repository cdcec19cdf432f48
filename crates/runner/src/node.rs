//! Calls with the engine `node`: each runs `node.js` of this crate in a sandbox of its own, which
//! shows the programs of this machine and nothing of a project.

use crate::engine::NodeView;
use crate::grant::{CALL_BUDGET, HostGrant, RefusedHost};
use glovebox_egress::Policy;
use glovebox_js::tool_call::{CallLimits, MAX_RESULT_DEPTH, SERIALIZER, TOOL_CALL};
use glovebox_proto::{Background, Denial, EnvVar, Exec, Exit, ExitReport, Fault, Stdin};
use glovebox_sandbox::{Backend, Registry, Sandbox, SandboxSpec};
use glovebox_spec::{Layers, Limits, Net};
use serde_bytes::ByteBuf;
use std::time::Duration;

/// Memory of Node itself besides the tool's values, in bytes.
const OWN_BYTES: u64 = 192 << 20;
/// Maximum number of processes and threads. Node has about a dozen threads.
const PIDS: u32 = 64;
/// Maximum size of the files that a tool writes, in bytes. They are removed after the call.
const DISK_BYTES: u64 = 64 << 20;
/// Maximum traffic of a call in both directions, in bytes: the same as with the other engine.
const NET_BYTES: u64 = (CALL_BUDGET.sent_bytes + CALL_BUDGET.received_bytes) as u64;
/// Minimum heap of Node, in MiB. With less it cannot run any code.
const MIN_HEAP_MIB: u64 = 16;
/// Exit code of `sh` if there is no such program, and below it the exit code of `node.js` if Node
/// is too old.
const NO_NODE: i32 = 127;
const OLD_NODE: i32 = 126;
/// Shell script that sets the kernel limits which Node cannot set, then runs Node with the
/// remaining arguments.
const START: &str =
    "ulimit -S -t \"$1\" && ulimit -H -t \"$2\" && ulimit -c 0 && shift 2 && exec node \"$@\"";

/// Starts the sandbox of one call. It has a network if there is a policy, even one that allows
/// nothing, so that refused hosts can be reported.
///
/// # Errors
/// The [`Fault`] of creating the sandbox.
pub(crate) fn sandbox(
    registry: &Registry,
    view: &NodeView,
    policy: Option<&Policy>,
    limits: CallLimits,
) -> Result<Sandbox, Fault> {
    let mut spec = SandboxSpec::new(Backend::NATIVE);
    let has_network = policy.is_some();
    spec.jail.net = if has_network { Net::Egress } else { Net::None };
    spec.egress = policy.cloned().unwrap_or_default();
    spec.jail.layers = Layers::Memory;
    spec.jail.grants.clone_from(&view.grants);
    spec.jail.limits = Limits {
        memory_bytes: Some(OWN_BYTES.saturating_add(limits.memory_bytes)),
        pids: Some(PIDS),
        disk_bytes: Some(DISK_BYTES),
        net_bytes: has_network.then_some(NET_BYTES),
        net_connections: has_network.then_some(CALL_BUDGET.requests),
        ..Limits::default()
    };
    registry.create(&spec, None)
}

/// Returns the process of one call, which is killed after `deadline`.
pub(crate) fn process(view: &NodeView, limits: CallLimits, deadline: Duration) -> Exec {
    let heap_mib = (limits.memory_bytes >> 20).max(MIN_HEAP_MIB);
    // The soft limit sends SIGXCPU, which identifies the limit as the cause. The hard limit one
    // second later sends SIGKILL, which the process cannot catch (setrlimit(2)).
    let cpu_s = limits.cpu_ms.div_ceil(1000).max(1);
    let words = [
        "/bin/sh".to_owned(),
        "-c".to_owned(),
        START.to_owned(),
        "glovebox-tool".to_owned(),
        cpu_s.to_string(),
        cpu_s.saturating_add(1).to_string(),
        "--no-warnings".to_owned(),
        format!("--max-old-space-size={heap_mib}"),
        "--eval".to_owned(),
        program(),
    ];
    let variable = |name: &str, value: &str| EnvVar {
        name: ByteBuf::from(name),
        value: ByteBuf::from(value),
    };
    Exec {
        clear_env: true,
        env: vec![
            variable("PATH", &view.path),
            variable("HOME", "/tmp"),
            variable("TZ", "UTC0"),
        ],
        stdin: Stdin::Stream,
        log: crate::pool::LOG,
        background: Background::Kill,
        timeout_ms: Some(deadline.as_millis() as u64),
        grace_ms: 0,
        ..Exec::new(words)
    }
}

/// Returns the hosts that a tool's process requested and that were refused.
pub(crate) fn refused_hosts(
    sandbox: &Sandbox,
    end: &ExitReport,
    grant: &HostGrant,
    tool: &str,
) -> Vec<RefusedHost> {
    let denials = sandbox.denials(end).into_iter();
    denials
        .filter_map(|denial| match denial {
            Denial::Egress {
                host, port, reason, ..
            } => Some(RefusedHost {
                remedy: grant.remedy(tool, &host, port, reason),
                host,
                port,
                reason,
            }),
            _ => None,
        })
        .collect()
}

/// Returns the JavaScript program that runs a tool, with the parts that both engines share.
fn program() -> String {
    format!(
        "({})(\n{SERIALIZER}\n,\n{TOOL_CALL}\n, {MAX_RESULT_DEPTH})",
        include_str!("node.js")
    )
}

/// Returns the message for a process that could not run Node. `None` if it ended for another
/// reason.
pub(crate) fn missing(end: &ExitReport) -> Option<&'static str> {
    match end.exit {
        Exit::Code(NO_NODE) => Some(
            "the engine `node` needs Node, which is not in the sandbox: install Node 20 or newer for all users \
             (`apt-get install nodejs`), or use the engine `quickjs`",
        ),
        Exit::Code(OLD_NODE) => Some(
            "the engine `node` needs Node 20 or newer, and the one in the sandbox is older: install a newer one, or \
             use the engine `quickjs`",
        ),
        _ => None,
    }
}
