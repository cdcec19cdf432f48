//! Which wall of the sandbox a failed command met, as a record: a fact with a kind, a sentence and a remedy.
//!
//! The guest reports what it has seen itself; the host adds limits and hidden files. Nothing here is a guess from
//! the words of a command: where its output names a path, that path has been checked.

use crate::{JobId, Limit, Remedy, Setting, visible};
use serde::{Deserialize, Serialize};

/// Most records for one command.
pub const MAX_DENIALS: usize = 8;
/// Most characters of a name or path in a record.
const MAX_DENIAL_CHARS: usize = 256;

/// A wall that a failed command met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Denial {
    /// Names were looked up in a sandbox without network.
    NameLookup {
        /// How many names.
        names: u64,
        /// The last of them.
        last: String,
        /// Another command ran at the same time, and may have been the one.
        is_shared: bool,
    },
    /// Connections to addresses outside were tried in a sandbox without network.
    Connection {
        /// How many attempts.
        attempts: u64,
        /// The rule that would open the last of them, where the command or its output names one.
        rule: Option<String>,
        /// Another command ran at the same time, and may have been the one.
        is_shared: bool,
    },
    /// The command was refused a write to a path below a read-only mount.
    ReadOnly {
        /// The path, absolute.
        path: String,
        /// Where the read-only part of the sandbox begins.
        mount: String,
    },
    /// The command named a file of the project that is hidden from the sandbox.
    Hidden {
        /// The path, relative to the project.
        path: String,
    },
    /// The command named a path outside of the project that this machine has and the sandbox does not.
    NotShown {
        /// The path, absolute.
        path: String,
    },
    /// The command could not use a file of the project that belongs to another user or group.
    Owner {
        /// The path, relative to the project.
        path: String,
        /// To which it belongs.
        owner: FileOwner,
    },
    /// The memory limit was reached.
    Memory,
    /// The limit of processes and threads was reached.
    Processes,
    /// A file grew to the size limit of one file or of all files.
    FileSize,
    /// The disk limit was reached.
    Disk,
    /// A host was asked for that the sandbox may not reach.
    Egress {
        /// The host.
        host: String,
        /// The port, where a connection was made; `None` for a look-up of the name.
        port: Option<u16>,
        /// Why it was refused.
        reason: EgressReason,
        /// How often.
        attempts: u64,
        /// Another command ran at the same time, and may have been the one.
        is_shared: bool,
    },
    /// The command wanted a port that is in use.
    PortTaken {
        /// The port.
        port: u16,
        /// What uses it.
        by: PortUse,
    },
    /// A secret was not filled in.
    Secret {
        /// Its name.
        secret: String,
        /// The host that was asked.
        host: String,
        /// The port.
        port: u16,
        /// Why it was not.
        reason: SecretReason,
        /// How often.
        attempts: u64,
        /// Another command ran at the same time, and may have been the one.
        is_shared: bool,
    },
    /// The proxy of this machine gave no connection to a listed host.
    Proxy {
        /// Variable that names the proxy.
        variable: String,
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// Status of the proxy's answer; `None` if it gave none.
        status: Option<u16>,
        /// How often.
        attempts: u64,
        /// Another command ran at the same time, and may have been the one.
        is_shared: bool,
    },
    /// The command named a file below `/etc` that no sandbox sees.
    HeldBack {
        /// The path, absolute.
        path: String,
        /// Reason why it is not shown.
        reason: HeldBackReason,
    },
    /// More files were made than the disk limit allows.
    Files,
}

/// A user or group that a sandbox cannot work as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileOwner {
    /// Another user.
    User {
        /// Its id on this machine.
        uid: u32,
        /// Id of the user whose files commands can use.
        works_as: u32,
    },
    /// Another group.
    Group {
        /// Its id on this machine.
        gid: u32,
    },
}

/// Reason why a file below `/etc` is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HeldBackReason {
    /// Its name stands for accounts, keys, mounts or services of the machine.
    Name,
    /// It is larger than what is shown.
    Size,
    /// It holds a private key.
    PrivateKey,
    /// It holds a token.
    Token,
    /// It holds an address with a password or token in it.
    Address,
    /// It holds a value that looks like a password or key.
    Value,
}

impl HeldBackReason {
    /// Returns the reason as a clause.
    const fn clause(self) -> &'static str {
        match self {
            Self::Name => "files of this name are for the machine alone",
            Self::Size => "it is larger than 4 MiB",
            Self::PrivateKey => "it holds a private key",
            Self::Token => "it holds a token",
            Self::Address => "it holds an address with a password or token",
            Self::Value => "it holds what looks like a password or key",
        }
    }
}

