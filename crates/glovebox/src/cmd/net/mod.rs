//! `glovebox net`: presets of hosts, the rules and decisions of a running sandbox, and additional
//! rules for it.

mod limit;
mod log;

use super::Cx;
use crate::args::{NetAction, NetAllowArgs, NetArgs, NetPresetsArgs, NetShowArgs, NetTestArgs};
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, escape_text, plural, table};
use glovebox_egress::{AddressKind, Endpoint, PRESETS, Probe, ProbeConnection, RuleInForce};
use glovebox_proto::EgressReason;
use glovebox_settings::units::Span;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// Runs the action of the command line.
pub(crate) fn run(cx: &Cx, args: &NetArgs) -> CommandResult {
    let (ended, is_json, name) = match &args.action {
        NetAction::Presets(args) => return presets(args),
        NetAction::Show(args) => (show(cx, args), args.json, &args.name),
        NetAction::Log(args) => (log::run(cx, args), args.json, &args.name),
        NetAction::Allow(args) => (allow(cx, args), args.json, &args.name),
        NetAction::Limit(args) => (limit::run(cx, args), args.json, &args.name),
        NetAction::Test(args) => (test(cx, args), args.json, &args.name),
    };
    render::answer_failure(ended, is_json, || json!({ "sandbox": name }))
}

fn presets(args: &NetPresetsArgs) -> CommandResult {
    if args.json {
        let presets: Vec<Value> = PRESETS
            .iter()
            .map(
                |preset| json!({"name": preset.name, "about": preset.about, "rules": preset.rules}),
            )
            .collect();
        render::print(render::envelope(
            true,
            &plural(presets.len(), "preset", "presets"),
            &json!({ "presets": presets }),
        ))?;
    } else {
        let rows: Vec<Vec<String>> = PRESETS
            .iter()
            .map(|preset| {
                vec![
                    preset.name.to_owned(),
                    preset.about.to_owned(),
                    preset.rules.join(" "),
                ]
            })
            .collect();
        render::print(table(&["PRESET", "FOR", "HOSTS"], &rows))?;
    }
    Ok(0)
}

fn show(cx: &Cx, args: &NetShowArgs) -> CommandResult {
    let name = super::name(&args.name)?;
    let rules = cx.user_registry()?.network_rules(&name)?;
    if args.json {
        let message = plural(rules.len(), "rule", "rules");
        let rules: Vec<Value> = rules.iter().map(rule_json).collect();
        let data = json!({ "sandbox": name, "rules": rules });
        render::print(render::envelope(true, &message, &data))?;
    } else if rules.is_empty() {
        cx.talk.note(format_args!(
            "sandbox `{name}` reaches no host; `glovebox net allow {name} HOST` opens one"
        ));
    } else {
        let row = |rule: &RuleInForce| {
            let effect = if rule.is_denial { "deny" } else { "allow" };
            vec![rule.rule.to_string(), effect.to_owned(), end_in_words(rule)]
        };
        let rows: Vec<Vec<String>> = rules.iter().map(row).collect();
        render::print(table(&["RULE", "EFFECT", "UNTIL"], &rows))?;
    }
    Ok(0)
}

fn rule_json(rule: &RuleInForce) -> Value {
    json!({
        "rule": rule.rule,
        "effect": if rule.is_denial { "deny" } else { "allow" },
        "added": rule.is_added,
        "remaining_ms": rule.remaining_ms,
    })
}

fn end_in_words(rule: &RuleInForce) -> String {
    match rule.remaining_ms {
        // Round up to the second, so that a rule still in force never shows "0s".
        Some(ms) => format!("{} from now", Span(Some(ms.div_ceil(1000) * 1000))),
        None if rule.is_added => "the sandbox stops".to_owned(),
        None => "always".to_owned(),
    }
}

const fn decision(is_refused: bool) -> &'static str {
    if is_refused { "refused" } else { "allowed" }
}

/// Names the rule or the reason behind a decision.
fn because(refused: Option<EgressReason>, rule: Option<&str>) -> String {
    let rule = rule.map(|rule| format!("`{rule}`"));
    let Some(reason) = refused else {
        return rule.unwrap_or_else(|| "-".to_owned());
    };
    match reason {
        EgressReason::Unlisted => "no rule names it".to_owned(),
        EgressReason::Port => "no rule names this port of it".to_owned(),
        EgressReason::Denied => rule.unwrap_or_else(|| "it is denied".to_owned()),
        EgressReason::Private => "it leads to a private address".to_owned(),
        EgressReason::OtherName => "another name was asked for than connected to".to_owned(),
        EgressReason::NoTls => "what was sent is not TLS".to_owned(),
        EgressReason::Address => "it is an address".to_owned(),
        EgressReason::Never => "no rule opens such a host".to_owned(),
        EgressReason::ByteLimit => "the limit on bytes".to_owned(),
        EgressReason::ConnectionLimit => "the limit on connections".to_owned(),
    }
}

