//! Values of settings, and the words that flags, variables and keys of a file accept for them.

use crate::units::Span;
use glovebox_egress::Policy;
use glovebox_sandbox::{Backend, WorkspaceMode};
use glovebox_spec::{Ids, Layers, LimitKind, Net, ProcMode, RootFs};
use glovebox_workspace::{Filter, GitHistory};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

/// Words of a carrier command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carrier(pub Vec<String>);

impl FromStr for Carrier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        split_words(text).map(Self)
    }
}

/// Splits a command line into words. Quotes and backslashes group as in a shell; nothing is
/// expanded.
pub fn split_words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => match chars.next() {
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err(format!("`{text}` ends in a backslash")),
            },
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(format!("`{text}` has no closing {open}"));
    }
    words.extend(word);
    if words.is_empty() {
        return Err("the carrier command is empty; write one like `ssh box`".to_owned());
    }
    Ok(words)
}

/// Environment variable: `NAME` (the host's value) or `NAME=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvArg {
    /// Name, without `=`.
    pub name: OsString,
    /// Value; `None` for the host's own.
    pub value: Option<OsString>,
}

impl EnvArg {
    /// Splits at the first `=`.
    ///
    /// # Errors
    /// A sentence if the name is missing or the text contains a NUL byte.
    pub fn parse(text: &OsStr) -> Result<Self, String> {
        let bytes = text.as_bytes();
        if bytes.contains(&0) {
            return Err("a variable cannot contain a NUL byte".to_owned());
        }
        let (name, value) = match bytes.iter().position(|&byte| byte == b'=') {
            Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
            None => (bytes, None),
        };
        if name.is_empty() {
            return Err(format!(
                "`{}` has no variable name; write NAME=VALUE, or NAME for the value you have",
                text.to_string_lossy()
            ));
        }
        let own = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        Ok(Self {
            name: own(name),
            value: value.map(own),
        })
    }
}

/// Grant as typed: `PATH` or `PATH:TARGET`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantArg {
    /// Host path. A relative one starts at the project directory.
    pub source: PathBuf,
    /// Absolute path inside; `None` for the same path as outside.
    pub target: Option<PathBuf>,
}

impl FromStr for GrantArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (source, target) = match text.split_once(':') {
            Some((source, target)) => (source, Some(target)),
            None => (text, None),
        };
        if source.is_empty() || source.contains('\0') {
            return Err(format!("`{text}` names no path; write PATH or PATH:TARGET"));
        }
        if let Some(target) = target
            && !target.starts_with('/')
        {
            return Err(format!(
                "`{target}` is not an absolute path inside; write PATH:/TARGET"
            ));
        }
        Ok(Self {
            source: source.into(),
            target: target.map(Into::into),
        })
    }
}

impl std::fmt::Display for GrantArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.target {
            Some(target) => write!(f, "{}:{}", self.source.display(), target.display()),
            None => write!(f, "{}", self.source.display()),
        }
    }
}

/// Parses the word of a backend.
pub fn parse_backend(text: &str) -> Result<Backend, String> {
    let words: Vec<_> = Backend::all()
        .iter()
        .map(|backend| (backend.as_str(), *backend))
        .collect();
    word(text, "a backend", &words)
}

/// Parses `host`, `host-all` or `dir:PATH`.
pub fn parse_rootfs(text: &str) -> Result<RootFs, String> {
    match text.split_once(':') {
        Some(("dir", "")) => Err("`dir:` names no directory; write dir:PATH".to_owned()),
        Some(("dir", path)) => Ok(RootFs::Dir(path.into())),
        _ if text == "host" => Ok(RootFs::Host),
        _ if text == "host-all" => Ok(RootFs::HostAll),
        _ => Err(format!(
            "`{text}` is not a root file system; use `host`, `host-all` or `dir:PATH`"
        )),
    }
}

/// Parses the word of a network mode.
pub fn parse_net(text: &str) -> Result<Net, String> {
    word(
        text,
        "a network mode",
        &[
            ("none", Net::None),
            ("egress", Net::Egress),
            ("host", Net::Host),
        ],
    )
}

/// Checks an item of `allow` or `deny`: a preset's name, or `HOST[:PORT][=private|=ADDRESS]`.
pub fn parse_reach(text: &str) -> Result<String, String> {
    let none: [&str; 0] = [];
    Policy::new(&[text], &none)
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}

/// Returns the word of a network mode.
pub const fn net_word(net: Net) -> &'static str {
    match net {
        Net::None => "none",
        Net::Egress => "egress",
        Net::Host => "host",
    }
}

/// Parses the word of a storage for written data.
pub fn parse_layers(text: &str) -> Result<Layers, String> {
    word(
        text,
        "a place for written data",
        &[("disk", Layers::Disk), ("memory", Layers::Memory)],
    )
}

/// Returns the word of a storage for written data.
pub const fn layers_word(layers: Layers) -> &'static str {
    match layers {
        Layers::Disk => "disk",
        Layers::Memory => "memory",
    }
}

