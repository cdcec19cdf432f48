//! Reading `glovebox.toml`: strict, bounded, with the line of what is wrong.

use super::key::{KEYS, Raw};
use super::nearest::nearest;
use crate::exit::CommandError;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Name of a configuration file.
pub(super) const FILE_NAME: &str = "glovebox.toml";

/// More than any real configuration; keeps a hostile project from making us read without end.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// One `key = value` of a file.
#[derive(Debug)]
pub(super) struct Entry {
    /// Key, known.
    pub key: &'static super::key::Key,
    /// Value, untyped.
    pub raw: Raw,
    /// Line of the key, from 1.
    pub line: usize,
}

/// Reads the file at `path`; `None` when there is none.
///
/// # Errors
/// Usage errors that name the file, the line and, for an unknown key, the nearest known one.
pub(super) fn read(path: &Path) -> Result<Option<Vec<Entry>>, CommandError> {
    let shown = path.display();
    // TRUST: a project may put anything under this name. Without NONBLOCK a FIFO would hang us.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(CommandError::io(format!("read {shown}"), &error.into())),
    };
    let metadata = file
        .metadata()
        .map_err(|error| CommandError::io(format!("read {shown}"), &error))?;
    if !metadata.is_file() {
        return Err(CommandError::usage(
            format!("{shown} is not a regular file"),
            "remove it, or pass --no-config",
        ));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| CommandError::io(format!("read {shown}"), &error))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(CommandError::usage(
            format!("{shown} is larger than 1 MiB"),
            "this is not a glovebox configuration; pass --no-config",
        ));
    }
    parse(&text, path).map(Some)
}

fn parse(text: &str, path: &Path) -> Result<Vec<Entry>, CommandError> {
    let shown = path.display();
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        CommandError::usage(
            format!(
                "{shown}:{line}: {}",
                error.message().lines().next().unwrap_or("not TOML")
            ),
            "correct the file, or pass --no-config to go without it",
        )
    })?;
    let mut entries = Vec::new();
    for (name, value) in table {
        let line = key_line(text, &name);
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let remedy = if let Some(known) = nearest(&name, KEYS.iter().map(|key| key.name)) {
                format!("did you mean `{known}`?")
            } else {
                let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
                format!("known keys: {}", names.join(", "))
            };
            return Err(CommandError::usage(
                format!("{shown}:{line}: unknown key `{name}`"),
                remedy,
            ));
        };
        let raw = raw(&value).ok_or_else(|| {
            CommandError::usage(
                format!("{shown}:{line}: `{name}` cannot be {}", article(&value)),
                "write a string, a number, true or false, or a list of strings",
            )
        })?;
        entries.push(Entry { key, raw, line });
    }
    // Tables come sorted by name; resolving in the documented order keeps messages stable.
    entries.sort_by_key(|entry| KEYS.iter().position(|key| key.name == entry.key.name));
    Ok(entries)
}

fn raw(value: &toml::Value) -> Option<Raw> {
    match value {
        toml::Value::Array(items) => items
            .iter()
            .map(scalar)
            .collect::<Option<Vec<_>>>()
            .map(Raw::Many),
        other => scalar(other).map(Raw::One),
    }
}

fn scalar(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(is_on) => Some(is_on.to_string()),
        _ => None,
    }
}

fn article(value: &toml::Value) -> &'static str {
    match value {
        toml::Value::Table(_) => "a table",
        toml::Value::Datetime(_) => "a date",
        _ => "that",
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes()
        .take(offset)
        .filter(|&byte| byte == b'\n')
        .count()
        + 1
}

/// The first line that assigns or opens `name`; 1 when it is written in some unusual way.
fn key_line(text: &str, name: &str) -> usize {
    let assigns = |line: &str| {
        let rest = line
            .trim_start()
            .trim_start_matches('[')
            .trim_start_matches('"');
        rest.strip_prefix(name).is_some_and(|rest| {
            rest.trim_start_matches('"')
                .trim_start()
                .starts_with(['=', ']', '.'])
        })
    };
    text.lines().position(assigns).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> (String, String) {
        let fault = parse(text, Path::new("/p/glovebox.toml"))
            .unwrap_err()
            .fault;
        (fault.message, fault.remedy.unwrap_or_default())
    }

    #[test]
    fn unknown_keys_name_their_line_and_the_nearest_key() {
        let (message, remedy) = message("# mine\nmemroy = \"1GiB\"\n");
        assert_eq!(message, "/p/glovebox.toml:2: unknown key `memroy`");
        assert_eq!(remedy, "did you mean `memory`?");
    }

    #[test]
    fn tables_and_broken_text_are_refused_with_their_line() {
        let (text, _) = message("\n\n[memory]\nmax = 1\n");
        assert_eq!(text, "/p/glovebox.toml:3: `memory` cannot be a table");
        let (text, _) = message("memory = \"1GiB\"\npids = = 3\n");
        assert!(text.starts_with("/p/glovebox.toml:2: "), "{text}");
    }

    #[test]
    fn scalars_and_lists_are_read() {
        let entries = parse(
            "pids = 5\nenv = [\"A=1\", \"B\"]\ntoolchains = false",
            Path::new("x"),
        )
        .unwrap();
        let found: Vec<_> = entries
            .into_iter()
            .map(|entry| (entry.key.name, entry.raw))
            .collect();
        assert_eq!(
            found,
            [
                ("toolchains", Raw::One("false".to_owned())),
                ("env", Raw::Many(vec!["A=1".to_owned(), "B".to_owned()])),
                ("pids", Raw::One("5".to_owned())),
            ]
        );
    }
}
