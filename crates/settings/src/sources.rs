//! Settings of the directories that tasks of `serve` may name: table `[serve.sources]`.

use super::raw::{PathContext, RawValue};
use super::{Origin, Settings, SourcedValue};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Longest name of a source.
const MAX_NAME_CHARS: usize = 64;
/// Suffix of the path of a read-only source.
const READ_ONLY: &str = ":ro";

/// Directory from which a session may start, under a name that does not reveal its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceDir {
    /// Name that tasks use.
    pub name: String,
    /// Path of the directory.
    pub dir: PathBuf,
    /// True if changes are never applied to the directory.
    pub is_read_only: bool,
}

impl SourceDir {
    fn new(name: &str, path: &str) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !begins || !name.chars().all(is_plain) || name.len() > MAX_NAME_CHARS {
            return Err(format!(
                "`{}` is no name of a source: use up to {MAX_NAME_CHARS} letters, digits, `-`, `_` and `.`",
                name.escape_debug()
            ));
        }
        let (dir, is_read_only) = match path.strip_suffix(READ_ONLY) {
            Some(dir) => (dir, true),
            None => (path, false),
        };
        if dir.is_empty() || dir.contains('\0') {
            return Err(format!("the source `{name}` names no directory"));
        }
        Ok(Self {
            name: name.to_owned(),
            dir: PathBuf::from(dir),
            is_read_only,
        })
    }
}

impl FromStr for SourceDir {
    type Err = String;

    /// Parses `NAME=DIR`, with the suffix `:ro` for a read-only source.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = text
            .split_once('=')
            .ok_or_else(|| format!("`{}` is not NAME=DIR", text.escape_debug()))?;
        Self::new(name, path)
    }
}

impl fmt::Display for SourceDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.is_read_only { READ_ONLY } else { "" };
        write!(f, "{}={}{end}", self.name, self.dir.display())
    }
}

/// Adds a source from a line of a file: name and path.
pub(super) fn add(
    settings: &mut Settings,
    raw: &RawValue,
    place: PathContext<'_>,
    origin: &Origin,
) -> Result<(), String> {
    let words = raw.patterns();
    let [name, path] = words.as_slice() else {
        return Err("takes a table of names, each with a directory".to_owned());
    };
    let mut source = SourceDir::new(name, path)?;
    let dir = source.dir.to_str().unwrap_or_default();
    source.dir = place.path(dir)?;
    settings.add_source(source, origin)
}

impl Settings {
    /// Adds a source, or replaces one with the same name from an earlier source of settings.
    ///
    /// # Errors
    /// A sentence if the same origin has already named it.
    pub fn add_source(&mut self, source: SourceDir, origin: &Origin) -> Result<(), String> {
        let mut known = self.sources.iter_mut();
        match known.find(|known| known.value.name == source.name) {
            Some(known) if known.origin == *origin => {
                Err(format!("the source `{}` is named twice", source.name))
            }
            Some(known) => {
                known.set(source, origin);
                Ok(())
            }
            None => {
                self.sources.push(SourcedValue {
                    value: source,
                    origin: origin.clone(),
                });
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_name_and_a_directory() {
        let source: SourceDir = "app.v2=/srv/a=b:ro".parse().unwrap();
        assert_eq!(
            (source.name.as_str(), source.is_read_only),
            ("app.v2", true)
        );
        assert_eq!(source.dir, PathBuf::from("/srv/a=b"));
        assert_eq!(source.to_string(), "app.v2=/srv/a=b:ro");
        for wrong in ["app", "=/srv", "a/b=/srv", ".a=/srv", "app=", "app=:ro"] {
            assert!(wrong.parse::<SourceDir>().is_err(), "{wrong}");
        }
        assert!(
            format!("{}=/srv", "x".repeat(65))
                .parse::<SourceDir>()
                .is_err()
        );
    }

    #[test]
    fn a_later_place_has_the_last_word_and_one_place_says_it_once() {
        let mut settings = Settings::default();
        let source = |text: &str| text.parse::<SourceDir>().unwrap();
        let file = Origin::UserFile("/f".into());
        settings.add_source(source("a=/one"), &file).unwrap();
        assert!(settings.add_source(source("a=/two"), &file).is_err());
        settings
            .add_source(source("a=/two"), &Origin::Flag("source"))
            .unwrap();
        assert_eq!(settings.shown("serve.sources").len(), 1);
        assert_eq!(settings.sources[0].value.dir, PathBuf::from("/two"));
    }
}
