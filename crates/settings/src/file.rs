//! Parser of `glovebox.toml`: strict, bounded, with line numbers in errors.

use super::keys::{self, Key, keys};
use super::raw::RawValue;
use super::workflow;
use crate::SettingsError;
use glovebox_proto::{Remedy, Setting};
use glovebox_tools::nearest;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Name of a configuration file.
pub const FILE_NAME: &str = "glovebox.toml";

/// Former key, which trusted directories regardless of the content of their files.
const FORMER_TRUST: &str = "trusted";

/// Tables whose keys are names that the user chooses.
const TOOLSETS: &str = "toolsets";
const SERVERS: &str = "mcp";
const SOURCES: &str = "serve.sources";

/// Largest file, in bytes: more than any real configuration, so that a hostile project cannot make
/// us read endlessly.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Pair `key = value` of a file.
#[derive(Debug)]
pub(super) struct Entry {
    /// Known key.
    pub key: &'static Key,
    /// Untyped value.
    pub raw: RawValue,
    /// Line of the key, counted from 1.
    pub line: usize,
}

/// Entries of a file, and the digest of the bytes that they were parsed from.
#[derive(Debug)]
pub(super) struct Content {
    /// Entries in the order of the table of keys.
    pub entries: Vec<Entry>,
    /// BLAKE3 digest in hexadecimal digits.
    pub digest: String,
}

/// Reads the file at `path`; `None` if it does not exist.
///
/// # Errors
/// Usage errors that name the file, the line and, for an unknown key, the nearest known one;
/// [`SettingsError::Io`] if it cannot be read.
pub(super) fn read(path: &Path) -> Result<Option<Content>, SettingsError> {
    let Some(text) = read_text(path)? else {
        return Ok(None);
    };
    // Hash the text that is parsed: read again, the file could differ from what the user trusts.
    Ok(Some(Content {
        entries: parse(&text, path)?,
        digest: hash(&text),
    }))
}

/// Returns the digest of the configuration file in a directory, as it is now; `None` if it does not
/// exist or cannot be read.
pub fn digest(dir: &Path) -> Option<String> {
    let text = read_text(&dir.join(FILE_NAME)).ok()??;
    Some(hash(&text))
}

fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

fn read_text(path: &Path) -> Result<Option<String>, SettingsError> {
    let shown = path.display();
    // TRUST: a project may put anything under this name. Without NONBLOCK a FIFO would hang us.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(SettingsError::io(format!("read {shown}"), &error.into())),
    };
    let metadata = file
        .metadata()
        .map_err(|error| SettingsError::io(format!("read {shown}"), &error))?;
    if !metadata.is_file() {
        return Err(SettingsError::usage(
            format!("{shown} is not a regular file"),
            Remedy::advice(["remove it, or pass ".into(), Setting::NoConfig.into()]),
        ));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| SettingsError::io(format!("read {shown}"), &error))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(SettingsError::usage(
            format!("{shown} is larger than 1 MiB"),
            Remedy::advice([
                "this is not a glovebox configuration; pass ".into(),
                Setting::NoConfig.into(),
            ]),
        ));
    }
    Ok(Some(text))
}

pub(super) fn parse(text: &str, path: &Path) -> Result<Vec<Entry>, SettingsError> {
    let shown = path.display();
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        SettingsError::in_file(format!(
            "{shown}:{line}: {}",
            error.message().lines().next().unwrap_or("not TOML")
        ))
    })?;
    let mut entries = Vec::new();
    collect(text, path, "", table, &mut entries)?;
    // Tables come sorted by name. Applying keys in the documented order keeps messages stable.
    entries.sort_by_key(|entry| keys().position(|key| key.name == entry.key.name));
    Ok(entries)
}

