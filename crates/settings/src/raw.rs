//! A value as it stands in a file, a variable or a flag, before its key gives it a type.

use std::fmt;
use std::path::{Path, PathBuf};

/// A value as written, before its key gives it a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawValue {
    /// A string, number or boolean.
    One(String),
    /// An array of those.
    Many(Vec<String>),
    /// A table of the user's own naming.
    Table(String, Vec<(String, RawValue)>),
}

impl RawValue {
    /// The one value.
    pub(super) fn one(&self) -> Result<&str, String> {
        match self {
            Self::One(text) => Ok(text),
            Self::Many(_) => Err("takes one value, not a list".to_owned()),
            Self::Table(..) => Err("takes one value, not a table".to_owned()),
        }
    }

    /// Several values; a text is one of them, for patterns may contain commas.
    pub(super) fn patterns(&self) -> Vec<&str> {
        match self {
            Self::One(text) => vec![text],
            Self::Table(..) => Vec::new(),
            Self::Many(texts) => texts.iter().map(String::as_str).collect(),
        }
    }

    /// Several values; a text may hold some, with commas between them.
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

/// What relative paths and `~` mean where a value was written.
#[derive(Debug, Clone, Copy)]
pub struct PathContext<'a> {
    /// Relative paths start here.
    pub base: &'a Path,
    /// What `~` stands for.
    pub home: Option<&'a Path>,
}

impl PathContext<'_> {
    /// The path that `text` means here.
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

/// Reads a boolean, as people write them.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        other => Err(format!("`{other}` is not a switch; use `true` or `false`")),
    }
}
