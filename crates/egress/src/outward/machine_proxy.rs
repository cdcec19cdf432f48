//! The machine's own HTTP proxies, which variables of the user's environment name: the connections
//! that go through them, and their addresses.
//!
//! This module does not read the environment: the caller passes a function that returns the
//! variables' values.

use crate::policy::name::{Host, Name};
use crate::proxy_variable::ProxyVariable;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Maximum length of the value of a proxy variable, in bytes.
const MAX_URL_BYTES: usize = 4 << 10;
/// Maximum length of the list of exceptions, in bytes; the rest is ignored.
const MAX_EXCEPTION_BYTES: usize = 32 << 10;
/// Names of metadata services of clouds, which hand out credentials of a machine.
const METADATA_NAMES: [&str; 6] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.tencentyun.com",
    "instance-data",
    "instance-data.ec2.internal",
];
/// Variables with the list of hosts that no proxy is used for, in order of precedence: the first
/// that is set counts.
const EXCEPTIONS: [&str; 2] = ["no_proxy", "NO_PROXY"];

/// Value of the `Proxy-Authorization` header. Its `Debug` output is redacted, and it is overwritten
/// when the last copy is dropped.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ProxyAuthorization(Arc<Zeroizing<String>>);

impl ProxyAuthorization {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ProxyAuthorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyAuthorization(..)")
    }
}

/// Address of a proxy and the credentials for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProxyAddress {
    /// Variable that names the proxy.
    pub(crate) variable: ProxyVariable,
    /// True if the connection to the proxy itself uses TLS.
    pub(crate) is_tls: bool,
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) authorization: Option<ProxyAuthorization>,
}

/// The machine's proxies. Programs inside never see them.
#[derive(Clone, PartialEq, Eq)]
pub struct MachineProxy {
    /// Proxy for TLS and other protocols.
    tunnels: Option<Arc<ProxyAddress>>,
    /// Proxy for HTTP without TLS.
    http: Option<Arc<ProxyAddress>>,
    exceptions: Vec<Exception>,
    /// Lines `NAME=VALUE` of the variables that were used.
    variables: Arc<Zeroizing<String>>,
}

impl fmt::Debug for MachineProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MachineProxy({self})")
    }
}