/// Appends the keys of a table to `entries`. `section` ends in a dot, or is empty at the top.
fn collect(
    text: &str,
    path: &Path,
    section: &str,
    table: toml::Table,
    entries: &mut Vec<Entry>,
) -> Result<(), SettingsError> {
    let shown = path.display();
    for (name, value) in table {
        let name = format!("{section}{name}");
        let line = key_line(text, &name);
        let below = format!("{name}.");
        let value = match value {
            // The keys of these tables are names that the user chooses, not settings.
            toml::Value::Table(table) if name == SERVERS => {
                serve(text, path, table, entries)?;
                continue;
            }
            toml::Value::Table(table) if name == TOOLSETS => {
                define(text, path, table, entries)?;
                continue;
            }
            toml::Value::Table(table) if name == SOURCES => {
                name_sources(text, path, table, entries)?;
                continue;
            }
            toml::Value::Array(list) if name == workflow::KEY => {
                chain(text, path, list, entries)?;
                continue;
            }
            value if name == TOOLSETS => {
                return Err(SettingsError::usage(
                    format!("{shown}:{line}: `{TOOLSETS}` cannot be {}", article(&value)),
                    "write a table: `[toolsets]`, and below it `docs = [\"Read\", \"Grep\"]`",
                ));
            }
            value if name == SOURCES => {
                return Err(SettingsError::usage(
                    format!("{shown}:{line}: `{SOURCES}` cannot be {}", article(&value)),
                    "write a table: `[serve.sources]`, and below it `app = \"/srv/app\"`",
                ));
            }
            value if name == SERVERS => {
                return Err(SettingsError::usage(
                    format!("{shown}:{line}: `{SERVERS}` cannot be {}", article(&value)),
                    "write a table for each server: `[mcp.NAME]`, and below it `command = \"...\"`",
                ));
            }
            // TRUST: only tables that contain keys are entered, which bounds the depth.
            toml::Value::Table(table) if keys().any(|key| key.name.starts_with(&below)) => {
                collect(text, path, &below, table, entries)?;
                continue;
            }
            value => value,
        };
        let Some(key) = keys::find(&name) else {
            let remedy = if name == FORMER_TRUST {
                "trust is given to the content of a project's file: run `glovebox config trust` in the project, and \
                 take this line out"
                    .to_owned()
            } else if let Some(known) = nearest(&name, keys().map(|key| key.name)) {
                format!("did you mean `{known}`?")
            } else {
                let names: Vec<&str> = keys().map(|key| key.name).collect();
                format!("known keys: {}", names.join(", "))
            };
            return Err(SettingsError::usage(
                format!("{shown}:{line}: unknown key `{name}`"),
                remedy,
            ));
        };
        let raw = raw(&value).ok_or_else(|| {
            SettingsError::usage(
                format!("{shown}:{line}: `{name}` cannot be {}", article(&value)),
                "write a string, a number, true or false, or a list of strings",
            )
        })?;
        entries.push(Entry { key, raw, line });
    }
    Ok(())
}

/// Appends the toolsets: each becomes a list of its name and words, or a table of its name and
/// fields.
fn define(
    text: &str,
    path: &Path,
    table: toml::Table,
    entries: &mut Vec<Entry>,
) -> Result<(), SettingsError> {
    let key = keys::find(TOOLSETS);
    for (name, value) in table {
        let line = key_line(text, &format!("{TOOLSETS}.{name}"));
        if let (Some(key), toml::Value::Table(fields)) = (key, &value) {
            let fields = fields.iter().map(|(field, value)| {
                raw(value)
                    .map(|value| (field.clone(), value))
                    .ok_or_else(|| {
                        SettingsError::usage(
                            format!(
                                "{}:{line}: `{}` of the toolset `{}` cannot be that",
                                path.display(),
                                field.escape_debug(),
                                name.escape_debug()
                            ),
                            "write strings, numbers and lists of strings",
                        )
                    })
            });
            let raw = RawValue::Table(name.clone(), fields.collect::<Result<_, _>>()?);
            entries.push(Entry { key, raw, line });
            continue;
        }
        let (Some(key), Some(RawValue::Many(words))) = (key, raw(&value)) else {
            return Err(SettingsError::usage(
                format!(
                    "{}:{line}: the toolset `{}` is neither a list nor a table",
                    path.display(),
                    name.escape_debug()
                ),
                "write a list of tools, such as [\"Read\", \"Grep\"], after \"read-only\" if nothing may be written; or a \
                 table with `tools`, and `net` and `allow` for the network of its sandboxes",
            ));
        };
        let raw = RawValue::Many(std::iter::once(name).chain(words).collect());
        entries.push(Entry { key, raw, line });
    }
    Ok(())
}

