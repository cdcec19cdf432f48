//! Flags that describe a sandbox: shared by `run` and `start`.

use crate::units::{Count, Cpus, Size, Span};
use clap::Args;
use glovebox_sandbox::jail::spec::{Ids, Layers, LimitKind, Net, ProcMode, RootFs};
use glovebox_workspace::Filter;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

/// What stands behind a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackendKind {
    /// Linux namespaces on this machine.
    Native,
    /// No isolation: an ordinary process.
    Host,
    /// Wherever the command given with `--carrier` leads.
    Command,
}

impl BackendKind {
    /// The word used in flags, configuration and reports.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Host => "host",
            Self::Command => "command",
        }
    }
}

/// How a sandbox gets at the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkspaceMode {
    /// It reads the project and writes to a layer of its own.
    Overlay,
    /// It reads the project and can write nothing there.
    ReadOnly,
    /// It has a copy.
    Copy,
    /// It writes to the project itself.
    Live,
    /// It has nothing.
    None,
}

impl WorkspaceMode {
    /// The word used in flags and configuration.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Overlay => "overlay",
            Self::ReadOnly => "read-only",
            Self::Copy => "copy",
            Self::Live => "live",
            Self::None => "none",
        }
    }
}

/// Flags that describe a sandbox. Absent flags leave the value to the configuration.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxArgs {
    /// What stands behind the sandbox: native, host (no isolation) or command [default: native]
    #[arg(long, value_name = "BACKEND", value_parser = parse_backend)]
    pub backend: Option<BackendKind>,
    /// With `--backend command`: the command whose stdin and stdout lead to the other side, such as
    /// `ssh box`
    #[arg(long, value_name = "COMMAND", value_parser = Carrier::from_str)]
    pub carrier: Option<Carrier>,
    /// What / shows inside: host (programs only), host-all (weaker) or dir:PATH [default: host]
    #[arg(long, value_name = "ROOTFS", value_parser = parse_rootfs)]
    pub rootfs: Option<RootFs>,
    /// Network: none or host (all of it, no wall) [default: none]
    #[arg(long, value_name = "NET", value_parser = parse_net)]
    pub net: Option<Net>,
    /// Show a host path inside, read-only
    #[arg(long = "grant", value_name = "PATH[:TARGET]", value_parser = GrantArg::from_str)]
    pub grants: Vec<GrantArg>,
    /// Leave out language toolchains found in your home
    #[arg(long)]
    pub no_toolchains: bool,
    /// The project inside: overlay (changes stay in the sandbox), read-only, copy, live (no wall:
    /// changes are yours at once) or none [default: overlay; none with `--backend command`]
    #[arg(long, value_name = "MODE", value_parser = parse_workspace, help_heading = "Workspace")]
    pub workspace: Option<WorkspaceMode>,
    /// Hide files of the project from the sandbox; a pattern as in .gitignore
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern, help_heading = "Workspace")]
    pub exclude: Vec<String>,
    /// Show files that would be hidden, such as `.env`; a pattern as in .gitignore
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern, help_heading = "Workspace")]
    pub include: Vec<String>,
    /// Give the command a variable: with a value, or with the one you have
    #[arg(long = "env", short = 'e', value_name = "NAME[=VALUE]", value_parser = EnvArg::parser())]
    pub env: Vec<EnvArg>,
    /// Memory of all processes together [default: half of the machine's, at least
    /// 2GiB]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub memory: Option<Size>,
    /// CPU time per second, in CPUs [default: all]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub cpus: Option<Cpus>,
    /// Processes and threads [default: 4096]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub pids: Option<Count>,
    /// Bytes written, all files together [default: 10GiB]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub disk: Option<Size>,
    /// Size of one file [default: none]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub file_size: Option<Size>,
    /// Time until it is ended [default: none]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub timeout: Option<Span>,
    /// Fail when this limit cannot be enforced here: memory, cpu, pids, disk, file-size or wall
    #[arg(long, value_name = "LIMIT", value_delimiter = ',', value_parser = parse_limit, help_heading = "Limits")]
    pub require: Vec<LimitKind>,
    /// Let commands make namespaces of their own, for programs that bring a sandbox along, such as
    /// bubblewrap, Codex or a browser. Weaker: much more of the kernel can be reached
    #[arg(long, help_heading = "Advanced")]
    pub nested: bool,
    /// Where written data lives: disk or memory [default: disk]
    #[arg(long, value_name = "WHERE", value_parser = parse_layers, help_heading = "Advanced")]
    pub layers: Option<Layers>,
    /// User ids inside: auto, single or range [default: auto]
    #[arg(long, value_name = "IDS", value_parser = parse_ids, help_heading = "Advanced")]
    pub ids: Option<Ids>,
    /// How much of /proc is shown: masked, pids or none [default: masked]
    #[arg(long, value_name = "MODE", value_parser = parse_proc, help_heading = "Advanced")]
    pub proc: Option<ProcMode>,
}