/// Writes one or two of `HOST:PORT (VARIABLE)`.
impl fmt::Display for MachineProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |proxy: &ProxyAddress| format!("{}:{}", proxy.host, proxy.port);
        match (&self.tunnels, &self.http) {
            (Some(one), Some(other)) if one.variable == other.variable => {
                write!(f, "{} ({})", shown(one), one.variable.name())
            }
            (Some(one), Some(other)) if shown(one) == shown(other) => {
                let (one_name, other_name) = (one.variable.name(), other.variable.name());
                write!(f, "{} ({one_name}, {other_name})", shown(one))
            }
            (one, other) => {
                let both = [one, other].into_iter().flatten();
                let both =
                    both.map(|proxy| format!("{} ({})", shown(proxy), proxy.variable.name()));
                f.write_str(&both.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// A variable that names a proxy which is not used. Connections are made without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the variable `{}` {reason}: connections of sandboxes that it is meant for are made directly",
    variable.name()
)]
pub struct UnusedProxy {
    /// Variable that names the proxy.
    pub variable: ProxyVariable,
    /// Clause with the reason; it contains nothing of the value.
    reason: &'static str,
}

impl MachineProxy {
    /// Returns the proxies that the variables name whose values `find` returns, and the variables
    /// that cannot be used. The proxies are `None` if there are none.
    pub fn from_variables(
        find: impl Fn(&str) -> Option<String>,
    ) -> (Option<Self>, Vec<UnusedProxy>) {
        let mut unused = Vec::new();
        let mut variables = Zeroizing::new(String::new());
        let mut first_of = |candidates: [ProxyVariable; 4]| {
            let set = candidates.into_iter().find_map(|variable| {
                let value = find(variable.name()).map(Zeroizing::new)?;
                let is_set = !value.trim().is_empty();
                is_set.then_some((variable, value))
            });
            let (variable, value) = set?;
            match ProxyAddress::parse(variable, value.trim()) {
                Ok(proxy) => {
                    let line = Zeroizing::new(format!("{}={}\n", variable.name(), value.trim()));
                    if !variables.contains(line.as_str()) {
                        variables.push_str(&line);
                    }
                    Some(Arc::new(proxy))
                }
                Err(error) => {
                    if !unused.contains(&error) {
                        unused.push(error);
                    }
                    None
                }
            }
        };
        let tunnels = first_of(ProxyVariable::FOR_TUNNELS);
        let http = first_of(ProxyVariable::FOR_HTTP);
        if tunnels.is_none() && http.is_none() {
            return (None, unused);
        }
        let list = EXCEPTIONS.iter().find_map(|name| {
            let list = find(name)?;
            (!list.trim().is_empty()).then_some((name, list))
        });
        let mut exceptions = Vec::new();
        if let Some((name, list)) = list {
            let mut end = list.len().min(MAX_EXCEPTION_BYTES);
            while !list.is_char_boundary(end) {
                end -= 1;
            }
            let words = list[..end].split([',', ' ', '\t', '\n', '\r']);
            exceptions = words.filter_map(Exception::parse).collect();
            let words: Vec<String> = exceptions.iter().map(ToString::to_string).collect();
            for part in [name, "=", &words.join(","), "\n"] {
                variables.push_str(part);
            }
        }
        let proxy = Self {
            tunnels,
            http,
            exceptions,
            variables: Arc::new(variables),
        };
        (Some(proxy), unused)
    }

    /// Returns lines from which [`MachineProxy::from_lines`] restores the proxies. They contain the
    /// credentials.
    pub fn to_lines(&self) -> &str {
        &self.variables
    }

    /// Restores the proxies from the lines of [`MachineProxy::to_lines`]. `None` if the lines name
    /// no proxy.
    pub fn from_lines(text: &str) -> Option<Self> {
        let find = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            lines
                .find(|(own, _)| *own == name)
                .map(|(_, value)| value.to_owned())
        };
        Self::from_variables(find).0
    }

    /// Returns true if the connection to one of the proxies uses TLS, so that a certificate has to
    /// be checked.
    pub fn speaks_tls(&self) -> bool {
        [&self.tunnels, &self.http]
            .into_iter()
            .flatten()
            .any(|proxy| proxy.is_tls)
    }

    /// Returns the proxy for TLS and other protocols to this host. `None` if the connection is made
    /// directly.
    pub(crate) fn for_tunnel(&self, host: &Host, port: u16) -> Option<&Arc<ProxyAddress>> {
        let proxy = self.tunnels.as_ref()?;
        (!self.is_excepted(host, Some(port))).then_some(proxy)
    }

    /// Returns the proxy for HTTP without TLS to this host. `None` if the connection is made
    /// directly.
    pub(crate) fn for_http(&self, host: &Host, port: u16) -> Option<&Arc<ProxyAddress>> {
        let proxy = self.http.as_ref()?;
        (!self.is_excepted(host, Some(port))).then_some(proxy)
    }

    /// Returns true if a proxy is used for connections to this host at `port`, or at any port if
    /// `None`.
    pub(crate) fn covers(&self, host: &Host, port: Option<u16>) -> bool {
        let has_proxy = match port {
            Some(443) => self.tunnels.is_some(),
            Some(80) => self.http.is_some(),
            _ => true,
        };
        has_proxy && !self.is_excepted(host, port)
    }

    fn is_excepted(&self, host: &Host, port: Option<u16>) -> bool {
        is_never_proxied(host) || self.exceptions.iter().any(|one| one.matches(host, port))
    }
}

