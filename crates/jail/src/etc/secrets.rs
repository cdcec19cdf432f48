//! Detection of lines in settings that look like a secret. In doubt a line counts as one.

use glovebox_spec::token_shapes::TOKEN_SHAPES;
use std::borrow::Cow;
use std::path::Path;

/// Kind of a secret that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKind {
    /// A private key.
    PrivateKey,
    /// A token of a known shape.
    Token,
    /// An address with a user, password or token in it, or of a web hook.
    Address,
    /// A value for a password, token or key.
    Value,
}

/// Parts of names whose values are secrets, in lower case.
const SECRET_NAMES: [&str; 7] = [
    "pass",
    "pwd",
    "secret",
    "token",
    "credential",
    "community",
    "bindpw",
];
/// Words before `key` that make a name secret, separated by `_`, `-` or nothing.
const KEY_OWNERS: [&str; 5] = ["api", "auth", "license", "private", "access"];
/// Values that only switch a setting on or off.
const SWITCHES: [&str; 10] = [
    "on", "off", "yes", "no", "true", "false", "0", "1", "none", "null",
];
/// Files of tables of names, where such words are names of services, accounts and types. They are
/// searched for keys, tokens and addresses only.
const TABLES_OF_NAMES: [&str; 8] = [
    "ld.so.cache",
    "login.defs",
    "mime.types",
    "nsswitch.conf",
    "protocols",
    "rpc",
    "services",
    "ssl/openssl.cnf",
];
/// Certificates of authorities, some in binary form.
const CERTIFICATES: &str = "ssl/certs";
/// Programs that take a password after `-p`.
const PASSWORD_BEHIND_P: [&str; 4] = ["mysql", "mariadb", "sshpass", "ldap"];

/// Returns the kind of the first secret in a file of settings. `name` is its path relative to
/// `/etc`.
pub(super) fn find_secret(name: &Path, content: &[u8]) -> Option<SecretKind> {
    let text = String::from_utf8_lossy(content);
    let text = without_xml_comments(&text);
    let has_names = name.starts_with(CERTIFICATES)
        || TABLES_OF_NAMES.iter().any(|table| name == Path::new(table));
    text.split(['\n', '\r', '\0'])
        .map(str::trim)
        .filter(|line| !is_comment(line))
        .find_map(|line| {
            if line.contains("-----BEGIN ") && line.contains("PRIVATE KEY") {
                return Some(SecretKind::PrivateKey);
            }
            if has_token(line) {
                return Some(SecretKind::Token);
            }
            let small = line.to_ascii_lowercase();
            if name.starts_with(CERTIFICATES) {
                return None;
            }
            if has_address(&small) {
                return Some(SecretKind::Address);
            }
            (!has_names && has_value(&small)).then_some(SecretKind::Value)
        })
}

fn is_comment(line: &str) -> bool {
    ["#", ";", "!", "//"]
        .iter()
        .any(|mark| line.starts_with(mark))
}

