//! Values as written in a file, a variable or a flag, before their key gives them a type.

use std::fmt;
use std::path::{Path, PathBuf};

/// Value as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawValue {
    /// String, number or boolean.
    One(String),
    /// Array of such values.
    Many(Vec<String>),
    /// Table with a name that the user chose, and its fields.
    Table(String, Vec<(String, RawValue)>),
}

impl RawValue {
    /// Returns a single value; an error for a list or a table.
    pub(super) fn one(&self) -> Result<&str, String> {
        match self {
            Self::One(text) => Ok(text),
            Self::Many(_) => Err("takes one value, not a list".to_owned()),
            Self::Table(..) => Err("takes one value, not a table".to_owned()),
        }
    }

    /// Returns the values of a list. A string is one value, because patterns may contain commas.
    pub(super) fn patterns(&self) -> Vec<&str> {
        match self {
            Self::One(text) => vec![text],
            Self::Table(..) => Vec::new(),
            Self::Many(texts) => texts.iter().map(String::as_str).collect(),
        }
    }

    /// Returns the values of a list. A string may hold several values, separated by commas.
    pub(super) fn many(&self) -> Vec<&str> {
        match self {
            Self::One(text) => text
                .split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty())
                .collect(),
            Self::Many(texts) => texts.iter().map(String::as_str).collect(),
            Self::Table(..) => Vec::new(),
        }
    }
}

impl fmt::Display for RawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(text) => f.write_str(text),
            Self::Many(texts) => f.write_str(&texts.join(", ")),
            Self::Table(name, fields) => {
                f.write_str(name)?;
                fields
                    .iter()
                    .try_for_each(|(field, value)| write!(f, "; {field} = {value}"))
            }
        }
    }
}

/// Meaning of relative paths and `~` at the place of a value.
#[derive(Debug, Clone, Copy)]
pub struct PathContext<'a> {
    /// Base directory of relative paths.
    pub base: &'a Path,
    /// Directory for `~`; `None` if the user has no home directory.
    pub home: Option<&'a Path>,
}

impl PathContext<'_> {
    /// Resolves `text` to a path.
    pub(super) fn path(&self, text: &str) -> Result<PathBuf, String> {
        if text.is_empty() || text.contains('\0') {
            return Err(format!("`{text}` is not a path"));
        }
        if text == "~" || text.starts_with("~/") {
            let home = self
                .home
                .ok_or_else(|| format!("`{text}` needs a home directory, and there is none"))?;
            return Ok(home.join(text.trim_start_matches('~').trim_start_matches('/')));
        }
        Ok(self.base.join(text))
    }
}

/// Parses a boolean in the forms that people write.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        other => Err(format!("`{other}` is not a switch; use `true` or `false`")),
    }
}
