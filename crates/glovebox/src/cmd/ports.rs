//! `glovebox ports`: the ports on which servers of a sandbox listen.

use super::Cx;
use crate::args::PortsArgs;
use crate::exit::CommandResult;
use crate::render::{self, plural, table};
use glovebox_proto::visible;
use serde_json::{Value, json};

/// Lists the ports.
pub(crate) fn run(cx: &Cx, args: &PortsArgs) -> CommandResult {
    render::answer_failure(
        list(cx, args),
        args.json,
        || json!({ "sandbox": args.name }),
    )
}

fn list(cx: &Cx, args: &PortsArgs) -> CommandResult {
    let name = super::name(&args.name)?;
    let registry = cx.user_registry()?;
    let ports = registry.ports_of_commands(&name, &registry.connect(&name)?)?;
    if args.json {
        let message = plural(ports.len(), "port", "ports");
        let rows: Vec<Value> = ports
            .iter()
            .map(|port| {
                let holder = port.holder.as_ref();
                json!({
                    "port": port.port,
                    "address": port.address,
                    "job": holder.map(|holder| holder.job),
                    "pid": holder.map(|holder| holder.pid),
                    "command": holder.map(|holder| visible::line(&holder.command)),
                })
            })
            .collect();
        let data = json!({ "sandbox": name, "ports": rows });
        render::print(render::envelope(true, &message, &data))?;
    } else if ports.is_empty() {
        cx.talk
            .note(format_args!("nothing listens in sandbox `{name}`"));
    } else {
        let rows: Vec<Vec<String>> = ports
            .iter()
            .map(|port| {
                let holder = port.holder.as_ref();
                // The holder is unknown if the process does not show its descriptors.
                let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
                vec![
                    port.port.to_string(),
                    port.address.to_string(),
                    known(holder.map(|holder| holder.job.to_string())),
                    known(holder.map(|holder| holder.pid.to_string())),
                    known(holder.map(|holder| visible::line(&holder.command))),
                ]
            })
            .collect();
        render::print(table(&["PORT", "ADDRESS", "JOB", "PID", "COMMAND"], &rows))?;
    }
    Ok(0)
}
