//! Machines that a backend's service holds: `list --backend`, `prune --backend`.

use super::{Cx, several};
use crate::args::{PruneArgs, ServiceArgs};
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, escape_text, plural, table};
use glovebox_sandbox::backend::{Claim, HeldMachine};
use glovebox_sandbox::{BASE_URL_OPTION, SandboxSpec};
use glovebox_session::spec::resolve_service;
use serde_json::json;

/// Lists the machines.
pub(super) fn list(cx: &Cx, args: &ServiceArgs, is_json: bool) -> CommandResult {
    let spec = spec(cx, args)?;
    let machines = cx.user_registry()?.list_held(&spec)?;
    if is_json {
        let message = plural(machines.len(), "machine", "machines");
        let data = json!({ "machines": machines });
        render::print(render::envelope(true, &message, &data))?;
    } else if machines.is_empty() {
        cx.talk.note(format_args!(
            "the service of the backend `{}` holds no machine of ours",
            spec.backend
        ));
    } else {
        render::print(rows(&machines))?;
    }
    Ok(0)
}

/// Removes the machines that no sandbox here needs.
pub(super) fn prune(cx: &Cx, args: &PruneArgs) -> CommandResult {
    let spec = spec(cx, &args.service)?;
    let registry = cx.user_registry()?;
    let machines = registry.list_held(&spec)?;
    let (left, others): (Vec<_>, Vec<_>) = machines
        .into_iter()
        .partition(|machine| machine.claim == Claim::Left);
    let foreign: Vec<_> = others
        .into_iter()
        .filter(|machine| machine.claim == Claim::Foreign)
        .collect();
    for machine in &foreign {
        cx.talk.note(format_args!(
            "`{}` only looks as if it had been made from here, and stays",
            escape_text(&machine.name)
        ));
    }
    if !left.is_empty() && !args.yes && !args.dry_run {
        several::agree_to_remove(
            cx,
            &plural(left.len(), "machine", "machines"),
            &format!("`glovebox list --backend {}` shows them", spec.backend),
            &format!("these go, with what is in them:\n{}", rows(&left)),
        )?;
    }
    let mut removed = Vec::new();
    let mut failure: Option<CommandError> = None;
    for machine in &left {
        if args.dry_run {
            if !args.json {
                render::print(format!("{}\n", escape_text(&machine.name)))?;
            }
            continue;
        }
        match registry.remove_held(&spec, machine) {
            Ok(()) => removed.push(machine.name.clone()),
            Err(fault) => several::keep_failure(cx, &mut failure, fault.into()),
        }
    }
    let message = match (args.dry_run, removed.len()) {
        (true, _) => format!("{} would go", plural(left.len(), "machine", "machines")),
        (false, 0) => "there was nothing to remove".to_owned(),
        (false, count) => format!("removed {}", plural(count, "machine", "machines")),
    };
    let data = json!({ "removed": removed, "left": left, "foreign": foreign });
    several::answer_removal(cx, args.json, &message, &data, failure)
}

/// Returns the flags that name the service of a sandbox.
pub(super) fn flags_of(spec: &SandboxSpec) -> String {
    let address = spec.option(BASE_URL_OPTION).first();
    let address = address.map(|url| format!(" --base-url {}", escape_text(url)));
    format!("--backend {}{}", spec.backend, address.unwrap_or_default())
}

fn spec(cx: &Cx, args: &ServiceArgs) -> Result<SandboxSpec, CommandError> {
    let mut settings = cx.settings(None)?;
    settings.lay_flags(&args.to_flags());
    Ok(resolve_service(&settings, &cx.host)?)
}

fn rows(machines: &[HeldMachine]) -> String {
    let rows: Vec<Vec<String>> = machines
        .iter()
        .map(|machine| {
            let claim = match machine.claim {
                Claim::InUse => "in use",
                Claim::Left => "left",
                Claim::Foreign => "not ours",
            };
            vec![
                escape_text(&machine.name),
                escape_text(&machine.state),
                claim.to_owned(),
            ]
        })
        .collect();
    table(&["MACHINE", "STATE", "CLAIM"], &rows)
}
