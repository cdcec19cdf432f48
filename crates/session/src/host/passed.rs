//! The user's variables that reach commands: one table, and what each needs in order to work
//! inside.
//!
//! A variable that names a missing file is worse than none: with a certificate file that cannot be
//! read, every connection fails. So such a file is made readable, or its variable is left out with
//! a note.

use super::is_shown;
use crate::note::Note;
use glovebox_proto::{Remedy, Setting};
use glovebox_settings::Surroundings;
use glovebox_spec::{Grant, Net, RootFs, WORKSPACE};
use std::fs;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

/// Variables for language, time, terminal and colours: harmless, and missed if absent.
const PLAIN: [&str; 10] = [
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "CI",
];
const PLAIN_PREFIX: &str = "LC_";

/// Proxy variables, passed on if the network is shared. Programs differ in the spelling that they
/// read.
const PROXIES: [&str; 8] = [
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

/// Variables with files of trusted certificates; each is read by other programs.
pub(super) const CERTIFICATES: [&str; 10] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "NIX_SSL_CERT_FILE",
];

/// Directories of `/etc` of which every sandbox has a copy, without private keys.
const COPIED: [&str; 3] = ["/etc/ssl", "/etc/pki", "/etc/ca-certificates"];
const NOT_COPIED: [&str; 2] = ["/etc/ssl/private", "/etc/pki/tls/private"];
/// Maximum size of a certificate file that is shown; a system's bundle has about 200 KiB.
const MAX_CERTIFICATE_BYTES: u64 = 4 << 20;

/// View of a sandbox, as far as it matters here.
#[derive(Debug)]
pub struct SandboxView<'a> {
    /// Root file system.
    pub rootfs: &'a RootFs,
    /// Network reach.
    pub net: Net,
    /// Host paths shown read-only.
    pub grants: &'a [Grant],
    /// Project directory if it is the workspace.
    pub project: Option<&'a Path>,
    /// Hidden paths, relative to the project.
    pub hidden: Vec<&'a Path>,
}

/// Environment for commands in a sandbox.
#[derive(Debug, Default)]
pub struct PassedEnvironment {
    /// Variables.
    pub env: Vec<(String, String)>,
    /// Host files that the variables name.
    pub grants: Vec<Grant>,
    /// Note for each variable that is left out.
    pub notes: Vec<Note>,
}

fn is_plain(name: &str) -> bool {
    PLAIN.contains(&name) || name.starts_with(PLAIN_PREFIX)
}

/// Returns the variables of the table that are set and not empty.
fn set_variables(host: &Surroundings) -> impl Iterator<Item = (&str, &str)> {
    host.vars()
        .filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)))
        .filter(|(name, value)| {
            let is_known = is_plain(name) || PROXIES.contains(name) || CERTIFICATES.contains(name);
            is_known && !value.is_empty()
        })
}

