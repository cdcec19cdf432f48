//! `glovebox ports`: which ports servers of a sandbox listen on.

use super::Cx;
use crate::args::PortsArgs;
use crate::exit::CommandResult;
use crate::render::{self, plural, table};
use serde_json::{Value, json};

/// Lists them.
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
            .map(|port| json!({"port": port.port, "address": port.address}))
            .collect();
        let data = json!({ "sandbox": name, "ports": rows });
        render::print(render::envelope(true, &message, &data))?;
    } else if ports.is_empty() {
        cx.talk
            .note(format_args!("nothing listens in sandbox `{name}`"));
    } else {
        let rows: Vec<Vec<String>> = ports
            .iter()
            .map(|port| vec![port.port.to_string(), port.address.to_string()])
            .collect();
        render::print(table(&["PORT", "ADDRESS"], &rows))?;
    }
    Ok(0)
}