/// Returns true for hosts that mean the machine which resolves them. A proxy would connect to
/// itself or to its own metadata service instead.
fn is_never_proxied(host: &Host) -> bool {
    match host {
        Host::Name(name) => {
            let name = name.as_str();
            name == "localhost" || name.ends_with(".localhost") || METADATA_NAMES.contains(&name)
        }
        Host::Address(address) => address.is_loopback(),
    }
}

impl ProxyAddress {
    fn parse(variable: ProxyVariable, value: &str) -> Result<Self, UnusedProxy> {
        let unused = |reason| UnusedProxy { variable, reason };
        let nonsense = unused("holds no address of an HTTP proxy (`http://HOST:PORT`)");
        if value.len() > MAX_URL_BYTES || value.chars().any(char::is_control) {
            return Err(nonsense);
        }
        let (scheme, rest) = value.split_once("://").unwrap_or(("http", value));
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            socks if socks.starts_with("socks") => {
                return Err(unused("names a SOCKS proxy, which sandboxes do not use"));
            }
            _ => return Err(nonsense),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let default_port = if is_tls { 443 } else { 80 };
        let (host, port) = match place.rsplit_once(':') {
            // A colon before a closing bracket is part of an IPv6 address.
            Some((host, port)) if !port.ends_with(']') => {
                let is_plain = port.bytes().all(|byte| byte.is_ascii_digit());
                let port = port
                    .parse::<u16>()
                    .ok()
                    .filter(|port| is_plain && *port > 0);
                (host, port.ok_or(nonsense)?)
            }
            _ => (place, default_port),
        };
        Ok(Self {
            variable,
            is_tls,
            host: Host::parse(host).map_err(|_| nonsense)?,
            port,
            authorization: user.filter(|user| !user.is_empty()).map(basic),
        })
    }

    /// Returns the address without credentials, for reports.
    pub(crate) fn shown(&self) -> String {
        format!("{}:{} ({})", self.host, self.port, self.variable.name())
    }
}

/// Returns the header's value for `USER[:PASSWORD]` of a URL (RFC 7617).
fn basic(user_info: &str) -> ProxyAuthorization {
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    let mut plain = Zeroizing::new(decode_percent(user));
    plain.push(b':');
    plain.extend_from_slice(&Zeroizing::new(decode_percent(password)));
    let encoded = Zeroizing::new(STANDARD.encode(plain.as_slice()));
    ProxyAuthorization(Arc::new(Zeroizing::new(format!(
        "Basic {}",
        encoded.as_str()
    ))))
}

/// Decodes percent-encoding (RFC 3986, 2.1). A percent sign without two hexadecimal digits is kept.
fn decode_percent(text: &str) -> Vec<u8> {
    // The capacity is enough for the result and the colon that the caller appends: a reallocation
    // would leave a copy of the credentials in freed memory.
    let mut decoded = Vec::with_capacity(text.len() + 1);
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| *first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            decoded.push(byte);
            rest = &behind[2..];
        } else {
            decoded.push(*first);
            rest = behind;
        }
    }
    decoded
}

/// Hosts that no proxy is used for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Exception {
    /// All hosts.
    All,
    /// A name and all its subdomains.
    Name(Name, Option<u16>),
    Address(IpAddr, Option<u16>),
    /// Addresses of a network, with the length of its prefix in bits.
    Network(IpAddr, u8),
}

