//! Calls that run in Node: a sandbox for each call, which shows the programs of this machine and nothing of a project,
//! and a process in it that runs `node.js` of this crate.

use crate::engine::NodeView;
use crate::grant::{CALL_BUDGET, HostGrant, RefusedHost};
use glovebox_egress::Policy;
use glovebox_js::tool_call::{CallLimits, MAX_RESULT_DEPTH, SERIALIZER, TOOL_CALL};
use glovebox_proto::{Background, Denial, EnvVar, Exec, Exit, ExitReport, Fault, Stdin};
use glovebox_sandbox::{Backend, Registry, Sandbox, SandboxSpec};
use glovebox_spec::{Layers, Limits, Net};
use serde_bytes::ByteBuf;
use std::time::Duration;

/// What Node itself takes besides the values of a tool.
const OWN_BYTES: u64 = 192 << 20;
/// Node has about a dozen threads.
const PIDS: u32 = 64;
/// What a tool may write to files that end with the call.
const DISK_BYTES: u64 = 64 << 20;
/// What a call may send and receive, together: as much as with the other engine.
const NET_BYTES: u64 = (CALL_BUDGET.sent_bytes + CALL_BUDGET.received_bytes) as u64;
/// Of code that was written for less memory than that, Node could not run anything.
const MIN_HEAP_MIB: u64 = 16;
/// What `sh` ends with when there is no such program, and the code around a tool when Node is too old.
const NO_NODE: i32 = 127;
const OLD_NODE: i32 = 126;
/// Limits of the kernel that Node itself cannot set; its arguments follow.
const START: &str =
    "ulimit -S -t \"$1\" && ulimit -H -t \"$2\" && ulimit -c 0 && shift 2 && exec node \"$@\"";

/// Starts the sandbox of one call. It has a network where there is a policy, also one that opens nothing: what was asked
/// for and refused is then known.
///
/// # Errors
/// Whatever keeps one from starting.
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

/// The process of one call, which is killed at the end of this time.
pub(crate) fn process(view: &NodeView, limits: CallLimits, deadline: Duration) -> Exec {
    let heap_mib = (limits.memory_bytes >> 20).max(MIN_HEAP_MIB);
    // A signal that tells of the limit comes first, and one that nothing catches after it.
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

/// Hosts that were asked for in the sandbox of a call of this tool, and refused.
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

/// The code around a tool, with what both engines have of it.
fn program() -> String {
    format!(
        "({})(\n{SERIALIZER}\n,\n{TOOL_CALL}\n, {MAX_RESULT_DEPTH})",
        include_str!("node.js")
    )
}

/// What to say when a process that wrote nothing has ended in a way that means that there is no Node.
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
