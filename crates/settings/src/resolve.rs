//! Resolution of all sources to one value per setting.

use super::file::{self, Content, Entry, FILE_NAME};
use super::keys::keys;
use super::project_file::{self, Consent, ProjectFile};
use super::raw::{PathContext, RawValue};
use super::{Origin, Settings};
use crate::SettingsError;
use crate::Surroundings;
use glovebox_proto::{Remedy, Setting};
use glovebox_tools::nearest;
use std::path::{Path, PathBuf};

/// Configuration files to read, as chosen by flags.
#[derive(Debug)]
pub struct Sources<'a> {
    /// Project directory. Its file is searched there and in the parent directories.
    pub project: Option<&'a Path>,
    /// File to read instead of the user's own.
    pub config: Option<&'a Path>,
    /// True to read no file.
    pub no_config: bool,
    /// True to trust the project's file for this run.
    pub trust_config: bool,
}

/// Resolves all sources except flags, which [`Settings::lay_flags`] applies afterwards. The second
/// value holds warnings for people.
///
/// # Errors
/// Usage errors for invalid files and variables; a refusal if the project's file sets a value that
/// no project may set. Values that need consent are in [`Settings::project_file`].
pub fn resolve(
    sources: &Sources<'_>,
    host: &Surroundings,
) -> Result<(Settings, Vec<String>), SettingsError> {
    let mut settings = Settings::default();
    if !sources.no_config {
        let user_file = lay_user_file(&mut settings, sources, host)?;
        if let Some(project) = sources.project {
            lay_project_file(&mut settings, project, user_file.as_deref(), sources, host)?;
        }
    }
    let warnings = lay_variables(&mut settings, host)?;
    // Check names of servers last: one file may refer to a server that another file defines.
    let servers = settings.servers.iter();
    let servers: Vec<&str> = servers.map(|server| server.value.name.as_str()).collect();
    settings.tools.check_servers(&servers).map_err(|message| {
        SettingsError::usage(message, "correct the name, or take the line out")
    })?;
    Ok((settings, warnings))
}

fn lay_user_file(
    settings: &mut Settings,
    sources: &Sources<'_>,
    host: &Surroundings,
) -> Result<Option<PathBuf>, SettingsError> {
    let variable = host.var("GLOVEBOX_CONFIG").map(PathBuf::from);
    let (path, is_asked_for) = match (sources.config, variable) {
        (Some(path), _) => (host.absolute(path), true),
        (None, Some(path)) => (host.absolute(&path), true),
        (None, None) => match host.config_dir() {
            Some(dir) => (dir.join(FILE_NAME), false),
            None => return Ok(None),
        },
    };
    let entries = match file::read(&path) {
        Ok(Some(content)) => content.entries,
        Ok(None) if is_asked_for => {
            return Err(SettingsError::usage(
                format!("there is no configuration file {}", path.display()),
                Remedy::advice([
                    "correct the path, or leave ".into(),
                    Setting::Config.into(),
                    " and $GLOVEBOX_CONFIG out".into(),
                ]),
            ));
        }
        Ok(None) => return Ok(None),
        Err(error) => return Err(error),
    };
    let origin = Origin::UserFile(path.clone());
    for entry in &entries {
        apply(settings, entry, &path, host, &origin)?;
    }
    Ok(Some(path))
}

fn lay_project_file(
    settings: &mut Settings,
    project: &Path,
    user_file: Option<&Path>,
    sources: &Sources<'_>,
    host: &Surroundings,
) -> Result<(), SettingsError> {
    for dir in project.ancestors() {
        let path = dir.join(FILE_NAME);
        if user_file == Some(path.as_path()) {
            return Ok(());
        }
        let Some(Content { entries, digest }) = file::read(&path)? else {
            continue;
        };
        let dir = dir.canonicalize().map_err(|error| {
            SettingsError::io(format!("open the directory of {}", path.display()), &error)
        })?;
        // Copy before the first entry: each demand is judged against the user's settings alone.
        let user = settings.clone();
        let origin = Origin::ProjectFile(path.clone());
        let mut demands = Vec::new();
        for entry in &entries {
            apply(settings, entry, &path, host, &origin)?;
            // TRUST: the file came with the project. Nothing starts until the user has agreed to
            // its demands.
            demands.extend(project_file::judge_entry(entry, &path, settings, &user)?);
        }
        let consent = if sources.trust_config {
            Consent::ThisRun
        } else {
            Consent::Unknown
        };
        settings.project_file = Some(ProjectFile {
            path,
            dir,
            digest,
            demands,
            consent,
        });
        return Ok(());
    }
    Ok(())
}

fn apply(
    settings: &mut Settings,
    entry: &Entry,
    path: &Path,
    host: &Surroundings,
    origin: &Origin,
) -> Result<(), SettingsError> {
    let place = PathContext {
        base: path.parent().unwrap_or(Path::new("/")),
        home: host.home(),
    };
    settings
        .apply(entry.key.name, &entry.raw, place, origin)
        .map_err(|error| {
            SettingsError::in_file(format!(
                "{}:{}: `{}`: {error}",
                path.display(),
                entry.line,
                entry.key.name
            ))
        })
}

