//! Settings of MCP servers: tables `[mcp.NAME]`.
//!
//! The file contains no secret values: headers name the variables that hold them.

use super::raw::RawValue;
use super::{Origin, SourcedValue};
use crate::units::{Size, Span};
use crate::values::EnvArg;
use glovebox_mcp::client::check_url;
use glovebox_tools::nearest;
use glovebox_tools::policy::check_server_name;
use std::ffi::OsStr;

/// Default time to wait for an answer, in milliseconds.
const USUAL_TIMEOUT_MS: u64 = 60_000;
/// Longest time to wait for an answer, in milliseconds. No user waits longer for one call.
const MAX_TIMEOUT_MS: u64 = 3_600_000;
/// Most bytes of one answer. More would fill the context of a model.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;
/// All keys of a server's table.
const FIELDS: [&str; 12] = [
    "command",
    "args",
    "env",
    "placement",
    "url",
    "headers_env",
    "bearer_env",
    "tools",
    "timeout",
    "max_output",
    "trust_annotations",
    "required",
];

/// MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServer {
    /// Name of the server, and prefix of the names of its tools.
    pub name: String,
    /// Connection to the server.
    pub way: McpTransport,
    /// Tools to offer; `None` for all.
    pub tools: Option<Vec<String>>,
    /// Time to wait for an answer, in milliseconds.
    pub timeout_ms: u64,
    /// Most bytes of one answer.
    pub max_output_bytes: usize,
    /// True to believe the server's annotations about which tools are read-only.
    pub trust_annotations: bool,
    /// True if a run without this server must fail.
    pub is_required: bool,
}

/// Connection to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpTransport {
    /// Program that runs beside the other tools, or always on this machine.
    Program {
        /// Command line.
        argv: Vec<String>,
        /// Environment variables.
        env: Vec<EnvArg>,
        /// True to run on this machine regardless of the place of the other tools.
        is_on_host: bool,
    },
    /// Streamable HTTP.
    Http {
        /// Address of the endpoint.
        url: String,
        /// Names of headers, each with the variable that holds its value.
        headers: Vec<(String, String)>,
        /// Variable that holds a bearer token; `None` to send none.
        bearer: Option<String>,
    },
}