/// What uses a port of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PortUse {
    /// A process of a job.
    Job {
        /// The job.
        job: JobId,
        /// The process, by its id inside.
        pid: u32,
        /// The job's command.
        command: String,
    },
    /// The way out of the sandbox: look-ups of names, and connections to listed hosts.
    WayOut,
    /// A process that does not show its descriptors, or that has ended since.
    Unknown,
}

/// Why a secret is not filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SecretReason {
    /// It is not for this host.
    OtherHost,
    /// The request came without TLS.
    Plain,
    /// The program does not believe the certificate that stands in for that of the host.
    Distrusted,
    /// This machine does not trust the certificate of the host.
    Untrusted,
    /// The answer was compressed, so nothing could be taken out of it.
    Encoded,
    /// Its placeholder stood in the address of a request, where no value is filled in.
    Address,
    /// Its placeholder stood in the body of a request that was not let in.
    Body,
}

impl SecretReason {
    /// A word for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::OtherHost => "other-host",
            Self::Plain => "no-tls",
            Self::Distrusted => "distrusted-inside",
            Self::Untrusted => "untrusted-host",
            Self::Encoded => "compressed-answer",
            Self::Address => "in-address",
            Self::Body => "in-body",
        }
    }
}

/// Why a host may not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EgressReason {
    /// No rule names it.
    Unlisted,
    /// A rule names it, but not this port.
    Port,
    /// A rule closes it.
    Denied,
    /// Its name leads to private addresses.
    Private,
    /// The connection was made to one name, and asked for another there.
    OtherName,
    /// What was sent to port 443 was not TLS.
    NoTls,
    /// It was an address, and no name.
    Address,
    /// No rule opens such a host: it has no clear reading, is the sandbox itself, or hands out credentials.
    Never,
    /// The sandbox has carried as many bytes as it may.
    ByteLimit,
    /// The sandbox has as many connections as it may.
    ConnectionLimit,
}

impl EgressReason {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Unlisted,
        Self::Port,
        Self::Denied,
        Self::Private,
        Self::OtherName,
        Self::NoTls,
        Self::Address,
        Self::Never,
        Self::ByteLimit,
        Self::ConnectionLimit,
    ];

    /// A word for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unlisted => "unlisted",
            Self::Port => "port",
            Self::Denied => "denied",
            Self::Private => "private-address",
            Self::OtherName => "other-name",
            Self::NoTls => "no-tls",
            Self::Address => "address",
            Self::Never => "never",
            Self::ByteLimit => "byte-limit",
            Self::ConnectionLimit => "connection-limit",
        }
    }
}