/// Appends the sources: each becomes a list of its name and path.
fn name_sources(
    text: &str,
    path: &Path,
    table: toml::Table,
    entries: &mut Vec<Entry>,
) -> Result<(), SettingsError> {
    let key = keys::find(SOURCES);
    for (name, value) in table {
        let line = key_line(text, &format!("{SOURCES}.{name}"));
        let (Some(key), toml::Value::String(dir)) = (key, value) else {
            return Err(SettingsError::usage(
                format!(
                    "{}:{line}: the source `{}` is no path",
                    path.display(),
                    name.escape_debug()
                ),
                "write the path of a directory, such as \"/srv/app\", with `:ro` at its end if no changes are taken back",
            ));
        };
        let raw = RawValue::Many(vec![name, dir]);
        entries.push(Entry { key, raw, line });
    }
    Ok(())
}

/// Appends the workflows: each becomes a list of words.
fn chain(
    text: &str,
    path: &Path,
    list: Vec<toml::Value>,
    entries: &mut Vec<Entry>,
) -> Result<(), SettingsError> {
    let key = keys::find(workflow::KEY);
    let line = key_line(text, workflow::KEY);
    for value in list {
        let words = match value {
            toml::Value::Table(table) => workflow::words(table),
            _ => Err("write a table `[[workflow]]`".to_owned()),
        };
        let words = words.map_err(|error| {
            SettingsError::in_file(format!(
                "{}:{line}: `{}`: {error}",
                path.display(),
                workflow::KEY
            ))
        })?;
        if let Some(key) = key {
            let raw = RawValue::Many(words);
            entries.push(Entry { key, raw, line });
        }
    }
    Ok(())
}

/// Appends the servers: each becomes a table of its name and fields.
fn serve(
    text: &str,
    path: &Path,
    table: toml::Table,
    entries: &mut Vec<Entry>,
) -> Result<(), SettingsError> {
    let key = keys::find(SERVERS);
    for (name, value) in table {
        let line = key_line(text, &format!("{SERVERS}.{name}"));
        let wrong = |what: &str| {
            SettingsError::usage(
                format!(
                    "{}:{line}: {what} of the MCP server `{}` cannot be that",
                    path.display(),
                    name.escape_debug()
                ),
                "write a table `[mcp.NAME]` of strings, lists of strings, and `headers_env = { Header = \"VARIABLE\" }`",
            )
        };
        let (Some(key), toml::Value::Table(fields)) = (key, value) else {
            return Err(wrong("the settings"));
        };
        let mut found = Vec::new();
        for (field, value) in fields {
            let value = match &value {
                toml::Value::Table(pairs) => pairs
                    .iter()
                    .map(|(name, value)| Some(format!("{name}={}", value.as_str()?)))
                    .collect::<Option<Vec<_>>>()
                    .map(RawValue::Many),
                value => raw(value),
            };
            let Some(value) = value else {
                return Err(wrong(&format!("`{}`", field.escape_debug())));
            };
            found.push((field, value));
        }
        let raw = RawValue::Table(name, found);
        entries.push(Entry { key, raw, line });
    }
    Ok(())
}

fn raw(value: &toml::Value) -> Option<RawValue> {
    match value {
        toml::Value::Array(items) => items
            .iter()
            .map(scalar)
            .collect::<Option<Vec<_>>>()
            .map(RawValue::Many),
        other => scalar(other).map(RawValue::One),
    }
}