/// Words of a carrier command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Carrier(pub Vec<String>);

impl FromStr for Carrier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        split_words(text).map(Self)
    }
}

/// Splits a command line into words. Quotes and backslashes group as in a shell; nothing expands.
pub(crate) fn split_words(text: &str) -> Result<Vec<String>, String> {
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

/// `NAME` (the host's value) or `NAME=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvArg {
    /// Name, without `=`.
    pub name: OsString,
    /// Value; `None` for the host's own.
    pub value: Option<OsString>,
}

impl EnvArg {
    /// Splits at the first `=`.
    ///
    /// # Errors
    /// One sentence when there is no name or a NUL byte.
    pub(crate) fn parse(text: &OsStr) -> Result<Self, String> {
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

    /// For the parser of arguments.
    pub(super) fn parser() -> impl clap::builder::TypedValueParser<Value = Self> {
        use clap::builder::{OsStringValueParser, TypedValueParser};
        OsStringValueParser::new().try_map(|text| Self::parse(&text))
    }
}

/// `PATH` or `PATH:TARGET`, as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GrantArg {
    /// Host path; relative ones start at the project directory.
    pub source: PathBuf,
    /// Absolute path inside; `None` for the same as outside.
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
pub(crate) fn parse_backend(text: &str) -> Result<BackendKind, String> {
    word(
        text,
        "a backend",
        &[
            ("native", BackendKind::Native),
            ("host", BackendKind::Host),
            ("command", BackendKind::Command),
        ],
    )
}

/// Parses `host`, `host-all` or `dir:PATH`.
pub(crate) fn parse_rootfs(text: &str) -> Result<RootFs, String> {
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
pub(crate) fn parse_net(text: &str) -> Result<Net, String> {
    word(
        text,
        "a network mode",
        &[("none", Net::None), ("host", Net::Host)],
    )
}

/// The word of a network mode.
pub(crate) const fn net_word(net: Net) -> &'static str {
    match net {
        Net::None => "none",
        Net::Host => "host",
    }
}

/// Parses the word of a layer place.
pub(crate) fn parse_layers(text: &str) -> Result<Layers, String> {
    word(
        text,
        "a place for written data",
        &[("disk", Layers::Disk), ("memory", Layers::Memory)],
    )
}

/// The word of a layer place.
pub(crate) const fn layers_word(layers: Layers) -> &'static str {
    match layers {
        Layers::Disk => "disk",
        Layers::Memory => "memory",
    }
}

/// Parses the word of an id mode.
pub(crate) fn parse_ids(text: &str) -> Result<Ids, String> {
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

/// The word of an id mode.
pub(crate) const fn ids_word(ids: Ids) -> &'static str {
    match ids {
        Ids::Auto => "auto",
        Ids::Single => "single",
        Ids::Range => "range",
    }
}

/// Parses the word of a /proc mode.
pub(crate) fn parse_proc(text: &str) -> Result<ProcMode, String> {
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

/// The word of a /proc mode.
pub(crate) const fn proc_word(mode: ProcMode) -> &'static str {
    match mode {
        ProcMode::Masked => "masked",
        ProcMode::Pids => "pids",
        ProcMode::None => "none",
    }
}

/// Parses the word of a workspace mode.
pub(crate) fn parse_workspace(text: &str) -> Result<WorkspaceMode, String> {
    use WorkspaceMode::{Copy, Live, None, Overlay, ReadOnly};
    word(
        text,
        "a way to give the project",
        &[Overlay, ReadOnly, Copy, Live, None].map(|mode| (mode.as_str(), mode)),
    )
}

/// Checks a pattern as in `.gitignore`.
pub(crate) fn parse_pattern(text: &str) -> Result<String, String> {
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

/// Parses the name of a limit.
pub(crate) fn parse_limit(text: &str) -> Result<LimitKind, String> {
    word(
        text,
        "a limit",
        &LimitKind::ALL.map(|kind| (kind.as_str(), kind)),
    )
}

fn word<T: Clone>(text: &str, what: &str, words: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, value)) = words.iter().find(|(name, _)| *name == text) {
        return Ok(value.clone());
    }
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    Err(format!(
        "`{text}` is not {what}; use {}",
        crate::render::one_of(&names)
    ))
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
            "`wifi` is not a network mode; use `none` or `host`"
        );
        assert!(parse_rootfs("dir:").is_err());
        assert_eq!(parse_rootfs("dir:/x").unwrap(), RootFs::Dir("/x".into()));
    }
}
