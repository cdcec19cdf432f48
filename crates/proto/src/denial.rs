//! Records of the restrictions that a failed command met: a kind, a sentence and a remedy.
//!
//! The guest reports what it observed; the host adds limits and hidden files. No record is inferred
//! from a command's output alone: a path that the output names is checked first.

use crate::{JobId, Limit, Remedy, Setting, visible};
use serde::{Deserialize, Serialize};

/// Most records for one command.
pub const MAX_DENIALS: usize = 8;
/// Most characters of a name or path in a record.
const MAX_DENIAL_CHARS: usize = 256;

/// Restriction of the sandbox that a failed command met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Denial {
    /// The command looked up names in a sandbox without network.
    NameLookup {
        /// Number of names.
        names: u64,
        /// Last name.
        last: String,
        /// True if another command ran at the same time and may have caused this.
        is_shared: bool,
    },
    /// The command tried to connect to outside addresses in a sandbox without network.
    Connection {
        /// Number of attempts.
        attempts: u64,
        /// Rule that would permit the last attempt; `None` if the host is unknown.
        rule: Option<String>,
        /// True if another command ran at the same time and may have caused this.
        is_shared: bool,
    },
    /// The command was refused a write to a path below a read-only mount.
    ReadOnly {
        /// Absolute path.
        path: String,
        /// Mount point of the read-only mount.
        mount: String,
    },
    /// The command named a file of the project that is hidden from the sandbox.
    Hidden {
        /// Path relative to the project.
        path: String,
    },
    /// The command named a path outside the project that only this machine has.
    NotShown {
        /// Absolute path.
        path: String,
    },
    /// The command could not use a file of the project that belongs to another user or group.
    Owner {
        /// Path relative to the project.
        path: String,
        /// Owner or group of the file.
        owner: FileOwner,
    },
    /// The memory limit was reached.
    Memory,
    /// The limit of processes and threads was reached.
    Processes,
    /// A file reached the size limit of one file or of all files.
    FileSize,
    /// The disk limit was reached.
    Disk,
    /// The command tried to reach a host that the sandbox may not reach.
    Egress {
        /// Host name or address.
        host: String,
        /// Port of the connection; `None` for a look-up of the name.
        port: Option<u16>,
        /// Reason of the refusal.
        reason: EgressReason,
        /// Number of attempts.
        attempts: u64,
        /// True if another command ran at the same time and may have caused this.
        is_shared: bool,
    },
    /// The command requested a port that is in use.
    PortTaken {
        /// Port number.
        port: u16,
        /// User of the port.
        by: PortUse,
    },
    /// The egress proxy did not put the value of a secret in place of its placeholder.
    Secret {
        /// Name of the secret.
        secret: String,
        /// Host of the request.
        host: String,
        /// Port of the request.
        port: u16,
        /// Reason for which the value was not filled in.
        reason: SecretReason,
        /// Number of attempts.
        attempts: u64,
        /// True if another command ran at the same time and may have caused this.
        is_shared: bool,
    },
    /// The proxy of this machine did not connect to a listed host.
    Proxy {
        /// Environment variable that names the proxy.
        variable: String,
        /// Host of the request.
        host: String,
        /// Port of the request.
        port: u16,
        /// HTTP status of the proxy's answer; `None` if the proxy did not answer.
        status: Option<u16>,
        /// Number of attempts.
        attempts: u64,
        /// True if another command ran at the same time and may have caused this.
        is_shared: bool,
    },
    /// The command named a file below `/etc` that is withheld from every sandbox.
    HeldBack {
        /// Absolute path.
        path: String,
        /// Reason for which the file is withheld.
        reason: HeldBackReason,
    },
    /// The command created more files than the disk limit permits.
    Files,
}

/// Owner of a file that the sandbox cannot act as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileOwner {
    /// Another user.
    User {
        /// User id on this machine.
        uid: u32,
        /// User id on this machine as which commands access files.
        works_as: u32,
    },
    /// Another group.
    Group {
        /// Group id on this machine.
        gid: u32,
    },
}

/// Reason for which a file below `/etc` is withheld.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HeldBackReason {
    /// The name stands for accounts, keys, mounts or services of the machine.
    Name,
    /// The file exceeds the size limit.
    Size,
    /// The file contains a private key.
    PrivateKey,
    /// The file contains a token.
    Token,
    /// The file contains a URL with a password or token.
    Address,
    /// The file contains a value that looks like a password or key.
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

/// User of a port in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PortUse {
    /// Process of a job.
    Job {
        /// Identifier of the job.
        job: JobId,
        /// Process id inside the sandbox.
        pid: u32,
        /// Command of the job.
        command: String,
    },
    /// Egress proxy of the sandbox, which resolves names and connects to listed hosts.
    WayOut,
    /// Process whose descriptors cannot be read, or that has ended since.
    Unknown,
}

/// Reason for which a secret is not filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SecretReason {
    /// The secret is not for this host.
    OtherHost,
    /// The request was sent without TLS.
    Plain,
    /// The program in the sandbox does not trust the certificate of the egress proxy.
    Distrusted,
    /// This machine does not trust the host's certificate.
    Untrusted,
    /// The host compressed the response unasked, so it could not be searched for the secret.
    Encoded,
    /// The placeholder stood in the URL of a request, where no value is filled in.
    Address,
    /// The placeholder stood in the body of a request, which the host then rejected.
    Body,
}

impl SecretReason {
    /// Returns the stable kebab-case word for programs.
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

/// Reason for which a host may not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EgressReason {
    /// No rule names the host.
    Unlisted,
    /// A rule names the host, but not this port.
    Port,
    /// A rule denies the host.
    Denied,
    /// The name resolves to private addresses.
    Private,
    /// A connection to one name carried a request or a TLS greeting for another name, or for none.
    OtherName,
    /// The bytes sent to port 443, or after a TLS greeting to another port, were not TLS.
    NoTls,
    /// The destination was an address instead of a name.
    Address,
    /// No rule can permit it: malformed, the sandbox itself, or a source of credentials.
    Never,
    /// The limit on bytes to and from the network was reached.
    ByteLimit,
    /// The limit on simultaneous connections was reached.
    ConnectionLimit,
}

impl EgressReason {
    /// All reasons, in the order of the enum.
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

    /// Returns the stable kebab-case word for programs.
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
    /// Returns the stable kebab-case word for programs.
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

    /// Returns the restriction as a clause for people.
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

    /// Returns the change to the sandbox's settings, or to the command, that avoids the denial.
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

    /// Returns the rule that permits a host at a port. Without a port it permits HTTP and HTTPS.
    pub fn opening_rule(host: &str, port: Option<u16>) -> String {
        match port {
            None | Some(80 | 443) => host.to_owned(),
            Some(port) => format!("{host}:{port}"),
        }
    }

    /// Returns a copy in which every text is printable and at most 256 characters long.
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

/// Returns at most [`MAX_DENIALS`] of the records that a guest can observe, with safe texts.
pub(crate) fn seen(denials: &[Denial]) -> Vec<Denial> {
    // TRUST: a guest may claim anything: bound the number and the texts, make texts printable.
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
    // Filter before `take`: otherwise forged records of host-only kinds could displace real ones.
    denials
        .iter()
        .filter(is_the_guests)
        .take(MAX_DENIALS)
        .cloned()
        .map(Denial::made_safe)
        .collect()
}

/// Returns true if `name` has the characters of a host name; the parser of rules checks more.
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