pub(super) fn scalar(value: &toml::Value) -> Option<String> {
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

/// Returns the first line that assigns or opens `name`; 1 if the file writes it in an unusual form.
fn key_line(text: &str, name: &str) -> usize {
    let leads_to = |found: &str| {
        found
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let mut section = String::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let found = if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_start_matches('[').split(']').next();
            let header = plain(header.unwrap_or_default());
            section = format!("{header}.");
            header
        } else {
            let key = plain(line.split('=').next().unwrap_or_default());
            format!("{section}{key}")
        };
        if leads_to(&found) {
            return index + 1;
        }
    }
    1
}

/// Returns a key without quotes and spaces.
fn plain(key: &str) -> String {
    key.chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '"' | '\''))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> (String, String) {
        let error = parse(text, Path::new("/p/glovebox.toml")).unwrap_err();
        let remedy = error.remedy().map(ToString::to_string).unwrap_or_default();
        (error.message().to_owned(), remedy)
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
    fn keys_of_known_tables_are_read_however_they_are_written() {
        for text in [
            "[sync]\npush.exclude = [\"a\"]\non_success = true",
            "sync.push.exclude = [\"a\"]\nsync.on_success = true",
            "[sync.push]\nexclude = \"a\"\n[sync]\non_success = true",
        ] {
            let entries = parse(text, Path::new("x")).unwrap();
            let names: Vec<_> = entries.iter().map(|entry| entry.key.name).collect();
            assert_eq!(names, ["sync.push.exclude", "sync.on_success"], "{text}");
        }
        let (text, remedy) = message("memory = 1\n\n[sync.push]\nexclud = []\n");
        assert_eq!(text, "/p/glovebox.toml:4: unknown key `sync.push.exclud`");
        assert_eq!(remedy, "did you mean `sync.push.exclude`?");
        let (text, _) = message("[sync.pull.include]\nx = 1\n");
        assert_eq!(
            text,
            "/p/glovebox.toml:1: `sync.pull.include` cannot be a table"
        );
    }

    #[test]
    fn sources_are_names_of_the_users_choice() {
        let text = "[serve.sources]\napp = \"/srv/app\"\ndata = \"data:ro\"";
        let entries = parse(text, Path::new("x")).unwrap();
        let raws: Vec<String> = entries.iter().map(|entry| entry.raw.to_string()).collect();
        assert_eq!(raws, ["app, /srv/app", "data, data:ro"]);
        assert_eq!((entries[0].line, entries[1].line), (2, 3));
        let (text, remedy) = message("[serve.sources]\napp = [\"/srv\"]");
        assert_eq!(text, "/p/glovebox.toml:2: the source `app` is no path");
        assert!(remedy.contains(":ro"), "{remedy}");
        let (text, _) = message("serve.sources = \"/srv\"");
        assert!(text.contains("`serve.sources` cannot be that"), "{text}");
    }

    #[test]
    fn servers_are_tables_of_the_users_naming() {
        let text = "[mcp.hub]\nurl = \"https://a/\"\nheaders_env = { X-Key = \"HUB_KEY\" }\n[mcp.lint]\ncommand = \"x\"";
        let entries = parse(text, Path::new("x")).unwrap();
        assert_eq!(entries.len(), 2);
        let RawValue::Table(name, fields) = &entries[0].raw else {
            panic!("{entries:?}");
        };
        assert_eq!((name.as_str(), entries[0].line), ("hub", 1));
        let header = (
            "headers_env".to_owned(),
            RawValue::Many(vec!["X-Key=HUB_KEY".to_owned()]),
        );
        assert!(fields.contains(&header), "{fields:?}");
        for text in [
            "mcp = 1",
            "[mcp]\nhub = 1",
            "[mcp.hub]\nargs = [[1]]",
            "[mcp.hub]\nx = { a = 1 }",
        ] {
            let (message, remedy) = message(text);
            assert!(remedy.contains("[mcp.NAME]"), "{message}: {remedy}");
        }
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
                ("toolchains", RawValue::One("false".to_owned())),
                (
                    "env",
                    RawValue::Many(vec!["A=1".to_owned(), "B".to_owned()])
                ),
                ("pids", RawValue::One("5".to_owned())),
            ]
        );
    }
}