impl Denial {
    /// A word for programs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NameLookup { .. } => "name-lookup",
            Self::Connection { .. } => "connection",
            Self::ReadOnly { .. } => "read-only",
            Self::Hidden { .. } => "hidden",
            Self::NotShown { .. } => "not-shown",
            Self::HeldBack { .. } => "held-back",
            Self::Owner { .. } => "owner",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::FileSize => "file-size",
            Self::Disk => "disk",
            Self::Files => "files",
            Self::Egress { .. } => "egress",
            Self::PortTaken { .. } => "port-taken",
            Self::Secret { .. } => "secret",
            Self::Proxy { .. } => "proxy",
        }
    }

    /// What was met, as a clause.
    pub fn what(&self) -> String {
        match self {
            Self::NameLookup {
                names,
                last,
                is_shared,
            } => {
                let asker = asker(*is_shared);
                let names = match names {
                    0 | 1 => format!("the name `{last}`"),
                    names => format!("{names} names (the last was `{last}`)"),
                };
                format!("{asker} looked up {names}, and this sandbox has no network")
            }
            Self::Connection {
                attempts,
                rule: _,
                is_shared,
            } => {
                let asker = asker(*is_shared);
                let times = match attempts {
                    0 | 1 => String::new(),
                    attempts => format!(" {attempts} times"),
                };
                format!(
                    "{asker} tried to reach an address outside{times}, and this sandbox has no network"
                )
            }
            Self::ReadOnly { path, mount } if path == mount => {
                format!("`{mount}` is read-only in this sandbox")
            }
            Self::ReadOnly { path, mount } => {
                format!("`{path}` is below `{mount}`, which is read-only in this sandbox")
            }
            Self::Hidden { path } => format!("`{path}` is hidden from this sandbox"),
            Self::NotShown { path } => format!("`{path}` is not shown to this sandbox"),
            Self::HeldBack { path, reason } => {
                format!("`{path}` is not shown to this sandbox: {}", reason.clause())
            }
            Self::Owner { path, owner } => match owner {
                FileOwner::User { uid, works_as } => {
                    format!(
                        "`{path}` belongs to uid {uid}, and this sandbox works as uid {works_as}"
                    )
                }
                FileOwner::Group { gid } => {
                    format!("`{path}` belongs to the group {gid}, which this sandbox cannot keep")
                }
            },
            Self::Memory => "the memory limit was reached".to_owned(),
            Self::Processes => "the limit of processes and threads was reached".to_owned(),
            Self::FileSize => "a file grew to the size limit".to_owned(),
            Self::Disk => "the disk limit was reached".to_owned(),
            Self::Files => "more files were made than the disk limit allows".to_owned(),
            Self::Egress {
                host,
                port,
                reason,
                attempts: _,
                is_shared,
            } => egress_clause(host, *port, *reason, asker(*is_shared)),
            Self::PortTaken { port, by } => match by {
                PortUse::Job { job, pid, command } => {
                    format!("port {port} is held by job {job} (`{command}`, pid {pid})")
                }
                PortUse::WayOut => format!("port {port} is held by the way out of this sandbox"),
                PortUse::Unknown => format!("port {port} is in use in this sandbox"),
            },
            Self::Secret {
                secret,
                host,
                port,
                reason,
                attempts: _,
                is_shared,
            } => secret_clause(secret, host, *port, *reason, asker(*is_shared)),
            Self::Proxy {
                variable,
                host,
                port,
                status,
                attempts: _,
                is_shared,
            } => {
                let asker = asker(*is_shared);
                let answer = match status {
                    Some(status) => format!("refused it with status {status}"),
                    None => "does not answer".to_owned(),
                };
                format!(
                    "{asker} asked for {host}:{port}, and this machine's proxy (`{variable}`) {answer}"
                )
            }
        }
    }

    /// What whoever starts the sandbox can do.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::NameLookup { last, .. } if is_host_like(last) => [
                Setting::Net.of("egress"),
                " with ".into(),
                Setting::Allow.of(last),
                " opens it".into(),
            ]
            .into(),
            Self::NameLookup { .. } => [
                Setting::Net.of("egress"),
                " with ".into(),
                Setting::Allow.into(),
                " opens listed hosts".into(),
            ]
            .into(),
            Self::Connection {
                rule: Some(rule), ..
            } => [
                Setting::Net.of("egress"),
                " with ".into(),
                Setting::Allow.of(rule),
                " opens it".into(),
            ]
            .into(),
            Self::Connection { rule: None, .. } => [
                Setting::Net.of("egress"),
                " with ".into(),
                Setting::Allow.of("ADDRESS:PORT"),
                " opens an address".into(),
            ]
            .into(),
            Self::ReadOnly { mount, .. } if mount == "/workspace" => [
                Setting::Workspace.of("overlay"),
                " lets commands write there".into(),
            ]
            .into(),
            Self::ReadOnly { .. } => {
                "commands can write below /workspace, /tmp and their home directory".into()
            }
            Self::Hidden { path } => [Setting::Include.of(path), " shows it".into()].into(),
            Self::NotShown { path } | Self::HeldBack { path, .. } => [Setting::Grant.of(path), " shows it".into()].into(),
            Self::Owner { .. } => [
                Setting::Workspace.of("copy"),
                " works on a copy, or chown it".into(),
            ]
            .into(),
            Self::Memory => Remedy::RaiseLimit(Limit::Memory),
            Self::Processes => Remedy::RaiseLimit(Limit::Processes),
            Self::Disk | Self::Files => Remedy::RaiseLimit(Limit::Disk),
            Self::FileSize => [
                Setting::Disk.into(),
                " and ".into(),
                Setting::FileSize.into(),
                " raise it".into(),
            ]
            .into(),
            Self::Egress {
                host, port, reason, ..
            } => egress_remedy(host, *port, *reason),
            Self::PortTaken { by, .. } => match by {
                PortUse::Job { pid, .. } => format!("`kill {pid}` inside ends it").into(),
                PortUse::WayOut | PortUse::Unknown => "use another port".into(),
            },
            Self::Secret { host, reason, .. } => secret_remedy(host, *reason),
            Self::Proxy {
                variable,
                status: Some(407),
                ..
            } => format!(
                "start the sandbox with user and password in `{variable}` (`http://USER:PASSWORD@HOST:PORT`)"
            )
            .into(),
            Self::Proxy { variable, .. } => format!(
                "check `{variable}`, or name the host in `no_proxy`, and start the sandbox again"
            )
            .into(),
        }
    }

    /// The rule that opens a host at a port. One without a port opens those of HTTP and HTTPS.
    pub fn opening_rule(host: &str, port: Option<u16>) -> String {
        match port {
            None | Some(80 | 443) => host.to_owned(),
            Some(port) => format!("{host}:{port}"),
        }
    }

    /// The same with every text short and printable.
    #[must_use]
    pub fn made_safe(self) -> Self {
        match self {
            Self::NameLookup {
                names,
                last,
                is_shared,
            } => Self::NameLookup {
                names,
                last: safe_text(&last),
                is_shared,
            },
            Self::Connection {
                attempts,
                rule,
                is_shared,
            } => Self::Connection {
                attempts,
                rule: rule.as_deref().map(safe_text),
                is_shared,
            },
            Self::ReadOnly { path, mount } => Self::ReadOnly {
                path: safe_text(&path),
                mount: safe_text(&mount),
            },
            Self::Hidden { path } => Self::Hidden {
                path: safe_text(&path),
            },
            Self::NotShown { path } => Self::NotShown {
                path: safe_text(&path),
            },
            Self::HeldBack { path, reason } => Self::HeldBack {
                path: safe_text(&path),
                reason,
            },
            Self::Owner { path, owner } => Self::Owner {
                path: safe_text(&path),
                owner,
            },
            Self::Egress {
                host,
                port,
                reason,
                attempts,
                is_shared,
            } => Self::Egress {
                host: safe_text(&host),
                port,
                reason,
                attempts,
                is_shared,
            },
            Self::PortTaken {
                port,
                by: PortUse::Job { job, pid, command },
            } => Self::PortTaken {
                port,
                by: PortUse::Job {
                    job,
                    pid,
                    command: safe_text(&command),
                },
            },
            Self::Secret {
                secret,
                host,
                port,
                reason,
                attempts,
                is_shared,
            } => Self::Secret {
                secret: safe_text(&secret),
                host: safe_text(&host),
                port,
                reason,
                attempts,
                is_shared,
            },
            Self::Proxy {
                variable,
                host,
                port,
                status,
                attempts,
                is_shared,
            } => Self::Proxy {
                variable: safe_text(&variable),
                host: safe_text(&host),
                port,
                status,
                attempts,
                is_shared,
            },
            other @ (Self::Memory
            | Self::Processes
            | Self::FileSize
            | Self::Disk
            | Self::Files
            | Self::PortTaken { .. }) => other,
        }
    }
}