fn allow(cx: &Cx, args: &NetAllowArgs) -> CommandResult {
    let name = super::name(&args.name)?;
    let lifetime_ms = args.lifetime.and_then(|span| span.0);
    let lifetime = lifetime_ms.map(Duration::from_millis);
    let rules = cx
        .user_registry()?
        .allow_hosts(&name, &args.hosts, lifetime)?;
    let shown: Vec<String> = rules.iter().map(|rule| rule.rule.to_string()).collect();
    let until = match lifetime_ms {
        Some(ms) => format!("for {}", Span(Some(ms))),
        None => "until it stops".to_owned(),
    };
    let message = format!("sandbox `{name}` may reach {} {until}", shown.join(", "));
    if args.json {
        let rules: Vec<Value> = rules.iter().map(rule_json).collect();
        let data = json!({ "sandbox": name, "rules": rules });
        render::print(render::envelope(true, &message, &data))?;
    } else {
        cx.talk.note(message);
    }
    Ok(0)
}

fn test(cx: &Cx, args: &NetTestArgs) -> CommandResult {
    let name = super::name(&args.name)?;
    let endpoint: Endpoint = args.url.parse().map_err(|error| {
        let shown: String = escape_text(&args.url).chars().take(100).collect();
        CommandError::usage(
            format!("`{shown}` cannot be tried: {error}"),
            "write a URL such as `https://example.com/`, or HOST or HOST:PORT",
        )
    })?;
    let registry = cx.user_registry()?;
    let probe = registry.probe_host(&name, &endpoint.host, endpoint.port)?;
    let is_reached = matches!(probe.connection, Some(ProbeConnection::Made { .. }));
    if args.json {
        let data = json!({ "sandbox": name, "probe": probe_json(&probe) });
        render::print(render::envelope(is_reached, &first_line(&probe), &data))?;
    } else {
        let mut text = format!("{}\n", first_line(&probe));
        for (address, kind) in &probe.addresses {
            let _ = writeln!(text, "  {address}  {}", address_kind(*kind));
        }
        if let Some(upstream) = &probe.upstream {
            let _ = writeln!(text, "  through this machine's proxy {upstream}");
        }
        if let Some(connection) = &probe.connection {
            let _ = writeln!(text, "{}", connection_in_words(connection));
        }
        render::print(text)?;
        if let Some(rule) = opening_rule(&probe) {
            cx.talk.note(format_args!(
                "`glovebox net allow {name} {rule}` opens it while the sandbox runs"
            ));
        }
    }
    Ok(u8::from(!is_reached))
}

fn first_line(probe: &Probe) -> String {
    let decision = decision(probe.refused.is_some());
    let because = because(probe.refused, probe.rule.as_deref());
    match probe.refused {
        None => format!("{}:{} is {decision} by {because}", probe.host, probe.port),
        Some(EgressReason::Denied) => format!(
            "{}:{} is {decision}: {because} denies it",
            probe.host, probe.port
        ),
        Some(_) => format!("{}:{} is {decision}: {because}", probe.host, probe.port),
    }
}

/// Returns the rule that would allow a refused host. None if no rule can.
fn opening_rule(probe: &Probe) -> Option<String> {
    let place = match probe.port {
        80 | 443 => probe.host.clone(),
        port => format!("{}:{port}", probe.host),
    };
    let is_openable = |kind: AddressKind| kind != AddressKind::Never;
    match probe.refused? {
        EgressReason::Unlisted | EgressReason::Port => Some(place),
        EgressReason::Private if probe.addresses.iter().any(|(_, kind)| is_openable(*kind)) => {
            Some(format!("{place}=private"))
        }
        _ => None,
    }
}

const fn address_kind(kind: AddressKind) -> &'static str {
    match kind {
        AddressKind::Public => "public",
        AddressKind::Private => "private",
        AddressKind::Never => "never reached",
    }
}

fn connection_in_words(connection: &ProbeConnection) -> String {
    match connection {
        ProbeConnection::Made { took_us } => {
            format!("connected in {:.1} ms", *took_us as f64 / 1000.0)
        }
        ProbeConnection::Failed { failure } => format!("not reached: {failure}"),
    }
}

fn probe_json(probe: &Probe) -> Value {
    let addresses: Vec<Value> = probe
        .addresses
        .iter()
        .map(|(address, kind)| json!({ "address": address, "kind": kind }))
        .collect();
    let (took_us, failure) = match &probe.connection {
        Some(ProbeConnection::Made { took_us }) => (Some(*took_us), None),
        Some(ProbeConnection::Failed { failure }) => (None, Some(failure)),
        None => (None, None),
    };
    let problem = probe.connection.as_ref().filter(|_| failure.is_some());
    json!({
        "host": probe.host,
        "port": probe.port,
        "decision": decision(probe.refused.is_some()),
        "reason": probe.refused.map(EgressReason::word),
        "rule": probe.rule,
        "addresses": addresses,
        "upstream": probe.upstream,
        "connected": took_us.is_some(),
        "connect_us": took_us,
        "failure": failure.map(|failure| failure.word()),
        "problem": problem.map(connection_in_words),
    })
}
