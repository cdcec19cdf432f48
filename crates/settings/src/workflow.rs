//! Workflows: phases of an agent's work in sequence, each with its tools, prompt and sandbox.
//!
//! ```toml
//! [[workflow]]
//! name = "change"
//!
//! [[workflow.phase]]
//! name = "plan"
//! leaves = ["/tmp/plan.md"]
//!
//! [[workflow.phase]]
//! name = "implement"
//! memory = "1GiB"
//! ```
//!
//! The parser of files turns this into words (`change`, `phase=plan`, `leaves=/tmp/plan.md`, ...),
//! like the list of any other key, and the words into a [`Workflow`].

use super::keys::{self, keys};
use super::project_file;
use super::raw::{PathContext, RawValue};
use super::{Demand, Origin, Reach, Settings, SourcedValue};
use crate::SettingsError;
use glovebox_tools::nearest;

/// Key of workflows in a file.
pub(super) const KEY: &str = "workflow";
/// Returns the keys of a phase that are settings of its sandbox.
fn sandbox_keys() -> impl Iterator<Item = &'static str> + Clone {
    keys().filter(|key| key.is_for_phases).map(|key| key.name)
}
/// Keys of a phase that are not settings.
const OWN_KEYS: [&str; 4] = ["name", "toolset", "prompt", "leaves"];
/// Most phases of a workflow.
const MAX_PHASES: usize = 16;
/// Most files that one phase leaves.
const MAX_FILES: usize = 16;
/// Longest prompt of a phase, in bytes.
const MAX_PROMPT_BYTES: usize = 16 << 10;

/// Sequence of phases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workflow {
    /// Name by which the user calls the workflow.
    pub name: String,
    /// Phases in order; at least one.
    pub phases: Vec<Phase>,
}

/// Phase of a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// Name of the phase.
    pub name: String,
    /// Additional prompt for the model; `None` for none.
    pub prompt: Option<String>,
    /// Files that must exist at the end of the phase, for the following phases.
    pub leaves: Vec<String>,
    /// Settings as written, the toolset first.
    settings: Vec<(&'static str, RawValue)>,
}

/// Converts one `[[workflow]]` table into words.
///
/// # Errors
/// A sentence about the invalid key or value.
pub(super) fn words(table: toml::Table) -> Result<Vec<String>, String> {
    let mut name = None;
    let mut phases = Vec::new();
    for (key, value) in table {
        match (key.as_str(), value) {
            ("name", toml::Value::String(text)) => name = Some(text),
            ("phase", toml::Value::Array(list)) => phases = list,
            (other, _) => {
                return Err(format!(
                    "`{}` does not belong in a workflow; write `name`, and `[[workflow.phase]]` for each phase",
                    other.escape_debug()
                ));
            }
        }
    }
    let mut words = vec![name.ok_or("a workflow needs a `name`")?];
    for phase in phases {
        let toml::Value::Table(mut phase) = phase else {
            return Err("a phase is a table: write `[[workflow.phase]]`".to_owned());
        };
        let Some(toml::Value::String(name)) = phase.remove("name") else {
            return Err("a phase needs a `name`".to_owned());
        };
        words.push(format!("phase={name}"));
        for (key, value) in phase {
            let mut push = |value: &toml::Value| {
                let text = super::file::scalar(value)
                    .ok_or_else(|| format!("`{}` of a phase cannot be that", key.escape_debug()))?;
                words.push(format!("{key}={text}"));
                Ok::<(), String>(())
            };
            match &value {
                toml::Value::Array(items) => items.iter().try_for_each(&mut push)?,
                one => push(one)?,
            }
        }
    }
    Ok(words)
}

impl std::fmt::Display for Workflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self
            .phases
            .iter()
            .map(|phase| phase.name.as_str())
            .collect();
        write!(f, "{}: {}", self.name, names.join(", "))
    }
}