/// What of these a guest can have seen, bounded. Records of kinds that only the host knows are left out.
pub(crate) fn seen(denials: &[Denial]) -> Vec<Denial> {
    // TRUST: a guest may claim anything; it is cut to size and its texts are made printable.
    let is_the_guests = |denial: &&Denial| {
        matches!(
            denial,
            Denial::NameLookup { .. }
                | Denial::Connection { .. }
                | Denial::ReadOnly { .. }
                | Denial::Egress { .. }
                | Denial::PortTaken { .. }
                | Denial::Secret { .. }
                | Denial::Proxy { .. }
        )
    };
    denials
        .iter()
        .filter(is_the_guests)
        .take(MAX_DENIALS)
        .cloned()
        .map(Denial::made_safe)
        .collect()
}

/// Whether a rule can name it; what looks like it and is none is refused where rules are read.
fn is_host_like(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.bytes().all(is_plain)
}

fn egress_clause(host: &str, port: Option<u16>, reason: EgressReason, asker: &str) -> String {
    let place = match port {
        Some(port) => format!("`{host}:{port}`"),
        None => format!("`{host}`"),
    };
    match reason {
        EgressReason::Unlisted | EgressReason::Port => {
            format!("{asker} asked for {place}, which is not among what this sandbox may reach")
        }
        EgressReason::Denied => {
            format!("{asker} asked for {place}, which this sandbox is denied by a rule")
        }
        EgressReason::Private => {
            format!("{asker} asked for {place}, whose name leads to a private address")
        }
        EgressReason::OtherName => {
            format!("{asker} asked for {place} on a connection that was made to another name")
        }
        EgressReason::NoTls => format!("{asker} sent something other than TLS to {place}"),
        EgressReason::Address => {
            format!("{asker} tried to reach an address, and this sandbox reaches listed hosts only")
        }
        EgressReason::Never => {
            format!("{asker} asked for {place}, which no sandbox reaches this way")
        }
        EgressReason::ByteLimit => format!(
            "{asker} used {place} when the limit on bytes to and from the network was reached"
        ),
        EgressReason::ConnectionLimit => {
            format!("{asker} asked for {place} when the limit on connections at once was reached")
        }
    }
}

