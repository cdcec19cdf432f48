//! `glovebox config trust`, `untrust` and `trusted`: the user's trust in project files.

use super::{Cx, age, consent};
use crate::args::{ProjectArgs, TrustedArgs};
use crate::exit::{CommandError, CommandResult};
use crate::render::{self, escape_text};
use glovebox_session::host;
use glovebox_settings::{Consent, ProjectFile, Settings, file_digest};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Number of digits of a digest that people see.
const SHOWN_DIGITS: usize = 12;

/// Trusts the project's file with its present content.
pub(crate) fn trust(cx: &Cx, args: &ProjectArgs) -> CommandResult {
    let project = find_project(cx, args.project.as_deref())?;
    let mut settings = cx.load_settings(Some(&project))?;
    let demands = settings.all_demands(cx.host.home())?;
    let store = cx.trust_store(&settings)?;
    let Some(file) = &mut settings.project_file else {
        return Err(CommandError::usage(
            format!(
                "there is no glovebox.toml in {} or above it",
                project.display()
            ),
            "name the directory of a project that has one; `glovebox init` writes one",
        ));
    };
    consent::trust(file, &store)?;
    let path = escape_text(&file.path.display().to_string());
    cx.talk.note(format_args!(
        "{path} is trusted as it is now (BLAKE3 {}); a changed file is not",
        shown_digest(&file.digest)
    ));
    if demands.is_empty() {
        cx.talk.note("it asks for nothing that needs trust");
    }
    for demand in &demands {
        cx.talk
            .note(format_args!("  {}", escape_text(&demand.line(true))));
    }
    Ok(0)
}

/// Revokes the trust in a project's file.
pub(crate) fn untrust(cx: &Cx, args: &ProjectArgs) -> CommandResult {
    let settings = cx.settings(None)?;
    let store = cx.trust_store(&settings)?;
    let asked = args.project.as_deref().unwrap_or_else(|| Path::new("."));
    let asked = cx.host.absolute(asked);
    // A removed directory can still be named by its path.
    let project = asked.canonicalize().unwrap_or(asked);
    let mut is_any = false;
    for dir in project.ancestors() {
        if store.remove(dir)? {
            is_any = true;
            cx.talk.note(format_args!(
                "the file of {} is trusted no more",
                escape_text(&dir.display().to_string())
            ));
            break;
        }
        if dir.join("glovebox.toml").symlink_metadata().is_ok() {
            break;
        }
    }
    if !is_any {
        cx.talk.note(format_args!(
            "nothing was trusted for {}",
            escape_text(&project.display().to_string())
        ));
    }
    Ok(0)
}

/// Lists the trusted files.
pub(crate) fn trusted(cx: &Cx, args: &TrustedArgs) -> CommandResult {
    let settings = cx.settings(None)?;
    let records = cx.trust_store(&settings)?.list()?;
    let state = |directory: &str, digest: &str| match file_digest(Path::new(directory)) {
        Some(now) if now == digest => "trusted",
        Some(_) => "changed",
        None => "missing",
    };
    if args.json {
        let list: Vec<Value> = records
            .iter()
            .map(|record| {
                json!({
                    "directory": record.directory,
                    "digest": record.digest,
                    "since_unix_ms": record.since_unix_ms,
                    "state": state(&record.directory, &record.digest),
                })
            })
            .collect();
        render::print(render::envelope(
            true,
            "trusted projects",
            &json!({ "trusted": list }),
        ))?;
        return Ok(0);
    }
    if records.is_empty() {
        cx.talk.note("no project's file is trusted");
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = records
        .iter()
        .map(|record| {
            vec![
                escape_text(&record.directory),
                state(&record.directory, &record.digest).to_owned(),
                age(record.since_unix_ms),
                shown_digest(&record.digest),
            ]
        })
        .collect();
    render::print(render::table(
        &["DIRECTORY", "STATE", "AGE", "DIGEST"],
        &rows,
    ))?;
    Ok(0)
}

/// Returns the trust in the project's file in a word.
const fn consent_word(consent: Consent) -> &'static str {
    match consent {
        Consent::Unknown => "untrusted",
        Consent::Changed { .. } => "changed",
        Consent::Trusted { .. } => "trusted",
        Consent::ThisRun => "trusted for this run",
    }
}

const fn consent_since(consent: Consent) -> Option<u64> {
    match consent {
        Consent::Changed { since_unix_ms } | Consent::Trusted { since_unix_ms } => {
            Some(since_unix_ms)
        }
        Consent::Unknown | Consent::ThisRun => None,
    }
}

/// Describes the project's file for `config explain`.
pub(super) fn describe_project_file(cx: &Cx, settings: &Settings) -> Result<String, CommandError> {
    let Some(file) = &settings.project_file else {
        return Ok(String::new());
    };
    let mut text = format!(
        "{}: {}{}, BLAKE3 {}\n",
        escape_text(&file.path.display().to_string()),
        consent_word(file.consent),
        consent_since(file.consent).map_or_else(String::new, |ms| format!(" since {}", age(ms))),
        shown_digest(&file.digest)
    );
    for demand in settings.all_demands(cx.host.home())? {
        text.push_str("  needs trust");
        if demand.reach == glovebox_settings::Reach::OutsideNative {
            text.push_str(" outside a native sandbox");
        }
        text.push_str(": ");
        text.push_str(&escape_text(&demand.line(false)));
        text.push('\n');
    }
    text.push('\n');
    Ok(text)
}

/// Describes the project's file for programs; null if there is none.
pub(super) fn project_file_json(cx: &Cx, settings: &Settings) -> Result<Value, CommandError> {
    let Some(ProjectFile {
        path,
        dir,
        digest,
        consent,
        ..
    }) = &settings.project_file
    else {
        return Ok(Value::Null);
    };
    let demands: Vec<Value> = settings
        .all_demands(cx.host.home())?
        .iter()
        .map(|demand| {
            json!({
                "place": demand.place,
                "key": demand.key,
                "value": demand.shown_value,
                "why": demand.why,
                "only_outside_native": demand.reach == glovebox_settings::Reach::OutsideNative,
            })
        })
        .collect();
    Ok(json!({
        "path": path.display().to_string(),
        "directory": dir.display().to_string(),
        "digest": digest,
        "trust": consent_word(*consent),
        "since_unix_ms": consent_since(*consent),
        "needs_trust": demands,
    }))
}

fn shown_digest(digest: &str) -> String {
    digest.chars().take(SHOWN_DIGITS).collect()
}

fn find_project(cx: &Cx, directory: Option<&Path>) -> Result<PathBuf, CommandError> {
    let Some(directory) = directory else {
        return Ok(host::project_dir(&cx.host)?);
    };
    let path = cx.host.absolute(directory);
    let shown = path.display();
    let real = path
        .canonicalize()
        .map_err(|error| CommandError::io(format!("open {shown}"), &error))?;
    if !real.is_dir() {
        return Err(CommandError::usage(
            format!("{shown} is not a directory"),
            "name the project's directory",
        ));
    }
    Ok(real)
}
