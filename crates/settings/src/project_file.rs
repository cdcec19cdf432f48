//! A project's own `glovebox.toml`: its demands beyond the user's settings, and the user's consent.
//!
//! The file comes with the project and is untrusted. Its values override the user's like those of
//! any other source, so every display shows them, and each value that needs consent is recorded as
//! a [`Demand`]. Nothing starts while a demand is unmet ([`Settings::check_project`]), and no value
//! is dropped silently.
//!
//! Consent applies to the bytes that were read: the same bytes are hashed and parsed, once per
//! command.

use super::file::Entry;
use super::project_env;
use super::project_rule::ProjectRule;
use super::raw::RawValue;
use super::{Origin, Settings};
use crate::SettingsError;
use crate::values::EnvArg;
use glovebox_proto::{Remedy, Setting};
use glovebox_sandbox::ProjectChoice;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Longest value in a message, in bytes.
const MAX_SHOWN_BYTES: usize = 200;

/// Configuration file of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Directory of the file, with symbolic links resolved. Consent is recorded for it.
    pub dir: PathBuf,
    /// BLAKE3 digest of the content in hexadecimal digits.
    pub digest: String,
    /// Values that need consent.
    pub demands: Vec<Demand>,
    /// The user's decision about the file.
    pub consent: Consent,
}

/// The user's decision about a project's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// No decision is recorded, or the records were not read yet.
    Unknown,
    /// The file was trusted with other content.
    Changed {
        /// Time of that decision, in Unix milliseconds.
        since_unix_ms: u64,
    },
    /// The file is trusted with its present content.
    Trusted {
        /// Time of the decision, in Unix milliseconds.
        since_unix_ms: u64,
    },
    /// The file is trusted for this run only (`--trust-config`).
    ThisRun,
}

/// Value that needs consent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Place of the value in the file, for people.
    pub place: String,
    /// Key of the value.
    pub key: &'static str,
    /// Value as written.
    pub value: String,
    /// Value without parts that may be secret.
    pub shown_value: String,
    /// Effect of the value.
    pub why: String,
    /// Scope in which the value needs consent.
    pub reach: Reach,
}

/// Scope in which a value needs consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Wherever commands run.
    Everywhere,
    /// Outside native sandboxes only.
    OutsideNative,
}

impl ProjectFile {
    /// Returns the values that need consent and do not have it. `is_outside_native` states whether
    /// commands run outside a native sandbox.
    pub fn unmet_demands(&self, is_outside_native: bool) -> Vec<&Demand> {
        if matches!(self.consent, Consent::Trusted { .. } | Consent::ThisRun) {
            return Vec::new();
        }
        let demands = self.demands.iter();
        demands
            .filter(|demand| demand.reach == Reach::Everywhere || is_outside_native)
            .collect()
    }
}

impl Demand {
    /// Returns one line for people, with the whole value if `is_whole`, otherwise without parts
    /// that may be secret.
    pub fn line(&self, is_whole: bool) -> String {
        let value = if is_whole {
            self.value.clone()
        } else {
            let mut value = self.shown_value.clone();
            if value.len() > MAX_SHOWN_BYTES {
                value.truncate(value.floor_char_boundary(MAX_SHOWN_BYTES));
                value.push_str("...");
            }
            value
        };
        format!("{}: `{} = {value}` {}", self.place, self.key, self.why)
    }
}

impl Settings {
    /// Returns true if commands run outside a native sandbox.
    pub fn is_outside_native(&self) -> bool {
        self.backend.value.project_choice() != ProjectChoice::Free
    }

    /// Checks that the user has consented to every demand of the project's file that applies where
    /// commands run.
    ///
    /// # Errors
    /// A refusal with the first unmet demand, the reason for which it needs consent, and how to
    /// give it.
    pub fn check_project(&self, is_outside_native: bool) -> Result<(), SettingsError> {
        let Some(file) = &self.project_file else {
            return Ok(());
        };
        let unmet = file.unmet_demands(is_outside_native);
        let Some(first) = unmet.first() else {
            return Ok(());
        };
        let more = match unmet.len() {
            1 => String::new(),
            2 => " (and so does one more value)".to_owned(),
            count => format!(" (and so do {} more values)", count - 1),
        };
        let since = match file.consent {
            Consent::Changed { .. } => "; the file has changed since you trusted it",
            _ => "",
        };
        Err(SettingsError::refused(
            format!(
                "{}, and a project may not do that by itself{more}{since}",
                first.line(false)
            ),
            Remedy::advice([
                "read the file; if you trust it as it is, run `glovebox config trust` in the project, or pass "
                    .into(),
                Setting::TrustConfig.into(),
                " for this once".into(),
            ]),
        ))
    }

