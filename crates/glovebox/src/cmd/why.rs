//! `glovebox why`: the rule behind the decision on a call.

use super::Cx;
use crate::args::WhyArgs;
use crate::exit::CommandResult;
use crate::render::{self, escape_text, plural};
use glovebox_proto::{Code, Fault};
use glovebox_session::work::journal;
use glovebox_tools::policy::DecisionEntry;
use serde_json::json;

/// Maximum number of listed decisions.
const SHOWN: usize = 20;

/// Explains one call, or lists the latest.
pub(crate) fn run(cx: &Cx, args: &WhyArgs) -> CommandResult {
    let journal = journal(&cx.user_registry()?);
    let Some(call) = &args.call else {
        return list(cx, &journal.latest(SHOWN)?, args.json);
    };
    let Some(entry) = journal.find(call)? else {
        let fault = Fault::failed(
            Code::NotFound,
            format!("no decision about a call `{}` is kept", escape_text(call)),
        )
        .remedy("`glovebox why` lists the latest calls");
        return Err(fault.into());
    };
    if args.json {
        render::print(render::envelope(true, &verdict(&entry), &json!(entry)))?;
    } else {
        render::print(explain(&entry))?;
    }
    Ok(0)
}

fn list(cx: &Cx, entries: &[DecisionEntry], is_json: bool) -> CommandResult {
    if is_json {
        let message = plural(entries.len(), "decision", "decisions");
        render::print(render::envelope(
            true,
            &message,
            &json!({ "decisions": entries }),
        ))?;
    } else if entries.is_empty() {
        cx.talk.note("no tool was called yet");
    } else {
        let rows: Vec<Vec<String>> = entries
            .iter()
            .map(|entry| {
                vec![
                    escape_text(&entry.call),
                    super::age(entry.unix_ms),
                    escape_text(&entry.tool),
                    if entry.is_made { "made" } else { "refused" }.to_owned(),
                    escape_text(&entry.rule),
                    escape_text(&entry.summary),
                ]
            })
            .collect();
        render::print(render::table(
            &["CALL", "AGE", "TOOL", "VERDICT", "RULE", "ABOUT"],
            &rows,
        ))?;
    }
    Ok(0)
}

fn verdict(entry: &DecisionEntry) -> String {
    format!(
        "{} {}",
        escape_text(&entry.tool),
        if entry.is_made {
            "was called"
        } else {
            "was refused"
        }
    )
}

fn explain(entry: &DecisionEntry) -> String {
    // TRUST: a model chose some of these words.
    let mut rows = vec![
        (
            "call",
            format!(
                "{} ({} ago)",
                escape_text(&entry.call),
                super::age(entry.unix_ms)
            ),
        ),
        ("tool", escape_text(&entry.tool)),
        ("about", escape_text(&entry.summary)),
        ("verdict", verdict(entry)),
        ("rule", escape_text(&entry.rule)),
        ("from", escape_text(&entry.source)),
        ("toolset", escape_text(&entry.toolset)),
    ];
    if let Some(answer) = &entry.answer {
        rows.push(("asked", escape_text(answer)));
    }
    let lines: Vec<String> = rows
        .iter()
        .map(|(name, value)| format!("{name:8} {value}\n"))
        .collect();
    lines.concat()
}