/// Returns the variables for commands without isolation: all of the table, unchanged.
pub(super) fn passed_to_host(host: &Surroundings) -> Vec<(String, String)> {
    set_variables(host)
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Returns the environment for commands in a sandbox.
pub fn passed_inside(host: &Surroundings, shown: &SandboxView<'_>) -> PassedEnvironment {
    let mut passed = PassedEnvironment::default();
    for (name, value) in set_variables(host) {
        let value = if is_plain(name) {
            Ok(value.to_owned())
        } else if PROXIES.contains(&name) {
            // With a network of its own, the sandbox cannot reach the machine's proxy.
            if shown.net.is_own() {
                continue;
            }
            without_password(value)
        } else {
            certificates(shown, name, value, &mut passed.grants)
        };
        match value {
            Ok(value) => passed.env.push((name.to_owned(), value)),
            Err(why) => passed.notes.push(Note {
                what: format!("{name} is not passed on: {why}"),
                remedy: Remedy::advice([Setting::Env.of(name), " passes it as it is".into()]),
            }),
        }
    }
    passed
}

fn without_password(value: &str) -> Result<String, String> {
    let address = value.split_once("://").map_or(value, |(_, rest)| rest);
    let host = address.split(['/', '?', '#']).next().unwrap_or_default();
    if host.contains('@') {
        return Err("it holds a password".to_owned());
    }
    Ok(value.to_owned())
}

/// Returns the value inside of a variable that names certificates, and adds the files that must be
/// shown for it to `grants`.
fn certificates(
    shown: &SandboxView<'_>,
    name: &str,
    value: &str,
    grants: &mut Vec<Grant>,
) -> Result<String, String> {
    let is_list = name == "SSL_CERT_DIR";
    let mut inside = Vec::new();
    for path in value.split(':').filter(|_| is_list) {
        let place = place_inside(shown, Path::new(path))
            .ok_or_else(|| format!("{path} is not readable inside"))?;
        inside.push(text(&place)?);
    }
    if is_list {
        return Ok(inside.join(":"));
    }
    let path = Path::new(value);
    let is_clean = path.is_absolute()
        && path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !is_clean {
        return Err(format!("{value} is not an absolute path without `..`"));
    }
    if !fs::metadata(path).is_ok_and(|meta| meta.is_file()) {
        return Err(format!("{value} is not a file"));
    }
    if let Some(place) = place_inside(shown, path) {
        return text(&place);
    }
    if shown
        .project
        .is_some_and(|project| path.starts_with(project))
    {
        return Err(format!("{value} is hidden inside"));
    }
    if let Some(own) = ["/proc", "/dev", "/sys", "/run", WORKSPACE]
        .iter()
        .find(|own| path.starts_with(own))
    {
        return Err(format!("nothing of this machine is shown in {own}"));
    }
    check_public(path)?;
    if !grants.iter().any(|grant| grant.target == path) {
        grants.push(Grant {
            source: path.to_owned(),
            target: path.to_owned(),
        });
    }
    Ok(value.to_owned())
}

/// Returns the path inside of a host path; `None` if it is not shown.
pub(crate) fn place_inside(shown: &SandboxView<'_>, path: &Path) -> Option<PathBuf> {
    if let Some(project) = shown.project
        && let Ok(rest) = path.strip_prefix(project)
    {
        let is_hidden = shown.hidden.iter().any(|hidden| rest.starts_with(hidden));
        return (!is_hidden).then(|| Path::new(WORKSPACE).join(rest));
    }
    let is_below = |dirs: &[&str]| dirs.iter().any(|dir| path.starts_with(dir));
    let is_copied = *shown.rootfs == RootFs::Host && is_below(&COPIED) && !is_below(&NOT_COPIED);
    if is_shown(shown.rootfs, path) || is_copied {
        return Some(path.to_owned());
    }
    let grant = shown
        .grants
        .iter()
        .find(|grant| path.starts_with(&grant.source))?;
    let rest = path.strip_prefix(&grant.source).ok()?;
    Some(if rest.as_os_str().is_empty() {
        grant.target.clone()
    } else {
        grant.target.join(rest)
    })
}

fn text(path: &Path) -> Result<String, String> {
    let text = path.to_str().map(ToOwned::to_owned);
    text.ok_or_else(|| "its path is not UTF-8".to_owned())
}

/// Returns an error for a file that contains more than certificates.
fn check_public(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let mut content = Vec::new();
    fs::File::open(path)
        .and_then(|file| {
            file.take(MAX_CERTIFICATE_BYTES + 1)
                .read_to_end(&mut content)
        })
        .map_err(|error| format!("{shown} cannot be read ({error})"))?;
    if content.len() as u64 > MAX_CERTIFICATE_BYTES {
        return Err(format!("{shown} is too large for certificates"));
    }
    let has = |words: &[u8]| content.windows(words.len()).any(|part| part == words);
    if has(b"PRIVATE KEY") {
        return Err(format!("{shown} holds a private key"));
    }
    if !has(b"-----BEGIN ") {
        return Err(format!("{shown} holds no certificates"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

    fn shown(net: Net, project: Option<&Path>) -> SandboxView<'_> {
        SandboxView {
            rootfs: &RootFs::Host,
            net,
            grants: &[],
            project,
            hidden: vec![Path::new("secret")],
        }
    }

    fn passed(vars: &[(&str, &str)], shown: &SandboxView<'_>) -> PassedEnvironment {
        let host = Surroundings::fixed(Path::new("/h"), Path::new("/p"), vars);
        passed_inside(&host, shown)
    }

    #[test]
    fn secrets_do_not_pass() {
        let vars = [
            ("AWS_SECRET_ACCESS_KEY", "hush"),
            ("CI", "true"),
            ("LANG", "C.UTF-8"),
            ("LC_TIME", "C"),
            ("NO_COLOR", ""),
            ("SSH_AUTH_SOCK", "/x"),
        ];
        let found = passed(&vars, &shown(Net::Host, None));
        let names: Vec<&str> = found.env.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["CI", "LANG", "LC_TIME"]);
    }

    #[test]
    fn proxies_pass_with_the_network_and_without_passwords() {
        let vars = [
            ("http_proxy", "http://proxy:3128"),
            ("HTTPS_PROXY", "http://me:hush@proxy:3128/"),
            ("no_proxy", "localhost,.corp"),
        ];
        let closed = passed(&vars, &shown(Net::None, None));
        assert!(
            closed.env.is_empty() && closed.notes.is_empty(),
            "{closed:?}"
        );
        let open = passed(&vars, &shown(Net::Host, None));
        let names: Vec<_> = open.env.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["http_proxy", "no_proxy"]);
        assert_eq!(open.notes.len(), 1, "{open:?}");
        assert!(!open.notes[0].what.contains("hush"), "{open:?}");
    }

    #[test]
    fn a_certificate_file_is_shown_or_stays_out() {
        let temp = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = temp.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (own, project) = (write("ca.pem", CERTIFICATE), temp.path().join("project"));
        let inside = write("project/ca.pem", CERTIFICATE);
        let hidden = write("project/secret/ca.pem", CERTIFICATE);
        let key = write("key.pem", "-----BEGIN PRIVATE KEY-----\n");
        let vars = [
            ("SSL_CERT_FILE", own.as_str()),
            ("PIP_CERT", inside.as_str()),
            ("CURL_CA_BUNDLE", hidden.as_str()),
            ("NODE_EXTRA_CA_CERTS", key.as_str()),
            ("AWS_CA_BUNDLE", "/no/such/file"),
            ("GIT_SSL_CAINFO", "relative.pem"),
        ];
        let found = passed(&vars, &shown(Net::None, Some(&project)));
        assert_eq!(
            found.env,
            [
                ("PIP_CERT".to_owned(), "/workspace/ca.pem".to_owned()),
                ("SSL_CERT_FILE".to_owned(), own.clone()),
            ]
        );
        assert_eq!(found.grants.len(), 1);
        assert_eq!(found.grants[0].target, Path::new(&own));
        assert_eq!(found.notes.len(), 4, "{found:?}");
    }
}