impl McpServer {
    /// Parses a table.
    ///
    /// # Errors
    /// A sentence about the problem, without any value that may be secret.
    pub(super) fn parse(name: &str, fields: &[(String, RawValue)]) -> Result<Self, String> {
        check_server_name(name)?;
        for (field, _) in fields {
            if !FIELDS.contains(&field.as_str()) {
                let shown = field.escape_debug();
                return Err(match nearest(field, FIELDS.iter().copied()) {
                    Some(known) => format!("unknown key `{shown}`; did you mean `{known}`?"),
                    None => format!("unknown key `{shown}`; the keys are {}", FIELDS.join(", ")),
                });
            }
        }
        let find = |field: &str| {
            let mut fields = fields.iter();
            fields.find(|(name, _)| name == field).map(|(_, raw)| raw)
        };
        let one = |field: &str| {
            let text = find(field).map(RawValue::one).transpose();
            text.map_err(|error| format!("`{field}` {error}"))
        };
        let list = |field: &str| -> Option<Vec<String>> {
            let words = find(field)?.patterns();
            Some(words.into_iter().map(str::to_owned).collect())
        };
        let way = match (one("command")?, one("url")?) {
            (Some(_), Some(_)) | (None, None) => {
                return Err("a server has either a `command` or a `url`".to_owned());
            }
            (Some(command), None) => {
                refuse(&find, &["headers_env", "bearer_env"], "a `url`")?;
                let argv: Vec<String> = std::iter::once(command.to_owned())
                    .chain(list("args").unwrap_or_default())
                    .collect();
                if command.is_empty() || argv.iter().any(|word| word.contains('\0')) {
                    return Err("`command` is no command".to_owned());
                }
                let env = list("env").unwrap_or_default();
                let env = env.iter().map(|text| EnvArg::parse(OsStr::new(text)));
                McpTransport::Program {
                    argv,
                    env: env.collect::<Result<_, _>>()?,
                    is_on_host: match one("placement")? {
                        None | Some("sandbox") => false,
                        Some("host") => true,
                        Some(_) => return Err("`placement` is `sandbox` or `host`".to_owned()),
                    },
                }
            }
            (None, Some(url)) => {
                refuse(&find, &["args", "env", "placement"], "a `command`")?;
                check_url(url).map_err(|error| format!("`url`: {error}"))?;
                let headers = list("headers_env").unwrap_or_default();
                let headers = headers.iter().map(|pair| {
                    let (header, variable) = pair.split_once('=').unwrap_or((pair, ""));
                    Ok((header.to_owned(), variable_name("headers_env", variable)?))
                });
                let bearer = one("bearer_env")?;
                McpTransport::Http {
                    url: url.to_owned(),
                    headers: headers.collect::<Result<_, String>>()?,
                    bearer: bearer
                        .map(|variable| variable_name("bearer_env", variable))
                        .transpose()?,
                }
            }
        };
        let is_on = |field: &str| -> Result<bool, String> {
            let switch = one(field)?.map(super::raw::switch).transpose();
            Ok(switch
                .map_err(|error| format!("`{field}`: {error}"))?
                .unwrap_or(false))
        };
        Ok(Self {
            name: name.to_owned(),
            way,
            tools: list("tools"),
            timeout_ms: match one("timeout")? {
                None => USUAL_TIMEOUT_MS,
                Some(text) => {
                    let Span(ms) = text.parse()?;
                    ms.filter(|ms| (1..=MAX_TIMEOUT_MS).contains(ms))
                        .ok_or("`timeout` is a time of up to 1h")?
                }
            },
            max_output_bytes: match one("max_output")? {
                None => glovebox_tools::cut::OUTPUT_BYTES,
                Some(text) => {
                    let Size(bytes) = text.parse()?;
                    let bytes = bytes.filter(|bytes| (1..=MAX_OUTPUT_BYTES).contains(bytes));
                    bytes.ok_or("`max_output` is a size of up to 1MiB")? as usize
                }
            },
            trust_annotations: is_on("trust_annotations")?,
            is_required: is_on("required")?,
        })
    }

    /// Returns the place where the server runs. `is_local` is true if there is no sandbox.
    pub fn place(&self, is_local: bool) -> glovebox_agent::ServerPlace {
        use glovebox_agent::ServerPlace;
        match &self.way {
            McpTransport::Http { .. } => ServerPlace::Remote,
            McpTransport::Program { is_on_host, .. } if *is_on_host || is_local => {
                ServerPlace::Host
            }
            McpTransport::Program { .. } => ServerPlace::Sandbox,
        }
    }

    /// Returns the variables whose values are sent in headers. Their values are secrets.
    pub fn header_variables(&self) -> Vec<&str> {
        match &self.way {
            McpTransport::Http {
                headers, bearer, ..
            } => headers
                .iter()
                .map(|(_, variable)| variable)
                .chain(bearer)
                .map(String::as_str)
                .collect(),
            McpTransport::Program { .. } => Vec::new(),
        }
    }

    /// Returns the variables of the program whose values are in the file.
    pub fn given(&self) -> Vec<(&OsStr, &OsStr)> {
        match &self.way {
            McpTransport::Http { .. } => Vec::new(),
            McpTransport::Program { env, .. } => env
                .iter()
                .filter_map(|var| Some((var.name.as_os_str(), var.value.as_deref()?)))
                .collect(),
        }
    }

    /// Returns a line without values.
    pub(super) fn shown(&self) -> String {
        match &self.way {
            McpTransport::Http { url, .. } => format!("{}: {url}", self.name),
            McpTransport::Program {
                argv, is_on_host, ..
            } => {
                let place = if *is_on_host { " (on the host)" } else { "" };
                // Arguments may be secrets, so only the command is shown.
                let command = argv.first().map_or("", String::as_str);
                format!("{}: {command}{place}", self.name)
            }
        }
    }
}

