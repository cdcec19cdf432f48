//! `glovebox stats`: the resource usage of sandboxes, once or repeatedly.

use super::Cx;
use crate::args::StatsArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, limit_value, plural, table};
use glovebox_egress::{TrafficStats, TrafficSum};
use glovebox_sandbox::{Name, Registry, ResourceUsage, SandboxState};
use glovebox_settings::units::human_bytes;
use glovebox_spec::LimitKind;
use serde_json::{Value, json};
use std::io::IsTerminal as _;
use std::thread;
use std::time::{Duration, Instant};

/// Interval over which processor time is measured.
const SAMPLE: Duration = Duration::from_millis(500);
/// Interval between two tables.
const INTERVAL: Duration = Duration::from_secs(2);
/// Moves the cursor to the corner and clears the screen behind it (ECMA-48).
const CLEAR: &str = "\x1b[H\x1b[J";

/// Resource usage of one sandbox.
struct Row {
    name: Name,
    state: SandboxState,
    work: Option<ResourceUsage>,
    /// Processor usage in thousandths of one processor. None if the sandbox reports none.
    cpu_millis: Option<u64>,
    memory_limit: Option<u64>,
    disk_bytes: Option<u64>,
    /// Bytes relayed to and from listed hosts. None for a sandbox with another network.
    traffic: Option<TrafficStats>,
}

/// Prints the usage.
pub(crate) fn run(cx: &Cx, args: &StatsArgs) -> CommandResult {
    render::answer_failure(show(cx, args), args.json, || json!({ "names": args.names }))
}

fn show(cx: &Cx, args: &StatsArgs) -> CommandResult {
    let names = super::names(&args.names)?;
    let registry = cx.user_registry()?;
    loop {
        let rows = measure(&registry, &names)?;
        if args.json {
            let message = plural(rows.len(), "sandbox", "sandboxes");
            let sandboxes: Vec<Value> = rows.iter().map(to_json).collect();
            render::print(render::envelope(
                true,
                &message,
                &json!({ "sandboxes": sandboxes }),
            ))?;
        } else if rows.is_empty() && !args.watch {
            cx.talk
                .note("no sandbox runs; `glovebox list` shows all there are");
        } else {
            let clear = if args.watch && std::io::stdout().is_terminal() {
                CLEAR
            } else {
                ""
            };
            let mut heading = vec![
                "NAME",
                "STATE",
                "CPU",
                "MEMORY",
                "LIMIT",
                "PROCESSES",
                "DISK",
            ];
            let mut cells: Vec<Vec<String>> = rows.iter().map(to_cells).collect();
            if rows.iter().any(|row| row.traffic.is_some()) {
                heading.extend(["SENT", "RECEIVED", "CONNECTIONS"]);
                for (cells, row) in cells.iter_mut().zip(&rows) {
                    cells.extend(traffic_cells(row.traffic.as_ref()));
                }
            }
            render::print(format_args!("{clear}{}", table(&heading, &cells)))?;
        }
        if !args.watch {
            return Ok(0);
        }
        thread::sleep(INTERVAL.saturating_sub(SAMPLE));
    }
}

/// Measures the sandboxes. Reads the counters twice, [`SAMPLE`] apart, so that processor usage is
/// the present one.
fn measure(registry: &Registry, names: &[Name]) -> Result<Vec<Row>, CommandError> {
    let entries = registry.list()?;
    if let Some(absent) = names
        .iter()
        .find(|name| !entries.iter().any(|entry| entry.name == **name))
    {
        return Err(crate::sync::no_sandbox(absent));
    }
    let mut rows: Vec<Row> = entries
        .into_iter()
        .filter(|entry| match names {
            [] => entry.pid.is_some(),
            names => names.contains(&entry.name),
        })
        .map(|entry| Row {
            work: registry.work(&entry.name).ok().flatten(),
            cpu_millis: None,
            memory_limit: registry
                .spec(&entry.name)
                .ok()
                .and_then(|spec| spec.jail.limits.memory_bytes),
            disk_bytes: registry.disk_bytes(&entry.name).ok().flatten(),
            traffic: registry.network_stats(&entry.name).ok().flatten(),
            name: entry.name,
            state: entry.state,
        })
        .collect();
    let begun = Instant::now();
    if rows.iter().any(|row| row.work.is_some()) {
        thread::sleep(SAMPLE);
    }
    for row in &mut rows {
        let Some(before) = row.work else { continue };
        row.work = registry.work(&row.name).ok().flatten();
        // Processes that ended unseen take their time with them, so the counter can fall.
        row.cpu_millis = row.work.map(|now| {
            let passed_us = begun.elapsed().as_micros().max(1) as u64;
            now.cpu_us
                .saturating_sub(before.cpu_us)
                .saturating_mul(1000)
                / passed_us
        });
    }
    Ok(rows)
}

fn to_cells(row: &Row) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        row.name.to_string(),
        row.state.to_string(),
        or_dash(
            row.cpu_millis
                .map(|millis| format!("{:.0}%", millis as f64 / 10.0)),
        ),
        or_dash(row.work.map(|work| human_bytes(work.memory_bytes))),
        or_dash(
            row.memory_limit
                .map(|bytes| limit_value(LimitKind::Memory, bytes)),
        ),
        or_dash(row.work.map(|work| work.processes.to_string())),
        or_dash(row.disk_bytes.map(human_bytes)),
    ]
}

fn to_json(row: &Row) -> Value {
    json!({
        "name": row.name,
        "state": row.state,
        "cpu_millis": row.cpu_millis,
        "cpu_us": row.work.map(|work| work.cpu_us),
        "memory_bytes": row.work.map(|work| work.memory_bytes),
        "memory_limit_bytes": row.memory_limit,
        "processes": row.work.map(|work| work.processes),
        "threads": row.work.map(|work| work.threads),
        "disk_bytes": row.disk_bytes,
        "network": row.traffic.as_ref().map(traffic_json),
    })
}

fn traffic_cells(traffic: Option<&TrafficStats>) -> [String; 3] {
    traffic.map_or_else(
        || ["-"; 3].map(str::to_owned),
        |traffic| {
            [
                human_bytes(traffic.total.sent_bytes),
                human_bytes(traffic.total.received_bytes),
                format!(
                    "{} ({} open)",
                    traffic.total.connections, traffic.open_connections
                ),
            ]
        },
    )
}

fn traffic_json(traffic: &TrafficStats) -> Value {
    let hosts: Vec<Value> = traffic
        .hosts
        .iter()
        .map(|(host, sum)| {
            let mut object = sum_json(sum);
            object["host"] = host.as_str().into();
            object
        })
        .collect();
    let mut object = sum_json(&traffic.total);
    object["open_connections"] = traffic.open_connections.into();
    object["refusals"] = traffic.refusals.into();
    object["hosts"] = hosts.into();
    object["others"] = sum_json(&traffic.others);
    object["limits"] = json!({
        "bytes": traffic.limits.bytes,
        "connections": traffic.limits.connections,
        "bytes_per_second": traffic.limits.bytes_per_second,
    });
    object
}

fn sum_json(sum: &TrafficSum) -> Value {
    json!({
        "sent_bytes": sum.sent_bytes,
        "received_bytes": sum.received_bytes,
        "connections": sum.connections,
    })
}