    /// Returns everything that consent to the project's file would permit, including the phases of
    /// its workflows.
    ///
    /// # Errors
    /// Same as [`Settings::lay_workflow_phase`].
    pub fn all_demands(&self, home: Option<&Path>) -> Result<Vec<Demand>, SettingsError> {
        let Some(file) = &self.project_file else {
            return Ok(Vec::new());
        };
        let mut demands = file.demands.clone();
        let workflows = self.workflows.iter();
        for workflow in workflows.filter(|one| matches!(one.origin, Origin::ProjectFile(_))) {
            for phase in &workflow.value.phases {
                let mut settings = self.clone();
                settings.lay_workflow_phase(phase, &workflow.origin, home)?;
                let laid = settings.project_file.unwrap_or_else(|| file.clone());
                demands.extend(laid.demands.into_iter().skip(file.demands.len()));
            }
        }
        Ok(demands)
    }
}

/// Judges one value of a project's file. `new` contains it; `user` has no value of the project.
/// Returns a demand if the value needs consent.
///
/// # Errors
/// A refusal for a value that no project may set, trusted or not.
pub(super) fn judge(
    key: &'static super::keys::Key,
    raw: &RawValue,
    place: &str,
    new: &Settings,
    user: &Settings,
) -> Result<Option<Demand>, SettingsError> {
    let demand = |why: String, reach| {
        Some(Demand {
            place: place.to_owned(),
            key: key.name,
            value: raw.to_string(),
            shown_value: shown_value(key.name, raw),
            why,
            reach,
        })
    };
    refuse_variables(key.name, raw, place)?;
    Ok(match key.project {
        ProjectRule::Harmless => None,
        ProjectRule::TightensOnly(judge) => {
            judge(new, user).and_then(|why| demand(why, Reach::Everywhere))
        }
        ProjectRule::NativeOnly(judge, outside) => match judge(new, user) {
            Some(why) => demand(why, Reach::Everywhere),
            None => demand(outside.to_owned(), Reach::OutsideNative),
        },
        ProjectRule::NeedsTrust(why) => demand(why.to_owned(), Reach::Everywhere),
        ProjectRule::UserOnly => {
            return Err(SettingsError::refused(
                format!("{place}: a project cannot set `{}`", key.name),
                "set it in your own configuration (`~/.config/glovebox/glovebox.toml`)",
            ));
        }
    })
}

/// Judges one entry of the file; see [`judge`].
pub(super) fn judge_entry(
    entry: &Entry,
    path: &Path,
    new: &Settings,
    user: &Settings,
) -> Result<Option<Demand>, SettingsError> {
    let place = format!("{}:{}", path.display(), entry.line);
    judge(entry.key, &entry.raw, &place, new, user)
}

/// Returns the variables that a value names.
fn variables(key: &str, raw: &RawValue) -> Vec<String> {
    match (key, raw) {
        ("env", raw) => raw.many().into_iter().map(str::to_owned).collect(),
        ("mcp", RawValue::Table(_, fields)) => {
            let given = fields.iter().filter(|(field, _)| field == "env");
            given
                .flat_map(|(_, raw)| raw.patterns())
                .map(str::to_owned)
                .collect()
        }
        _ => Vec::new(),
    }
}

fn refuse_variables(key: &str, raw: &RawValue, place: &str) -> Result<(), SettingsError> {
    for text in variables(key, raw) {
        // A variable without a name was refused when the value was parsed.
        let Ok(variable) = EnvArg::parse(OsStr::new(&text)) else {
            continue;
        };
        if let Some(why) = project_env::refusal_reason(variable.name.as_bytes()) {
            return Err(SettingsError::refused(
                format!(
                    "{place}: `{key}`: a project cannot set the variable `{}`, trusted or not: {why}",
                    variable.name.to_string_lossy().escape_debug()
                ),
                Remedy::advice([
                    "take it out of the project's file; you can set it with ".into(),
                    Setting::Env.into(),
                    ", or in your own configuration".into(),
                ]),
            ));
        }
    }
    Ok(())
}

/// Returns the value without values of variables and without arguments, which may be secrets.
fn shown_value(key: &str, raw: &RawValue) -> String {
    match (key, raw) {
        ("env", raw) => {
            let names = raw
                .many()
                .into_iter()
                .map(|text| match text.split_once('=') {
                    Some((name, _)) => format!("{name}=..."),
                    None => text.to_owned(),
                });
            names.collect::<Vec<_>>().join(", ")
        }
        ("mcp", RawValue::Table(name, _)) => format!("[mcp.{name}]"),
        _ => raw.to_string(),
    }
}
