//! `glovebox net limit`: the traffic limits of a running sandbox, and changes of them.

use crate::args::NetLimitArgs;
use crate::cmd::Cx;
use crate::exit::CommandResult;
use crate::render::{self, table};
use glovebox_egress::{LimitChange, TrafficLimitChanges, TrafficStats};
use glovebox_settings::units::{Count, Size, human_bytes};
use serde_json::json;

/// Changes the named limits, and prints all.
pub(super) fn run(cx: &Cx, args: &NetLimitArgs) -> CommandResult {
    let name = crate::cmd::name(&args.name)?;
    let changes = TrafficLimitChanges {
        bytes: change(args.bytes, |size| size.0),
        connections: change(args.connections, |count| count.0),
        bytes_per_second: change(args.rate, |size| size.0),
    };
    let stats = cx.user_registry()?.limit_network(&name, changes)?;
    if args.json {
        let limits = stats.limits;
        let data = json!({
            "sandbox": name,
            "limits": {
                "bytes": limits.bytes,
                "connections": limits.connections,
                "bytes_per_second": limits.bytes_per_second,
            },
            "carried_bytes": carried_bytes(&stats),
            "open_connections": stats.open_connections,
        });
        render::print(render::envelope(true, "limits of the network", &data))?;
    } else {
        render::print(table(&["LIMIT", "VALUE", "NOW"], &rows(&stats)))?;
    }
    Ok(0)
}

/// Converts a typed limit: absent, `none` or a value.
fn change<W, T>(typed: Option<W>, value: impl FnOnce(W) -> Option<T>) -> LimitChange<T> {
    match typed {
        None => LimitChange::Keep,
        Some(typed) => value(typed).map_or(LimitChange::Remove, LimitChange::Set),
    }
}

const fn carried_bytes(stats: &TrafficStats) -> u64 {
    let total = &stats.total;
    total.sent_bytes.saturating_add(total.received_bytes)
}

fn rows(stats: &TrafficStats) -> Vec<Vec<String>> {
    let limits = stats.limits;
    let row = |limit: &str, value: String, now: String| vec![limit.to_owned(), value, now];
    vec![
        row(
            "bytes",
            Size(limits.bytes).to_string(),
            human_bytes(carried_bytes(stats)),
        ),
        row(
            "connections",
            Count(limits.connections).to_string(),
            stats.open_connections.to_string(),
        ),
        row(
            "bytes per second",
            Size(limits.bytes_per_second).to_string(),
            "-".to_owned(),
        ),
    ]
}
