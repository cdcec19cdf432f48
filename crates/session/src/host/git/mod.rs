//! The user's git configuration, as far as it applies inside.
//!
//! In: the configuration files of the system and the user, and variables; includes are followed as
//! git follows them. Out: one text for the inside, with the files that it names. The project's
//! configuration is not read, because it could name any file. Git is not run, because with the
//! project as its repository it would read that configuration.

mod keys;

use gix_config::file::{Metadata, includes, init};
use gix_config::{File, Source};
use glovebox_settings::Surroundings;
use glovebox_spec::ReplacedFile;
use glovebox_workspace::{RepositoryFacts, has_token, repository_facts};
use keys::{Carriage, carriage_of};
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Directory inside with the files that the configuration names.
const DIR: &str = "/run/glovebox/git/user";
/// Maximum size of a configuration that is read and of a file that is copied, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum size of a value that is carried, in bytes.
const MAX_VALUE_BYTES: usize = 4 << 10;
/// Maximum number of settings read from `GIT_CONFIG_COUNT`.
const MAX_VARIABLES: usize = 1000;

/// Settings at the start of the text, which the user's own may override. A file may have another
/// owner inside, and maintenance would copy the objects that the sandbox shares with the project.
const DEFAULTS: &str = "\
[safe]
\tdirectory = *
[gc]
\tauto = 0
[maintenance]
\tauto = false
";
/// Settings at the end of the text, so that they win: signing needs a key, which stays outside.
const UNSIGNED: &str = "\
[commit]
\tgpgSign = false
[tag]
\tgpgSign = false
\tforceSignAnnotated = false
[push]
\tgpgSign = false
";
/// Variables that name the author or committer, and the settings that replace them inside.
const IDENTITY: [(&str, &str, &str); 4] = [
    ("GIT_AUTHOR_NAME", "author", "name"),
    ("GIT_AUTHOR_EMAIL", "author", "email"),
    ("GIT_COMMITTER_NAME", "committer", "name"),
    ("GIT_COMMITTER_EMAIL", "committer", "email"),
];
/// Files that git reads if no setting names another: the setting, the path below the configuration
/// directory, and the name inside.
const USUAL_FILES: [(&str, &str, &str); 2] = [
    ("excludesfile", "git/ignore", keys::EXCLUDES),
    ("attributesfile", "git/attributes", keys::ATTRIBUTES),
];

/// Part of the user's git configuration that applies inside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitSettings {
    /// The configuration for the inside.
    text: String,
    /// Name in [`DIR`] and content of each file that the configuration names.
    files: Vec<(String, Vec<u8>)>,
    /// The user's own ignore file on the host.
    pub excludes_file: Option<PathBuf>,
    /// Configuration files that could not be parsed.
    pub unreadable: Vec<PathBuf>,
    /// True if the user's commits are signed outside. Inside they are not.
    pub signs_commits: bool,
}