/// `GLOVEBOX_*` variables that are not settings.
const OTHER_VARIABLES: &[&str] = &["GLOVEBOX_CONFIG", "GLOVEBOX_MCP_TOKEN"];

fn lay_variables(
    settings: &mut Settings,
    host: &Surroundings,
) -> Result<Vec<String>, SettingsError> {
    let mut warnings = Vec::new();
    for (name, value) in host.vars() {
        let Some(name) = name.to_str().filter(|name| name.starts_with("GLOVEBOX_")) else {
            continue;
        };
        if OTHER_VARIABLES.contains(&name) || name.starts_with("GLOVEBOX_TEST_") {
            continue;
        }
        let variables = keys().filter_map(|key| key.variable);
        let Some(key) = keys().find(|key| key.variable == Some(name)) else {
            if let Some(known) = nearest(name, variables) {
                warnings.push(format!("${name} is not a setting; did you mean ${known}?"));
            }
            continue;
        };
        // An empty variable counts as unset, as in the XDG base directory specification.
        if value.is_empty() {
            continue;
        }
        let remedy = || format!("correct ${name}, or unset it");
        let text = value
            .to_str()
            .ok_or_else(|| SettingsError::usage(format!("${name} is not UTF-8"), remedy()))?;
        let place = PathContext {
            base: host.directory(),
            home: host.home(),
        };
        let origin = Origin::Variable(key.variable.unwrap_or_default());
        settings
            .apply(key.name, &RawValue::One(text.to_owned()), place, &origin)
            .map_err(|error| SettingsError::usage(format!("${name}: {error}"), remedy()))?;
    }
    Ok(warnings)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use glovebox_spec::LimitKind;
    use std::fs;

    /// Configuration files of a user and of a project.
    pub(crate) struct Tree {
        pub dir: tempfile::TempDir,
    }

    impl Tree {
        pub(crate) fn new(user: &str, project: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            for (at, text) in [("home/.config/glovebox", user), ("project/sub", "")] {
                fs::create_dir_all(dir.path().join(at)).unwrap();
                if !text.is_empty() {
                    fs::write(dir.path().join(at).join(FILE_NAME), text).unwrap();
                }
            }
            if !project.is_empty() {
                fs::write(dir.path().join("project").join(FILE_NAME), project).unwrap();
            }
            Self { dir }
        }

        pub(crate) fn resolve(
            &self,
            vars: &[(&str, &str)],
            trust_config: bool,
        ) -> Result<(Settings, Vec<String>), SettingsError> {
            let project = self.dir.path().join("project/sub");
            let host = Surroundings::fixed(&self.dir.path().join("home"), &project, vars);
            let sources = Sources {
                project: Some(&project),
                config: None,
                no_config: false,
                trust_config,
            };
            resolve(&sources, &host)
        }
    }

    #[test]
    fn later_places_win() {
        let tree = Tree::new("memory = \"2GiB\"\npids = 10", "memory = \"1GiB\"");
        let (settings, _) = tree.resolve(&[("GLOVEBOX_PIDS", "7")], false).unwrap();
        let memory = settings.limits.get(LimitKind::Memory);
        assert_eq!(memory.value, Some(1 << 30));
        assert!(matches!(memory.origin, Origin::ProjectFile(_)));
        let pids = settings.limits.get(LimitKind::Pids);
        assert_eq!(pids.value, Some(7));
        assert_eq!(pids.origin, Origin::Variable("GLOVEBOX_PIDS"));
    }

    #[test]
    fn a_rule_on_a_server_that_is_not_there_is_an_error() {
        for text in [
            "policy.deny = [\"hub__push\"]",
            "toolsets.mine = [\"Read\", \"hub__*\"]",
        ] {
            let error = Tree::new(text, "").resolve(&[], false).unwrap_err();
            let message = error.message();
            assert!(
                message.contains("names the MCP server `hub`, and there is none"),
                "{message}"
            );
            assert!(message.contains("glovebox.toml: "), "{message}");
        }
    }

    #[test]
    fn wrong_variables_are_errors_and_mistyped_ones_warnings() {
        let tree = Tree::new("", "");
        let error = tree
            .resolve(&[("GLOVEBOX_MEMORY", "lots")], false)
            .unwrap_err();
        assert!(
            error.message().starts_with("$GLOVEBOX_MEMORY: "),
            "{error:?}"
        );
        let (_, warnings) = tree.resolve(&[("GLOVEBOX_MEMROY", "1GiB")], false).unwrap();
        assert_eq!(
            warnings,
            ["$GLOVEBOX_MEMROY is not a setting; did you mean $GLOVEBOX_MEMORY?"]
        );
    }
}