/// Adds a server from a table.
pub(super) fn add(
    servers: &mut Vec<SourcedValue<McpServer>>,
    raw: &RawValue,
    origin: &Origin,
) -> Result<(), String> {
    let RawValue::Table(name, fields) = raw else {
        return Err("takes tables, such as [mcp.NAME]".to_owned());
    };
    if let Some(known) = servers.iter().find(|known| known.value.name == *name) {
        return Err(format!(
            "the server `{name}` is defined already, in {}",
            known.origin
        ));
    }
    let value = McpServer::parse(name, fields).map_err(|error| format!("{name}: {error}"))?;
    servers.push(SourcedValue {
        value,
        origin: origin.clone(),
    });
    Ok(())
}

fn refuse<'a>(
    find: &impl Fn(&str) -> Option<&'a RawValue>,
    fields: &[&str],
    needs: &str,
) -> Result<(), String> {
    match fields.iter().find(|field| find(field).is_some()) {
        Some(field) => Err(format!("`{field}` is for servers with {needs}")),
        None => Ok(()),
    }
}

/// Checks the name of a variable. The error does not repeat the text, which may be a secret.
fn variable_name(field: &str, text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    if !text.is_empty() && text.chars().all(is_plain) && !text.starts_with(char::is_numeric) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "`{field}` names variables (capital letters, digits, `_`), never values"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;
    use std::path::Path;

    fn parse(fields: &str) -> Result<McpServer, String> {
        let text = format!("[mcp.hub]\n{fields}");
        let entries = file::parse(&text, Path::new("x")).unwrap();
        let RawValue::Table(name, fields) = &entries[0].raw else {
            panic!("{entries:?}");
        };
        McpServer::parse(name, fields)
    }

    #[test]
    fn mistakes_are_named_and_secrets_are_not() {
        for (fields, part) in [
            ("comand = 'x'", "`command`"),
            ("timeout = '1s'", "either"),
            ("command = 'x'\nurl = 'https://a/'", "either"),
            ("command = ['x']", "one value"),
            ("command = 'x'\nbearer_env = 'X'", "`url`"),
            ("url = 'https://a/'\nenv = ['X']", "`command`"),
            ("command = 'x'\nplacement = 'moon'", "`host`"),
            ("command = 'x'\ntimeout = 'none'", "1h"),
            ("command = 'x'\nmax_output = '2GiB'", "1MiB"),
            ("command = 'x'\nrequired = 'perhaps'", "`required`"),
            ("url = 'https://me:sesame@a/'", "bearer_env"),
            (
                "url = 'https://a/'\nbearer_env = 'sesame-123'",
                "never values",
            ),
            (
                "url = 'https://a/'\nheaders_env = { X-Key = 'sesame' }",
                "never values",
            ),
        ] {
            let error = parse(fields).unwrap_err();
            assert!(error.contains(part), "{fields}: {error}");
            assert!(!error.contains("sesame"), "{error}");
        }
        let fields = [("command".to_owned(), RawValue::One("x".to_owned()))];
        assert!(McpServer::parse("a__b", &fields).is_err());
    }

    #[test]
    fn values_are_not_shown() {
        let server = parse(
            "command = 'npx'\nargs = ['--token', 'sesame']\nenv = ['A=sesame', 'B']\nplacement = 'host'",
        )
        .unwrap();
        assert_eq!(server.shown(), "hub: npx (on the host)");
        assert_eq!(server.given(), [(OsStr::new("A"), OsStr::new("sesame"))]);
        let server = parse("url = 'https://a/'\nheaders_env = { X-Key = 'HUB' }\nbearer_env = 'T'");
        assert_eq!(server.unwrap().header_variables(), ["HUB", "T"]);
    }
}