impl GitSettings {
    /// Reads the user's configuration as it applies to `project`.
    pub fn read(host: &Surroundings, project: &Path) -> Self {
        let mut settings = Self {
            text: DEFAULTS.to_owned(),
            ..Self::default()
        };
        let home = host.home();
        let config_home = host
            .var("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute())
            .or_else(|| home.map(|home| home.join(".config")));
        let context = Context {
            home,
            repository: repository_facts(project),
        };
        let mut values = Vec::new();
        for (path, source) in config_files(host, config_home.as_deref()) {
            match context.read(&path, source) {
                Some(read) => values.extend(read),
                None => settings.unreadable.push(path),
            }
        }
        values.extend(values_of_variables(host));
        for (variable, section, key) in IDENTITY {
            let value = host.var(variable).and_then(|value| value.to_str());
            values.extend(value.map(|value| Value::new(section, None, key, value)));
        }
        values.retain(|value| value.is_plain() && !has_token(value.text.as_bytes()));
        let signing = values.iter().rfind(|value| value.is("commit", "gpgsign"));
        settings.signs_commits = signing.is_some_and(Value::is_true);
        for value in &values {
            if value.carriage() == Carriage::Carried {
                settings.push(value);
            }
        }
        settings.copy_files(&values, home, config_home.as_deref());
        settings.text.push_str(UNSIGNED);
        settings
    }

    /// Returns the files to show inside, with the configuration itself at `path`.
    pub fn shown_at(&self, path: &Path) -> Vec<ReplacedFile> {
        let config = ReplacedFile {
            path: path.to_owned(),
            content: self.text.clone().into_bytes(),
        };
        let files = self.files.iter().map(|(name, content)| ReplacedFile {
            path: Path::new(DIR).join(name),
            content: content.clone(),
        });
        [config].into_iter().chain(files).collect()
    }

    /// Copies the files that settings name, and the default files for settings that are absent.
    fn copy_files(&mut self, values: &[Value], home: Option<&Path>, config_home: Option<&Path>) {
        let mut named: Vec<(&'static str, &str, &str, PathBuf)> = Vec::new();
        for value in values {
            if let Carriage::File(name) = value.carriage() {
                // The last value wins, even if it names no file.
                named.retain(|(taken, ..)| *taken != name);
                let path = host_path(&value.text, home).unwrap_or_default();
                named.push((name, &value.section, &value.key, path));
            }
        }
        for (key, file, name) in USUAL_FILES {
            if !named.iter().any(|(taken, ..)| *taken == name) {
                let path = config_home.map(|dir| dir.join(file)).unwrap_or_default();
                named.push((name, "core", key, path));
            }
        }
        for (name, section, key, path) in named {
            // Dotfile managers put links there.
            let Ok(path) = path.canonicalize() else {
                continue;
            };
            if let Some(content) = read_small_file(&path) {
                self.push(&Value::new(section, None, key, &format!("{DIR}/{name}")));
                self.files.push((name.to_owned(), content));
            }
            if name == keys::EXCLUDES {
                self.excludes_file = Some(path);
            }
        }
    }

    fn push(&mut self, value: &Value) {
        let Value {
            section,
            subsection,
            key,
            text,
        } = value;
        let subsection = subsection.as_deref().map_or(String::new(), |name| {
            format!(" \"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
        });
        // TRUST: within quotes git takes every character literally except for these.
        let text = text
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
            .replace('\t', "\\t");
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "[{section}{subsection}]\n\t{key} = \"{text}\"");
    }
}

/// A git setting.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Value {
    /// Section in lower case.
    section: String,
    subsection: Option<String>,
    /// Key in lower case.
    key: String,
    text: String,
}

impl Value {
    fn new(section: &str, subsection: Option<&str>, key: &str, text: &str) -> Self {
        Self {
            section: section.to_ascii_lowercase(),
            subsection: subsection.map(str::to_owned),
            key: key.to_ascii_lowercase(),
            text: text.to_owned(),
        }
    }

    /// Returns true for the setting `section.key`, both in lower case.
    fn is(&self, section: &str, key: &str) -> bool {
        self.subsection.is_none() && self.section == section && self.key == key
    }

    /// Returns true for a value that git takes for true (git-config(1), "boolean").
    fn is_true(&self) -> bool {
        gix_config::Boolean::try_from(self.text.as_str()).is_ok_and(|value| value.0)
    }

    fn carriage(&self) -> Carriage {
        carriage_of(&self.section, self.subsection.as_deref(), &self.key)
    }

    /// Returns true if the setting can be written as text: no control character can end a line or a
    /// value early.
    fn is_plain(&self) -> bool {
        let mut names = self.section.chars().chain(self.key.chars());
        let mut subsection = self.subsection.iter().flat_map(|name| name.chars());
        self.text.len() <= MAX_VALUE_BYTES
            && names.all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
            && !subsection.any(char::is_control)
            && !self
                .text
                .chars()
                .any(|letter| letter.is_control() && letter != '\t' && letter != '\n')
    }
}

/// Facts that conditional includes test.
struct Context<'a> {
    home: Option<&'a Path>,
    repository: RepositoryFacts,
}