/// Parses the word of an id mode.
pub fn parse_ids(text: &str) -> Result<Ids, String> {
    word(
        text,
        "an id mode",
        &[
            ("auto", Ids::Auto),
            ("single", Ids::Single),
            ("range", Ids::Range),
        ],
    )
}

/// Returns the word of an id mode.
pub const fn ids_word(ids: Ids) -> &'static str {
    match ids {
        Ids::Auto => "auto",
        Ids::Single => "single",
        Ids::Range => "range",
    }
}

/// Parses the word of a /proc mode.
pub fn parse_proc(text: &str) -> Result<ProcMode, String> {
    word(
        text,
        "a /proc mode",
        &[
            ("masked", ProcMode::Masked),
            ("pids", ProcMode::Pids),
            ("none", ProcMode::None),
        ],
    )
}

/// Returns the word of a /proc mode.
pub const fn proc_word(mode: ProcMode) -> &'static str {
    match mode {
        ProcMode::Masked => "masked",
        ProcMode::Pids => "pids",
        ProcMode::None => "none",
    }
}

/// Parses the word of a workspace mode.
pub fn parse_workspace(text: &str) -> Result<WorkspaceMode, String> {
    use WorkspaceMode::{Copy, Live, None, Overlay, ReadOnly};
    word(
        text,
        "a way to give the project",
        &[Overlay, ReadOnly, Copy, Live, None].map(|mode| (mode.as_str(), mode)),
    )
}

/// Parses how much of a repository's history is sent.
pub fn parse_git(text: &str) -> Result<GitHistory, String> {
    word(
        text,
        "a part of a repository",
        &[GitHistory::Head, GitHistory::Full].map(|history| (history.as_str(), history)),
    )
}

/// Checks a pattern in the syntax of `.gitignore`.
pub fn parse_pattern(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.contains(['\n', '\0']) {
        return Err(format!(
            "`{}` is not a pattern; write one as in a .gitignore file, such as `*.log` or `/build/`",
            text.escape_debug()
        ));
    }
    Filter::new(&[text.to_owned()], &[])
        .map(|_| text.to_owned())
        .map_err(|fault| fault.message)
}

/// Parses the time limit for the start of a sandbox: 100 ms to 1 h.
pub fn parse_start_timeout(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    match span.0 {
        Some(100..=3_600_000) => Ok(span),
        _ => Err(format!(
            "a sandbox cannot be waited for `{text}`; write a time from 100ms to 1h"
        )),
    }
}

/// Parses a directory on the other side of a carrier. It must be absolute, because home and working
/// directory there are unknown.
pub fn parse_guest_dir(text: &str) -> Result<PathBuf, String> {
    if !text.starts_with('/') || text.contains(char::is_control) {
        return Err(format!(
            "`{}` is no place on the other side; write an absolute path, such as /opt/glovebox",
            text.escape_debug()
        ));
    }
    Ok(text.into())
}

/// Parses the name of a limit.
pub fn parse_limit(text: &str) -> Result<LimitKind, String> {
    word(
        text,
        "a limit",
        &LimitKind::ALL.map(|kind| (kind.as_str(), kind)),
    )
}

/// Joins words as `` `a`, `b` or `c` ``.
pub fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => format!("`{only}`"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|word| format!("`{word}`")).collect();
            format!("{} or `{last}`", first.join(", "))
        }
    }
}

pub(super) fn word<T: Clone>(text: &str, what: &str, words: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, value)) = words.iter().find(|(name, _)| *name == text) {
        return Ok(value.clone());
    }
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    Err(format!("`{text}` is not {what}; use {}", one_of(&names)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_split_as_in_a_shell_without_expansion() {
        let split = |text| split_words(text).unwrap();
        assert_eq!(split("ssh -p 22 box"), ["ssh", "-p", "22", "box"]);
        assert_eq!(
            split(r#"sh -c 'exec cat "$0"' "a b" c\ d"#),
            ["sh", "-c", r#"exec cat "$0""#, "a b", "c d"]
        );
        assert_eq!(split("a ''"), ["a", ""]);
        assert!(split_words("sh 'open").is_err());
        assert!(split_words("   ").is_err());
        assert!(split_words("a\\").is_err());
    }

    #[test]
    fn variables_split_at_the_first_equals_sign() {
        let parse = |text| EnvArg::parse(OsStr::new(text));
        assert_eq!(parse("A=b=c").unwrap().value.unwrap(), "b=c");
        assert_eq!(parse("A=").unwrap().value.unwrap(), "");
        assert_eq!(parse("A").unwrap().value, None);
        assert!(parse("=b").is_err());
        assert!(parse("").is_err());
    }

    #[test]
    fn unknown_words_name_the_known_ones() {
        assert_eq!(
            parse_net("wifi").unwrap_err(),
            "`wifi` is not a network mode; use `none`, `egress` or `host`"
        );
        assert!(parse_rootfs("dir:").is_err());
        assert_eq!(parse_rootfs("dir:/x").unwrap(), RootFs::Dir("/x".into()));
    }
}