impl Exception {
    /// Parses an item of the list. `None` if it is invalid.
    fn parse(word: &str) -> Option<Self> {
        let word = word.trim();
        if word == "*" {
            return Some(Self::All);
        }
        if let Some((address, bits)) = word.split_once('/') {
            let address = IpAddr::from_str(address.trim_matches(['[', ']'])).ok()?;
            let bits = bits.parse::<u8>().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            return (bits <= most).then_some(Self::Network(address, bits));
        }
        // The list may contain IPv6 addresses with and without brackets.
        if let Ok(address) = IpAddr::from_str(word) {
            return Some(Self::Address(address, None));
        }
        let (host, port) = match word.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().ok()?)),
            _ => (word, None),
        };
        let host = host.strip_prefix('*').unwrap_or(host);
        match Host::parse(host.strip_prefix('.').unwrap_or(host)).ok()? {
            Host::Name(name) => Some(Self::Name(name, port)),
            Host::Address(address) => Some(Self::Address(address, port)),
        }
    }

    fn matches(&self, host: &Host, port: Option<u16>) -> bool {
        let is_port = |own: &Option<u16>| own.is_none_or(|own| port == Some(own));
        match (self, host) {
            (Self::All, _) => true,
            (Self::Name(own, own_port), Host::Name(name)) => {
                (own == name || name.is_below(own)) && is_port(own_port)
            }
            (Self::Address(own, own_port), Host::Address(address)) => {
                own == address && is_port(own_port)
            }
            (Self::Network(own, bits), Host::Address(address)) => is_within(*address, *own, *bits),
            _ => false,
        }
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_port = |f: &mut fmt::Formatter<'_>, host: Host, port: &Option<u16>| match port {
            Some(port) => write!(f, "{host}:{port}"),
            None => write!(f, "{host}"),
        };
        match self {
            Self::All => f.write_str("*"),
            Self::Name(name, port) => with_port(f, Host::Name(name.clone()), port),
            Self::Address(address, port) => with_port(f, Host::Address(*address), port),
            Self::Network(address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let (address, network, width) = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => (
            u128::from(address.to_bits()),
            u128::from(network.to_bits()),
            32,
        ),
        (IpAddr::V6(address), IpAddr::V6(network)) => (address.to_bits(), network.to_bits(), 128),
        _ => return false,
    };
    // `checked_shr` returns `None` for a prefix of length 0, which matches every address.
    (address ^ network)
        .checked_shr(width - u32::from(bits))
        .unwrap_or(0)
        == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> (Option<MachineProxy>, Vec<UnusedProxy>) {
        MachineProxy::from_variables(|name| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[test]
    fn the_first_variable_that_is_set_names_the_proxy() {
        let shown = |variables: &[(&str, &str)]| {
            let (proxy, unused) = proxies(variables);
            assert_eq!(unused, []);
            proxy.map(|proxy| proxy.to_string())
        };
        assert_eq!(shown(&[]), None);
        assert_eq!(shown(&[("https_proxy", " ")]), None);
        for (variables, told) in [
            (
                &[("https_proxy", "http://proxy:3128"), ("HTTPS_PROXY", "x:1")][..],
                "proxy:3128 (https_proxy)",
            ),
            (
                &[("https_proxy", ""), ("HTTPS_PROXY", "proxy")],
                "proxy:80 (HTTPS_PROXY)",
            ),
            (
                &[("ALL_PROXY", "https://[2001:db8::1]/")],
                "[2001:db8::1]:443 (ALL_PROXY)",
            ),
            (
                &[
                    ("http_proxy", "10.0.0.1:3128"),
                    ("https_proxy", "http://10.0.0.1:3128"),
                ],
                "10.0.0.1:3128 (https_proxy, http_proxy)",
            ),
            (
                &[("http_proxy", "a:1"), ("all_proxy", "b:2")],
                "b:2 (all_proxy), a:1 (http_proxy)",
            ),
        ] {
            assert_eq!(shown(variables).as_deref(), Some(told));
        }
    }

    #[test]
    fn what_is_no_http_proxy_is_named_without_its_value() {
        for value in [
            "socks5h://me:hush@proxy:1080",
            "socks://hush:1",
            "ftp://hush:21",
            "http://hush:port",
            "http://hush:0",
            "hush:65536",
            "http://",
            "http://me:hush@",
            "http://me:hush@127.1:80",
            "hush\nhttps_proxy=x",
        ] {
            // Another variable is not asked instead.
            let (proxy, unused) = proxies(&[("https_proxy", value), ("ALL_PROXY", "other:1")]);
            let told = unused[0].to_string();
            assert!(
                told.contains("`https_proxy`") && !told.contains("hush"),
                "{told}"
            );
            assert_eq!(proxy.unwrap().tunnels, None, "{value}");
        }
        // One variable of both kinds is named once.
        assert_eq!(proxies(&[("all_proxy", "socks5://a:1")]).1.len(), 1);
    }

    #[test]
    fn credentials_are_decoded_and_shown_nowhere() {
        for (user_info, plain) in [
            ("me:p%40ss%3a", "me:p@ss:"),
            ("corp%5Cme:a:b", "corp\\me:a:b"),
            ("me", "me:"),
            ("me:100%", "me:100%"),
            ("m@e:x", "m@e:x"),
        ] {
            let (proxy, _) = proxies(&[("all_proxy", &format!("http://{user_info}@proxy:1"))]);
            let proxy = proxy.unwrap();
            let authorization = proxy
                .tunnels
                .clone()
                .unwrap()
                .authorization
                .clone()
                .unwrap();
            let expected = format!("Basic {}", STANDARD.encode(plain));
            assert_eq!(authorization.expose(), expected, "{user_info}");
            let shown = format!("{proxy} {proxy:?} {:?} {authorization:?}", proxy.tunnels);
            let password = user_info
                .split_once(':')
                .map_or("hush", |(_, password)| password);
            assert!(!shown.contains(&expected[6..]), "{shown}");
            assert!(password.len() < 2 || !shown.contains(password), "{shown}");
            assert_eq!(MachineProxy::from_lines(proxy.to_lines()), Some(proxy));
        }
        assert_eq!(MachineProxy::from_lines(""), None);
    }

    #[test]
    fn exceptions_are_dialled_directly() {
        let list = "corp.example, .below.example *.star.example,port.example:8080 10.0.0.0/8\t\
                    192.0.2.7,[2001:db8::1]:443,fd00::/8 ::1 0/nonsense , a..b";
        let (proxy, _) = proxies(&[("https_proxy", "proxy:1"), ("NO_PROXY", list)]);
        let proxy = proxy.unwrap();
        // What is handed over to a supervisor means the same.
        let again = MachineProxy::from_lines(proxy.to_lines()).unwrap();
        for (text, port, is_direct) in [
            ("corp.example", 443, true),
            ("a.b.corp.example", 443, true),
            ("evilcorp.example", 443, false),
            ("below.example", 443, true),
            ("a.below.example", 443, true),
            ("a.star.example", 443, true),
            ("port.example", 8080, true),
            ("port.example", 443, false),
            ("10.255.0.1", 443, true),
            ("11.0.0.1", 443, false),
            ("192.0.2.7", 443, true),
            ("192.0.2.8", 443, false),
            ("[2001:db8::1]", 443, true),
            ("[2001:db8::1]", 80, false),
            ("[fd12::1]", 22, true),
            ("example.com", 443, false),
            // Nobody else's, whatever the list is.
            ("localhost", 443, true),
            ("a.localhost", 443, true),
            ("metadata.google.internal", 443, true),
            ("127.0.0.1", 443, true),
            ("[::1]", 443, true),
        ] {
            for proxy in [&proxy, &again] {
                let found = proxy.for_tunnel(&host(text), port);
                assert_eq!(found.is_none(), is_direct, "{text}:{port}");
            }
        }
        let (all, _) = proxies(&[("http_proxy", "proxy:1"), ("no_proxy", "*")]);
        assert!(!all.unwrap().covers(&host("example.com"), None));
    }

    #[test]
    fn each_kind_of_connection_has_its_own_proxy() {
        let (proxy, _) = proxies(&[("http_proxy", "proxy:1")]);
        let (proxy, host) = (proxy.unwrap(), host("example.com"));
        assert!(proxy.covers(&host, Some(80)) && proxy.covers(&host, None));
        assert!(proxy.covers(&host, Some(8080)) && !proxy.covers(&host, Some(443)));
        assert!(proxy.for_tunnel(&host, 8080).is_none());
        assert!(proxy.for_http(&host, 8080).is_some());
    }
}