impl Context<'_> {
    /// Returns the settings of one file and of the files that it includes; empty if the file does
    /// not exist. `None` if it cannot be read or parsed.
    fn read(&self, path: &Path, source: Source) -> Option<Vec<Value>> {
        let Some(text) = read_small_file(path) else {
            // Git ignores a file that does not exist or that the user may not read.
            return fs::metadata(path).is_err().then(Vec::new);
        };
        let branch = self.repository.branch.as_deref();
        let branch_name = branch.and_then(|name| <&gix_ref::FullNameRef>::try_from(name).ok());
        let options = init::Options {
            includes: includes::Options {
                err_on_max_depth_exceeded: false,
                ..includes::Options::follow(
                    gix_config::path::interpolate::Context {
                        git_install_dir: None,
                        home_dir: self.home,
                        home_for_user: None,
                    },
                    includes::conditional::Context {
                        git_dir: Some(&self.repository.git_dir),
                        branch_name,
                    },
                )
            },
            lossy: true,
            ignore_io_errors: true,
        };
        let meta = Metadata::from(source).at(path);
        // The condition `hasconfig` tests the remotes of the project; no setting of them is
        // carried.
        let mut whole = [&self.repository.remotes[..], &spell_includes(text)].concat();
        let file = File::from_bytes_owned(&mut whole, meta, options).ok()?;
        let mut values = Vec::new();
        for section in file.sections() {
            let header = section.header();
            let name = header.name().to_string();
            let subsection = header.subsection_name().map(ToString::to_string);
            let value = |key: &str, text: &str| Value::new(&name, subsection.as_deref(), key, text);
            let mut seen = Vec::new();
            for key in section.body().value_names() {
                if seen.contains(&key) {
                    continue;
                }
                let texts = section.body().values(&key);
                values.extend(texts.iter().map(|text| value(&key, &text.to_string())));
                // A key without a value means true.
                if section.body().value_implicit(&key) == Some(None) {
                    values.push(value(&key, "true"));
                }
                seen.push(key);
            }
        }
        Some(values)
    }
}

/// Rewrites the headers of includes in the spelling that gix-config recognises; git accepts any
/// case.
fn spell_includes(mut text: Vec<u8>) -> Vec<u8> {
    for name in [&b"[include"[..], b"[includeIf"] {
        for at in 0..text.len().saturating_sub(name.len()) {
            let found = &mut text[at..at + name.len()];
            if found.eq_ignore_ascii_case(name) {
                found.copy_from_slice(name);
            }
        }
    }
    text
}

/// Returns the files that git reads for every repository; later ones win.
fn config_files(host: &Surroundings, config_home: Option<&Path>) -> Vec<(PathBuf, Source)> {
    let mut files = Vec::new();
    let is_without_system = host.var("GIT_CONFIG_NOSYSTEM").is_some_and(|value| {
        !["", "0", "false", "no", "off"]
            .iter()
            .any(|no| value == *no)
    });
    if !is_without_system {
        let system = host.var("GIT_CONFIG_SYSTEM").map(PathBuf::from);
        let usual = || PathBuf::from("/etc/gitconfig");
        files.push((system.unwrap_or_else(usual), Source::System));
    }
    if let Some(file) = host.var("GIT_CONFIG_GLOBAL") {
        files.push((file.into(), Source::User));
    } else {
        files.extend(config_home.map(|dir| (dir.join("git/config"), Source::Git)));
        files.extend(
            host.home()
                .map(|home| (home.join(".gitconfig"), Source::User)),
        );
    }
    files.retain(|(path, _)| path.is_absolute());
    files
}

/// Returns the settings from `GIT_CONFIG_COUNT` variables.
fn values_of_variables(host: &Surroundings) -> Vec<Value> {
    let text = |name: &str| host.var(name)?.to_str().map(str::to_owned);
    let count = text("GIT_CONFIG_COUNT").and_then(|count| count.parse().ok());
    let count: usize = count.unwrap_or(0);
    let values = (0..count.min(MAX_VARIABLES)).filter_map(|number| {
        let name = text(&format!("GIT_CONFIG_KEY_{number}"))?;
        let value = text(&format!("GIT_CONFIG_VALUE_{number}"))?;
        let (section, rest) = name.split_once('.')?;
        let (subsection, key) = match rest.rsplit_once('.') {
            Some((subsection, key)) => (Some(subsection), key),
            None => (None, rest),
        };
        Some(Value::new(section, subsection, key, &value))
    });
    values.collect()
}

/// Returns the absolute host path that a setting names.
fn host_path(value: &str, home: Option<&Path>) -> Option<PathBuf> {
    let path = match value.strip_prefix("~/") {
        Some(below) => home?.join(below),
        None => PathBuf::from(value),
    };
    path.is_absolute().then_some(path)
}

/// Reads a regular file of at most [`MAX_FILE_BYTES`]. The user named it, so links are followed.
fn read_small_file(path: &Path) -> Option<Vec<u8>> {
    let meta = fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MAX_FILE_BYTES {
        return None;
    }
    let mut content = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(MAX_FILE_BYTES).read_to_end(&mut content).ok()?;
    Some(content)
}

#[cfg(test)]
mod tests;
