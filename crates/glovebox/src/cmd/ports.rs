//! `glovebox ports`: which ports servers of a sandbox listen on.

use super::Cx;
use crate::args::PortsArgs;
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, plural, table};
use glovebox_proto::ListeningPort;
use glovebox_sandbox::jail::stage0::own_network::PROXY;
use glovebox_sandbox::{Name, Registry};
use serde_json::{Value, json};
use std::collections::BTreeSet;

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
    let ports = listening(&cx.user_registry()?, &name)?;
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

/// The ports that commands of a sandbox listen on: without those at which its way out to listed hosts is.
fn listening(registry: &Registry, name: &Name) -> Result<Vec<ListeningPort>, CommandError> {
    let ports = registry.connect(name)?.ports()?;
    // A sandbox with another network has no rules.
    let rules = registry.network_rules(name).unwrap_or_default();
    let mut own: BTreeSet<u16> = rules
        .iter()
        .flat_map(|rule| rule.rule.opened_ports())
        .copied()
        .collect();
    if !rules.is_empty() {
        own.insert(PROXY.port());
    }
    Ok(ports
        .into_iter()
        .filter(|port| !own.contains(&port.port))
        .collect())
}