impl Workflow {
    /// Parses the words of one workflow.
    ///
    /// # Errors
    /// A sentence about the invalid word.
    // TRUST: the words may come from a project's file, so everything is bounded here. The settings
    // of a phase are compared with the user's own when they are applied.
    pub(super) fn parse(words: &[&str]) -> Result<Self, String> {
        let (name, words) = words.split_first().ok_or("a workflow needs a `name`")?;
        let mut phases: Vec<Phase> = Vec::new();
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if key == "phase" {
                phases.push(Phase {
                    name: plain(value)?.to_owned(),
                    prompt: None,
                    leaves: Vec::new(),
                    settings: vec![("toolset", RawValue::One(value.to_owned()))],
                });
                continue;
            }
            let phase = phases.last_mut().ok_or("a workflow needs a phase")?;
            phase.set(key, value)?;
        }
        if phases.is_empty() || phases.len() > MAX_PHASES {
            return Err(format!("a workflow has 1 to {MAX_PHASES} phases"));
        }
        for (at, phase) in phases.iter().enumerate() {
            if phases.iter().take(at).any(|other| other.name == phase.name) {
                return Err(format!("two phases are called `{}`", phase.name));
            }
        }
        Ok(Self {
            name: plain(name)?.to_owned(),
            phases,
        })
    }
}

impl Phase {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "toolset" => {
                if let Some(first) = self.settings.first_mut() {
                    first.1 = RawValue::One(value.to_owned());
                }
            }
            "prompt" if value.len() > MAX_PROMPT_BYTES => {
                return Err(format!(
                    "the prompt of `{}` has more than {MAX_PROMPT_BYTES} bytes",
                    self.name
                ));
            }
            "prompt" => self.prompt = Some(value.to_owned()),
            "leaves" => {
                let is_path =
                    !value.is_empty() && !value.contains('\0') && !value.ends_with(['/', '.']);
                if !is_path || self.leaves.len() >= MAX_FILES {
                    return Err(format!(
                        "`leaves` of `{}` is a list of at most {MAX_FILES} paths of files",
                        self.name
                    ));
                }
                self.leaves.push(value.to_owned());
            }
            other => {
                let Some(known) = sandbox_keys().find(|known| *known == other) else {
                    let keys = OWN_KEYS.into_iter().chain(sandbox_keys());
                    let near = nearest(other, keys.clone()).map_or_else(
                        || format!("the keys are {}", keys.collect::<Vec<_>>().join(", ")),
                        |known| format!("did you mean `{known}`?"),
                    );
                    return Err(format!(
                        "`{}` is not a key of a phase; {near}",
                        other.escape_debug()
                    ));
                };
                match self.settings.iter_mut().find(|(key, _)| *key == known) {
                    Some((_, RawValue::Many(values))) => values.push(value.to_owned()),
                    Some((_, raw)) => {
                        let first = raw.one()?.to_owned();
                        *raw = RawValue::Many(vec![first, value.to_owned()]);
                    }
                    None => self.settings.push((known, RawValue::One(value.to_owned()))),
                }
            }
        }
        Ok(())
    }
}

fn plain(name: &str) -> Result<&str, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
        return Err(format!(
            "`{}` is not a name; use letters, digits, `-` and `_`",
            name.escape_debug()
        ));
    }
    Ok(name)
}

impl Settings {
    /// Adds a workflow.
    pub(super) fn add_workflow(&mut self, words: &[&str], origin: &Origin) -> Result<(), String> {
        let value = Workflow::parse(words)?;
        if let Some(other) = self
            .workflows
            .iter()
            .find(|known| known.value.name == value.name)
        {
            return Err(format!(
                "the workflow `{}` is defined already, in {}",
                value.name, other.origin
            ));
        }
        self.workflows.push(SourcedValue {
            value,
            origin: origin.clone(),
        });
        Ok(())
    }