/// Removes XML comments, which contain examples. An unterminated comment extends to the end.
fn without_xml_comments(text: &str) -> Cow<'_, str> {
    if !text.contains("<!--") {
        return Cow::Borrowed(text);
    }
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("<!--") {
        kept.push_str(before);
        rest = comment.split_once("-->").map_or("", |(_, after)| after);
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

fn has_token(line: &str) -> bool {
    TOKEN_SHAPES.iter().any(|shape| {
        line.match_indices(shape.prefix)
            .any(|(at, _)| shape.is_token_at(line.as_bytes(), at))
    })
}

/// Returns true if a line has an address with `@`, or one of a web hook.
fn has_address(line: &str) -> bool {
    line.split("://").skip(1).any(|rest| {
        let end = rest.find(|byte: char| byte.is_whitespace() || "\"'<>".contains(byte));
        let address = rest.get(..end.unwrap_or(rest.len())).unwrap_or(rest);
        address.contains('@') || address.contains("hook")
    })
}

/// Returns true if a line assigns a value to a name that stands for a secret.
fn has_value(line: &str) -> bool {
    let is_client = PASSWORD_BEHIND_P.iter().any(|client| line.contains(client));
    line.split_whitespace().any(|word| {
        let behind = word.strip_prefix("-p").unwrap_or_default();
        !behind.is_empty() && (is_client || SECRET_NAMES.iter().any(|name| behind.contains(name)))
    }) || SECRET_NAMES.iter().any(|name| {
        line.match_indices(name)
            .any(|(at, _)| is_followed_by_value(&line[at + name.len()..]))
    }) || KEY_OWNERS.iter().any(|owner| {
        line.match_indices(owner).any(|(at, _)| {
            let rest = &line[at + owner.len()..];
            let rest = rest.strip_prefix(['_', '-']).unwrap_or(rest);
            rest.strip_prefix("key").is_some_and(is_followed_by_value)
        })
    })
}

/// Returns true if the text after a part of a name assigns a value: `=`, `:`, a blank or the end of
/// an XML tag, and then more than a switch.
fn is_followed_by_value(rest: &str) -> bool {
    let is_of_name = |byte: char| byte.is_alphanumeric() || "_.$-".contains(byte);
    let rest = rest.trim_start_matches(is_of_name);
    let rest = rest.trim_start_matches(['"', '\'', ']', ')']);
    let value =
        rest.trim_start_matches(|byte: char| byte.is_whitespace() || "=:>?+".contains(byte));
    if value.len() == rest.len() || (rest.starts_with('>') && value.starts_with('<')) {
        return false;
    }
    let value = value.split_whitespace().next().unwrap_or_default();
    let value = value.trim_matches(|byte: char| "\"',;".contains(byte));
    !value.is_empty() && !SWITCHES.contains(&value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Option<SecretKind> {
        find_secret(
            Path::new("app.conf"),
            format!("a = b\n{line}\nc = d\n").as_bytes(),
        )
    }

    #[test]
    fn lines_with_secrets_are_known() {
        let token = format!("Environment=\"GITHUB_PAT=ghp_{}\"", "A1".repeat(18));
        for (line, kind) in [
            (
                "-----BEGIN OPENSSH PRIVATE KEY-----",
                SecretKind::PrivateKey,
            ),
            (token.as_str(), SecretKind::Token),
            ("index-url = https://TOKEN@host/simple", SecretKind::Address),
            ("proxy=http://me:pw@proxy:3128", SecretKind::Address),
            (
                "url: https://hooks.slack.com/services/T0/B0/x",
                SecretKind::Address,
            ),
            ("license_key: abc", SecretKind::Value),
            ("apikey = abc", SecretKind::Value),
            ("api-key abc", SecretKind::Value),
            ("authkey=abc", SecretKind::Value),
            ("db_pass = abc", SecretKind::Value),
            ("PGPASS=abc", SecretKind::Value),
            ("rocommunity public", SecretKind::Value),
            ("<password>x</password>", SecretKind::Value),
            ("<server password=\"x\"/>", SecretKind::Value),
            ("\"client_secret\": \"x\",", SecretKind::Value),
            ("agent --token abc", SecretKind::Value),
            ("mysqldump -pabc all", SecretKind::Value),
            ("dump -psecret", SecretKind::Value),
            ("private_key => abc", SecretKind::Value),
            ("  bindpw abc", SecretKind::Value),
        ] {
            assert_eq!(found(line), Some(kind), "{line}");
        }
    }

    #[test]
    fn lines_that_look_like_them_are_none() {
        for line in [
            "# password = x",
            "; password = x",
            "<!-- <password>x</password> -->",
            "passive_ftp = on",
            "\"credentials_enable_service\": false,",
            "password =",
            "<password></password>",
            "index-url = https://host/simple",
            "-----BEGIN CERTIFICATE-----",
            "keymap = us",
            "mkdir -p dir",
            "author = me",
        ] {
            assert_eq!(found(line), None, "{line}");
        }
        // The same line is a service in a table of services and a secret elsewhere.
        let line = b"kpasswd\t464/tcp\n";
        assert_eq!(find_secret(Path::new("services"), line), None);
        assert_eq!(find_secret(Path::new("app"), line), Some(SecretKind::Value));
        let key = b"-----BEGIN PRIVATE KEY-----\n";
        assert!(find_secret(Path::new("services"), key).is_some());
        let open = "<!-- one --><passphrase>x</passphrase><!-- open";
        assert_eq!(found(open), Some(SecretKind::Value));
        assert_eq!(found("<!-- never closed <password>x"), None);
    }
}