fn egress_remedy(host: &str, port: Option<u16>, reason: EgressReason) -> Remedy {
    let rule = Denial::opening_rule(host, port);
    match reason {
        EgressReason::Unlisted | EgressReason::Port => {
            [Setting::Allow.of(rule), " opens it".into()].into()
        }
        EgressReason::Private => [
            Setting::Allow.of(format!("{rule}=private")),
            " opens it".into(),
        ]
        .into(),
        EgressReason::Denied => "whoever starts the sandbox can remove that rule".into(),
        EgressReason::OtherName => {
            "connect to each host by its own name, without a name for one and a request for another"
                .into()
        }
        EgressReason::NoTls => "use TLS there, or another port".into(),
        EgressReason::Address => [
            "connect by name, and list it with ".into(),
            Setting::Allow.into(),
            ", or list the address: ".into(),
            Setting::Allow.of("ADDRESS:PORT"),
        ]
        .into(),
        EgressReason::Never => {
            "ask for a host by its name; servers of the sandbox itself need no proxy".into()
        }
        EgressReason::ByteLimit => [Setting::NetBytes.into(), " raises it".into()].into(),
        EgressReason::ConnectionLimit => {
            [Setting::NetConnections.into(), " raises it".into()].into()
        }
    }
}

fn secret_clause(secret: &str, host: &str, port: u16, reason: SecretReason, asker: &str) -> String {
    let place = format!("`{host}:{port}`");
    match reason {
        SecretReason::OtherHost => {
            format!("{asker} sent the secret `{secret}` to {place}, which it is not for")
        }
        SecretReason::Plain => {
            format!("{asker} sent the secret `{secret}` to {place} without TLS")
        }
        SecretReason::Distrusted => format!(
            "{asker} did not trust the certificate that stands in for that of {place}, where the secret `{secret}` \
             is filled in"
        ),
        SecretReason::Untrusted => format!(
            "{asker} asked for {place}, whose certificate this machine does not trust, so the secret `{secret}` was \
             not sent there"
        ),
        SecretReason::Encoded => format!(
            "{place} answered in a compressed form that was not asked for, and it could not be looked through for \
             the secret `{secret}`"
        ),
        SecretReason::Address => format!(
            "the placeholder of the secret `{secret}` stood in the address of a request to {place} and was sent as it \
             is"
        ),
        SecretReason::Body => format!(
            "the placeholder of the secret `{secret}` stood in the body of a request to {place} and was sent as it \
             is; the host did not let the request in"
        ),
    }
}

fn secret_remedy(host: &str, reason: SecretReason) -> Remedy {
    match reason {
        SecretReason::OtherHost => [
            format!("whoever starts the sandbox can add `{host}` to the hosts of ").into(),
            Setting::Secret.into(),
        ]
        .into(),
        SecretReason::Plain => "use https: secrets go through TLS only".into(),
        SecretReason::Distrusted => {
            "let the program trust the certificates in the file that SSL_CERT_FILE names".into()
        }
        SecretReason::Untrusted => {
            "whoever starts the sandbox can name a file with the right authorities in SSL_CERT_FILE"
                .into()
        }
        SecretReason::Encoded => "ask the host for an answer that is not compressed".into(),
        SecretReason::Address | SecretReason::Body => {
            "send it in a header: values are filled in there only".into()
        }
    }
}

const fn asker(is_shared: bool) -> &'static str {
    if is_shared {
        "while the command ran, it or another one of this sandbox"
    } else {
        "the command"
    }
}

fn safe_text(text: &str) -> String {
    let safe = visible::line_of_text(text);
    if safe.chars().nth(MAX_DENIAL_CHARS).is_none() {
        return safe;
    }
    let kept: String = safe.chars().take(MAX_DENIAL_CHARS - 3).collect();
    format!("{kept}...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_short_and_printable() {
        let denial = Denial::ReadOnly {
            path: format!("/usr/\u{1b}[2J{}", "x".repeat(10_000)),
            mount: "/usr".to_owned(),
        };
        let what = denial.made_safe().what();
        assert!(what.chars().count() < 2 * MAX_DENIAL_CHARS, "{what}");
        assert!(!what.contains('\u{1b}') && what.contains("..."), "{what}");
    }

    #[test]
    fn sentences_tell_one_from_many_and_alone_from_together() {
        let asked = |names, is_shared| {
            Denial::NameLookup {
                names,
                last: "a.example".to_owned(),
                is_shared,
            }
            .what()
        };
        assert_eq!(
            asked(1, false),
            "the command looked up the name `a.example`, and this sandbox has no network"
        );
        assert!(asked(3, false).contains("3 names (the last was `a.example`)"));
        assert!(asked(1, true).starts_with("while the command ran"));
    }
}