    /// Returns the workflow with this name.
    ///
    /// # Errors
    /// A usage error that lists the known workflows.
    pub fn workflow(&self, name: &str) -> Result<&SourcedValue<Workflow>, SettingsError> {
        let names = || self.workflows.iter().map(|known| known.value.name.as_str());
        self.workflows
            .iter()
            .find(|known| known.value.name == name)
            .ok_or_else(|| {
                let remedy = match nearest(name, names()) {
                    Some(known) => format!("did you mean `{known}`?"),
                    None if self.workflows.is_empty() => {
                        "define it in glovebox.toml with [[workflow]]".to_owned()
                    }
                    None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
                };
                SettingsError::usage(
                    format!("there is no workflow `{}`", name.escape_debug()),
                    remedy,
                )
            })
    }

    /// Applies the settings of a phase over the current ones. Demands of a project's phase are
    /// added to [`Settings::project_file`].
    ///
    /// # Errors
    /// Usage errors for invalid values; a refusal for a value that no project may set.
    pub fn lay_workflow_phase(
        &mut self,
        phase: &Phase,
        origin: &Origin,
        home: Option<&std::path::Path>,
    ) -> Result<(), SettingsError> {
        let dir = match origin {
            Origin::ProjectFile(path) | Origin::UserFile(path) => path.parent(),
            Origin::Default | Origin::Variable(_) | Origin::Flag(_) => None,
        };
        let base = dir.unwrap_or(std::path::Path::new("/"));
        let place = format!("{origin}: the phase `{}`", phase.name);
        let before = self.clone();
        let mut demands = Vec::new();
        for (key, raw) in &phase.settings {
            self.apply(key, raw, PathContext { base, home }, origin)
                .map_err(|error| {
                    SettingsError::usage(format!("{place}: `{key}`: {error}"), "correct the file")
                })?;
            if matches!(origin, Origin::ProjectFile(_)) {
                // TRUST: the phase came with the project and is judged like any other value of its
                // file.
                let known = keys::find(key);
                let known = known.ok_or_else(|| {
                    SettingsError::usage(
                        format!("{place}: `{key}` is not a key"),
                        "correct the file",
                    )
                })?;
                demands.extend(project_file::judge(known, raw, &place, self, &before)?);
            }
        }
        if !matches!(origin, Origin::ProjectFile(_)) {
            return Ok(());
        }
        let Some(file) = &mut self.project_file else {
            // Without the file no code would ask the user for consent.
            return Err(SettingsError::usage(
                format!("{place}: its file was not read"),
                "call the workflow in the project it belongs to",
            ));
        };
        file.demands.extend(demands);
        file.demands.push(Demand {
            place,
            key: KEY,
            value: phase.prompt.clone().unwrap_or_default(),
            shown_value: phase.name.clone(),
            why: "tells the agent what to do outside a native sandbox".to_owned(),
            reach: Reach::OutsideNative,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Consent, ProjectFile};
    use super::*;
    use glovebox_spec::LimitKind;

    const TEXT: &str = r#"
        [[workflow]]
        name = "change"
        [[workflow.phase]]
        name = "look"
        toolset = "research"
        leaves = ["/tmp/a.md", "b.md"]
        [[workflow.phase]]
        name = "implement"
        prompt = "Keep it short."
        net = "none"
        grants = ["/opt/a", "/opt/b"]
        pids = 64
    "#;

    fn read(text: &str) -> Result<Workflow, String> {
        let mut table: toml::Table = text.parse().unwrap();
        let Some(toml::Value::Array(mut list)) = table.remove("workflow") else {
            panic!("{table}");
        };
        let Some(toml::Value::Table(first)) = list.pop() else {
            panic!("{list:?}");
        };
        let words = words(first)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Workflow::parse(&words)
    }

    #[test]
    fn phases_are_read_with_what_is_their_own() {
        let workflow = read(TEXT).unwrap();
        assert_eq!(workflow.name, "change");
        let [look, implement] = workflow.phases.as_slice() else {
            panic!("{workflow:?}");
        };
        assert_eq!(look.leaves, ["/tmp/a.md", "b.md"]);
        assert_eq!(
            look.settings,
            [("toolset", RawValue::One("research".to_owned()))]
        );
        assert_eq!(implement.prompt.as_deref(), Some("Keep it short."));
        let mut settings = Settings::default();
        settings
            .lay_workflow_phase(implement, &Origin::UserFile("/c/x".into()), None)
            .unwrap();
        assert_eq!(settings.limits.value(LimitKind::Pids), Some(64));
        assert_eq!(settings.grants.len(), 2);
    }

    #[test]
    fn what_does_not_belong_is_named() {
        for (text, words) in [
            ("name = \"x\"", "1 to 16 phases"),
            ("[[workflow.phase]]\nname = \"plan\"", "needs a `name`"),
            (
                "name = \"x\"\n[[workflow.phase]]\npids = 1",
                "phase needs a `name`",
            ),
            (
                "name = \"x\"\n[[workflow.phase]]\nname = \"plan\"\nmemroy = 1",
                "did you mean `memory`?",
            ),
            (
                "name = \"x\"\n[[workflow.phase]]\nname = \"plan\"\nstate = \"/x\"",
                "`state` is not a key of a phase",
            ),
            (
                "name = \"x\"\n[[workflow.phase]]\nname = \"a\"\n[[workflow.phase]]\nname = \"a\"",
                "two phases",
            ),
            (
                "name = \"../x\"\n[[workflow.phase]]\nname = \"a\"",
                "not a name",
            ),
            ("name = \"x\"\nnet = \"host\"", "does not belong"),
        ] {
            let error = read(&format!("[[workflow]]\n{text}\n")).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_projects_phase_has_no_more_than_the_user_gives() {
        let phase = |words: &[&str]| Workflow::parse(words).unwrap().phases.remove(0);
        let project = Origin::ProjectFile("/p/glovebox.toml".into());
        let user = Origin::UserFile("/c/x".into());
        let laid = |phase: &Phase, origin: &Origin, consent| {
            let mut settings = Settings {
                project_file: Some(ProjectFile {
                    path: "/p/glovebox.toml".into(),
                    dir: "/p".into(),
                    digest: String::new(),
                    demands: Vec::new(),
                    consent,
                }),
                ..Settings::default()
            };
            settings.lay_workflow_phase(phase, origin, None)?;
            settings.check_project(false)?;
            Ok::<_, SettingsError>(settings)
        };
        let is_refusal = |error: &SettingsError| matches!(error, SettingsError::Refused { .. });
        for wide in [
            "net=host",
            "memory=none",
            "toolset=full",
            "grants=/etc",
            "env=HOST",
        ] {
            let phase = phase(&["x", "phase=plan", wide]);
            let error = laid(&phase, &project, Consent::Unknown).unwrap_err();
            assert!(is_refusal(&error), "{wide}: {error:?}");
            laid(&phase, &project, Consent::ThisRun).unwrap();
            laid(&phase, &user, Consent::Unknown).unwrap();
        }
        let narrow = phase(&["x", "phase=plan", "memory=64MiB", "env=A=b"]);
        let settings = laid(&narrow, &project, Consent::Unknown).unwrap();
        // Outside a native sandbox its prompt needs consent as well.
        assert!(is_refusal(&settings.check_project(true).unwrap_err()));
        laid(&narrow, &user, Consent::Unknown)
            .unwrap()
            .check_project(true)
            .unwrap();
        // A project may never set some variables.
        let loader = phase(&["x", "phase=plan", "env=LD_PRELOAD=./x.so"]);
        let error = laid(&loader, &project, Consent::ThisRun).unwrap_err();
        assert!(is_refusal(&error), "{error:?}");
        laid(&loader, &user, Consent::Unknown).unwrap();
        // Without the file no code would ask the user for consent.
        let phase = phase(&["x", "phase=plan"]);
        Settings::default()
            .lay_workflow_phase(&phase, &project, None)
            .unwrap_err();
    }
}
